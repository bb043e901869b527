#include "apps/lockstep/describe.hpp"

#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep::apps {

namespace {

Json json_of(const H5Value& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

std::string shape_text(const Json& shape) {
  return shape.empty() ? "scalar" : listed(shape, " x ", [](const Json& n) { return json_text(n); });
}

}  // namespace

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (!value.is_number_float()) return json_text(value);
  return printed("%.6g", value.get<double>());
}

Json json_of(const std::vector<Metric>& metrics) {
  Json values = Json::object();
  for (const Metric& m : metrics) values[m.name] = m.value;
  return values;
}

Json attributes_of(const H5File& file, const std::string& object) {
  Json all = Json::object();
  for (const auto& name : file.attributes(object)) all[name] = json_of(file.attribute(object, name));
  return all;
}

Json contents_of(const H5File& file, const std::string& group) {
  Json all = Json::object();
  for (const auto& path : file.datasets_under(group)) {
    const H5Info info = file.info(path);
    all[path] = {{"type", name(info.type)}, {"shape", info.shape}};
  }
  return all;
}

std::string contents_text(const Json& contents) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [path, info] : contents.items())
    rows.push_back({path, text_of(info["type"]), shape_text(info["shape"])});
  return aligned(rows);
}

std::string attributes_text(const Json& attributes) {
  constexpr std::size_t kLongest = 100;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : attributes.items()) {
    std::string text = text_of(value);
    if (text.size() > kLongest) text.replace(kLongest, std::string::npos, " ...");
    rows.push_back({name, text});
  }
  return aligned(rows);
}

}  // namespace lockstep::apps
