#include "lockstep/tasks/har/har_task.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/data/gpu_copy.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/samples/rasteriser.hpp"
#include "tasks/har/har_augment.hpp"
#include "tasks/har/har_metrics.hpp"
#include "tasks/har/har_neighbours.hpp"
#include "tasks/har/har_pictures.hpp"

namespace lockstep {

namespace {

HarArch arch_for(HarArch arch, const HarData& data) {
  arch.channels = data.channels();
  arch.length = data.length();
  arch.classes = data.classes();
  return arch;
}

/// Draws `percent` of the training windows of each class, at least one, without replacement; ascending.
std::vector<std::int32_t> choose_windows(const HarData& data, double percent) {
  constexpr std::uint64_t kSeed = 42;  // all runs on a data set use the same windows
  std::vector<std::vector<std::int32_t>> classes(data.classes());
  for (std::int32_t n = 0; n < data.count[0]; ++n) classes[data.label(n)].push_back(n);
  std::vector<std::int32_t> chosen;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    const auto all = std::ssize(classes[k]);
    if (all == 0) continue;
    const Permutation order(all, kSeed, k);
    for (std::int64_t i = 0; i < windows_kept(all, percent); ++i) chosen.push_back(classes[k][order(i)]);
  }
  std::ranges::sort(chosen);
  return chosen;
}

/// Sample rows with one row per sample.
SampleRows one_row_each(Arena& host, std::span<const std::uint64_t> samples) {
  const std::span<std::int64_t> offsets = host.array<std::int64_t>(std::ssize(samples) + 1);
  std::iota(offsets.begin(), offsets.end(), std::int64_t{0});
  return {.offsets = offsets, .samples = samples};
}

}  // namespace

std::int64_t windows_kept(std::int64_t of_class, double percent) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(of_class) * percent / 100));
}

HarTask::HarTask(Options options, HarData data)
    : options_(std::move(options)),
      data_(std::move(data)),
      train_(choose_windows(data_, options_.percent)),
      triads_(triads_of(data_.channel_names)),
      class_weight_(static_cast<std::size_t>(data_.classes()), 1.0),
      net_(arch_for(options_.arch, data_), options_.dtype, options_.seed) {
  std::vector<std::vector<std::int32_t>> all(class_weight_.size());
  for (const std::int32_t n : train_) all[data_.label(n)].push_back(n);
  for (const auto& members : all)
    if (!members.empty()) members_.push_back(members);
  if (options_.augment.shift && std::ssize(train_) < data_.count[0]) {
    // A shifted window may not hold samples of a window that data.percent leaves out.
    const auto stored = data_.following.span<std::int32_t>();
    following_.assign(stored.begin(), stored.end());
    for (std::size_t i = 0; i < following_.size(); i += 2)
      if (!std::ranges::binary_search(train_, following_[i])) following_[i] = -1, following_[i + 1] = 0;
    data_.following = Tensor::of(following_.data(), data_.following.shape());
  }
  if (options_.balance != HarBalance::weights) return;
  for (std::size_t k = 0; k < all.size(); ++k)
    if (!all[k].empty())
      class_weight_[k] = static_cast<double>(train_.size()) /
                         (static_cast<double>(members_.size()) * static_cast<double>(all[k].size()));
}

std::int64_t HarTask::drawn_window(std::int64_t i, std::uint64_t seed, std::int64_t epoch) const {
  if (options_.balance != HarBalance::sampling) return train_[i];
  const auto classes = std::ssize(members_);
  const auto& members = members_[i % classes];
  const auto count = std::ssize(members);
  const std::int64_t visit = i / classes;
  const auto key = static_cast<std::uint64_t>(epoch * classes + i % classes);
  const Permutation order(count, seed ^ Site("har.balance").id, key);
  return members[order(visit % count)] + visit / count * data_.windows();
}

std::int64_t HarTask::size(Split split) const {
  if (split != Split::train) return data_.count[static_cast<std::size_t>(split)];
  return std::ssize(train_) * (per_channel() ? data_.channels() : 1);
}

std::int64_t HarTask::encoded() const { return net_.arch().mode == HarArch::Mode::first ? 1 : data_.channels(); }

