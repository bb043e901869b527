#include <array>
#include <sstream>

#include "apps/lockstep/describe.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/format.hpp"

namespace lockstep::apps {

namespace {

/// Columns of a data set: name, unit, mean, standard deviation, as far as the file has them.
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
  Json facts = {{"file", path.string()},
                {"size_bytes", std::filesystem::file_size(path)},
                {"format", prep::format_of(file).format.name},
                {"attributes", attributes_of(file, "/")},
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
  const H5File file = H5File::open(facts["file"].get<std::string>());
  std::ostringstream page;
  prep::format_of(file).describe(file, page);
  return std::move(page).str();
}

}  // namespace lockstep::apps
