#include "lockstep/tasks/har/har_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep {

namespace {

constexpr std::array<const char*, 3> kParts = {"/train/", "/val/", "/test/"};

/// Checks shapes across the parts, then reads the arrays.
class Reader {
 public:
  explicit Reader(H5File file) : file_(std::move(file)), set_(file_, kHarFormat) {}
  const DatasetFile& set() const { return set_; }

  /// (windows, channels, samples) of each part.
  std::array<std::vector<std::int64_t>, 3> shapes(std::int64_t channels) const {
    std::array<std::vector<std::int64_t>, 3> all;
    for (std::size_t p = 0; p < kParts.size(); ++p) {
      const std::string group = kParts[p];
      all[p] = set_.expect(group + "signals", {H5Type::f64}, {-1, channels, p == 0 ? -1 : all[0][2]});
      require_data(all[p][2] > 0, set_.reading(group + "signals"), ": windows without samples");
      set_.expect(group + "labels", {H5Type::i32}, {all[p][0]});
      set_.expect(group + "recording", {H5Type::i32}, {all[p][0]});
      set_.expect(group + "start", {H5Type::i64}, {all[p][0]});
    }
    return all;
  }

  void signals(std::size_t part, const Tensor& to, const std::vector<std::string>& channels) const {
    const std::string name = std::string(kParts[part]) + "signals";
    const std::int64_t length = to.shape()[2], width = to.shape()[1] * length;
    set_.read_into<double>(
        name, {to.shape()[0], to.shape()[1], length}, to.span<double>(),
        [&](std::int64_t first, std::span<const double> values) {
          const auto bad = std::find_if_not(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
          if (bad == values.end()) return;
          const std::int64_t at = first + (bad - values.begin());
          throw Error(Fault::data,
                      join(set_.reading(name), ": window ", at / width, ", channel ",
                           channels[static_cast<std::size_t>(at % width / length)], ", sample ", at % length, " is ",
                           *bad, "; drop such windows or rebuild the file with lockstep-prep"));
        });
  }

  void labels(std::size_t part, std::span<std::int32_t> to, std::int64_t classes, HarData::Labels kind) const {
    const std::string name = std::string(kParts[part]) + "labels";
    set_.read_into<std::int32_t>(name, {static_cast<std::int64_t>(to.size())}, to);
    const auto unknown = std::ranges::find(to, -1);
    const bool may_lack = part == static_cast<std::size_t>(Split::test);
    require_data(unknown == to.end() || !may_lack || kind == HarData::Labels::optional, set_.reading(name), ": window ",
                 unknown - to.begin(), " has no label; such a set serves lockstep predict only");
    std::vector<std::int32_t> known(to.begin(), to.end());
    if (may_lack) std::ranges::replace(known, -1, 0);
    set_.require_ids(name, std::span<const std::int32_t>(known), classes, "label");
  }

  /// The values of all parts, one after another.
  template <class T>
  std::vector<T> column(const char* name) const {
    std::vector<T> all;
    for (const std::string part : kParts) {
      const std::vector<T> values = set_.read<T>(part + name, {-1});
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::vector<std::vector<std::int32_t>> folds(const std::string& how) const {
    const auto subject = column<std::int32_t>("subject"), label = column<std::int32_t>("labels");
    require_data(subject.size() == label.size(), set_.opening(), ": ", subject.size(), " subjects of ", label.size(),
                 " windows");
    return stratified_folds(how, subject, label, file_.path().string());
  }

  /// The windows of the file, with those of fold `number` of `all` last. Sets `tests` to their number.
  std::vector<std::int32_t> order(const std::vector<std::vector<std::int32_t>>& all, const HarFolds& folds,
                                  std::int64_t number, std::int64_t& tests) const {
    const auto count = static_cast<std::int64_t>(all.size());
    require_usage(number >= 1 && number <= count, "option data.fold = ", number, ": must be one of the folds 1 .. ",
                  count, " of data.folds = ", folds.how, "; lockstep folds trains all of them");
    const auto& chosen = all[static_cast<std::size_t>(number - 1)];
    const auto subject = column<std::int32_t>("subject");
    std::vector<std::int32_t> order(subject.size());
    std::iota(order.begin(), order.end(), 0);
    const auto first = std::stable_partition(order.begin(), order.end(), [&](std::int32_t n) {
      return !std::ranges::binary_search(chosen, subject[static_cast<std::size_t>(n)]);
    });
    tests = order.end() - first;
    return order;
  }

 private:
  H5File file_;
  DatasetFile set_;
};

/// Reorders rows of `width` elements; an empty order changes nothing.
template <class T>
void reorder(std::span<T> rows, std::int64_t width, const std::vector<std::int32_t>& order) {
  if (order.empty()) return;
  const std::vector<T> stored(rows.begin(), rows.end());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::copy_n(stored.begin() + order[i] * width, width, rows.begin() + static_cast<std::int64_t>(i) * width);
}

/// Mean and deviation of each channel over the training windows, as lockstep-prep computes them.
void take_moments(HarData& data) {
  const std::int64_t channels = data.channels(), length = data.length();
  const double samples = static_cast<double>(data.count[0] * length);
  const auto mean_of = [&](std::int64_t c, const auto& term) {
    double sum = 0;
    for (std::int64_t n = 0; n < data.count[0]; ++n) {
      const double* x = data.window(n) + c * length;
      sum += std::accumulate(x, x + length, 0.0, [&](double all, double value) { return all + term(value); });
    }
    return sum / samples;
  };
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = mean_of(c, [](double x) { return x; });
    const double std = std::sqrt(mean_of(c, [mean](double x) { return (x - mean) * (x - mean); }));
    constexpr double kRelative = 1e-10, kSmallest = 1e-30;
    data.channel_mean[static_cast<std::size_t>(c)] = mean;
    data.channel_std[static_cast<std::size_t>(c)] = std > std::max(kRelative * std::abs(mean), kSmallest) ? std : 1.0;
  }
}

/// Fills HarData::following for the windows of one part; `first` is the number of its first window.
void follow(const std::int32_t* recording, std::span<const std::int64_t> start, std::int64_t first, std::int64_t length,
            const std::int32_t* labels, std::int32_t* following) {
  using Place = std::tuple<std::int32_t, std::int32_t, std::int64_t>;  // recording, class, start
  std::map<Place, std::int32_t> windows;
  for (std::size_t i = 0; i < start.size(); ++i)
    windows.emplace(Place(recording[i], labels[i], start[i]), static_cast<std::int32_t>(i));
  for (std::size_t i = 0; i < start.size(); ++i) {
    following[2 * i] = -1;
    following[2 * i + 1] = 0;
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

std::vector<std::string> HarData::folds(const std::filesystem::path& path, const std::string& how) {
  const Reader reader(H5File::open(path));
  const H5File& file = reader.set().file();
  std::vector<std::string> names, out;
  if (file.has_attribute("/", "subject_names")) names = file.text_list("/", "subject_names");
  for (const auto& subjects : reader.folds(how)) {
    std::string& text = out.emplace_back(subjects.size() == 1 ? "subject " : "subjects ");
    for (const std::int32_t s : subjects) {
      const auto id = static_cast<std::size_t>(s);
      text += join(s == subjects.front() ? "" : ", ", id < names.size() ? names[id] : join(s));
    }
  }
  return out;
}

std::vector<std::int32_t> HarData::train_labels(const std::filesystem::path& path, const HarFolds& folds) {
  const Reader reader(H5File::open(path));
  if (!folds.given()) return reader.set().read<std::int32_t>("/train/labels", {-1});
  const auto all = reader.folds(folds.how);
  const auto label = reader.column<std::int32_t>("labels");
  std::vector<std::int32_t> most;
  const bool one = folds.number > 0;
  for (std::int64_t number = one ? folds.number : 1; number <= (one ? folds.number : std::ssize(all)); ++number) {
    std::int64_t tests = 0;
    std::vector<std::int32_t> found = reader.order(all, folds, number, tests);
    found.resize(found.size() - static_cast<std::size_t>(tests));
    for (std::int32_t& window : found) window = label[static_cast<std::size_t>(window)];
    if (found.size() > most.size()) most = std::move(found);
  }
  return most;
}

HarData HarData::read(const std::filesystem::path& path, DataMemory& data_memory, Labels labels,
                      const HarFolds& folds) {
  const Reader reader(data_memory.open(path));
  HarData data;
  data.path = path;
  const H5File& file = reader.set().file();
  data.class_names = file.text_list("/", "class_names");
  data.channel_names = file.text_list("/", "channel_names");
  const std::int64_t channels = data.channels();
  data.channel_mean = file.real_list("/", "channel_mean", channels);
  data.channel_std = file.real_list("/", "channel_std", channels);
  if (file.has_attribute("/", "channel_units")) data.channel_units = file.text_list("/", "channel_units", channels);
  data.sample_rate = file.real_attribute("/", "sample_rate");
  const std::string& opening = reader.set().opening();
  require_data(channels > 0 && data.classes() > 0, opening, ": ", channels, " channels and ", data.classes(),
               " classes; there must be at least one each");
  const auto bad_std = [](double s) { return !std::isfinite(s) || s <= 0; };
  require_data(std::ranges::none_of(data.channel_std, bad_std), opening, ": each entry of channel_std must be > 0");
  const auto shapes = reader.shapes(channels);
  const std::int64_t length = shapes[0][2];
  for (std::size_t p = 0; p < 3; ++p) data.count[p] = shapes[p][0];
  const std::array<std::int64_t, 3> stored = data.count;
  const std::int64_t windows = stored[0] + stored[1] + stored[2];
  require_data(windows <= std::numeric_limits<std::int32_t>::max(), opening, ": ", windows,
               " windows; must be below 2^31");

  std::vector<std::int32_t> order;  // of the windows; empty: the order of the file
  if (folds.given()) {
    std::int64_t tests = 0;
    order = reader.order(reader.folds(folds.how), folds, folds.number, tests);
    data.count = {windows - tests, 0, tests};
  }
  const auto each_part = [&](const Tensor& all, const auto& f) {
    for (std::int64_t p = 0, first = 0; p < 3; first += stored[static_cast<std::size_t>(p++)])
      f(static_cast<std::size_t>(p), all.slice(first, stored[static_cast<std::size_t>(p)]));
  };
  data.signals = data_memory.place(DType::f64, {windows, channels, length}, [&](const Tensor& to) {
    each_part(to, [&](std::size_t p, const Tensor& part) { reader.signals(p, part, data.channel_names); });
    reorder(to.span<double>(), channels * length, order);
  });
  data.labels = data_memory.place(DType::i32, {windows}, [&](const Tensor& to) {
    each_part(to, [&](std::size_t p, const Tensor& part) {
      reader.labels(p, part.span<std::int32_t>(), data.classes(), labels);
    });
    reorder(to.span<std::int32_t>(), 1, order);
  });
  if (folds.given()) take_moments(data);
  data.following = data_memory.place(DType::i32, {windows, 2}, [&](const Tensor& to) {
    auto recording = reader.column<std::int32_t>("recording");
    auto start = reader.column<std::int64_t>("start");
    reorder(std::span(recording), 1, order);
    reorder(std::span(start), 1, order);
    for (const Split split : {Split::train, Split::validation, Split::test}) {
      const std::int64_t first = data.first_of(split);
      follow(recording.data() + first,
             std::span(start).subspan(static_cast<std::size_t>(first),
                                      static_cast<std::size_t>(data.count[static_cast<std::size_t>(split)])),
             first, length, data.labels.data<std::int32_t>() + first, to.data<std::int32_t>() + 2 * first);
    }
  });
  data.hash = data_memory.hash([&] {
    std::uint64_t sum = hash64(data.signals.raw(), data.signals.size_bytes());
    sum = hash64(data.labels.raw(), data.labels.size_bytes(), sum);
    return hash64(data.count.data(), sizeof data.count, sum);
  });
  return data;
}

}  // namespace lockstep
