#include "lockstep/prep/har_set.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/source.hpp"

namespace lockstep::prep {

namespace {
constexpr const char* kFormat = "lockstep-har";
constexpr std::int64_t kVersion = 1, kChunkWindows = 64;

/// Rows of `values` (each `width` long) that belong to a part, in order.
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
  for (std::int64_t at = begin; at + set.length <= end; at += stride, ++made) {
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
  constexpr double kConstant = 1e-6;
  const auto C = static_cast<std::size_t>(set.channels()), L = static_cast<std::size_t>(set.length);
  require_data(set.windows_in(0) > 0, "taking moments: there are no training windows");
  const double samples = static_cast<double>(set.windows_in(0)) * static_cast<double>(L);
  // Two passes: the deviation of centred values loses no digits to a large mean. Sums go window by window, which bounds their error.
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
  for (double& value : set.channel_std) value = std::sqrt(value) > kConstant ? std::sqrt(value) : 1.0;
}

void write_har_set(const std::filesystem::path& path, const HarSet& set) {
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary, H5Strings::variable);
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
    file.set_attribute("/", "format", std::string(kFormat));
    file.set_attribute("/", "version", kVersion);
    file.set_attribute("/", "class_names", set.class_names);
    file.set_attribute("/", "channel_names", set.channel_names);
    file.set_attribute("/", "sample_rate", set.sample_rate);
    file.set_attribute("/", "channel_mean", set.channel_mean);
    file.set_attribute("/", "channel_std", set.channel_std);
    file.set_attribute("/", "source", set.source);
    file.set_attribute("/", "sources", set.files);
    file.set_attribute("/", "sha256", set.sha256);
    if (!set.subject_names.empty()) file.set_attribute("/", "subject_names", set.subject_names);
    for (const auto& [name, value] : set.notes) file.set_attribute("/", name, value);
    file.close();
  });
}

HarSet read_har_set(const H5File& file) {
  const std::string reading = require_format(file, kFormat, kVersion);

  HarSet set;
  const auto list = [&]<class T>(const char* attribute, std::vector<T>& out, const char* what) {
    require_data(file.has_attribute("/", attribute), reading, ": no attribute '", attribute, "'");
    const H5Value value = file.attribute("/", attribute);
    const auto* found = std::get_if<std::vector<T>>(&value);
    require_data(found != nullptr, reading, ": attribute '", attribute, "' is no list of ", what);
    out = *found;
  };
  list("class_names", set.class_names, "strings");
  list("channel_names", set.channel_names, "strings");
  list("channel_mean", set.channel_mean, "floats");
  list("channel_std", set.channel_std, "floats");
  list("sources", set.files, "strings");
  list("sha256", set.sha256, "strings");
  if (file.has_attribute("/", "subject_names")) list("subject_names", set.subject_names, "strings");
  set.sample_rate = file.real_attribute("/", "sample_rate");
  set.source = file.text_attribute("/", "source");
  const std::int64_t C = set.channels();
  require_data(C > 0 && !set.class_names.empty(), reading, ": ", C, " channels and ", set.class_names.size(),
               " classes; both must be there");
  require_data(
      set.channel_mean.size() == set.channel_names.size() && set.channel_std.size() == set.channel_names.size(),
      reading, ": ", set.channel_mean.size(), " means and ", set.channel_std.size(), " deviations for ", C,
      " channels");

  for (int part = 0; part < 3; ++part) {
    const std::string group = std::string("/") + kHarParts[static_cast<std::size_t>(part)] + "/";
    const H5Info info = file.info(group + "signals");
    require_data(info.shape.size() == 3 && info.type == H5Type::f64, reading, ": '", group,
                 "signals' is no (windows, channels, samples) array of f64");
    if (part == 0) set.length = info.shape[2];
    require_data(info.shape[1] == C && info.shape[2] == set.length && set.length > 0, reading, ": '", group,
                 "signals' has windows of ", info.shape[1], " x ", info.shape[2], ", expected ", C, " channels x ",
                 set.length, " samples");
    const std::int64_t n = info.shape[0];
    const auto append = [&]<class T>(const std::string& name, std::vector<T>& out) {
      const H5Info found = file.info(group + name);
      require_data(found.type == h5_type_of<T>::value && (name == "signals" || found.shape == std::vector{n}), reading,
                   ": '", group, name, "' has another shape or type than ", lockstep::name(h5_type_of<T>::value),
                   " for ", n, " windows");
      if (n == 0) return;
      const std::vector<T> values = file.read<T>(group + name);
      out.insert(out.end(), values.begin(), values.end());
    };
    append("signals", set.signals);
    append("labels", set.labels);
    append("subject", set.subject);
    append("recording", set.recording);
    append("start", set.start);
    set.split.insert(set.split.end(), static_cast<std::size_t>(n), static_cast<std::uint8_t>(part));
  }
  return set;
}

}  // namespace lockstep::prep
