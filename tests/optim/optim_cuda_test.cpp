#include <cmath>
#include <limits>
#include <vector>

#include "doctest/doctest.h"
#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/sign_sgd.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
bool no_gpu() { return gpu_count() == 0; }

OwnedTensor on(Device device, const Tensor& host) {
  OwnedTensor there(host.dtype(), host.shape(), device);
  const Stream stream(device);
  copy(stream, there, host);
  stream.synchronize();
  return there;
}
/// What is on a GPU beside what is on the host.
Difference distance(const Tensor& gpu, const Tensor& host) { return difference(HostView(gpu), host); }
bool same(const Tensor& gpu, const Tensor& host) { return same_bits(HostView(gpu), host); }

/// Two tables with few touched rows, one of odd width, a frozen parameter between, and one of several pieces.
struct Store {
  Store(DType dtype, Device device) : params(dtype) {
    for (const auto& [name, shape] : {std::pair{"a", Shape{37, 3}},
                                      {"b", Shape{1}},
                                      {"frozen", Shape{5}},
                                      {"c", Shape{19, 40}},
                                      {"d", Shape{5001}}}) {
      Param& p = params.add(name, shape, init::normal(1));
      p.trainable = p.name != "frozen";
      p.row_sparse = shape.rank() == 2;
      p.l2 = p.name == "a" || p.name == "d" ? 1e-2 : 0;
    }
    params.allocate(5);
    params.move_to(device);
  }
  /// Of step t; of the tables every third row alone.
  OwnedTensor gradient(std::int64_t t) const {
    OwnedTensor g = random_tensor(params.dtype(), {params.flat_size()}, "g", static_cast<std::uint64_t>(t));
    visit_float(params.dtype(), [&]<class T>() {
      std::vector<T> kept(g->data<T>(), g->data<T>() + g->size());
      std::fill_n(g->data<T>(), g->size(), T{0});
      for (const Param& p : params.all())
        for (std::int64_t i = 0; p.trainable && i < p.shape.size(); ++i)
          if (!p.row_sparse || (i / p.shape.columns() + t) % 3 == 0)
            g->data<T>()[p.offset + i] = kept[static_cast<std::size_t>(p.offset + i)];
    });
    return g;
  }
  ParamStore params;
};

}  // namespace

