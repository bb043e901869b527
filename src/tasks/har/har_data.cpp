#include "lockstep/tasks/har/har_data.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/base/units.hpp"
#include "lockstep/data/dataset_rows.hpp"

namespace lockstep {

namespace {

constexpr std::array<const char*, 3> kParts = {"/train/", "/val/", "/test/"};

/// Checks shapes across the parts, then reads the arrays.
class Reader {
 public:
  explicit Reader(H5File file) : open_(std::make_shared<const OpenSet>(std::move(file), kHarFormat)) {}
  const DatasetFile& set() const { return open_->set; }

  /// (windows, channels, samples) of each part.
  std::array<std::vector<std::int64_t>, 3> shapes(std::int64_t channels) const {
    std::array<std::vector<std::int64_t>, 3> all;
    for (std::size_t p = 0; p < kParts.size(); ++p) {
      const std::string group = kParts[p];
      all[p] = set().expect(group + "signals", {H5Type::f64}, {-1, channels, p == 0 ? -1 : all[0][2]});
      require_data(all[p][2] > 0, set().reading(group + "signals"), ": windows without samples");
      set().expect(group + "labels", {H5Type::i32}, {all[p][0]});
      set().expect(group + "recording", {H5Type::i32}, {all[p][0]});
      set().expect(group + "start", {H5Type::i64}, {all[p][0]});
    }
    return all;
  }

