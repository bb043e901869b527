#include "lockstep/tasks/har/har_task.hpp"

#include "lockstep/base/permutation.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "support/test.hpp"
#include "tasks/evaluation.hpp"
#include "tasks/har/har_augment.hpp"
#include "tasks/har/har_metrics.hpp"

namespace {

constexpr std::int64_t kLength = 12, kStride = 6;

/// Two sensors and a single channel. Recordings are cut into windows that overlap by half. Whole recordings belong to
/// training, validation and test in turn.
prep::HarSet activities(std::int64_t recordings = 9, std::int64_t samples = 36) {
  prep::HarSet set;
  set.length = kLength;
  set.class_names = {"WALK", "SIT", "LIE"};
  set.channel_names = {"acc_x", "acc_y", "acc_z", "pressure", "gyro_x", "gyro_y", "gyro_z"};
  set.sample_rate = 50;
  set.source = "test";
  for (std::int64_t r = 0; r < recordings; ++r) {
    const OwnedTensor x = random_tensor(DType::f64, {7, samples}, Site("recording"), static_cast<std::uint64_t>(r));
    std::vector<std::vector<double>> columns;
    for (std::int64_t c = 0; c < 7; ++c)
      columns.emplace_back(x->data<double>() + c * samples, x->data<double>() + (c + 1) * samples);
    const auto number = static_cast<std::int32_t>(r);
    prep::append_windows(set, columns, 0, samples, kStride,
                         {number % 3, number, number, static_cast<std::uint8_t>(r < 3 ? 0 : r / 3 % 3)});
  }
  prep::take_channel_moments(set);
  return set;
}

struct Fixture {
  LocalDataMemory data_memory;
  std::unique_ptr<HarTask> model;
  explicit Fixture(const std::function<void(HarTask::Options&)>& change = {},
                   const std::function<void(prep::HarSet&)>& relabel = {}) {
    prep::HarSet set = activities();
    if (relabel) relabel(set);
    prep::write_har_set("data.h5", set);
    HarTask::Options options;
    options.arch = {.patch = 3, .dim = 8, .layers = 1, .heads = 2, .head_width = 8, .mlp = 10, .hidden = {5}};
    options.arch.image = 20;
    options.dtype = DType::f64;
    options.seed = 3;
    if (change) change(options);
    model = std::make_unique<HarTask>(options, HarData::read("data.h5", data_memory));
  }
  /// Sum and weight of a shard.
  std::pair<double, double> loss(std::int64_t first, std::int64_t count, std::int64_t epoch = 1) const {
    OwnTape tape(DType::f64);
    const ShardLoss l = model->loss(tape, {.seed = 5, .epoch = epoch, .step = 8, .first = first, .count = count});
    return {*l.sum.value().data<double>(), l.weight};
  }
  std::map<std::string, double> metrics(Split split, const std::vector<std::int64_t>& chunks) const {
    return evaluation_metrics(*model, split, chunks);
  }
};

std::vector<double> window_of(const HarData& data, std::int64_t n) {
  return {data.window(n), data.window(n) + data.channels() * data.length()};
}

}  // namespace