SampleWork HarTask::work() const {
  const double channels = static_cast<double>(encoded());
  const std::string what = net_.arch().input == HarArch::Input::image ? "images" : "channels";
  return {net_.arch().training_flops(),
          {{"windows", per_channel() ? 1 / channels : 1}, {what, per_channel() ? 1 : channels}}};
}

std::int64_t HarTask::evaluation_block() const {
  constexpr double kValues = 32e6;  // of one layer's activations
  const HarArch& arch = net_.arch();
  const double each = static_cast<double>(encoded() * arch.tokens() * (10 * arch.dim + 2 * arch.mlp) * arch.layers);
  return std::max<std::int64_t>(per_channel() ? data_.channels() : 1, static_cast<std::int64_t>(kValues / each));
}

std::span<const HarTask::Sequence> HarTask::sequences_of(Arena& host, std::span<const std::int64_t> windows) const {
  const std::int64_t channels = encoded();
  const auto all = host.array<Sequence>(std::ssize(windows) * channels);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = {windows[i / static_cast<std::size_t>(channels)], static_cast<std::int64_t>(i) % channels};
  return all;
}

void HarTask::move_to(Device device) {
  ShardTask::move_to(device);
  resident_ = {};
  if (!device.is_cuda() || net_.arch().input != HarArch::Input::signal || !data_.signals.whole()) return;
  if (!may_copy_to_gpu(device, "the windows", data_.signals.size_bytes())) return;
  resident_ = Resident(data_.signals.all().span<const double>(), device);
}

Philox HarTask::window_draws(std::int64_t number, const Shard& shard) {
  return {shard.seed, static_cast<std::uint64_t>(shard.epoch), "har.augment", static_cast<std::uint64_t>(number)};
}

const double* HarTask::window(std::int64_t number, const Shard* shard, std::span<double> scratch) const {
  const std::int64_t stored = number % data_.windows();
  if (shard == nullptr || !augments_signals(options_.augment)) return data_.window(stored);
  const auto channels = static_cast<std::size_t>(data_.channels());
  augment_window(options_.augment, data_, triads_, stored, window_draws(number, *shard), scratch.last(channels),
                 scratch.data());
  return scratch.data();
}

std::span<double> HarTask::window_scratch(Arena& host) const {
  return host.array<double>(data_.channels() * (data_.length() + 1));
}

HarTask::GpuInputs HarTask::gpu_inputs(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const {
  const auto count = std::ssize(sequences);
  const std::span<ops::WindowPick> picks = host.array<ops::WindowPick>(count);
  const std::span<ops::SensorSequence> channels = host.array<ops::SensorSequence>(count);
  const std::span<double> factors = host.array<double>(data_.channels());
  std::ranges::fill(factors, 1.0);
  const bool augmented = shard != nullptr && augments_signals(options_.augment);
  std::size_t used = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    if (i == 0 || s.window != sequences[i - 1].window) {
      const std::int64_t stored = s.window % data_.windows();
      picks[used++] =
          augmented ? draw_change(options_.augment, data_, triads_, stored, window_draws(s.window, *shard), factors)
                    : ops::WindowPick{.window = stored};
    }
    const auto c = static_cast<std::size_t>(s.channel);
    channels[i] = {.pick = static_cast<std::int64_t>(used) - 1,
                   .channel = s.channel,
                   .factor = factors[c],
                   .mean = data_.channel_mean[c],
                   .scale = 1 / data_.channel_std[c]};
    if (!augmented || options_.augment.turn == 0) continue;
    for (const std::int32_t first : triads_)
      if (s.channel >= first && s.channel < first + 3) channels[i].triad = first;
  }
  return {.picks = picks.first(used), .sequences = channels};
}

