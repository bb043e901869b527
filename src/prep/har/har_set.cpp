#include "lockstep/prep/har/har_set.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

namespace {
constexpr std::int64_t kChunkWindows = 64;

/// The rows of `values`, of `width` elements each, that belong to a part.
template <class T>
std::vector<T> gather(const std::vector<T>& values, std::size_t width, const std::vector<std::uint8_t>& split,
                      int part) {
  std::vector<T> out;
  for (std::size_t n = 0; n < split.size(); ++n) {
    if (split[n] != part) continue;
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(n * width);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(width));
  }
  return out;
}
}  // namespace

std::int64_t HarSet::windows_in(int part) const {
  return std::count(split.begin(), split.end(), static_cast<std::uint8_t>(part));
}

std::vector<std::int64_t> HarSet::class_counts(int part) const {
  std::vector<std::int64_t> counts(class_names.size(), 0);
  for (std::size_t n = 0; n < split.size(); ++n) {
    if (labels[n] >= 0) counts[static_cast<std::size_t>(labels[n])] += split[n] == part;
  }
  return counts;
}

std::int64_t HarSet::unlabelled() const { return std::count(labels.begin(), labels.end(), -1); }

std::span<const double> HarSet::window(std::int64_t n) const {
  const auto size = static_cast<std::size_t>(channels() * length);
  return std::span(signals).subspan(static_cast<std::size_t>(n) * size, size);
}

std::string HarSet::subject_name(std::int32_t id) const {
  if (id >= 0 && static_cast<std::size_t>(id) < subject_names.size())
    return subject_names[static_cast<std::size_t>(id)];
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

void write_har_set(const std::filesystem::path& path, const HarSet& set) {
  write_dataset(path, kHarFormat, set.notes, [&](H5File& file) {
    const std::int64_t C = set.channels(), L = set.length;
    for (int part = 0; part < 3; ++part) {
      const std::int64_t n = set.windows_in(part);
      const std::string group = std::string("/") + kHarParts[static_cast<std::size_t>(part)] + "/";
      const auto signals = gather(set.signals, static_cast<std::size_t>(C * L), set.split, part);
      file.write<double>(group + "signals", signals, {n, C, L},
                         {n == 0 ? std::vector<std::int64_t>{} : std::vector{std::min(n, kChunkWindows), C, L}, 0});
      const auto column = [&]<class T>(const char* name, const std::vector<T>& values) {
        file.write<T>(group + name, gather(values, 1, set.split, part), {n});
      };
      column("labels", set.labels);
      column("subject", set.subject);
      column("recording", set.recording);
      column("start", set.start);
    }
    file.set_attribute("/", "class_names", set.class_names);
    file.set_attribute("/", "channel_names", set.channel_names);
    if (!set.channel_units.empty()) file.set_attribute("/", "channel_units", set.channel_units);
    file.set_attribute("/", "sample_rate", set.sample_rate);
    file.set_attribute("/", "channel_mean", set.channel_mean);
    file.set_attribute("/", "channel_std", set.channel_std);
    file.set_attribute("/", "source", set.source);
    file.set_attribute("/", "sources", set.files);
    file.set_attribute("/", "sha256", set.sha256);
    if (!set.subject_names.empty()) file.set_attribute("/", "subject_names", set.subject_names);
  });
}

HarSet read_har_set(const H5File& file) {
  const DatasetFile stored(file, kHarFormat);
  HarSet set;
  set.class_names = file.text_list("/", "class_names");
  set.channel_names = file.text_list("/", "channel_names");
  const std::int64_t C = set.channels();
  require_data(C > 0 && !set.class_names.empty(), stored.opening(), ": ", C, " channels and ", set.class_names.size(),
               " classes; there must be at least one each");
  if (file.has_attribute("/", "channel_units")) set.channel_units = file.text_list("/", "channel_units", C);
  set.channel_mean = file.real_list("/", "channel_mean", C);
  set.channel_std = file.real_list("/", "channel_std", C);
  set.files = file.text_list("/", "sources");
  set.sha256 = file.text_list("/", "sha256");
  if (file.has_attribute("/", "subject_names")) set.subject_names = file.text_list("/", "subject_names");
  set.sample_rate = file.real_attribute("/", "sample_rate");
  set.source = file.text_attribute("/", "source");

  std::array<std::vector<std::int64_t>, 3> shapes;
  std::size_t windows = 0;
  for (std::size_t part = 0; part < 3; ++part) {
    const std::string dataset = join("/", kHarParts[part], "/signals");
    shapes[part] = stored.expect(dataset, {H5Type::f64}, {-1, C, part == 0 ? -1 : set.length});
    windows += static_cast<std::size_t>(shapes[part][0]);
    set.length = shapes[part][2];
    require_data(set.length > 0, stored.reading(dataset), ": windows without samples");
  }
  set.signals.reserve(windows * static_cast<std::size_t>(C * set.length));
  for (std::size_t part = 0; part < 3; ++part) {
    const std::int64_t n = shapes[part][0];
    const auto append = [&]<class T>(const char* name, std::vector<T>& out, const std::vector<std::int64_t>& extents,
                                     std::int64_t width) {
      const std::size_t before = out.size();
      out.resize(before + static_cast<std::size_t>(n * width));
      stored.read_into<T>(join("/", kHarParts[part], "/", name), extents, std::span(out).subspan(before));
    };
    append("signals", set.signals, shapes[part], C * set.length);
    append("labels", set.labels, {n}, 1);
    append("subject", set.subject, {n}, 1);
    append("recording", set.recording, {n}, 1);
    append("start", set.start, {n}, 1);
    set.split.insert(set.split.end(), static_cast<std::size_t>(n), static_cast<std::uint8_t>(part));
  }
  return set;
}

}  // namespace lockstep::prep
