#include "lockstep/nn/own_tape.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "lockstep/tasks/har/har_task.hpp"
#include "lockstep/tasks/hrm/hrm_task.hpp"
#include "lockstep/tasks/kgat/bprmf_task.hpp"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "support/emulator_file.hpp"
#include "support/random_puzzles.hpp"
#include "support/sequence_file.hpp"
#include "support/test.hpp"
#include "tasks/evaluation.hpp"

namespace {

using Values = std::map<std::string, double>;

/// The finite metrics of each baseline, evaluated in two pieces.
std::map<std::string, Values> baselines(const Task& model, Split split = Split::test) {
  std::map<std::string, Values> all;
  for (const Baseline& baseline : model.baselines()) {
    std::vector<double> sums(to_size(model.sum_count()));
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, model.size(split) - 1}}) {
      OwnTape tape(DType::f64);
      baseline.evaluate(tape, split, first, count, sums.data());
    }
    Values& values = all[baseline.name];
    for (const Metric& m : model.metrics(split, sums))
      if (std::isfinite(m.value)) values[m.name] = m.value;
  }
  return all;
}

prep::HarSet activities(const std::vector<std::string>& classes) {
  prep::HarSet set;
  set.length = 4;
  set.class_names = classes;
  set.channel_names = {"x", "y"};
  set.sample_rate = 50;
  set.source = "test";
  const auto window = [&](std::int32_t label, std::uint8_t split) {
    const std::vector<std::vector<double>> columns = {{1, 2, 3, static_cast<double>(label)}, {4, 3, 2, 1}};
    prep::append_windows(set, columns, 0, 4, 4, {.label = label, .split = split});
  };
  for (const std::int32_t label : {1, 0, 1, 1}) window(label, 0);
  window(0, 1);
  for (const std::int32_t label : {1, 0}) window(label, 2);
  prep::take_channel_moments(set);
  return set;
}

Values har_baseline(const std::vector<std::string>& classes, HarArch::Mode mode, double smoothing) {
  LocalDataMemory data_memory;
  prep::write_har_set("har.h5", activities(classes));
  HarTask::Options options;
  options.arch = {.mode = mode, .patch = 2, .dim = 8, .layers = 1, .heads = 2, .head_width = 8, .mlp = 8};
  options.smoothing = smoothing;
  const HarTask model(options, HarData::read("har.h5", data_memory));
  return baselines(model).at("always b");
}

/// The accuracy and the finite loss of the nearest training windows. Classes differ by the swing of a channel and share
/// its mean; a second channel of much larger numbers says nothing.
Values nearest_windows(HarArch::Mode mode) {
  prep::HarSet set;
  set.length = 16;
  set.class_names = {"still", "slow", "fast"};
  set.channel_names = {"acc", "pressure"};
  set.sample_rate = 50;
  set.source = "test";
  for (std::int32_t n = 0; n < 90; ++n) {
    const std::int32_t label = n % 3;
    std::vector<std::vector<double>> columns(2);
    for (int t = 0; t < 16; ++t) {
      columns[0].push_back(9.8 + 0.1 * label * std::sin(label * t + n));
      columns[1].push_back(101325 + 10 * std::cos(n * n));
    }
    prep::append_windows(set, columns, 0, 16, 16, {.label = label, .split = static_cast<std::uint8_t>(n < 60 ? 0 : 2)});
  }
  prep::take_channel_moments(set);
  prep::write_har_set("har.h5", set);
  LocalDataMemory data_memory;
  HarTask::Options options;
  options.arch = {.mode = mode, .patch = 8, .dim = 8, .layers = 1, .mlp = 8};
  return baselines(HarTask(options, HarData::read("har.h5", data_memory))).at("nearest windows");
}

}  // namespace

