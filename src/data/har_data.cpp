#include "lockstep/data/har_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

namespace {

constexpr const char* kFormat = "lockstep-har";
constexpr std::int64_t kVersion = 1;
constexpr std::array<const char*, 3> kParts = {"/train/", "/val/", "/test/"};

/// The arrays of the file, checked against one another before anything is read.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : file_(H5File::open(path)), opening_(join("opening data set '", path.string(), "'")) {
    for (const char* name :
         {"format", "version", "class_names", "channel_names", "sample_rate", "channel_mean", "channel_std"})
      require_data(file_.has_attribute("/", name), opening_, ": no attribute '", name,
                   "'; rebuild it with lockstep-prep");
    const std::string format = file_.text_attribute("/", "format");
    require_data(format == kFormat, opening_, ": its format is '", format, "', expected '", kFormat,
                 "'; make one with lockstep-prep uci-har, hapt-raw, har or synth-har");
    const std::int64_t version = file_.int_attribute("/", "version");
    require_data(version == kVersion, opening_, ": version ", version, ", this program reads version ", kVersion,
                 "; rebuild it with lockstep-prep");
  }

  template <class T>
  std::vector<T> list(const char* name) const {
    const H5Value value = file_.attribute("/", name);
    const auto* found = std::get_if<std::vector<T>>(&value);
    require_data(found != nullptr && !found->empty(), opening_, ": attribute '", name,
                 "' is no list; rebuild it with lockstep-prep");
    return *found;
  }
  double rate() const { return file_.real_attribute("/", "sample_rate"); }

  /// (windows, channels, samples) of each part.
  std::array<std::vector<std::int64_t>, 3> shapes(std::int64_t channels) const {
    std::array<std::vector<std::int64_t>, 3> all;
    for (std::size_t p = 0; p < kParts.size(); ++p) {
      const std::string name = std::string(kParts[p]) + "signals";
      require_data(file_.has(name), opening_, ": no dataset '", name, "'; rebuild it with lockstep-prep");
      const H5Info info = file_.info(name);
      require_data(info.type == H5Type::f64 && info.shape.size() == 3, opening_, ": '", name,
                   "' is no (windows, channels, samples) array of f64; rebuild it with lockstep-prep");
      all[p] = info.shape;
      require_data(info.shape[1] == channels && info.shape[2] == all[0][2] && all[0][2] > 0, opening_, ": '", name,
                   "' has windows of ", info.shape[1], " channels x ", info.shape[2], " samples, expected ", channels,
                   " x ", all[0][2]);
      for (const char* column : {"labels", "recording", "start"}) {
        const std::string other = kParts[p] + std::string(column);
        require_data(file_.has(other) && file_.info(other).shape == std::vector{info.shape[0]}, opening_, ": '", other,
                     "' is not there, or not one number for each of the ", info.shape[0], " windows");
      }
    }
    return all;
  }

  void signals(std::size_t part, const Tensor& to, const std::vector<std::string>& channels) const {
    const std::string name = std::string(kParts[part]) + "signals";
    const std::span<double> values = to.span<double>();
    file_.read_into<double>(name, values);
    const auto bad = std::find_if_not(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
    if (bad == values.end()) return;
    const std::int64_t at = bad - values.begin(), length = to.shape()[2], width = to.shape()[1] * length;
    throw Error(Fault::data, join(opening_, ": '", name, "', window ", at / width, ", channel ",
                                  channels[static_cast<std::size_t>(at % width / length)], ", sample ", at % length,
                                  " is ", *bad, "; drop such windows or rebuild the file with lockstep-prep"));
  }

  void labels(std::size_t part, std::span<std::int32_t> to, std::int64_t classes) const {
    const std::string name = std::string(kParts[part]) + "labels";
    file_.read_into<std::int32_t>(name, to);
    const auto bad = std::find_if(to.begin(), to.end(), [&](std::int32_t y) { return y < 0 || y >= classes; });
    require_data(bad == to.end(), opening_, ": '", name, "', window ", bad - to.begin(), ": label ",
                 bad == to.end() ? 0 : *bad, " is not in 0..", classes - 1);
  }

  template <class T>
  std::vector<T> column(std::size_t part, const char* name) const {
    return file_.read<T>(kParts[part] + std::string(name));
  }
  const std::string& opening() const { return opening_; }

 private:
  H5File file_;
  std::string opening_;
};

