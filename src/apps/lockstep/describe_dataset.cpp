#include <array>

#include "apps/lockstep/describe.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep::apps {

namespace {

/// Columns of a data set: name, unit, mean, standard deviation; nothing where the file has no such lists.
Json columns_of(const H5File& file, const std::string& side) {
  Json columns = Json::array();
  if (!file.has("/vars/" + side + "_names")) return columns;
  const auto names = file.read_text("/vars/" + side + "_names");
  const auto texts = [&](const std::string& what) {
    return file.has("/vars/" + side + what) ? file.read_text("/vars/" + side + what) : std::vector<std::string>();
  };
  const auto numbers = [&](const std::string& what) {
    return file.has("/moments/" + side + what) ? file.read<double>("/moments/" + side + what) : std::vector<double>();
  };
  const auto units = texts("_units"), cf = texts("_cf");
  const auto mean = numbers("_mean"), std = numbers("_std");
  for (std::size_t i = 0; i < names.size(); ++i) {
    Json column = {{"name", names[i]}};
    if (i < units.size()) column["unit"] = units[i];
    if (i < cf.size()) column["cf"] = cf[i];
    if (i < mean.size()) column["mean"] = mean[i];
    if (i < std.size()) column["std"] = std[i];
    columns.push_back(column);
  }
  return columns;
}

}  // namespace

Json dataset_facts(const std::filesystem::path& path) {
  const H5File file = H5File::open(path);
  const Json attributes = attributes_of(file, "/");
  const std::string format =
      attributes.contains("format") && attributes["format"].is_string() ? attributes["format"].get<std::string>() : "";
  require_data(format.starts_with("lockstep-") && format.ends_with("-data"), "'", path.string(),
               "': ", format.empty() ? "no attribute 'format'" : "format is '" + format + "'",
               ", so it is not a prepared data set; make one with lockstep-prep");
  Json facts = {{"file", path.string()},
                {"size_bytes", std::filesystem::file_size(path)},
                {"format", format},
                {"attributes", attributes},
                {"datasets", contents_of(file, "/")}};
  if (file.has("/split")) {
    std::array<std::int64_t, 3> counts{};
    for (const auto split : file.read<std::uint8_t>("/split")) {
      require_data(split < counts.size(), "'", path.string(), "': /split holds ", static_cast<int>(split),
                   "; expected 0, 1 or 2");
      ++counts[split];
    }
    facts["split"] = {{"train", counts[0]}, {"validation", counts[1]}, {"test", counts[2]}};
  }
  for (const char* side : {"input", "output"})
    if (const Json columns = columns_of(file, side); !columns.empty()) facts[std::string(side) + "s"] = columns;
  return facts;
}

std::string dataset_text(const Json& facts) {
  std::string out = text_of(facts["file"]) + ": " + text_of(facts["format"]) + ", " +
                    human_bytes(facts["size_bytes"].get<double>()) + "\n";
  if (facts.contains("split")) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [split, count] : facts["split"].items()) rows.push_back({split, text_of(count)});
    out += "\nRows\n" + table(rows);
  }
  for (const char* side : {"inputs", "outputs"}) {
    if (!facts.contains(side)) continue;
    std::vector<std::vector<std::string>> rows = {{"name", "unit", "mean", "std", "CF name"}};
    const auto cell = [](const Json& column, const char* key) {
      return column.contains(key) ? text_of(column[key]) : std::string("-");
    };
    for (const Json& column : facts[side])
      rows.push_back(
          {cell(column, "name"), cell(column, "unit"), cell(column, "mean"), cell(column, "std"), cell(column, "cf")});
    out += std::string("\n") + (side[0] == 'i' ? "Inputs" : "Outputs") + "\n" + table(rows);
  }
  return out + "\nAttributes\n" + attributes_text(facts["attributes"]) + "\nDatasets\n" +
         contents_text(facts["datasets"]);
}

}  // namespace lockstep::apps