TEST_SUITE("tasks.har_task") {
  TEST_CASE("every metric agrees with its definition, and is 0 without samples") {
    // Rows are true classes. The last class has no samples, and no sample is classified as the second.
    const std::vector<double> sums = {10, 20, 0, 3, 0, 1, 4, 0, 2, 0, 0, 0};
    std::map<std::string, double> m;
    for (const Metric& metric : har_metrics(sums, {"a", "b", "c"}, false)) m[metric.name] = metric.value;
    CHECK(m.at("accuracy") == Approx(0.3));
    CHECK(m.at("loss") == Approx(2));
    CHECK(m.at("accuracy.a") == Approx(3.0 / 4));
    CHECK(m.at("precision.a") == Approx(3.0 / 7));
    CHECK(m.at("f1.a") == Approx(6.0 / 11));
    CHECK(m.at("support.b") == 6);
    for (const char* nothing : {"accuracy.b", "precision.b", "f1.b", "accuracy.c", "precision.c", "f1.c"})
      CHECK(m.at(nothing) == 0);
    // Averages over classes leave out class c, which has no window.
    CHECK(m.at("macro_f1") == Approx(3.0 / 11));
    CHECK(m.at("macro_precision") == Approx(3.0 / 14));
    CHECK(m.at("macro_recall") == Approx(3.0 / 8));
    CHECK(m.at("weighted_f1") == Approx(6.0 / 11 * 4 / 10));
    CHECK(har_confusion(sums, {"a", "b", "c"}).values == std::vector<double>(sums.begin() + 3, sums.end()));
  }

  TEST_CASE("ties go to the first class, and a window is classified by the mean over its channels") {
    std::vector<double> sums(to_size(HarSums::count(2)), 0);
    OwnedTensor logits(DType::f64, {4, 2});
    const std::vector<double> values = {0, 0, 5, -5,
                                        0, 1, 0, 2};  // the second window: slightly wrong, then clearly right
    std::copy(values.begin(), values.end(), logits->data<double>());
    HarSums(sums.data(), 2).add(logits, std::vector<std::int32_t>{0, 0, 1, 1}, 2);
    CHECK(sums[2] == 4);
    CHECK(std::vector<double>(sums.begin() + 3, sums.end()) == std::vector<double>{1, 0, 0, 1});
  }

  TEST_CASE("metrics do not depend on how an evaluation is cut into chunks, in every mode") {
    for (const auto mode :
         {HarArch::Mode::flatten, HarArch::Mode::independent, HarArch::Mode::average, HarArch::Mode::first}) {
      const Fixture f([&](HarTask::Options& o) { o.arch.mode = mode; });
      const std::int64_t size = f.model->size(Split::train);
      CHECK(size == (mode == HarArch::Mode::independent ? 15 * 7 : 15));
      for (const auto& [split, n] : {std::pair{Split::train, size}, {Split::validation, std::int64_t{15}}}) {
        const auto whole = f.metrics(split, {n}), parts = f.metrics(split, {1, 4, n - 5});
        CHECK(whole.at("loss") == Approx(parts.at("loss")).epsilon(1e-12));
        CHECK(whole.at("accuracy") == parts.at("accuracy"));
        double windows = 0;
        for (const char* name : {"WALK", "SIT", "LIE"}) windows += whole.at(std::string("support.") + name);
        CHECK(windows == 15);
        CHECK(whole.contains("channel_accuracy") == (mode == HarArch::Mode::independent));
      }
    }
  }

  TEST_CASE("the loss does not depend on the cut into shards, with dropout and augmentation") {
    for (const auto input : {HarArch::Input::signal, HarArch::Input::image})
      for (const auto mode : {HarArch::Mode::flatten, HarArch::Mode::independent, HarArch::Mode::average}) {
        const Fixture f([&](HarTask::Options& o) {
          o.arch.input = input;
          o.arch.mode = mode;
          o.arch.dropout = 0.2;
          o.arch.encoder_dropout = 0.2;
          o.augment = {.pictures = true, .shift = true, .turn = 20, .stretch = 0.1};
        });
        const auto loss = [&](std::int64_t first, std::int64_t count, std::int64_t epoch) {
          const auto [sum, weight] = f.loss(first, count, epoch);
          CHECK(weight == static_cast<double>(count));
          return sum;
        };
        CHECK(loss(0, 15, 1) == Approx(loss(0, 4, 1) + loss(4, 11, 1)).epsilon(1e-12));
        CHECK(loss(0, 15, 1) != loss(0, 15, 2));
      }
  }

  TEST_CASE("data.percent takes a share of each class, at least one window, the same for every seed") {
    const auto chosen = [](double percent, std::uint64_t seed) {
      const Fixture f([&](HarTask::Options& o) {
        o.percent = percent;
        o.seed = seed;
      });
      std::map<std::int32_t, int> by_class;
      for (const std::int32_t n : f.model->train_windows()) ++by_class[f.model->data().label(n)];
      CHECK(by_class.size() == 3);
      const auto all = f.model->train_windows();
      return std::pair(by_class.begin()->second, std::vector<std::int32_t>(all.begin(), all.end()));
    };
    CHECK(chosen(100, 1).first == 5);
    CHECK(chosen(50, 1).first == 2);
    CHECK(chosen(1, 1).first == 1);
    CHECK(chosen(50, 1).second == chosen(50, 2).second);
    const Fixture shifted([](HarTask::Options& o) {
      o.percent = 50;
      o.augment.shift = true;
    });
    const auto all = shifted.model->train_windows();
    const auto following = shifted.model->data().following.span<std::int32_t>();
    for (std::size_t n = 0; n < 15; ++n)  // a shift reads no window that is left out
      CHECK((following[2 * n] == -1 || std::ranges::find(all, following[2 * n]) != all.end()));
  }

  TEST_CASE("every sample of a window counts, also in a last patch that is not full") {
    const auto scores = [](std::size_t sample) {
      const Fixture f([](HarTask::Options& o) { o.arch.patch = 5; },  // 12 samples in three patches
                      [&](prep::HarSet& set) {
                        if (sample < kLength) set.signals[sample] += 1;  // of the first window's first channel
                      });
      CHECK(f.model->network().arch().tokens() == 3);
      OwnTape tape(DType::f64);
      std::vector<double> out(3);
      f.model->classify(tape, std::vector<std::int64_t>{0}, out);
      return out;
    };
    const std::vector<double> before = scores(kLength);
    for (std::size_t sample = 0; sample < kLength; ++sample) CHECK(scores(sample) != before);
  }

  TEST_CASE("balanced sampling draws every class equally often, and its windows in turn, as a function of the epoch") {
    // Of 15 training windows, 11 of class 0, 3 of class 1, 1 of class 2.
    const auto uneven = [](prep::HarSet& set) {
      for (std::size_t n = 0; n < 15; ++n) set.labels[n] = n < 11 ? 0 : n < 14 ? 1 : 2;
    };
    const auto drawn = [&](const Fixture& f, std::int64_t epoch) {
      std::vector<std::int64_t> out;
      for (std::int64_t i = 0; i < 15; ++i) out.push_back(f.model->drawn_window(i, 4, epoch));
      return out;
    };
    for (const auto mode : {HarArch::Mode::flatten, HarArch::Mode::independent}) {
      const Fixture f(
          [&](HarTask::Options& o) {
            o.balance = HarBalance::sampling;
            o.arch.mode = mode;
            o.arch.dropout = 0.2;
            o.augment.turn = 20;
          },
          uneven);
      const HarData& data = f.model->data();
      std::map<std::int32_t, std::map<std::int64_t, int>> times;  // of each window by class
      std::set<std::int64_t> different;
      for (const std::int64_t w : drawn(f, 1)) {
        ++times[data.label(w % data.windows())][w % data.windows()];
        different.insert(w);
      }
      CHECK(different.size() == 15);  // a repeated window has another augmentation
      CHECK(times[0].size() == 5);
      CHECK(times[1].size() == 3);
      CHECK(times[2] == std::map<std::int64_t, int>{{14, 5}});
      for (const auto& [window, n] : times[1]) CHECK((n == 1 || n == 2));
      CHECK(drawn(f, 1) == drawn(f, 1));
      CHECK(drawn(f, 1) != drawn(f, 2));
      const std::int64_t size = f.model->size(Split::train);
      CHECK(f.loss(0, size).first == Approx(f.loss(0, 4).first + f.loss(4, size - 4).first).epsilon(1e-12));
    }
    const Fixture plain({}, uneven);
    for (std::int64_t i = 0; i < 15; ++i) CHECK(plain.model->drawn_window(i, 4, 1) == i);
  }

  TEST_CASE("class weights have mean 1 over the training windows and multiply the loss of each window") {
    const auto uneven = [](prep::HarSet& set) {
      for (std::size_t n = 0; n < 15; ++n) set.labels[n] = n < 12 ? 0 : 2;  // no training window of class 1
    };
    const Fixture weighted([](HarTask::Options&o) { o.balance = HarBalance::weights; }, uneven), plain({}, uneven);
    CHECK(weighted.model->class_weight(0) == Approx(15.0 / 24));
    CHECK(weighted.model->class_weight(2) == Approx(15.0 / 6));
    CHECK(weighted.loss(0, 15).second == Approx(15));
    const Permutation order(15, 5, 1);
    double expected = 0;
    for (std::int64_t i = 0; i < 15; ++i)
      expected += weighted.model->class_weight(weighted.model->data().label(order(i))) * plain.loss(i, 1).first;
    CHECK(weighted.loss(0, 15).first == Approx(expected).epsilon(1e-12));
  }

  TEST_CASE("a shifted window is the recording from a later sample on, for every shift") {
    const Fixture f;
    const HarData& data = f.model->data();
    std::set<std::int64_t> begun;
    std::vector<double> x(window_of(data, 0).size()), factors(7);
    for (std::uint64_t epoch = 0; epoch < 60; ++epoch) {
      augment_window({.shift = true}, data, {}, 1, Philox(1, epoch, Site("x"), 1), factors, x.data());
      // Windows 0, 1, 2, ... of a recording begin kStride samples after one another.
      for (std::int64_t later = 0; later <= kStride; ++later) {
        bool same = true;
        for (std::int64_t c = 0; c < data.channels() && same; ++c)
          for (std::int64_t t = 0; t < kLength; ++t) {
            const std::int64_t at = later + t;
            const double* from =
                at < kLength ? data.window(1) + c * kLength + at : data.window(2) + c * kLength + at - kStride;
            if (x[to_size(c * kLength + t)] != *from) same = false;
          }
        if (same) begun.insert(later);
      }
    }
    CHECK(begun.size() == kStride + 1);
    // The last window of a recording has no successor, so it is not shifted.
    augment_window({.shift = true}, data, {}, 4, Philox(1, 3, Site("x"), 4), factors, x.data());
    CHECK(x == window_of(data, 4));
  }

  TEST_CASE("a rotation keeps lengths and angles between sensors; stretching multiplies each sensor by one factor") {
    const Fixture f;
    const HarData& data = f.model->data();
    const std::vector<std::int32_t> triads = triads_of(data.channel_names);
    CHECK(triads == std::vector<std::int32_t>{0, 4});
    CHECK(triads_of({"x", "y", "z", "AccX", "AccY", "AccZ", "gyr_x", "gyr_y"}) == std::vector<std::int32_t>{0, 3});
    const std::vector<double> before = window_of(data, 2);
    std::vector<double> after(before.size()), factors(7);
    const auto dot = [&](const std::vector<double>& x, std::size_t a, std::size_t b, std::size_t t) {
      double sum = 0;
      for (std::size_t c = 0; c < 3; ++c) sum += x[(a + c) * kLength + t] * x[(b + c) * kLength + t];
      return sum;
    };
    augment_window({.turn = 40}, data, triads, 2, Philox(1, 2, Site("x"), 2), factors, after.data());
    CHECK(after != before);
    for (std::size_t t = 0; t < kLength; ++t) {
      for (const auto& [a, b] : {std::pair<std::size_t, std::size_t>{0, 0}, {4, 4}, {0, 4}})
        CHECK(dot(after, a, b, t) == Approx(dot(before, a, b, t)).epsilon(1e-12));
      CHECK(after[3 * kLength + t] == before[3 * kLength + t]);
    }
    augment_window({.stretch = 0.3}, data, triads, 2, Philox(1, 2, Site("x"), 2), factors, after.data());
    for (const std::size_t c : {0u, 1u, 2u, 3u, 4u, 5u, 6u}) {
      const std::size_t group = c < 3 ? 0 : c == 3 ? 3 : 4;
      const double factor = after[group * kLength] / before[group * kLength];
      CHECK(factor != 1);
      for (std::size_t t = 0; t < kLength; ++t)
        CHECK(after[c * kLength + t] == Approx(factor * before[c * kLength + t]).epsilon(1e-12));
    }
  }

  TEST_CASE("an invalid file is an error that names dataset and window") {
    const auto refused = [&](const std::function<void(prep::HarSet&)>& spoil, const std::string& message) {
      prep::HarSet set = activities();
      spoil(set);
      prep::write_har_set("spoilt.h5", set);
      LocalDataMemory data_memory;
      CHECK_THROWS_WITH_AS(HarData::read("spoilt.h5", data_memory), doctest::Contains(message.c_str()), Error);
    };
    refused([](prep::HarSet& s) { s.signals[7 * kLength + 2 * kLength + 5] = std::nan(""); },
            "window 1, channel acc_z, sample 5 is nan");
    refused([](prep::HarSet& s) { s.labels[3] = 3; }, "label 3 in row 3 is not in 0 .. 2");
    refused([](prep::HarSet& s) { s.channel_std[0] = 0; }, "each entry of channel_std must be > 0");
    LocalDataMemory data_memory;
    H5File::create("other.h5").close();
    CHECK_THROWS_WITH_AS(HarData::read("other.h5", data_memory), doctest::Contains("no attribute 'format'"), Error);
  }
}