Tensor HarTask::signals(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const {
  const HarArch& arch = net_.arch();
  const std::int64_t length = data_.length(), used = arch.tokens() * arch.patch;
  const DType dtype = real_dtype(net_.params().storage());
  const Tensor patches = allocate(host, dtype, {std::ssize(sequences), arch.tokens(), arch.patch});
  const std::span<double> scratch = window_scratch(host);
  visit_float(dtype, [&]<class T>() {
    T* out = patches.data<T>();
    const double* signals = nullptr;
    for (std::size_t i = 0; i < sequences.size(); ++i, out += used) {
      const Sequence& s = sequences[i];
      if (i == 0 || s.window != sequences[i - 1].window) signals = window(s.window, shard, scratch);
      const double* x = signals + s.channel * length;
      const double mean = data_.channel_mean[s.channel], scale = 1 / data_.channel_std[s.channel];
      for (std::int64_t t = 0; t < length; ++t) out[t] = static_cast<T>((x[t] - mean) * scale);
      std::fill(out + length, out + used, T{0});
    }
  });
  return patches;
}

ops::LinePictures HarTask::pictures(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const {
  const HarArch& arch = net_.arch();
  const std::int64_t length = data_.length(), count = std::ssize(sequences);
  const std::int64_t words = line_plot::mask_words(static_cast<int>(arch.image));
  const bool augmented = shard != nullptr && options_.augment.pictures;
  const std::span<std::uint32_t> line = host.array<std::uint32_t>(count * words),
                                 outside = host.array<std::uint32_t>(augmented ? count * words : 0),
                                 spare = host.array<std::uint32_t>(augmented ? words : 0);
  const std::span<double> colours = host.array<double>(count * 9), scratch = window_scratch(host);
  const double* signals = nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    const Sequence& s = sequences[i];
    if (i == 0 || s.window != sequences[i - 1].window) signals = window(s.window, shard, scratch);
    HarPicture picture{.line = line.data() + i * words, .colours = colours.data() + 9 * i};
    if (!augmented) {
      draw_har_picture(signals + s.channel * length, length, arch.image, nullptr, picture);
      continue;
    }
    picture.outside = outside.data() + i * words;
    picture.scratch = spare.data();
    const Philox draws(shard->seed, static_cast<std::uint64_t>(shard->epoch), "har.picture",
                       static_cast<std::uint64_t>(s.window * data_.channels() + s.channel));
    draw_har_picture(signals + s.channel * length, length, arch.image, &draws, picture);
  }
  return {.count = count,
          .size = arch.image,
          .line = line.data(),
          .outside = augmented ? outside.data() : nullptr,
          .colours = colours.data()};
}

HarTask::Inputs HarTask::inputs_of(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const {
  if (net_.arch().input == HarArch::Input::image) return {.pictures = pictures(host, sequences, shard)};
  if (!resident_.span().empty()) return {.on_gpu = gpu_inputs(host, sequences, shard)};
  return {.patches = signals(host, sequences, shard)};
}

Var HarTask::logits(Tape& tape, const Inputs& inputs, const HarDraws* draws) const {
  if (inputs.patches) return net_.classify(tape, to_tape(tape, inputs.patches), draws);
  if (!inputs.on_gpu.sequences.empty()) {
    const HarArch& arch = net_.arch();
    const Tensor patches = tape.keep({std::ssize(inputs.on_gpu.sequences), arch.tokens(), arch.patch});
    const Tensor all(const_cast<double*>(resident_.span().data()), DType::f64, data_.signals.shape(), patches.device());
    ops::sensor_windows(tape.stream(), patches, all, inputs.on_gpu.picks, inputs.on_gpu.sequences);
    return net_.classify(tape, patches, draws);
  }
  return net_.classify(tape, net_.embed(tape, inputs.pictures), draws);
}

/// The inputs of a training pass.
struct HarTask::Batch : DrawnShard {
  Inputs inputs;
  HarDraws draws;
  std::span<std::int32_t> labels;
  std::span<double> weights;  ///< of the samples, and `weight` is their sum; empty: all 1
};

ShardLoss HarTask::loss(Tape& tape, const Shard& shard) const {
  const auto& batch = samples_of<Batch>(tape.host_arena(), shard);
  HarDraws draws = batch.draws;
  draws.step_on_gpu = shard.step_on_gpu;
  const Var logits = this->logits(tape, batch.inputs, &draws);
  const auto tensor = [&](auto values) { return values.empty() ? Tensor() : Tensor::of(values.data(), {shard.count}); };
  return {cross_entropy(tape, logits, tensor(batch.labels), options_.smoothing, tensor(batch.weights)), batch.weight};
}

const DrawnShard& HarTask::draw(Arena& host, const Shard& shard) const {
  const profile::Span drawing("batch", profile::Kind::phase);
  const Permutation order(size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  const std::int64_t channels = data_.channels();
  const std::span<std::int64_t> windows = host.array<std::int64_t>(shard.count);
  const std::span<std::int32_t> labels = host.array<std::int32_t>(shard.count);
  const bool weighted = options_.balance == HarBalance::weights;
  const std::span<double> weights = host.array<double>(weighted ? shard.count : 0);
  double weight = weighted ? 0 : static_cast<double>(shard.count);
  const std::span<Sequence> singles = host.array<Sequence>(per_channel() ? shard.count : 0);
  for (std::int64_t i = 0; i < shard.count; ++i) {
    const std::int64_t sample = order(shard.first + i);
    windows[i] = window_of(sample, shard);
    labels[i] = data_.label(windows[i] % data_.windows());
    if (weighted) weight += weights[i] = class_weight(labels[i]);
    if (per_channel()) singles[i] = {windows[i], sample % channels};
  }
  const std::span<const Sequence> sequences = per_channel() ? singles : sequences_of(host, windows);

  // Dropout keys: in the encoder the channel of a window (the window if channels are averaged), in the classifier the
  // sample.
  const bool averaged = net_.arch().mode == HarArch::Mode::average;
  const std::int64_t encoded_count = averaged ? shard.count : std::ssize(sequences);
  HarDraws draws;
  draws.seed = shard.seed;
  draws.step = static_cast<std::uint64_t>(shard.step);
  const auto keys = [&](std::int64_t count, const auto& key) {
    const std::span<std::uint64_t> samples = host.array<std::uint64_t>(count);
    for (std::int64_t i = 0; i < count; ++i) samples[i] = key(static_cast<std::size_t>(i));
    return one_row_each(host, samples);
  };
  const auto sequence_key = [&](const Sequence& s) {
    return static_cast<std::uint64_t>(s.window * channels + s.channel);
  };
  draws.sequences = keys(encoded_count, [&](std::size_t i) {
    return averaged ? static_cast<std::uint64_t>(windows[i]) : sequence_key(sequences[i]);
  });
  draws.windows = keys(shard.count, [&](std::size_t i) {
    return per_channel() ? sequence_key(sequences[i]) : static_cast<std::uint64_t>(windows[i]);
  });

  return *new (host.allocate(sizeof(Batch)))
      Batch{{.weight = weight}, inputs_of(host, sequences, &shard), draws, labels, weights};
}

void HarTask::reads(const Shard& shard, std::vector<std::int64_t>& rows) const {
  const Permutation order(size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  for (std::int64_t i = 0; i < shard.count; ++i) {
    rows.push_back(window_of(order(shard.first + i), shard) % data_.windows());
    if (const std::int32_t next = data_.following.data<std::int32_t>()[2 * rows.back()];
        options_.augment.shift && next >= 0)
      rows.push_back(next);
  }
}

std::int64_t HarTask::sum_count() const { return HarSums::count(data_.classes()); }

std::vector<std::int64_t> HarTask::windows_of(Split split, std::int64_t first, std::int64_t count) const {
  std::int64_t begin = first, end = first + count;
  if (per_channel() && split == Split::train) {  // the windows whose first channel is one of these samples
    const std::int64_t channels = data_.channels();
    begin = (begin + channels - 1) / channels;
    end = (end + channels - 1) / channels;
  }
  if (split == Split::train) return {train_.begin() + begin, train_.begin() + end};
  return consecutive(end - begin, data_.first_of(split) + begin);
}

void HarTask::evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  const std::vector<std::int64_t> numbers = windows_of(split, first, count);
  const auto windows = std::ssize(numbers), rows = windows * (per_channel() ? data_.channels() : 1);
  if (windows == 0) return;
  const std::span<std::int32_t> labels = tape.host_arena().array<std::int32_t>(rows);
  for (std::int64_t i = 0; i < rows; ++i) labels[i] = data_.label(numbers[i * windows / rows]);
  const Var logits = this->logits(tape, numbers);
  HarSums to(sums, data_.classes());
  *to.rows += static_cast<double>(rows);
  const Var loss = cross_entropy(tape, logits, Tensor::of(labels.data(), {rows}), options_.smoothing);
  visit_float(tape.real_dtype(),
              [&]<class T>() { *to.loss += static_cast<double>(*to_host(tape, loss.value()).data<T>()); });
  to.add(to_host(tape, logits.value()), labels, rows / windows);
}

std::vector<Baseline> HarTask::baselines() const {
  if (train_.empty()) return {};
  const auto classes = static_cast<std::size_t>(data_.classes());
  std::vector<std::int64_t> counts(classes);
  for (const std::int32_t window : train_) ++counts[data_.label(window)];
  // Of each class: minus the logarithm of its frequency, infinite for a class without a training window.
  std::vector<double> surprise(classes), loss(classes);
  for (std::size_t k = 0; k < classes; ++k)
    surprise[k] = std::log(static_cast<double>(train_.size())) - std::log(static_cast<double>(counts[k]));
  const double mean = std::accumulate(surprise.begin(), surprise.end(), 0.0) / static_cast<double>(classes);
  for (std::size_t k = 0; k < classes; ++k)
    loss[k] = options_.smoothing > 0 ? (1 - options_.smoothing) * surprise[k] + options_.smoothing * mean : surprise[k];
  const auto guess = static_cast<std::int32_t>(std::ranges::max_element(counts) - counts.begin());
  const auto baseline = [this](const std::string& name, const auto& class_of, const auto& loss_of) {
    return Baseline{name, [=, this](Tape&, Split split, std::int64_t first, std::int64_t number, double* sums) {
                      const HarSums to(sums, data_.classes());
                      const double rows = per_channel() ? static_cast<double>(data_.channels()) : 1;  // of a window
                      for (const std::int64_t window : windows_of(split, first, number)) {
                        const std::int32_t label = data_.label(window), found = class_of(window);
                        *to.rows += rows;
                        *to.loss += rows * loss_of(label);
                        if (label == found) *to.correct += rows;
                        to.confusion[label * data_.classes() + found] += 1;
                      }
                    }};
  };
  const auto neighbours = std::make_shared<const HarNeighbours>(data_, train_);
  return {baseline(
              join("always ", data_.class_names[guess]), [guess](std::int64_t) { return guess; },
              [loss](std::int32_t label) { return loss[label]; }),
          baseline(
              "nearest windows",
              [neighbours, this](std::int64_t window) { return neighbours->class_of(data_.window(window)); },
              [](std::int32_t) { return std::numeric_limits<double>::quiet_NaN(); })};
}

void HarTask::classify(Tape& tape, std::span<const std::int64_t> windows, std::span<double> out) const {
  const Var logits = this->logits(tape, windows);
  window_log_probabilities(to_host(tape, logits.value()), data_.classes(), per_channel() ? data_.channels() : 1, out);
}

std::vector<Metric> HarTask::metrics(Split, const std::vector<double>& sums) const {
  return har_metrics(sums, data_.class_names, per_channel());
}

std::vector<MetricTable> HarTask::tables(Split, const std::vector<double>& sums) const {
  return {har_confusion(sums, data_.class_names)};
}

std::string HarTask::adapt_from(const H5File& checkpoint) {
  const HarMetadata trained = trained_windows(checkpoint);
  if (const std::string other = data_.differences(trained); !other.empty())
    return "it was trained on other windows: " + other;
  const bool same = trained.channel_mean == data_.channel_mean && trained.channel_std == data_.channel_std;
  return same ? "" : "it normalises channels otherwise than this data set, so its first predictions are other ones";
}

void HarTask::save(H5File& file) const {
  file.create_group("/har");
  file.write_text("/har/class_names", data_.class_names);
  file.write_text("/har/channel_names", data_.channel_names);
  if (!data_.channel_units.empty()) file.write_text("/har/channel_units", data_.channel_units);
  const auto write = [&](const char* name, const std::vector<double>& values) {
    file.write<double>(name, values, {std::ssize(values)});
  };
  write("/har/channel_mean", data_.channel_mean);
  write("/har/channel_std", data_.channel_std);
  file.set_attribute("/har", "sample_rate", data_.sample_rate);
  file.set_attribute("/har", "length", data_.length());
  if (options_.percent < 100) file.write<std::int32_t>("/har/train_windows", train_, {std::ssize(train_)});
}

}  // namespace lockstep
