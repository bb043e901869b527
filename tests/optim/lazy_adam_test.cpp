#include "lockstep/optim/lazy_adam.hpp"

#include "lockstep/device/kernel_arrays.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kRows = 37, kRelations = 512;  // the latter: two blocks of a GPU

struct Tables {
  explicit Tables(DType dtype) : params(dtype) {
    entity = &params.add("entity", Shape{kRows, 21}, init::uniform(0.01));
    relation = &params.add("relation", Shape{kRelations, 1, 2}, init::normal(1));
    params.allocate(3);
  }
  ParamStore params;
  const Param *entity, *relation;
};

/// The rows that a step touches, ascending: some often, some rarely, the last one never.
std::vector<std::int32_t> touched(std::int64_t step, std::int64_t rows) {
  const Philox draw(11, static_cast<std::uint64_t>(step), "touched");
  std::vector<std::int32_t> some;
  for (std::int64_t row = 0; row + 1 < rows; ++row) {
    const double often = row % 3 == 0 ? 0.3 : row % 3 == 1 ? 0.03 : 0.001;
    if (draw.uniform(static_cast<std::uint64_t>(row)) < often) some.push_back(static_cast<std::int32_t>(row));
  }
  return some;
}

OwnedTensor gradient_of(DType dtype, std::int64_t step, const std::vector<std::int32_t>& rows, std::int64_t columns) {
  OwnedTensor g(dtype, Shape{std::ssize(rows), columns});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Philox draw(12, static_cast<std::uint64_t>(step), "gradient", static_cast<std::uint64_t>(rows[i]));
    for (std::int64_t c = 0; c < columns; ++c) {
      const double value = draw.normal(static_cast<std::uint64_t>(c)) * 1e-3;
      visit_float(dtype,
                  [&]<class T>() { g->data<T>()[static_cast<std::int64_t>(i) * columns + c] = static_cast<T>(value); });
    }
  }
  return g;
}

void scatter(const Tensor& flat, const Param& p, const std::vector<std::int32_t>& rows, const Tensor& gradient) {
  const std::int64_t columns = p.shape.size() / p.shape[0];
  visit_float(flat.dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(gradient.data<T>() + static_cast<std::int64_t>(i) * columns, columns,
                  flat.data<T>() + p.offset + rows[i] * columns);
  });
}

bool same_rows(const Param& a, const Param& b, const std::vector<std::int32_t>& rows) {
  bool same = true;
  for (const std::int32_t row : rows) same = same && same_bits(a.value.slice(row, 1), on_cpu(b.value.slice(row, 1)));
  return same;
}

using Rate = double (*)(std::int64_t step);

/// Runs dense and lazy Adam side by side. Rows must be equal whenever they are read, and all rows after each flush.
void compare(DType dtype, std::int64_t steps, std::int64_t flush_every, const OptimizerOptions& options, Rate lr,
             Device device = {}) {
  Tables dense(dtype), lazy(dtype);
  lazy.params.move_to(device);
  const Stream stream(device);
  Arena arena(device);
  const auto adam = make_optimizer(options, dense.params, trainable_ranges(dense.params));
  LazyAdam late(options, lazy.params, {{lazy.entity}, {lazy.relation}});
  OwnedTensor flat(dtype, Shape{dense.params.flat_size()});
  bool rows_equal = true, all_equal = true;
  for (std::int64_t t = 0; t < steps; ++t) {
    const auto rows = touched(t, kRows), relations = touched(t + 1000000, kRelations);
    arena.reset();
    const auto [late_rows, late_relations] = for_kernels(stream, arena, rows, relations);
    late.catch_up(*lazy.entity, late_rows);
    late.catch_up(*lazy.relation, late_relations);
    rows_equal = rows_equal && same_rows(*dense.entity, *lazy.entity, rows) &&
                 same_rows(*dense.relation, *lazy.relation, relations);
    const OwnedTensor g = gradient_of(dtype, t, rows, 21), h = gradient_of(dtype, t + 1000000, relations, 2);
    fill_zero(Stream(), flat);
    scatter(flat, *dense.entity, rows, g);
    scatter(flat, *dense.relation, relations, h);
    adam->step(flat, lr(t), 0.25);
    late.begin_step(lr(t), 0.25);
    late.update(*lazy.entity, late_rows, on_device(g, device));
    late.update(*lazy.relation, late_relations, on_device(h, device));
    if ((t + 1) % flush_every == 0 || t + 1 == steps) {
      late.flush();
      all_equal = all_equal && same_bits(dense.params.values(), on_cpu(lazy.params.values()));
      for (std::size_t i = 0; i < adam->state().size(); ++i) {
        CHECK(adam->state()[i].name == late.state()[i].name);
        all_equal = all_equal && same_bits(adam->state()[i].value, on_cpu(late.state()[i].value));
      }
    }
  }
  CHECK(rows_equal);
  CHECK(all_equal);
}

}  // namespace

