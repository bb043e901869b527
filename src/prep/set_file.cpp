#include "prep/set_file.hpp"

#include <algorithm>

#include "lockstep/base/text.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep::prep {

H5Layout Storage::layout(const Extents& shape) const {
  std::int64_t width = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) width *= shape[axis];
  if (shape[0] * width == 0 || (rows == 0 && elements == 0)) return {};
  Extents chunk = shape;
  chunk[0] = std::min(shape[0], rows > 0 ? rows : std::max<std::int64_t>(1, elements / width));
  return {chunk, deflate};
}

DatasetNotes notes_of(const H5File& file, const std::string& object, const std::set<std::string>& known) {
  DatasetNotes notes;
  for (const std::string& name : file.attributes(object))
    if (!known.contains(name) && !is_seal(name)) notes.emplace_back(name, file.attribute(object, name));
  return notes;
}

void SetFile::transfer(const std::string& name, H5Value& value, std::int64_t count) {
  const std::size_t slash = name.rfind('/');
  const std::string object = slash == std::string::npos ? "/" : name.substr(0, slash), base = name.substr(slash + 1);
  known_.insert(name);
  if (out_ != nullptr) {
    if (object != "/") return out_->set_attribute(object, base, value);
    attributes_.emplace_back(base, value);
    return;
  }
  const auto read = [&, &file = in_->file()]<class T>(T& v) {
    if constexpr (std::is_same_v<T, std::int64_t>) v = file.int_attribute(object, base);
    if constexpr (std::is_same_v<T, double>) v = file.real_attribute(object, base);
    if constexpr (std::is_same_v<T, std::string>) v = file.text_attribute(object, base);
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) v = file.int_list(object, base, count);
    if constexpr (std::is_same_v<T, std::vector<double>>) v = file.real_list(object, base, count);
    if constexpr (std::is_same_v<T, std::vector<std::string>>) v = file.text_list(object, base, count);
  };
  std::visit(read, value);
}

void SetFile::size(const std::string& name, std::int64_t& value, std::int64_t least, std::int64_t most) {
  attribute(name, value);
  if (reads()) value = in_->size(name, least, most);
}

void SetFile::derived(const std::string& name, std::int64_t value) {
  std::int64_t found = value;
  attribute(name, found);
  if (reads())
    require_data(found == value, in_->opening(), ": attribute '", name, "' is ", found, ", the other sizes give ",
                 value);
}

std::size_t SetFile::chosen(const std::string& name, std::size_t value, const std::vector<std::string>& names) {
  std::string text = names[value];
  attribute(name, text);
  const auto at = std::ranges::find(names, text);
  if (reads())
    require_data(at != names.end(), in_->opening(), ": attribute '", name, "' is '", text, "', expected ",
                 listed(names, " or "));
  return static_cast<std::size_t>(at - names.begin());
}

void SetFile::offsets(const std::string& dataset, std::vector<std::int64_t>& values, std::int64_t count,
                      std::int64_t end, Rise rise) {
  array(dataset, values, {reads() ? count : -1});
  const std::string defect = offsets_defect(values, end, rise);
  if (problems_ != nullptr && !defect.empty()) problems_->push_back(dataset + " " + defect);
}

void SetFile::text(const std::string& dataset, std::vector<std::string>& values, std::int64_t count) {
  if (reads())
    values = in_->read_text(dataset, count);
  else
    out_->write_text(dataset, values);
}

void SetFile::put_attributes() {
  for (const auto& [name, value] : attributes_) out_->set_attribute("/", name, value);
  attributes_.clear();
}

}  // namespace lockstep::prep