TEST_SUITE("optim.cuda") {
  TEST_CASE("a GPU takes the processor's steps: the same bits, but for the arc tangent in double" *
            doctest::skip(no_gpu())) {
    std::vector<OptimizerOptions> all;
    for (const char* name : {"adam", "adamw", "adam_atan2", "sgd"})
      for (const bool lazy : {false, true}) {
        if (lazy && std::string(name) == "adam_atan2") continue;
        all.push_back({.name = name, .weight_decay = 0.01, .lazy = lazy});
      }
    all.push_back({.name = "adam_atan2", .weight_decay = 0.1, .atan2_bias = "paper"});
    all.push_back({.name = "sgd", .weight_decay = 0.01, .momentum = 0});
    for (const OptimizerOptions& options : all)
      for (const DType dtype : {DType::f32, DType::f64})
        for (const bool averaged : {false, true}) {
          CAPTURE(options.name);
          CAPTURE(options.lazy);
          CAPTURE(averaged);
          Store here(dtype, {}), there(dtype, kGpu);
          Ema ema(here.params, 0.9), gpu_ema(there.params, 0.9);
          const auto optimizer = make_optimizer(options, here.params, trainable_ranges(here.params));
          const auto gpu = make_optimizer(options, there.params, trainable_ranges(there.params));
          for (int t = 0; t < 3; ++t) {
            const OwnedTensor g = here.gradient(t);
            optimizer->step(g, 0.05, 0.7, averaged ? &ema : nullptr);
            gpu->step(on(kGpu, g), 0.05, 0.7, averaged ? &gpu_ema : nullptr);
          }
          const bool exact = options.name != "adam_atan2" || dtype == DType::f32;
          const auto check = [&](const Tensor& found, const Tensor& expected) {
            if (exact)
              CHECK(same(found, expected));
            else
              CHECK(distance(found, expected) < 1e-15);
          };
          check(there.params.values(), here.params.values());
          check(gpu_ema.flat(), ema.flat());
          REQUIRE(gpu->state().size() == optimizer->state().size());
          for (std::size_t i = 0; i < gpu->state().size(); ++i) {
            CHECK(gpu->state()[i].name == optimizer->state()[i].name);
            check(gpu->state()[i].value, optimizer->state()[i].value);
          }
        }
  }

  TEST_CASE("averages and weights change places on a GPU, and their hashes are the processor's" *
            doctest::skip(no_gpu())) {
    Store here(DType::f32, {}), there(DType::f32, kGpu);
    const auto optimizer = make_optimizer({.name = "sgd"}, here.params, trainable_ranges(here.params));
    const auto gpu = make_optimizer({.name = "sgd"}, there.params, trainable_ranges(there.params));
    Ema ema(here.params, 0.5), gpu_ema(there.params, 0.5);
    optimizer->step(here.gradient(0), 0.1, 1, &ema);
    gpu->step(on(kGpu, here.gradient(0)), 0.1, 1, &gpu_ema);
    CHECK(gpu_ema.hash() == ema.hash());
    CHECK(there.params.hash() == here.params.hash());
    const std::uint64_t weights = here.params.hash(), average = ema.hash();
    gpu_ema.exchange(there.params);
    CHECK(there.params.hash() == average);
    CHECK(gpu_ema.hash() == weights);
  }

  TEST_CASE("norms and penalties on a GPU agree, and what the penalty adds has the same bits" *
            doctest::skip(no_gpu())) {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool lazy : {false, true}) {
        const Store here(dtype, {}), there(dtype, kGpu);
        const OwnedTensor g = here.gradient(1), gpu_g = on(kGpu, g);
        const std::vector<FlatRange> ranges = trainable_ranges(here.params);
        CHECK(ranges.size() == 2);
        CHECK(gradient_norm(gpu_g, ranges) == doctest::Approx(gradient_norm(g, ranges)).epsilon(1e-14));
        CHECK(gradient_norm(gpu_g, ranges) == gradient_norm(gpu_g, ranges));
        CHECK(gradient_norm(gpu_g, {}) == 0);
        CHECK(add_penalty(there.params, gpu_g, 3, lazy) ==
              doctest::Approx(add_penalty(here.params, g, 3, lazy)).epsilon(1e-14));
        CHECK(same(gpu_g, g));
      }
  }

  TEST_CASE("a penalty on the rows of a table that is longer than a grid" * doctest::skip(no_gpu())) {
    constexpr std::int64_t kRows = 33000;
    ParamStore here(DType::f32), there(DType::f32);
    for (ParamStore* params : {&here, &there}) {
      Param& p = params->add("table", {kRows, 1}, init::normal(1));
      p.row_sparse = true, p.l2 = 1e-2;
      params->allocate(5);
    }
    there.move_to(kGpu);
    const OwnedTensor g(DType::f32, {kRows});
    fill_zero(Stream(), g);
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{5}, kRows - 1}) g->data<float>()[row] = 1;
    const OwnedTensor gpu_g = on(kGpu, g);
    add_penalty(there, gpu_g, 3, true), add_penalty(here, g, 3, true);
    CHECK(same(gpu_g, g));
  }

  TEST_CASE("a norm over many elements is the same in every call, and one that is not finite is found and named" *
            doctest::skip(no_gpu())) {
    Store there(DType::f32, kGpu);
    const OwnedTensor many = random_tensor(DType::f32, {300001}, "many"), gpu_many = on(kGpu, many);
    CHECK(gradient_norm(gpu_many, {{0, 300001}}) == doctest::Approx(gradient_norm(many, {{0, 300001}})).epsilon(1e-13));
    CHECK(gradient_norm(gpu_many, {{3, 7}, {5000, 200003}}) ==
          doctest::Approx(gradient_norm(many, {{3, 7}, {5000, 200003}})).epsilon(1e-13));
    CHECK(first_non_finite(there.params, there.params.values()).empty());
    {
      const HostView host(there.params.at("c").value, HostView::Access::write);
      host->data<float>()[17] = std::numeric_limits<float>::infinity();
    }
    CHECK(first_non_finite(there.params, there.params.values()) == "c[17] = inf");
    CHECK(std::isinf(gradient_norm(there.params.values(), trainable_ranges(there.params))));
  }

  TEST_CASE("sign descent of rows has the processor's bits" * doctest::skip(no_gpu())) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 300; ++i) ids.push_back(i % 7 == 0 ? 4 : i % 5);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const OwnedTensor table = random_tensor(dtype, {9, 131}, "table"), g = random_tensor(dtype, {300, 131}, "g");
      const OwnedTensor gpu_table = on(kGpu, table);
      Arena here, there(kGpu);
      sign_sgd_rows(here, table, ids, g, 0.01, 0.1);
      sign_sgd_rows(there, gpu_table, ids, on(kGpu, g), 0.01, 0.1);
      CHECK(same(gpu_table, table));
    }
  }

  TEST_CASE("late rows have the processor's bits" * doctest::skip(no_gpu())) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      Store here(dtype, {}), there(dtype, kGpu);
      const Param &a = here.params.at("a"), &gpu_a = there.params.at("a");
      Arena arena(kGpu);
      LazyAdam adam({.name = "adam"}, here.params, {{&a}}), gpu({.name = "adam"}, there.params, {{&gpu_a}});
      for (int t = 0; t < 40; ++t) {
        std::vector<std::int32_t> rows;
        for (std::int32_t row = 0; row < 36; ++row)
          if ((row * 7 + t * 5) % 23 == 0) rows.push_back(row);
        const std::vector<std::int32_t> read = {rows.empty() ? 0 : rows[0], 3, 3, t % 37};
        arena.reset();
        const auto [gpu_read, gpu_rows] =
            for_kernels(Stream(kGpu), arena, std::span<const std::int32_t>(read), std::span<const std::int32_t>(rows));
        adam.catch_up(a, read), gpu.catch_up(gpu_a, gpu_read);
        adam.begin_step(1e-3, 0.5), gpu.begin_step(1e-3, 0.5);
        const OwnedTensor g =
            random_tensor(dtype, {static_cast<std::int64_t>(rows.size()), 3}, "g", static_cast<std::uint64_t>(t));
        adam.update(a, rows, g), gpu.update(gpu_a, gpu_rows, on(kGpu, g));
        if (t == 30) {
          adam.flush(), gpu.flush();
          CHECK(same(gpu_a.value, a.value));
        }
      }
      adam.flush(), gpu.flush();
      CHECK(same(gpu_a.value, a.value));
      const OwnedTensor g = here.gradient(7);
      adam.step(g, 1e-3), gpu.step(on(kGpu, g), 1e-3);
      CHECK(same(gpu_a.value, a.value));
      for (std::size_t i = 0; i < adam.state().size(); ++i) CHECK(same(gpu.state()[i].value, adam.state()[i].value));
    }
  }
}
