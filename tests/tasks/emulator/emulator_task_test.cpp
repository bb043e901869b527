#include "lockstep/tasks/emulator/emulator_task.hpp"

#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "support/emulator_file.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"
#include "tasks/emulator/emulator_metrics.hpp"
#include "tasks/evaluation.hpp"

namespace {

/// A task on a data set that it writes. The first output is aice; `ice` gives it values between 0 and 1.
struct Fixture {
  EmulatorContents contents;
  std::unique_ptr<EmulatorTask> model;
  explicit Fixture(DType dtype = DType::f64, const EmulatorLoss& loss = {}, std::int64_t n = 200,
                   std::int64_t n_out = 2)
      : contents(emulator_contents(n, 4, n_out)) {
    for (std::size_t r = 0; r < to_size(n); ++r) contents.y[r * to_size(n_out)] = static_cast<float>(r % 20) / 20;
    EmulatorTask::Options options = {.arch = {.hidden = 7, .layers = 2}, .loss = loss, .dtype = dtype, .seed = 3};
    model = std::make_unique<EmulatorTask>(options, read_data(contents));
  }
  std::map<std::string, double> metrics(Split split, const std::vector<std::int64_t>& chunks) const {
    return evaluation_metrics(*model, split, chunks, model->emulator().dtype());
  }
  /// Predictions of the rows of a split, in physical units.
  std::vector<double> predictions(Split split) const {
    OwnTape tape(DType::f64);
    const auto rows = model->data().rows_of(split);
    std::vector<double> z;
    for (const std::int64_t row : rows)
      for (std::size_t i = 0; i < 4; ++i)
        z.push_back((static_cast<double>(contents.x[to_size(row) * 4 + i]) - 0.1) / 1.5);
    const Var y = model->emulator().forward(tape, tape.constant(Tensor::of(z.data(), {std::ssize(rows), 4})));
    std::vector<double> out(y.value().data<double>(), y.value().data<double>() + y.value().size());
    for (double& value : out) value = value * 2.0 - 0.2;
    return out;
  }
};

}  // namespace