TEST_SUITE("tasks.baselines") {
  TEST_CASE("the popularity baseline ranks items that the user lacks; ties go to the smaller number") {
    // Three, one, one and no training interactions: the order is 0, 1, 2, 3.
    const std::vector<std::int64_t> train_ptr = {0, 2, 3, 5, 5}, test_ptr = {0, 1, 2, 3, 5};
    const std::vector<std::int32_t> train = {0, 1, 0, 0, 2}, test = {2, 3, 1, 0, 1};
    KgData data;
    data.users = data.items = data.entities = 4;
    data.train = {train_ptr, train};
    data.test = {test_ptr, test};
    BprmfTask::Options options{.embed_dim = 2, .cutoffs = {1, 2}};
    const BprmfTask model(options, data);
    const Values m = baselines(model).at("most popular items");
    CHECK(m.at("recall@1") == Approx((1 + 0 + 1 + 0.5) / 4));
    CHECK(m.at("recall@2") == Approx(0.75));
    CHECK(m.at("precision@1") == Approx(0.75));
    CHECK(m.at("ndcg@2") == Approx(0.75));
  }

  TEST_CASE("the ranking of a graph's test items leaves out training and validation items") {
    // Two, one and no training interactions: the order is 0, 1, 2.
    const std::vector<std::int64_t> train_ptr = {0, 1, 3}, valid_ptr = {0, 1, 1}, test_ptr = {0, 1, 2};
    const std::vector<std::int32_t> train = {0, 0, 1}, valid = {1}, test = {2, 1};
    KgData data;
    data.users = 2;
    data.items = data.entities = 3;
    data.train = {train_ptr, train};
    data.valid = {valid_ptr, valid};
    data.test = {test_ptr, test};
    BprmfTask::Options options{.embed_dim = 2, .cutoffs = {1}};
    BprmfTask model(options, data);
    CHECK(contains(BprmfTask({.embed_dim = 2, .cutoffs = {1, 3}}, data).protocol(Split::test),
                   "left out; lists of K >= 3 hold all items, so recall@K says nothing; held-out"));
    // Item 2 is all that either user lacks in the test: user 0 wants it, user 1 wants the training item 1.
    model.begin_evaluation();
    CHECK(evaluation_metrics(model, Split::test, {1, 1}, DType::f32).at("recall@1") == 0.5);
    CHECK(baselines(model).at("most popular items").at("recall@1") == 0.5);
    CHECK(model.protocol(Split::test) ==
          "2 users, full ranking of 3 items, training and validation items left out; held-out items among these, "
          "which count as missed: 1; items without a training interaction: 1");
    CHECK(model.protocol(Split::validation) ==
          "1 users, full ranking of 3 items, training items left out; items without a training interaction: 1");
  }

  TEST_CASE("users whose held-out item recurs or who lack no item are not evaluated, and the protocol names them") {
    // Items 1 and 2 occur four times in training, 3 and 4 once, 5 and 6 never. The last item is the test's target.
    const std::vector<std::vector<std::int32_t>> histories = {
        {1, 2, 3, 4}, {1, 2, 3, 1}, {1, 2, 2, 5}, {1, 2, 3, 4, 5, 6}};
    const auto make = [&](RankingOptions ranking) {
      SasRecArch arch;
      arch.hidden = 6;
      ranking.at = {1, 3};
      return std::make_unique<SequenceTask>(SequenceTask::Options{.arch = arch, .ranking = ranking},
                                            read_set(sequence_set(histories, 6)));
    };
    for (const bool full : {true, false}) {
      const auto model = make({.full = full});
      CHECK(model->size(Split::validation) == 2);  // users 0 and 1
      CHECK(model->size(Split::test) == 2);        // users 0 and 2
      const Values m = baselines(*model).at("most popular items");
      CHECK(m.at("hr@1") == 0.5);  // 4 comes before 5 and 6; 5 comes after 3 and 4
      CHECK(m.at("hr@3") == 1);
      CHECK(m.at("ndcg@3") == Approx((1 + 1 / std::log2(4.0)) / 2));
      CHECK(m.at("candidates") == 2.5);
      CHECK(evaluation_metrics(*model, Split::test, {2}, DType::f32).at("candidates") == 2.5);
    }
    const std::string left_out =
        "known items left out; eval.repeats = drop (keep evaluates them) leaves out 1 user whose held-out item is in "
        "their history ('101'); "
        "left out: 1 user without another item to rank ('103')";
    const std::string untrained = "; items without a training interaction: 2";
    CHECK(make({.full = true})->protocol(Split::test) == "2 users, full ranking of 6 items, " + left_out + untrained);
    CHECK(make({.candidates = 7})->protocol(Split::test) ==
          "2 users, sampled-7 ranking of 6 items, " + left_out +
              "; users with fewer than 70 items to draw from, none of which is drawn twice: 2" + untrained);

    CHECK(contains(make({.candidates = 2})->protocol(Split::test), "left out; HR@K is 1 for K above 2; eval.repeats"));

    const auto make_at = [&](std::int64_t k, RankingOptions ranking) {
      SasRecArch arch;
      arch.hidden = 6;
      ranking.at = {k};
      return SequenceTask({.arch = arch, .ranking = ranking}, read_set(sequence_set(histories, 6)))
          .protocol(Split::test);
    };
    for (const bool full : {true, false}) {
      CHECK(contains(make_at(6, {.full = full}), "left out; HR@K is 1 for K above 5; eval.repeats"));
      CHECK_FALSE(contains(make_at(5, {.full = full}), "HR@K"));
    }

    const auto all = make({.full = true, .both = true, .repeats = Repeats::keep});
    CHECK(all->protocol(Split::test) ==
          "4 users, full ranking of 6 items, known items included; users with fewer than 1000 items to draw from, none "
          "of which is drawn twice: 4" +
              untrained);
    const Values m = baselines(*all).at("most popular items");  // 3, 0, 4 and 5 items come before the targets
    CHECK(m.at("hr@1") == 0.25);
    CHECK(m.at("hr@3") == 0.25);
    CHECK(m.at("candidates") == 5);
    CHECK(m.at("sampled-100.hr@1") == 0.25);
    check_mentions(error_of(Fault::data, [&] { make({.repeats = Repeats::refuse}); }),
                   "1 user whose held-out item is in their history ('102'); set eval.repeats");
  }

  TEST_CASE("the popularity baseline ranks the candidates that a sequence model ranks") {
    // Training items are all but the last two: items 1, 2, 3 occur three, two and one times, 4 and 5 never.
    for (const bool full : {true, false}) {
      SasRecArch arch;
      arch.hidden = 6;
      const SequenceTask model({.arch = arch, .ranking = {.full = full, .at = {1, 2}}},
                               read_set(sequence_set({{1, 2, 3, 4}, {1, 3, 2, 5}, {1, 2, 4, 3}}, 5)));
      const Values m = baselines(model).at("most popular items");
      CHECK(m.at("hr@1") == Approx(2.0 / 3));  // the second user's target 5 comes after 4
      CHECK(m.at("hr@2") == 1);                // of few items none is drawn twice
      CHECK(m.at("ndcg@2") == Approx((2 + 1 / std::log2(3.0)) / 3));
      CHECK(m.at("ties") == 0);
      CHECK(m.count("loss") == 0);
    }
  }

  TEST_CASE("the baseline for classes is the majority class, with the loss of the class frequencies") {
    for (const HarArch::Mode mode : {HarArch::Mode::average, HarArch::Mode::independent}) {
      const Values m = har_baseline({"a", "b"}, mode, 0);
      CHECK(m.at("accuracy") == 0.5);
      CHECK(m.at("f1.b") == Approx(2.0 / 3));
      CHECK(m.at("loss") == Approx((std::log(4.0 / 3) + std::log(4.0)) / 2));
    }
    const double mean = (std::log(4.0 / 3) + std::log(4.0)) / 2;
    CHECK(har_baseline({"a", "b"}, HarArch::Mode::average, 0.2).at("loss") == Approx(mean));
    CHECK(har_baseline({"a", "b", "never"}, HarArch::Mode::average, 0.2).count("loss") == 0);
  }

  TEST_CASE("the nearest training windows tell classes apart that differ in their swing; they have no loss") {
    for (const HarArch::Mode mode : {HarArch::Mode::average, HarArch::Mode::independent}) {
      const Values m = nearest_windows(mode);
      CHECK(m.at("accuracy") == 1);
      CHECK(m.at("f1.slow") == 1);
      CHECK(m.at("support.fast") == 10);
      CHECK(m.count("loss") == 0);
    }
  }

  TEST_CASE("the baseline for puzzles is the most frequent answer to each token, or an unknown token itself") {
    LocalDataMemory data_memory;
    const auto rows = [&](const std::vector<std::uint8_t>& values) {
      const auto n = std::ssize(values);
      return data_memory.place(DType::u8, {n / 2, 2},
                               [&](const Tensor& to) { std::ranges::copy(values, to.data<std::uint8_t>()); });
    };
    PuzzleData data = random_puzzles(3, 2, 5, 1);
    data.ignore_label_id = 0;
    data.train[0].inputs = rows({1, 2, 1, 3, 1, 1});
    data.train[0].labels = rows({3, 2, 3, 3, 2, 3});  // 1 is answered by 3, 3, 2 and 3
    data.test[0] = data.train[0];
    data.test[0].inputs = rows({1, 2, 1, 1, 4, 1});
    data.test[0].labels = rows({3, 2, 3, 2, 4, 0});  // the last cell has no label
    HrmTask::Options options;
    options.arch = {.hidden = 8, .heads = 2, .h_layers = 1, .l_layers = 1};
    const HrmTask model(options, std::move(data));
    const Values m = baselines(model).at("most frequent answers");
    CHECK(m.at("exact_accuracy") == Approx(2.0 / 3));
    CHECK(m.at("accuracy") == Approx((1 + 0.5 + 1) / 3));
    CHECK(m.count("loss") + m.count("steps") + m.count("q_halt_accuracy") == 0);
  }

  TEST_CASE("regression finds a linear map and its Jacobian, though inputs depend on each other; persistence copies") {
    EmulatorContents c = emulator_contents(100, 4, 2);
    c.variables.output_names = {"sum", "in1"};
    c.variables.output_level = {0, 3};  // that of the inputs
    double square = 0;
    for (std::size_t r = 0; r < 100; ++r) {
      float* x = c.x.data() + 4 * r;
      x[3] = x[2];
      c.y[2 * r] = 2 * x[0] - x[1] + 3;
      c.y[2 * r + 1] = x[1];
      if (c.split[r] == 2) square += std::pow(static_cast<double>(c.y[2 * r]) + 0.2, 2) / 10;  // the mean is -0.2
      std::ranges::copy(std::vector<double>{2, -1, 0, 0, 0, 1, 0, 0}, c.jacobian.begin() + static_cast<long>(8 * r));
    }
    EmulatorTask::Options options;
    options.arch.hidden = 4;
    options.dtype = DType::f64;
    const EmulatorTask model(options, read_data(c));
    const auto all = baselines(model);
    const Values linear = all.at("linear regression"), same = all.at("persistence");
    CHECK(linear.at("rmse") < 1e-4);
    CHECK(linear.at("jacobian_error") < 1.1e-4);
    CHECK(same.at("rmse.in1") < 1e-6);
    CHECK(same.at("rmse.sum") == Approx(std::sqrt(square)));
    CHECK(same.at("r2.in1") == Approx(1));
    c.variables.output_names[1] = "other";
    const EmulatorTask means(options, read_data(c));
    CHECK(baselines(means).at("training mean").at("jacobian_error") == Approx(1).epsilon(0.01));
  }
}