  /// The signals of all parts in this order; empty: that of the file.
  DatasetRows signals(const std::array<std::int64_t, 3>& stored, const std::vector<std::int32_t>& order,
                      const HarData& data, std::int64_t length) const {
    std::vector<DatasetPiece> pieces;
    const auto add = [&](std::size_t part, std::int64_t first, std::int64_t count) {
      const std::string name = std::string(kParts[part]) + "signals";
      if (!pieces.empty() && pieces.back().dataset == name && pieces.back().first + pieces.back().count == first)
        pieces.back().count += count;
      else
        pieces.push_back({name, first, count});
    };
    for (std::size_t part = 0; order.empty() && part < kParts.size(); ++part) add(part, 0, stored[part]);
    for (std::int64_t window : order) {
      std::size_t part = 0;
      while (window >= stored[part]) window -= stored[part++];
      add(part, window, 1);
    }
    return dataset_rows<double>(
        open_, pieces,
        [open = open_, channels = data.channel_names, length](const std::string& name, std::int64_t first,
                                                              std::span<const double> values) {
          const auto bad = std::find_if_not(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
          if (bad == values.end()) return;
          const std::int64_t at = first + (bad - values.begin()), width = std::ssize(channels) * length;
          throw Error(Fault::data, join(open->set.reading(name), ": window ", at / width, ", channel ",
                                        channels[at % width / length], ", sample ", at % length, " is ", *bad,
                                        "; drop such windows or rebuild the file with lockstep-prep"));
        });
  }

  void labels(std::size_t part, std::span<std::int32_t> to, std::int64_t classes, HarData::Labels kind) const {
    const std::string name = std::string(kParts[part]) + "labels";
    set().read_into<std::int32_t>(name, {std::ssize(to)}, to);
    const auto unknown = std::ranges::find(to, -1);
    const bool may_lack = part == static_cast<std::size_t>(Split::test);
    require_data(unknown == to.end() || !may_lack || kind == HarData::Labels::optional, set().reading(name),
                 ": window ", unknown - to.begin(), " has no label; such a set serves lockstep predict only");
    std::vector<std::int32_t> known(to.begin(), to.end());
    if (may_lack) std::ranges::replace(known, -1, 0);
    set().require_ids(name, std::span<const std::int32_t>(known), classes, "label");
  }

  /// The values of all parts, one after another.
  template <class T>
  std::vector<T> column(const char* name) const {
    std::vector<T> all;
    for (const std::string part : kParts) {
      const std::vector<T> values = set().read<T>(part + name, {-1});
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::vector<std::vector<std::int32_t>> folds(const std::string& how) const {
    const auto subject = column<std::int32_t>("subject"), label = column<std::int32_t>("labels");
    require_data(subject.size() == label.size(), set().opening(), ": ", subject.size(), " subjects of ", label.size(),
                 " windows");
    return stratified_folds(how, subject, label, open_->file.path().string());
  }

  /// The windows of the file, with those of fold `number` of `all` last. Sets `tests` to their number.
  std::vector<std::int32_t> order(const std::vector<std::vector<std::int32_t>>& all, const HarFolds& folds,
                                  std::int64_t number, std::int64_t& tests) const {
    const auto count = std::ssize(all);
    require_usage(number >= 1 && number <= count, "option data.fold = ", number, ": must be one of the folds 1 .. ",
                  count, " of data.folds = ", folds.how, "; lockstep folds trains all of them");
    const auto& chosen = all[number - 1];
    const auto subject = column<std::int32_t>("subject");
    std::vector<std::int32_t> order(subject.size());
    std::iota(order.begin(), order.end(), 0);
    const auto first = std::stable_partition(
        order.begin(), order.end(), [&](std::int32_t n) { return !std::ranges::binary_search(chosen, subject[n]); });
    tests = order.end() - first;
    return order;
  }

 private:
  std::shared_ptr<const OpenSet> open_;
};

/// Reorders values; an empty order changes nothing.
template <class T>
void reorder(std::span<T> values, const std::vector<std::int32_t>& order) {
  const std::vector<T> stored(values.begin(), values.end());
  for (std::size_t i = 0; i < order.size(); ++i) values[i] = stored[order[i]];
}

/// Mean and deviation of each channel over the training windows, as lockstep-prep computes them.
void take_moments(HarData& data) {
  const std::int64_t channels = data.channels(), length = data.length(), windows = data.count[0];
  std::vector<double> sums(windows * channels);  // of each window
  const auto means_of = [&](const auto& term) {
    std::ranges::fill(sums, 0);
    const auto add = [&](std::int64_t n) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* x = data.window(n) + c * length;
        sums[n * channels + c] =
            std::accumulate(x, x + length, 0.0, [&](double all, double value) { return all + term(c, value); });
      }
    };
    data.signals.sum_over(windows, std::identity(), add, sums);
    std::vector<double> means(channels);
    for (std::size_t i = 0; i < sums.size(); ++i) means[i % means.size()] += sums[i];
    for (double& mean : means) mean /= static_cast<double>(windows * length);
    return means;
  };
  data.channel_mean = means_of([](std::int64_t, double x) { return x; });
  data.channel_std = means_of([&](std::int64_t c, double x) {
    const double far = x - data.channel_mean[c];
    return far * far;
  });
  for (std::size_t c = 0; c < data.channel_std.size(); ++c) {
    constexpr double kRelative = 1e-10, kSmallest = 1e-30;
    const double std = std::sqrt(data.channel_std[c]);
    data.channel_std[c] = std > std::max(kRelative * std::abs(data.channel_mean[c]), kSmallest) ? std : 1.0;
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
    for (const std::int32_t s : subjects)
      text += join(s == subjects.front() ? "" : ", ", s < std::ssize(names) ? names[s] : join(s));
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
    for (std::int32_t& window : found) window = label[window];
    if (found.size() > most.size()) most = std::move(found);
  }
  return most;
}

std::string HarData::differences(const HarMetadata& trained) const {
  std::string differences;
  const auto compare = [&](const char* what, const auto& there, const auto& found, const auto& text) {
    if (there != found)
      differences += join(differences.empty() ? "" : "; ", what, ": ", text(there), " there, ", text(found), " here");
  };
  const auto list = [](const std::vector<std::string>& all) { return join(all.size(), " (", listed(all), ")"); };
  const auto number = [](auto value) { return join(value); };
  compare("classes", trained.class_names, class_names, list);
  compare("channels", trained.channel_names, channel_names, list);
  if (!trained.channel_units.empty() && !channel_units.empty() &&
      !std::ranges::equal(trained.channel_units, channel_units, same_units))
    compare("units", trained.channel_units, channel_units, list);
  compare("samples of a window", trained.length, length(), number);
  if (!(std::abs(trained.sample_rate - sample_rate) <= 1e-6 * trained.sample_rate))
    compare("sampling rate in Hz", trained.sample_rate, sample_rate, number);
  return differences;
}

HarMetadata trained_windows(const H5File& checkpoint) {
  const auto texts = [&](const char* name) { return checkpoint.read_text(name); };
  const bool units = checkpoint.has("/har/channel_units");
  return {.class_names = texts("/har/class_names"),
          .channel_names = texts("/har/channel_names"),
          .channel_units = units ? texts("/har/channel_units") : std::vector<std::string>(),
          .channel_mean = checkpoint.read<double>("/har/channel_mean"),
          .channel_std = checkpoint.read<double>("/har/channel_std"),
          .sample_rate = checkpoint.real_attribute("/har", "sample_rate"),
          .length = checkpoint.int_attribute("/har", "length")};
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
  data.signals = place_rows(data_memory, {reader.signals(stored, order, data, length)}).front();
  data.labels = data_memory.place(DType::i32, {windows}, [&](const Tensor& to) {
    for (std::size_t p = 0, first = 0; p < 3; first += static_cast<std::size_t>(stored[p++]))
      reader.labels(p, to.span<std::int32_t>().subspan(first, stored[p]), data.classes(), labels);
    reorder(to.span<std::int32_t>(), order);
  });
  if (folds.given()) take_moments(data);
  data.following = data_memory.place(DType::i32, {windows, 2}, [&](const Tensor& to) {
    auto recording = reader.column<std::int32_t>("recording");
    auto start = reader.column<std::int64_t>("start");
    reorder(std::span(recording), order);
    reorder(std::span(start), order);
    for (const Split split : {Split::train, Split::validation, Split::test}) {
      const std::int64_t first = data.first_of(split);
      follow(recording.data() + first, std::span(start).subspan(first, data.count[static_cast<std::size_t>(split)]),
             first, length, data.labels.data<std::int32_t>() + first, to.data<std::int32_t>() + 2 * first);
    }
  });
  const std::uint64_t of_signals = data_memory.rows().hash(data.signals, 0);
  data.hash = data_memory.hash([&] {
    const std::uint64_t sum = hash64(data.labels.raw(), data.labels.size_bytes(), of_signals);
    return hash64(data.count.data(), sizeof data.count, sum);
  });
  return data;
}

}  // namespace lockstep
