#include "lockstep/tasks/emulator/emulator_task.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"
#include "support/emulator_file.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/temp_dir.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;

namespace {

/// A task on a data set that it writes. The first output is aice; `ice` gives it values between 0 and 1.
struct Fixture {
  test::TempDir dir;
  LocalPlacement placement;
  test::EmulatorContents contents;
  std::unique_ptr<EmulatorTask> model;
  explicit Fixture(DType dtype = DType::f64, EmulatorLoss loss = {}, std::int64_t n = 200, std::int64_t n_out = 2)
      : contents(test::emulator_contents(n, 4, n_out)) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r)
      contents.y[r * static_cast<std::size_t>(n_out)] = static_cast<float>(r % 20) / 20;
    test::write_emulator_data(dir / "data.h5", contents);
    EmulatorTask::Options options;
    options.arch.hidden = 7;
    options.arch.layers = 2;
    options.dtype = dtype;
    options.seed = 3;
    options.loss = loss;
    model = std::make_unique<EmulatorTask>(options, EmulatorData::read(dir / "data.h5", placement));
  }
  std::vector<double> sums(Split split, const std::vector<std::int64_t>& chunks) const {
    std::vector<double> out(static_cast<std::size_t>(model->sum_count()), 0);
    Stream stream;
    std::int64_t first = 0;
    for (const std::int64_t count : chunks) {
      Arena arena;
      Tape tape(stream, arena, model->emulator().dtype(), Tape::Mode::forward);
      model->evaluate(tape, split, first, count, out.data());
      first += count;
    }
    CHECK(first == model->size(split));
    return out;
  }
  std::map<std::string, double> metrics(Split split, const std::vector<std::int64_t>& chunks) const {
    std::map<std::string, double> out;
    for (const Metric& m : model->metrics(split, sums(split, chunks))) out[m.name] = m.value;
    return out;
  }
  /// Predictions of the rows of a split, in physical units.
  std::vector<double> predictions(Split split) const {
    Stream stream;
    Arena arena;
    Tape tape(stream, arena, DType::f64, Tape::Mode::forward);
    const auto rows = model->data().rows_of(split);
    std::vector<double> z;
    for (const std::int32_t row : rows)
      for (std::size_t i = 0; i < 4; ++i)
        z.push_back((static_cast<double>(contents.x[static_cast<std::size_t>(row) * 4 + i]) - 0.1) / 1.5);
    const Var y = model->emulator().forward(
        tape, tape.constant(Tensor::of(z.data(), {static_cast<std::int64_t>(rows.size()), 4})));
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
        t.push_back(f.contents.y[static_cast<std::size_t>(rows[r]) * 2 + o]);
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
      CHECK(got.at("rmse." + name) == doctest::Approx(std::sqrt(ee)).epsilon(1e-9));
      CHECK(got.at("bias." + name) == doctest::Approx(e).epsilon(1e-9));
      CHECK(got.at("mae." + name) == doctest::Approx(e1).epsilon(1e-9));
      CHECK(got.at("r2." + name) == doctest::Approx(1 - ee * 20 / tt).epsilon(1e-9));
      CHECK(got.at("corr." + name) == doctest::Approx(tp / std::sqrt(tt * pp)).epsilon(1e-9));
      CHECK(got.at("rmse_norm." + name) == doctest::Approx(std::sqrt(ee) / 2).epsilon(1e-9));
      CHECK(got.at("bias_norm." + name) == doctest::Approx(e / 2).epsilon(1e-9));
    }
    CHECK(got.at("rmse") == doctest::Approx(std::sqrt(all)).epsilon(1e-9));
    CHECK(got.at("loss") == doctest::Approx(all).epsilon(1e-9));
  }

  TEST_CASE("the ice edge is 0.10 <= aice <= 0.16, and open water aice < 0.05") {
    const Fixture f;  // training targets run through 0, 0.05, 0.1, 0.15, 0.2, ...
    const auto got = f.metrics(Split::train, {160});
    const std::vector<double> p = f.predictions(Split::train);
    const auto rows = f.model->data().rows_of(Split::train);
    double edge = 0, edge_rows = 0, open = 0, open_rows = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const float t = f.contents.y[static_cast<std::size_t>(rows[r]) * 2];
      if (t == 0.1f || t == 0.15f) edge += p[r * 2] - static_cast<double>(t), edge_rows += 1;
      if (t == 0) open += p[r * 2], open_rows += 1;
    }
    CHECK(edge_rows == 20);
    CHECK(got.at("bias.ice_edge") == doctest::Approx(edge / edge_rows).epsilon(1e-9));
    CHECK(got.at("bias.open_water") == doctest::Approx(open / open_rows).epsilon(1e-9));
    CHECK(got.at("rmse.ice_edge") >= std::abs(got.at("bias.ice_edge")));
  }

  TEST_CASE("the sums of an evaluation do not depend on how it is cut into chunks") {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Fixture f(dtype, {.name = "huber", .smooth_weight = 0.1, .smooth_order = 1});
      const auto whole = f.metrics(Split::train, {160}), chunks = f.metrics(Split::train, {1, 0, 50, 109});
      CHECK(whole.size() == chunks.size());
      for (const auto& [name, value] : whole) {
        CAPTURE(name);
        CHECK(chunks.at(name) == doctest::Approx(value).epsilon(1e-12));
      }
    }
  }

  TEST_CASE("jacobian_error is the median over rows of the relative distance from the true Jacobian") {
    Fixture f;
    const Emulator& e = f.model->emulator();
    std::vector<double> errors;
    const double h = 1e-5;
    for (const std::int32_t row : f.model->data().rows_of(Split::validation)) {
      double distance = 0, size = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        std::vector<double> z;
        for (const double sign : {1.0, -1.0})
          for (std::size_t c = 0; c < 4; ++c)
            z.push_back((static_cast<double>(f.contents.x[static_cast<std::size_t>(row) * 4 + c]) - 0.1) / 1.5 +
                        (c == i ? sign * h : 0));
        Stream stream;
        Arena arena;
        Tape tape(stream, arena, DType::f64, Tape::Mode::forward);
        const Var y = e.forward(tape, tape.constant(Tensor::of(z.data(), {2, 4})));
        for (std::size_t o = 0; o < 2; ++o) {
          const double j = (y.value().data<double>()[o] - y.value().data<double>()[2 + o]) / (2 * h);
          const double truth = f.contents.jacobian[static_cast<std::size_t>(row) * 8 + o * 4 + i] * 1.5 / 2.0;
          distance += (j - truth) * (j - truth);
          size += truth * truth;
        }
      }
      errors.push_back(std::sqrt(distance / size));
    }
    std::sort(errors.begin(), errors.end());
    const double lower = errors[errors.size() / 2 - 1], upper = errors[errors.size() / 2];
    const double got = f.metrics(Split::validation, {20}).at("jacobian_error");
    CHECK(got > lower * 0.996);
    CHECK(got < upper * 1.004);
  }

  TEST_CASE("losses agree with their definition and gradients with differences, with and without smoothness") {
    for (const char* name : {"mse", "huber", "mae"})
      for (const double weight : {0.0, 0.3})
        for (const std::int64_t order : {1, 2}) {
          CAPTURE(name);
          CAPTURE(order);
          const EmulatorLoss loss{.name = name, .smooth_weight = weight, .smooth_order = order};
          const Moments m{{}, {}, {1, 2, 3, 4, 5}, {2, 1, 0.5, 3, 1}};
          const OwnedTensor t = test::random_tensor(DType::f64, {6, 5}, "t", 9);
          CHECK(test::gradcheck(
                    [&](Tape& tape, const std::vector<Var>& v) {
                      return emulator_loss(tape, v[0], test::on_tape(tape, t), loss, m);
                    },
                    {{6, 5}}) < 1e-7);
          Stream stream;
          Arena arena;
          Tape tape(stream, arena, DType::f64, Tape::Mode::forward);
          const OwnedTensor y = test::random_tensor(DType::f64, {6, 5}, "y");
          const double got = *emulator_loss(tape, tape.constant(y), t, loss, m).value().data<double>();
          double expected = 0;
          for (std::int64_t r = 0; r < 6; ++r) {
            std::vector<double> p;
            for (std::int64_t o = 0; o < 5; ++o) {
              const double d = y->data<double>()[r * 5 + o] - t->data<double>()[r * 5 + o], a = std::abs(d);
              expected += (loss.name == "mse" ? d * d : loss.name == "mae" ? a : a < 1 ? d * d / 2 : a - 0.5) / 5;
              p.push_back(y->data<double>()[r * 5 + o] * m.output_std[static_cast<std::size_t>(o)] +
                          m.output_mean[static_cast<std::size_t>(o)]);
            }
            for (std::int64_t k = 0; k < order; ++k) {
              for (std::size_t o = 0; o + 1 < p.size(); ++o) p[o] = p[o + 1] - p[o];
              p.pop_back();
            }
            for (const double difference : p)
              expected += weight * difference * difference / static_cast<double>(5 - order);
          }
          CHECK(got == doctest::Approx(expected).epsilon(1e-12));
        }
    CHECK_THROWS_AS(EmulatorLoss{.name = "mean"}.check(1), Error);
    CHECK_THROWS_WITH_AS((EmulatorLoss{.name = "mse", .smooth_weight = 0.1, .smooth_order = 2}.check(2)),
                         doctest::Contains("at least 3 outputs"), Error);
  }

  TEST_CASE("an epoch takes every training row once, in its own order, for any cut into shards") {
    const Fixture f;
    const auto run = [&](std::int64_t epoch, const std::vector<std::int64_t>& cuts) {
      Gradients g(f.model->params());
      Stream stream;
      double loss = 0, weight = 0;
      std::int64_t first = 0;
      for (const std::int64_t count : cuts) {
        Arena arena;
        Tape tape(stream, arena, DType::f64, Tape::Mode::train, &g);
        const ShardLoss part =
            f.model->loss(tape, {.seed = 1, .epoch = epoch, .step = 0, .first = first, .count = count});
        loss += *part.sum.value().data<double>();
        weight += part.weight;
        tape.backward(part.sum);
        first += count;
      }
      CHECK(weight == static_cast<double>(first));
      return std::pair(loss, test::converted(g.flat(), DType::f64));
    };
    const auto whole = run(0, {160}), cut = run(0, {37, 0, 100, 23}), other = run(1, {160});
    CHECK(cut.first == doctest::Approx(whole.first).epsilon(1e-12));
    CHECK(test::difference(cut.second, whole.second) < 1e-12);
    CHECK(test::difference(other.second, whole.second) < 1e-12);  // the same rows
    CHECK(run(0, {30}).first != doctest::Approx(run(1, {30}).first).epsilon(1e-6));
    CHECK(whole.first / 160 == doctest::Approx(f.metrics(Split::train, {160}).at("loss")).epsilon(1e-12));
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
    CHECK(one.spectral_norm == doctest::Approx(one.frobenius_norm));
    CHECK(one.stability == 1);
    CHECK(sensitivity_metrics(f.model->emulator(), 0, f.contents.x.data()).rows.empty());
  }

  TEST_CASE("saved metadata are read back") {
    const Fixture f;
    H5File file = H5File::create(f.dir / "metadata.h5");
    f.model->save(file);
    file.close();
    const EmulatorDescription d = read_emulator_metadata(H5File::open(f.dir / "metadata.h5"));
    CHECK(d.arch == f.model->emulator().arch());
    CHECK(d.moments == f.contents.moments);
    CHECK(d.metadata.variables == f.contents.variables);
    CHECK(d.metadata.mask.mode == "both");
    CHECK(d.metadata.mask.max == f.model->metadata().mask.max);
    CHECK(d.metadata.meta == f.model->metadata().meta);
    CHECK_THROWS_WITH_AS(read_emulator_metadata(H5File::open(f.dir / "data.h5")),
                         doctest::Contains("holds no emulator"), Error);
  }
}
