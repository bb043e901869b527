#include "lockstep/prep/har/har_set.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "prep/set_file.hpp"

namespace lockstep::prep {

namespace {
constexpr std::int64_t kChunkWindows = 64;

/// The rows of a part, which has this shape.
template <class T>
std::vector<T> gather(const std::vector<T>& values, const Extents& shape, const std::vector<std::uint8_t>& split,
                      int part) {
  const std::size_t width = shape.size() == 1 ? 1 : static_cast<std::size_t>(shape[1] * shape[2]);
  std::vector<T> out;
  for (std::size_t n = 0; n < split.size(); ++n) {
    if (split[n] != part) continue;
    const auto first = values.begin() + n * width;
    out.insert(out.end(), first, first + width);
  }
  return out;
}
}  // namespace

std::int64_t HarSet::windows_in(int part) const {
  return std::count(split.begin(), split.end(), static_cast<std::uint8_t>(part));
}

std::vector<std::int64_t> HarSet::class_counts(int part) const {
  std::vector<std::int64_t> counts(class_names.size(), 0);
  for (std::size_t n = 0; n < split.size(); ++n)
    if (labels[n] >= 0) counts[labels[n]] += split[n] == part;
  return counts;
}

std::int64_t HarSet::unlabelled() const { return std::count(labels.begin(), labels.end(), -1); }

std::span<const double> HarSet::window(std::int64_t n) const {
  const auto size = static_cast<std::size_t>(channels() * length);
  return std::span(signals).subspan(static_cast<std::size_t>(n) * size, size);
}

std::string HarSet::subject_name(std::int32_t id) const {
  if (id >= 0 && static_cast<std::size_t>(id) < subject_names.size()) return subject_names[id];
  return std::to_string(id);
}

std::int64_t append_windows(HarSet& set, const std::vector<std::vector<double>>& columns, std::int64_t begin,
                            std::int64_t end, std::int64_t stride, const HarOrigin& origin) {
  std::int64_t made = 0;
  for (std::int64_t at = begin; at <= end - set.length; at += stride, ++made) {
    for (const auto& column : columns)
      set.signals.insert(set.signals.end(), column.begin() + at, column.begin() + at + set.length);
    set.labels.push_back(origin.label);
    set.subject.push_back(origin.subject);
    set.recording.push_back(origin.recording);
    set.start.push_back(at);
    set.split.push_back(origin.split);
  }
  return made;
}

void take_channel_moments(HarSet& set) {
  const auto C = static_cast<std::size_t>(set.channels()), L = static_cast<std::size_t>(set.length);
  require_data(set.windows_in(0) > 0, "taking moments: there are no training windows");
  const double samples = static_cast<double>(set.windows_in(0)) * static_cast<double>(L);
  // Two passes, so that a large mean costs the deviation no digits. Sums go window by window, which bounds their error.
  const auto sum_over_train = [&](auto term) {
    std::vector<double> sums(C, 0);
    for (std::size_t n = 0; n < set.split.size(); ++n) {
      if (set.split[n] != 0) continue;
      for (std::size_t c = 0; c < C; ++c) {
        const double* x = set.signals.data() + (n * C + c) * L;
        double sum = 0;
        for (std::size_t t = 0; t < L; ++t) sum += term(c, x[t]);
        sums[c] += sum;
      }
    }
    for (double& sum : sums) sum /= samples;
    return sums;
  };
  set.channel_mean = sum_over_train([](std::size_t, double x) { return x; });
  set.channel_std = sum_over_train([&](std::size_t c, double x) {
    const double d = x - set.channel_mean[c];
    return d * d;
  });
  constexpr double kRelative = 1e-10, kSmallest = 1e-30;
  for (std::size_t c = 0; c < C; ++c) {
    const double std = std::sqrt(set.channel_std[c]);
    set.channel_std[c] = std > std::max(kRelative * std::abs(set.channel_mean[c]), kSmallest) ? std : 1.0;
  }
}

namespace {
void fields(SetFile& io, HarSet& set) {
  io.attribute("class_names", set.class_names);
  io.attribute("channel_names", set.channel_names);
  const std::int64_t C = set.channels(), classes = std::ssize(set.class_names);
  io.optional("channel_units", set.channel_units, C);
  io.attribute("sample_rate", set.sample_rate);
  io.attribute("channel_mean", set.channel_mean, C);
  io.attribute("channel_std", set.channel_std, C);
  io.attribute("source", set.source);
  io.attribute("sources", set.files);
  io.attribute("sha256", set.sha256);
  io.optional("subject_names", set.subject_names);
  const std::int64_t subjects = set.subject_names.empty() ? Range().most : std::ssize(set.subject_names) - 1;
  const auto group_of = [](int part) { return std::string("/") + kHarParts[part] + "/"; };
  if (io.reads()) {
    require_data(C > 0 && classes > 0, io.in().opening(), ": ", C, " channels and ", classes,
                 " classes; there must be at least one each");
    for (int part = 0; part < 3; ++part) {
      const std::string dataset = group_of(part) + "signals";
      const Extents shape = io.in().expect(dataset, {H5Type::f64}, {-1, C, part == 0 ? -1 : set.length});
      set.length = shape[2];
      require_data(set.length > 0, io.in().reading(dataset), ": windows without samples");
      set.split.insert(set.split.end(), static_cast<std::size_t>(shape[0]), static_cast<std::uint8_t>(part));
    }
    set.signals.reserve(set.split.size() * static_cast<std::size_t>(C * set.length));
  }
  for (int part = 0; part < 3; ++part) {
    const std::int64_t n = set.windows_in(part);
    const auto rows = [&]<class T>(const char* name, std::vector<T>& all, const Extents& shape,
                                   const std::vector<Range>& range) {
      std::vector<T> own;
      if (!io.reads()) own = gather(all, shape, set.split, part);
      io.array(group_of(part) + name, own, shape, range);
      if (io.reads()) all.insert(all.end(), own.begin(), own.end());
    };
    io.storage({.rows = kChunkWindows});
    rows("signals", set.signals, {n, C, set.length}, {});
    io.storage({});
    rows("labels", set.labels, {n}, {{-1, classes - 1}});
    rows("subject", set.subject, {n}, {{-1, subjects}});
    rows("recording", set.recording, {n}, {{-1}});
    rows("start", set.start, {n}, {{-1}});
  }
}
}  // namespace

void write_har_set(const std::filesystem::path& path, const HarSet& set) { write_set(path, kHarFormat, set, fields); }
HarSet read_har_set(const H5File& file, Problems* problems) { return read_set(file, kHarFormat, problems, fields); }

}  // namespace lockstep::prep