TEST_SUITE("tasks.emulator_task") {
  TEST_CASE("every metric agrees with its definition") {
    const Fixture f;
    const auto got = f.metrics(Split::test, {20});
    const std::vector<double> p = f.predictions(Split::test);
    const auto rows = f.model->data().rows_of(Split::test);
    double all = 0;
    for (std::size_t o = 0; o < 2; ++o) {
      const std::string name = o == 0 ? "aice" : "out1";
      double ee = 0, e1 = 0, e = 0, t1 = 0, p1 = 0;
      std::vector<double> t;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        t.push_back(f.contents.y[to_size(rows[r]) * 2 + o]);
        const double d = p[r * 2 + o] - t[r];
        ee += d * d / 20;
        e1 += std::abs(d) / 20;
        e += d / 20;
        t1 += t[r] / 20;
        p1 += p[r * 2 + o] / 20;
        all += d * d / 4 / 40;
      }
      double tt = 0, pp = 0, tp = 0;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        tt += (t[r] - t1) * (t[r] - t1);
        pp += std::pow(p[r * 2 + o] - p1, 2);
        tp += (t[r] - t1) * (p[r * 2 + o] - p1);
      }
      CHECK(got.at("rmse." + name) == Approx(std::sqrt(ee)).epsilon(1e-9));
      CHECK(got.at("bias." + name) == Approx(e).epsilon(1e-9));
      CHECK(got.at("mae." + name) == Approx(e1).epsilon(1e-9));
      CHECK(got.at("r2." + name) == Approx(1 - ee * 20 / tt).epsilon(1e-9));
      CHECK(got.at("corr." + name) == Approx(tp / std::sqrt(tt * pp)).epsilon(1e-9));
      CHECK(got.at("rmse_norm." + name) == Approx(std::sqrt(ee) / 2).epsilon(1e-9));
      CHECK(got.at("bias_norm." + name) == Approx(e / 2).epsilon(1e-9));
    }
    CHECK(got.at("rmse") == Approx(std::sqrt(all)).epsilon(1e-9));
    CHECK(got.at("loss") == Approx(all).epsilon(1e-9));
  }

  TEST_CASE("the ice edge is 0.10 <= aice <= 0.16, and open water aice < 0.05") {
    const Fixture f;  // training targets run through 0, 0.05, 0.1, 0.15, 0.2, ...
    const auto got = f.metrics(Split::train, {160});
    const std::vector<double> p = f.predictions(Split::train);
    const auto rows = f.model->data().rows_of(Split::train);
    double edge = 0, edge_rows = 0, open = 0, open_rows = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const float t = f.contents.y[to_size(rows[r]) * 2];
      if (t == 0.1f || t == 0.15f) edge += p[r * 2] - static_cast<double>(t), edge_rows += 1;
      if (t == 0) open += p[r * 2], open_rows += 1;
    }
    CHECK(edge_rows == 20);
    CHECK(got.at("bias.ice_edge") == Approx(edge / edge_rows).epsilon(1e-9));
    CHECK(got.at("bias.open_water") == Approx(open / open_rows).epsilon(1e-9));
    CHECK(got.at("rmse.ice_edge") >= std::abs(got.at("bias.ice_edge")));
    // In percent, only the targets 0 to 0.95 % lie below 5 %, and none between 10 and 16 %.
    EmulatorContents percent = f.contents;
    percent.variables.output_units = {"%", ""};
    const EmulatorTask task({.arch = {.hidden = 7, .layers = 2}, .loss = {}, .dtype = DType::f64, .seed = 3},
                            read_data(percent));
    auto other = evaluation_metrics(task, Split::train, {160}, DType::f64);
    CHECK(other.at("bias.open_water") == Approx(other.at("bias.aice")).epsilon(1e-9));
    CHECK(other.count("bias.ice_edge") == 0);
  }

  TEST_CASE("weights of a checkpoint compute the same with the moments of another data set; other columns are named") {
    const Fixture f;
    {
      H5File file = H5File::create("first.h5");
      f.model->save(file);
    }
    const H5File first = H5File::open("first.h5");
    EmulatorContents other = f.contents;
    other.moments = {{0.4, -1, 0.1, 2}, {3, 0.5, 1.5, 1}, {1, -0.2}, {0.25, 4}};
    const auto task_on = [](const EmulatorContents& contents) {
      return EmulatorTask({.arch = {.hidden = 7, .layers = 2}, .loss = {}, .dtype = DType::f64, .seed = 3},
                          read_data(contents));
    };
    EmulatorTask task = task_on(other);
    const std::vector<double> x = {0.3, -2, 1, 4, 0, 0, 0, 0, -1, 5, 2, 0.5};
    const auto predicted = [&](const EmulatorTask& by) {
      std::vector<double> y(6);
      EmulatorOperators<double>(by.emulator()).predict<double>(3, {x.data(), 4, 1}, {y.data(), 2, 1});
      return y;
    };
    const std::vector<double> wanted = predicted(*f.model);
    CHECK(predicted(task)[0] != Approx(wanted[0]).epsilon(1e-3));
    CHECK(task.adapt_from(first).empty());
    for (std::size_t i = 0; i < 6; ++i) CHECK(predicted(task)[i] == Approx(wanted[i]).epsilon(1e-12));
    std::swap(other.variables.input_names[0], other.variables.input_names[1]);
    CHECK(task_on(other).adapt_from(first) ==
          "its columns are in0, in1, in2, in3 -> aice, out1, those of this run in1, in0, in2, in3 -> aice, out1");
    other = f.contents;
    other.variables.input_units[0] = "degC";
    CHECK_THROWS_WITH_AS(task_on(other).adapt_from(first), doctest::Contains("column 'in0' is in degC"), Error);
  }

  TEST_CASE("the sums of an evaluation do not depend on how it is cut into chunks") {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Fixture f(dtype, {.kind = ops::Regression::huber, .smooth_weight = 0.1, .smooth_order = 1});
      const auto whole = f.metrics(Split::train, {160}), chunks = f.metrics(Split::train, {1, 0, 50, 109});
      CHECK(whole.size() == chunks.size());
      for (const auto& [name, value] : whole) {
        CAPTURE(name);
        CHECK(chunks.at(name) == Approx(value).epsilon(1e-12));
      }
    }
  }

  TEST_CASE("jacobian_error is the median over rows of the relative distance from the true Jacobian") {
    Fixture f;
    const Emulator& e = f.model->emulator();
    std::vector<double> errors;
    const double h = 1e-5;
    for (const std::int64_t row : f.model->data().rows_of(Split::validation)) {
      double distance = 0, size = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        std::vector<double> z;
        for (const double sign : {1.0, -1.0})
          for (std::size_t c = 0; c < 4; ++c)
            z.push_back((static_cast<double>(f.contents.x[to_size(row) * 4 + c]) - 0.1) / 1.5 +
                        (c == i ? sign * h : 0));
        OwnTape tape(DType::f64);
        const Var y = e.forward(tape, tape.constant(Tensor::of(z.data(), {2, 4})));
        for (std::size_t o = 0; o < 2; ++o) {
          const double j = (y.value().data<double>()[o] - y.value().data<double>()[2 + o]) / (2 * h);
          const double truth = f.contents.jacobian[to_size(row) * 8 + o * 4 + i] * 1.5 / 2.0;
          distance += (j - truth) * (j - truth);
          size += truth * truth;
        }
      }
      errors.push_back(std::sqrt(distance / size));
    }
    std::sort(errors.begin(), errors.end());
    const double lower = errors[errors.size() / 2 - 1], upper = errors[errors.size() / 2];
    const double got = f.metrics(Split::validation, {20}).at("jacobian_error");
    CHECK(errors.size() % 2 == 0);
    CHECK(upper > 1.01 * lower);
    CHECK(got == Approx((lower + upper) / 2).epsilon(0.004));
  }

  TEST_CASE("the binned median is that of the values, of an even number the mean of the middle two") {
    const auto median_of = [](const std::vector<double>& values) {
      std::vector<double> bins(emulator_metrics::kBins);
      for (const double value : values) bins[to_size(emulator_metrics::bin_of(value))] += 1;
      return emulator_metrics::median(bins.data());
    };
    CHECK(median_of({0.3880, 0.4180}) == Approx(0.4030).epsilon(0.004));
    CHECK(median_of({0.1, 0.2, 3}) == Approx(0.2).epsilon(0.004));
    CHECK(median_of({0.1, 0.2, 3, 5}) == Approx(1.6).epsilon(0.004));
    CHECK(median_of({0.2, 0.2, 0.2, 5}) == Approx(0.2).epsilon(0.004));
    CHECK(median_of({2}) == Approx(2).epsilon(0.004));
    CHECK(median_of({}) == 0);
    const double nan = std::nan("");
    CHECK(median_of({0.1, nan, nan}) > 90);  // a Jacobian that is not finite is no good one
  }

  TEST_CASE("losses agree with their definition and gradients with differences, with and without smoothness") {
    for (const auto kind : {ops::Regression::mse, ops::Regression::huber, ops::Regression::mae})
      for (const double weight : {0.0, 0.3})
        for (const std::int64_t order : {1, 2}) {
          CAPTURE(name(kind));
          CAPTURE(order);
          const EmulatorLoss loss{.kind = kind, .smooth_weight = weight, .smooth_order = order};
          const Moments m{{}, {}, {1, 2, 3, 4, 5}, {2, 1, 0.5, 3, 1}};
          const OwnedTensor t = random_tensor(DType::f64, {6, 5}, "t", 9);
          CHECK(
              gradcheck([&](Tape& tape,
                            const std::vector<Var>& v) { return emulator_loss(tape, v[0], on_tape(tape, t), loss, m); },
                        {{6, 5}}) < 1e-7);
          OwnTape tape(DType::f64);
          const OwnedTensor y = random_tensor(DType::f64, {6, 5}, "y");
          const double got = *emulator_loss(tape, tape.constant(y), t, loss, m).value().data<double>();
          double expected = 0;
          for (std::int64_t r = 0; r < 6; ++r) {
            std::vector<double> p;
            for (std::int64_t o = 0; o < 5; ++o) {
              const double d = y->data<double>()[r * 5 + o] - t->data<double>()[r * 5 + o], a = std::abs(d);
              expected += (kind == ops::Regression::mse   ? d * d
                           : kind == ops::Regression::mae ? a
                           : a < 1                        ? d * d / 2
                                                          : a - 0.5) /
                          5;
              p.push_back(y->data<double>()[r * 5 + o] * m.output_std[to_size(o)] + m.output_mean[to_size(o)]);
            }
            for (std::int64_t k = 0; k < order; ++k) {
              for (std::size_t o = 0; o + 1 < p.size(); ++o) p[o] = p[o + 1] - p[o];
              p.pop_back();
            }
            for (const double difference : p)
              expected += weight * difference * difference / static_cast<double>(5 - order);
          }
          CHECK(got == Approx(expected).epsilon(1e-12));
        }
    CHECK_THROWS_WITH_AS((EmulatorLoss{.smooth_weight = 0.1, .smooth_order = 2}.check(2)),
                         doctest::Contains("at least 3 outputs"), Error);
  }

  TEST_CASE("the loss on Jacobians is their mean squared error, or an unbiased estimate by directions") {
    for (const std::int64_t n_out : {2, 6}) {  // fewer and more outputs than the 4 inputs: adjoints and tangents
      CAPTURE(n_out);
      const auto loss_of = [&](const Fixture& f, std::int64_t first, std::int64_t count, std::int64_t step = 3) {
        OwnTape tape(DType::f64);
        const Shard shard{.seed = 5, .epoch = 1, .step = step, .first = first, .count = count};
        return *f.model->loss(tape, shard).sum.value().data<double>();
      };
      const Fixture plain(DType::f64, {}, 200, n_out), all(DType::f64, {.jacobian = 0.3}, 200, n_out),
          one(DType::f64, {.jacobian = 0.3, .directions = 1}, 200, n_out);
      // An evaluation computes the same term with the operators' Jacobians.
      CHECK(loss_of(all, 0, 160) / 160 == Approx(all.metrics(Split::train, {160}).at("loss")).epsilon(1e-9));
      const double exact = loss_of(all, 0, 160) - loss_of(plain, 0, 160);
      CHECK(exact > 1);
      double mean = 0;
      for (std::int64_t step = 0; step < 200; ++step)
        mean += (loss_of(one, 0, 160, step) - loss_of(plain, 0, 160)) / 200;
      CHECK(mean == Approx(exact).epsilon(0.02));  // 32000 directions; cross terms up to the sum: 0.6 %
      CHECK(loss_of(one, 0, 160, 4) != loss_of(one, 0, 160));
      CHECK(loss_of(one, 0, 50) + loss_of(one, 50, 110) == Approx(loss_of(one, 0, 160)).epsilon(1e-12));
      for (const Fixture* f : {&all, &one})
        CHECK(gradcheck(
                  [&](Tape& tape, const std::vector<Var>&) {
                    return f->model->loss(tape, {.seed = 5, .epoch = 0, .step = 1, .first = 3, .count = 9}).sum;
                  },
                  {}, &f->model->params(), 1, Where::cpu) < 1e-7);
    }
    EmulatorContents contents = emulator_contents(20, 4, 2);
    contents.jacobian.clear();
    EmulatorTask::Options options;
    options.loss.jacobian = 1;
    CHECK(
        contains(error_of(Fault::usage, [&] { EmulatorTask(options, read_data(contents)); }), "has no Jacobians /jac"));
  }

  TEST_CASE("the metrics of an ensemble agree with their definitions, and those of its mean with one network's") {
    Fixture f;
    std::vector<ParamStore*> members = f.model->make_ensemble(3);
    REQUIRE(members.size() == 3);
    std::vector<std::vector<double>> p;
    for (std::size_t k = 0; k < 3; ++k) {  // the fixture predicts with the first member, so each comes first once
      for (Param& w : members[0]->all())
        for (std::int64_t i = 0; i < w.value.size(); ++i)
          w.value.data<double>()[i] += 0.05 * Philox(k, 0, "member", static_cast<std::uint64_t>(i)).normal(w.index);
      p.push_back(f.predictions(Split::test));
      auto to = members[k]->all().begin();
      for (const Param& w : members[0]->all())
        std::copy_n(w.value.data<double>(), w.value.size(), (to++)->value.data<double>());
    }
    p = {p[2], p[1], p[2]};  // the first store holds the last weights: two equal members
    const auto got = f.metrics(Split::test, {7, 13});
    const auto rows = f.model->data().rows_of(Split::test);
    std::array<double, 4> below{};
    for (std::size_t o = 0; o < 2; ++o) {
      const std::string name = o == 0 ? ".aice" : ".out1";
      double ee = 0, member = 0, variance = 0, crps = 0, covered = 0;
      for (std::size_t r = 0; r < 20; ++r) {
        const double t = f.contents.y[to_size(rows[r]) * 2 + o];
        std::array<double, 3> v{};
        for (std::size_t k = 0; k < 3; ++k) v[k] = p[k][r * 2 + o];
        const double mean = (v[0] + v[1] + v[2]) / 3;
        ee += (mean - t) * (mean - t) / 20;
        double here = 0;
        std::size_t rank = 0;
        for (const double a : v) {
          member += (a - t) * (a - t) / 60;
          here += (a - mean) * (a - mean) / 2;
          crps += std::abs(a - t) / 60;
          for (const double b : v) crps -= std::abs(a - b) / 18 / 20;
          rank += a < t;
        }
        variance += here / 20;
        covered += std::abs(t - mean) <= 2.9199855804 * std::sqrt(here * 4 / 3) ? 1.0 / 20 : 0;
        below[rank] += 1;
      }
      CHECK(got.at("rmse" + name) == Approx(std::sqrt(ee)).epsilon(1e-9));
      CHECK(got.at("member_rmse" + name) == Approx(std::sqrt(member)).epsilon(1e-9));
      CHECK(got.at("spread" + name) == Approx(std::sqrt(variance)).epsilon(1e-9));
      CHECK(got.at("crps" + name) == Approx(crps).epsilon(1e-9));
      CHECK(got.at("spread_skill" + name) == Approx(std::sqrt(4.0 / 3 * variance / ee)).epsilon(1e-9));
      CHECK(got.at("coverage90" + name) == Approx(covered).epsilon(1e-9));
    }
    CHECK(got.at("member_rmse") > got.at("rmse"));  // Jensen's inequality
    CHECK(got.at("coverage50") <= got.at("coverage95"));
    const std::vector<MetricTable> tables = f.model->tables(Split::test, evaluation_sums(*f.model, Split::test, {20}));
    REQUIRE(tables.size() == 1);
    CHECK(tables[0].values == std::vector<double>(below.begin(), below.end()));
  }

  TEST_CASE("a bootstrap draws as many training rows with replacement, the same ones in every epoch") {
    // With one row per shard the loss names the row.
    EmulatorTask::Options options;
    options.dtype = DType::f64;
    options.bootstrap = true;
    const EmulatorTask task(options, read_data(emulator_contents(400, 4, 2)));
    const auto drawn = [&](std::uint64_t seed, std::int64_t epoch) {
      std::multiset<double> losses;
      for (std::int64_t i = 0; i < task.size(Split::train); ++i) {
        OwnTape tape(DType::f64);
        losses.insert(*task.loss(tape, {.seed = seed, .epoch = epoch, .step = i, .first = i, .count = 1})
                           .sum.value()
                           .data<double>());
      }
      return losses;
    };
    const auto first = drawn(1, 0);
    const auto different = static_cast<double>(std::set<double>(first.begin(), first.end()).size());
    CHECK(different / 320 > 0.55);  // 1 - 1/e = 0.632 of the rows, with a deviation of 0.018
    CHECK(different / 320 < 0.71);
    CHECK(drawn(1, 1) == first);
    CHECK(drawn(2, 0) != first);
  }

  TEST_CASE("an epoch takes every training row once, in its own order, for any cut into shards") {
    const Fixture f;
    const auto run = [&](std::int64_t epoch, const std::vector<std::int64_t>& cuts) {
      Gradients g(f.model->params());
      double loss = 0, weight = 0;
      std::int64_t first = 0;
      for (const std::int64_t count : cuts) {
        OwnTape tape(DType::f64, Tape::Mode::train, &g);
        const ShardLoss part =
            f.model->loss(tape, {.seed = 1, .epoch = epoch, .step = 0, .first = first, .count = count});
        loss += *part.sum.value().data<double>();
        weight += part.weight;
        tape.backward(part.sum);
        first += count;
      }
      CHECK(weight == static_cast<double>(first));
      return std::pair(loss, converted(g.flat(), DType::f64));
    };
    const auto whole = run(0, {160}), cut = run(0, {37, 0, 100, 23}), other = run(1, {160});
    CHECK(cut.first == Approx(whole.first).epsilon(1e-12));
    CHECK(difference(cut.second, whole.second) < 1e-12);
    CHECK(difference(other.second, whole.second) < 1e-12);  // the same rows
    CHECK(run(0, {30}).first != Approx(run(1, {30}).first).epsilon(1e-6));
    CHECK(whole.first / 160 == Approx(f.metrics(Split::train, {160}).at("loss")).epsilon(1e-12));
  }

  TEST_CASE("diagnostics are the sensitivities of the first validation rows, with correct singular values") {
    const Fixture f;
    std::map<std::string, double> d;
    for (const Metric& m : f.model->diagnostics()) d[m.name] = m.value;
    CHECK(d.at("jacobian.spectral_norm") <= d.at("jacobian.frobenius_norm"));
    CHECK(d.at("jacobian.spectral_norm") >=
          d.at("jacobian.frobenius_norm") / 2);  // four columns: at most sqrt(4) apart
    CHECK(d.count("jacobian.feature.in3") == 1);
    const std::string most =
        "jacobian.feature.in" + std::to_string(static_cast<int>(d.at("jacobian.most_sensitive_feature")));
    CHECK(d.at(most) == d.at("jacobian.max_sensitivity"));
    const SensitivityMetrics one = sensitivity_metrics(f.model->emulator(), 1, f.contents.x.data());
    CHECK(one.spectral_norm == Approx(one.frobenius_norm));
    CHECK(one.stability == 1);
    CHECK(sensitivity_metrics(f.model->emulator(), 0, f.contents.x.data()).rows.empty());
    Emulator diverged = f.model->emulator().as(DType::f32);
    diverged.weight(0).value.data<float>()[0] = std::numeric_limits<float>::infinity();
    const SensitivityMetrics none = sensitivity_metrics(diverged, 3, f.contents.x.data());
    for (const double value : {none.frobenius_norm, none.spectral_norm, none.max_gradient, none.max_sensitivity})
      CHECK(std::isnan(value));
  }

  TEST_CASE("saved metadata are read back") {
    const Fixture f;
    H5File file = H5File::create("metadata.h5");
    f.model->save(file);
    file.close();
    const H5File saved = H5File::open("metadata.h5");
    const EmulatorDescription d = read_emulator_metadata(saved);
    CHECK(d.arch == f.model->emulator().arch());
    CHECK(d.moments == f.contents.moments);
    CHECK(d.metadata.variables == f.contents.variables);
    CHECK(d.metadata.mask.mode == "both");
    CHECK(d.metadata.mask.max == f.model->metadata().mask.max);
    CHECK(d.metadata.meta == f.model->metadata().meta);
    CHECK_NOTHROW(f.model->require_member(saved));
    EmulatorTask::Options other;
    other.arch = f.model->emulator().arch();
    other.arch.activation = ops::Activation::relu;  // with weights of the same shapes
    const EmulatorTask relu(other, read_data(f.contents));
    CHECK_THROWS_WITH_AS(relu.require_member(saved), doctest::Contains("another architecture"), Error);
    write_emulator_data("data.h5", f.contents);
    CHECK_THROWS_WITH_AS(read_emulator_metadata(H5File::open("data.h5")), doctest::Contains("holds no emulator"),
                         Error);
  }
}
