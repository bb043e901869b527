#include "lockstep/prep/sequences/interactions.hpp"

#include <algorithm>
#include <tuple>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::prep {

namespace {
void read_file(const std::filesystem::path& path, const InteractionOptions& options, Interactions& out) {
  const auto number = static_cast<std::int32_t>(out.files.size());
  InteractionFile file(path, options);
  require_data(out.files.empty() || out.has_time == file.has_time(), "reading '", path.string(), "': it has ",
               file.has_time() ? "times" : "no times", ", unlike '", out.files.empty() ? "" : out.files[0].string(),
               "'; give only files of one kind");
  out.has_time = file.has_time();
  while (file.next()) {
    if (out.has_time) {
      const Moment time = file.time();
      if (time.fraction > 0) out.fraction.resize(out.time.size(), 0);
      if (time.fraction > 0 || !out.fraction.empty()) out.fraction.push_back(time.fraction);
      out.time.push_back(time.seconds);
    }
    const IdTable::Place place{number, file.line()};
    out.user.push_back(out.users.intern(file.user(), place));
    out.item.push_back(out.items.intern(file.item(), place));
  }
  out.files.push_back(path);
  out.left_aside |= !file.left_aside().empty();
  if (std::ranges::find(out.readings, file.reading()) == out.readings.end()) out.readings.push_back(file.reading());
  const InteractionFile::Counts& counts = file.counts();
  InteractionFile::Counts& sum = out.counts;
  sum.left_out.resize(counts.left_out.size(), 0);
  std::ranges::transform(sum.left_out, counts.left_out, sum.left_out.begin(), std::plus());
  sum.empty += counts.empty;
  sum.trimmed += counts.trimmed;
  sum.dates += counts.dates;
}

}  // namespace

std::int64_t repeated_lines(Interactions& raw, Repeated what) {
  if (!raw.has_time) return 0;
  const auto key = [&](std::size_t i) {
    return std::tuple(raw.user[i], raw.item[i], raw.time[i], raw.fraction.empty() ? 0 : raw.fraction[i]);
  };
  const auto order = indices_by<std::size_t>(static_cast<std::int64_t>(raw.size()), key);
  std::vector<bool> repeats(raw.size(), false);
  for (std::size_t i = 1; i < order.size(); ++i) repeats[order[i]] = key(order[i]) == key(order[i - 1]);
  const auto keep_first = [&](auto& values) {
    std::size_t at = 0;
    std::erase_if(values, [&](const auto&) { return repeats[at++]; });
  };
  if (what == Repeated::drop) {
    keep_first(raw.user);
    keep_first(raw.item);
    keep_first(raw.time);
    keep_first(raw.fraction);
  }
  return std::ranges::count(repeats, true);
}

Interactions read_interactions(const std::vector<std::filesystem::path>& files, const InteractionOptions& options) {
  Interactions out;
  for (const auto& path : files) read_file(path, options, out);
  require_data(out.size() > 0, "reading '", files.empty() ? "" : files[0].string(), "': no interactions",
               options.where.empty() ? "" : " meet --where");
  return out;
}

}  // namespace lockstep::prep