TEST_SUITE("optim.lazy_adam") {
  EVERY_ISA_TEST_CASE("rows with deferred steps have the bits of the dense update") {
    for (const DType dtype : {DType::f32, DType::f64}) {
      compare(dtype, 150, 40, {}, [](std::int64_t) { return 1e-2; });
      compare(dtype, 60, 60, {.beta1 = 0.5, .beta2 = 0.9, .eps = 1e-14}, [](std::int64_t) { return 1e-3; });
    }
  }

  TEST_CASE("rows at rest and denormal moments have the bits of the dense update") {
    compare(DType::f32, 2600, 2600, {}, [](std::int64_t) { return 1e-4; });
    compare(DType::f32, 1500, 1500, {.eps = 1e-3}, [](std::int64_t) { return 1.0; });
    compare(DType::f64, 1200, 1200, {}, [](std::int64_t) { return 1e-4; });
  }

  TEST_CASE("rows on a GPU have the bits of the dense update" * doctest::test_suite("optim.lazy_adam.cuda") *
            doctest::skip(gpu_count() == 0)) {
    const Device gpu = {DeviceKind::cuda, 0};
    for (const DType dtype : {DType::f32, DType::f64}) {
      compare(
          dtype, 60, 40, {}, [](std::int64_t) { return 1e-2; }, gpu);
      compare(
          dtype, 30, 30, {.beta1 = 0.5, .beta2 = 0.9, .eps = 1e-14}, [](std::int64_t) { return 1e-3; }, gpu);
    }
    // One moment becomes 0 before the other; only with the larger eps does a row come to rest.
    for (const auto& [beta2, eps, flush_every] : {std::tuple{0.9, 1e-12, 160}, {0.5, 1e-14, 20}})
      compare(
          DType::f32, 200, flush_every, {.beta1 = 0.5, .beta2 = beta2, .eps = eps}, [](std::int64_t) { return 1e-3; },
          gpu);
    compare(
        DType::f32, 400, 400, {.eps = 1e-3}, [](std::int64_t) { return 1.0; }, gpu);
    compare(
        DType::f32, 150, 150, {}, [](std::int64_t t) { return t < 80    ? 1e-7
                                                              : t < 100 ? 1e3
                                                                        : 1e-5; }, gpu);
  }

  TEST_CASE("a duplicate row is updated once" * doctest::test_suite("optim.lazy_adam.cuda") *
            doctest::skip(gpu_count() == 0)) {
    Tables once(DType::f32), twice(DType::f32);
    const Device gpu = {DeviceKind::cuda, 0};
    const std::vector<std::int32_t> row = {5}, rows = {5, 5, 3, 5};
    const OwnedTensor g = on_device(gradient_of(DType::f32, 1, row, 21), gpu);
    const auto run = [&](Tables& t, const std::vector<std::int32_t>& named) {
      t.params.move_to(gpu);
      const Stream stream(gpu);
      Arena arena(gpu);
      LazyAdam adam({}, t.params, {{t.entity}, {t.relation}});
      const auto [first, later] = for_kernels(stream, arena, row, named);
      adam.begin_step(1e-2, 1);
      adam.update(*t.entity, first, g);
      for (int i = 0; i < 5; ++i) adam.begin_step(1e-2, 1);
      adam.catch_up(*t.entity, later);
    };
    run(once, row);
    run(twice, rows);
    CHECK(same_bits(on_cpu(once.params.values()), on_cpu(twice.params.values())));
  }

  TEST_CASE("a rising learning rate moves rows that were at rest") {
    compare(DType::f32, 900, 900, {}, [](std::int64_t t) { return t < 600 ? 1e-7 : t < 700 ? 1e3 : 1e-5; });
    compare(DType::f32, 500, 500, {}, [](std::int64_t t) { return t % 100 == 99 ? 1e2 : 1e-6; });
  }

  TEST_CASE("the optimizer continues from a saved state bit for bit") {
    const auto part = [](LazyAdam& adam, Tables& t, std::int64_t first, std::int64_t last) {
      for (std::int64_t step = first; step < last; ++step) {
        const auto rows = touched(step, kRows);
        adam.catch_up(*t.entity, rows);
        adam.begin_step(1e-2, 1);
        adam.update(*t.entity, rows, gradient_of(DType::f32, step, rows, 21));
      }
      adam.flush();
    };
    Tables whole(DType::f32), halves(DType::f32);
    LazyAdam once({}, whole.params, {{whole.entity}});
    part(once, whole, 0, 30);
    LazyAdam first({}, halves.params, {{halves.entity}}), second({}, halves.params, {{halves.entity}});
    part(first, halves, 0, 17);
    for (std::size_t i = 0; i < first.state().size(); ++i)
      std::copy_n(first.state()[i].value.data<float>(), first.state()[i].value.size(),
                  second.state()[i].value.data<float>());
    second.set_steps(first.steps());
    part(second, halves, 17, 30);
    CHECK(same_bits(whole.params.values(), halves.params.values()));
    CHECK(second.steps() == 30);
  }

  TEST_CASE("an optimizer of some rows leaves the others unchanged and updates ranges of rows") {
    Tables dense(DType::f32), lazy(DType::f32);
    const auto adam = make_optimizer(
        {}, dense.params, trainable_ranges(dense.params, [&](const Param& p) { return p.name == "entity"; }));
    LazyAdam mine({}, lazy.params, {{lazy.entity, 10, 15}});
    std::vector<std::int32_t> all, own;
    for (std::int32_t r = 0; r < kRows; ++r) {
      all.push_back(r);
      if (r >= 10 && r < 25) own.push_back(r);
    }
    for (std::int64_t t = 0; t < 5; ++t) {
      const OwnedTensor g = gradient_of(DType::f32, t, all, 21);
      OwnedTensor flat(DType::f32, Shape{dense.params.flat_size()});
      scatter(flat, *dense.entity, all, g);
      adam->step(flat, 1e-3);
      mine.begin_step(1e-3, 1);
      mine.update(*lazy.entity, 10, 15, g->slice(10, 15));
    }
    mine.flush();
    CHECK(same_rows(*dense.entity, *lazy.entity, own));
    const Tables untouched(DType::f32);
    CHECK(same_bits(lazy.entity->value.slice(0, 10), untouched.entity->value.slice(0, 10)));
    CHECK(same_bits(lazy.entity->value.slice(25, 12), untouched.entity->value.slice(25, 12)));
  }

  TEST_CASE("the dense step works before and after lazy steps" * doctest::test_suite("optim.lazy_adam.cuda")) {
    for (const Device device : devices()) {
      CAPTURE(name(device));
      Tables dense(DType::f32), lazy(DType::f32);
      lazy.params.move_to(device);
      Arena arena(device);
      const auto adam = make_optimizer({}, dense.params, trainable_ranges(dense.params));
      LazyAdam late({}, lazy.params, {{lazy.entity}, {lazy.relation}});
      OwnedTensor flat(DType::f32, Shape{dense.params.flat_size()});
      for (std::int64_t t = 0; t < 12; ++t) {
        const auto rows = touched(t, kRows);
        const OwnedTensor g = gradient_of(DType::f32, t, rows, 21);
        fill_zero(Stream(), flat);
        scatter(flat, *dense.entity, rows, g);
        adam->step(flat, 1e-3);
        if (t % 3 == 1) {
          late.step(on_device(flat, device), 1e-3);
        } else {
          arena.reset();
          const auto [late_rows] = for_kernels(Stream(device), arena, rows);
          late.begin_step(1e-3, 1);
          late.update(*lazy.entity, late_rows, on_device(g, device));
        }
      }
      late.flush();
      CHECK(same_bits(dense.params.values(), on_cpu(lazy.params.values())));
    }
  }

  TEST_CASE("weight decay, gradients of another size and unknown parameters are errors") {
    Tables t(DType::f32);
    CHECK_THROWS_WITH_AS(LazyAdam({.weight_decay = 0.1}, t.params, {{t.entity}}),
                         "option optim.weight_decay = 0.1: must be 0 when only rows with a gradient are updated",
                         Error);
    CHECK_THROWS_AS(LazyAdam({.eps = 0}, t.params, {{t.entity}}), Error);
    LazyAdam adam({}, t.params, {{t.entity}});
    adam.begin_step(1, 1);
    CHECK_THROWS_AS(adam.update(*t.entity, 0, 2, OwnedTensor(DType::f32, Shape{2, 20})), Error);
    CHECK_THROWS_WITH_AS(adam.catch_up(*t.relation, std::vector<std::int32_t>{0}),
                         "looking up the optimizer state of relation: this optimizer does not update it", Error);
  }
}