/// Fills HarData::following for the windows of one part, whose first one has the number `first`.
void follow(const Reader& reader, std::size_t part, std::int64_t first, std::int64_t length, const std::int32_t* labels,
            std::int32_t* following) {
  const auto recording = reader.column<std::int32_t>(part, "recording");
  const auto start = reader.column<std::int64_t>(part, "start");
  using Place = std::tuple<std::int32_t, std::int32_t, std::int64_t>;  // recording, class, start
  std::map<Place, std::int32_t> windows;
  for (std::size_t i = 0; i < start.size(); ++i)
    windows.emplace(Place(recording[i], labels[i], start[i]), static_cast<std::int32_t>(i));
  for (std::size_t i = 0; i < start.size(); ++i) {
    following[2 * i] = -1, following[2 * i + 1] = 0;
    if (recording[i] < 0 || start[i] < 0) continue;
    const auto next = windows.upper_bound(Place(recording[i], labels[i], start[i]));
    if (next == windows.end()) continue;
    const auto& [other, label, at] = next->first;
    if (other != recording[i] || label != labels[i] || at - start[i] > length) continue;
    following[2 * i] = static_cast<std::int32_t>(first) + next->second;
    following[2 * i + 1] = static_cast<std::int32_t>(at - start[i]);
  }
}

}  // namespace

std::int64_t HarData::first_of(Split split) const {
  std::int64_t first = 0;
  for (std::size_t part = 0; part < static_cast<std::size_t>(split); ++part) first += count[part];
  return first;
}

HarData HarData::read(const std::filesystem::path& path, Placement& placement) {
  const Reader reader(path);
  HarData data;
  data.path = path;
  data.class_names = reader.list<std::string>("class_names");
  data.channel_names = reader.list<std::string>("channel_names");
  data.channel_mean = reader.list<double>("channel_mean");
  data.channel_std = reader.list<double>("channel_std");
  data.sample_rate = reader.rate();
  const std::int64_t channels = data.channels();
  const auto bad_std = [](double s) { return !std::isfinite(s) || s <= 0; };
  require_data(static_cast<std::int64_t>(data.channel_mean.size()) == channels &&
                   static_cast<std::int64_t>(data.channel_std.size()) == channels &&
                   std::none_of(data.channel_std.begin(), data.channel_std.end(), bad_std),
               reader.opening(), ": ", data.channel_mean.size(), " means and ", data.channel_std.size(),
               " deviations for ", channels, " channels; there must be one each, the deviations > 0");
  const auto shapes = reader.shapes(channels);
  const std::int64_t length = shapes[0][2];
  for (std::size_t p = 0; p < 3; ++p) data.count[p] = shapes[p][0];
  const std::int64_t windows = data.count[0] + data.count[1] + data.count[2];
  require_data(data.count[0] > 0, reader.opening(), ": it has no training windows");
  require_data(windows <= std::numeric_limits<std::int32_t>::max(), reader.opening(), ": ", windows,
               " windows; must be below 2^31");

  const auto each_part = [&](const Tensor& all, const auto& f) {
    for (std::size_t p = 0; p < 3; ++p) f(p, all.slice(data.first_of(static_cast<Split>(p)), data.count[p]));
  };
  data.signals = placement.place(DType::f64, {windows, channels, length}, [&](const Tensor& to) {
    each_part(to, [&](std::size_t p, const Tensor& part) { reader.signals(p, part, data.channel_names); });
  });
  data.labels = placement.place(DType::i32, {windows}, [&](const Tensor& to) {
    each_part(to,
              [&](std::size_t p, const Tensor& part) { reader.labels(p, part.span<std::int32_t>(), data.classes()); });
  });
  data.following = placement.place(DType::i32, {windows, 2}, [&](const Tensor& to) {
    each_part(to, [&](std::size_t p, const Tensor& part) {
      const std::int64_t first = data.first_of(static_cast<Split>(p));
      follow(reader, p, first, length, data.labels.data<std::int32_t>() + first, part.data<std::int32_t>());
    });
  });
  const Tensor hash = placement.place(DType::i64, {1}, [&](const Tensor& to) {
    std::uint64_t sum = hash64(data.signals.raw(), data.signals.size_bytes());
    sum = hash64(data.labels.raw(), data.labels.size_bytes(), sum);
    sum = hash64(data.count.data(), sizeof data.count, sum);
    to.data<std::int64_t>()[0] = static_cast<std::int64_t>(sum);
  });
  data.hash = static_cast<std::uint64_t>(hash.data<std::int64_t>()[0]);
  return data;
}

}  // namespace lockstep
