#include "lockstep/base/quantile.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/sign_sgd.hpp"
#include "support/test.hpp"

namespace {
H5File golden() { return H5File::open(golden_path("hrm_optim.h5")); }

/// The largest difference of parameters and moments over all steps, relative to the largest value.
double worst(const H5File& file, const std::string& bias, double decay, DType dtype) {
  const std::vector<double> start = file.read<double>("/adam_atan2/param0"), g = file.read<double>("/adam_atan2/grads"),
                            lr = file.read<double>("/adam_atan2/lr");
  const auto n = std::ssize(start);
  ParamStore params(dtype);
  const Param& p = params.add("p", {n}, [&](const Philox&, std::uint64_t i) { return start[i]; });
  params.allocate(0);
  const auto optimizer =
      make_optimizer({.name = "adam_atan2", .beta1 = 0.9, .beta2 = 0.95, .weight_decay = decay, .atan2_bias = bias},
                     params, trainable_ranges(params));
  const std::string group = "/adam_atan2/" + bias + (decay == 1 ? "_wd1.0/" : "_wd0.1/");
  const auto expected = [&](const char* name) { return file.read<double>(group + name); };
  const std::vector<double> ep = expected("param"), em = expected("exp_avg"), ev = expected("exp_avg_sq");
  double error = 0;
  for (std::int64_t t = 0; t < std::ssize(lr); ++t) {
    const Tensor row = Tensor::of(g.data() + t * n, {n});
    const OwnedTensor gradient(dtype, {params.flat_size()});
    visit_float(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < n; ++i) gradient->data<T>()[i] = static_cast<T>(row.data<double>()[i]);
    });
    optimizer->step(gradient, lr[to_size(t)]);
    const auto at = [&](const std::vector<double>& all) { return Tensor::of(all.data() + t * n, {n}); };
    error =
        std::max({error, difference(p.value, at(ep)).relative, difference(optimizer->state()[0].value, at(em)).relative,
                  difference(optimizer->state()[1].value, at(ev)).relative});
  }
  return error;
}
}  // namespace

TEST_SUITE("optim.adam_atan2") {
  TEST_CASE("both forms agree with the reference for zero, vanishing, huge and alternating gradients") {
    const H5File file = golden();
    for (const std::string bias : {"package", "paper"})
      for (const double decay : {0.1, 1.0}) {
        CAPTURE(bias);
        CAPTURE(decay);
        CHECK(worst(file, bias, decay, DType::f64) < 1e-13);
        CHECK(worst(file, bias, decay, DType::f32) < 2e-6);
      }
  }

  TEST_CASE("the schedule equals the table of the reference") {
    const H5File file = golden();
    const std::vector<double> table = file.read<double>("/lr_schedule/table");
    for (std::size_t row = 0; row < table.size(); row += 6) {
      const double* r = &table[row];
      CAPTURE(row / 6);
      const LrSchedule schedule({.name = "cosine",
                                 .unit = "step",
                                 .warmup = static_cast<std::int64_t>(r[1]),
                                 .total = static_cast<std::int64_t>(r[2]),
                                 .origin = 1,
                                 .min_ratio = r[3]},
                                r[0]);
      CHECK(schedule.lr(static_cast<std::int64_t>(r[4]) - 1, 0) == Approx(r[5]).epsilon(1e-12));
    }
  }
}

TEST_SUITE("optim.sign_sgd") {
  TEST_CASE("rows agree with the reference: repeated ids are summed, cancelling rows only decay, others stay") {
    const H5File file = golden();
    std::vector<std::int32_t> ids = file.read<std::int32_t>("/sign_sgd/ids");
    std::vector<double> table = file.read<double>("/sign_sgd/weights"), g = file.read<double>("/sign_sgd/grads");
    const std::vector<double> after = file.read<double>("/sign_sgd/weights_after");
    const auto columns = static_cast<std::int64_t>(g.size() / ids.size()), rows = std::ssize(table) / columns;
    Arena scratch;
    const auto samples = std::ssize(ids);
    sign_sgd_rows(scratch, Tensor::of(table.data(), {rows, columns}), Tensor::of(ids.data(), {samples}),
                  Tensor::of(g.data(), {samples, columns}), file.real_attribute("/sign_sgd", "lr"),
                  file.real_attribute("/sign_sgd", "weight_decay"));
    CHECK(difference(Tensor::of(table.data(), {rows, columns}), Tensor::of(after.data(), {rows, columns})) < 1e-14);
  }

  TEST_CASE("an id beyond the table is an error") {
    const OwnedTensor table(DType::f32, {3, 2}), g(DType::f32, {1, 2});
    std::int32_t id = 3;
    Arena scratch;
    CHECK_THROWS_WITH_AS(sign_sgd_rows(scratch, table, Tensor::of(&id, {1}), g, 0.1, 0),
                         "sign_sgd_rows: id 3 of sample 0: the table has 3 rows", Error);
  }
}

TEST_SUITE("base.quantile") {
  TEST_CASE("quantiles of the truncated normal equal those of the reference") {
    const H5File file = golden();
    const std::vector<double> u = file.read<double>("/trunc_normal/u01");
    for (const std::string name : {"std0", "std1"}) {
      const std::vector<double> expected = file.read<double>("/trunc_normal/" + name);
      const double std = file.real_attribute("/trunc_normal/" + name, "std");
      for (std::size_t i = 0; i < u.size(); ++i) {
        CAPTURE(u[i]);
        CHECK(std::abs(truncated_normal(u[i], std) - expected[i]) < 1e-12 * std);
      }
    }
  }
  TEST_CASE("erf_inverse inverts erf") {
    for (const double x : {-4.5, -1.0, -1e-9, 0.0, 0.3, 2.0, 4.5})
      CHECK(erf_inverse(std::erf(x)) == Approx(x).epsilon(1e-6));
    CHECK(std::erf(erf_inverse(0.123456789)) == Approx(0.123456789).epsilon(1e-15));
    CHECK(std::isinf(erf_inverse(1)));
  }
}
