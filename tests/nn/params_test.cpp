#include "lockstep/nn/params.hpp"

#include <csignal>

#include "lockstep/base/stop_request.hpp"
#include "lockstep/nn/tape.hpp"
#include "support/test.hpp"

TEST_SUITE("nn.params") {
  TEST_CASE("parameters lie in one vector in registration order, at multiples of 64 bytes, with zero gaps") {
    for (const DType dtype : {DType::f32, DType::f64}) {
      ParamStore store(dtype);
      Param& a = store.add("a", {3, 5}, init::ones());
      Param& b = store.add("b", {1}, init::ones());
      Param& none = store.add("none", {0, 4}, init::ones());
      Param& c = store.add("c", {16}, init::ones());
      store.allocate(1);
      const auto line = static_cast<std::int64_t>(64 / size_bytes(dtype));
      CHECK(a.offset == 0);
      CHECK(b.offset == (15 + line - 1) / line * line);
      CHECK(none.offset == b.offset + line);
      CHECK(c.offset == none.offset);
      CHECK(store.count() == 15 + 1 + 16);
      CHECK(store.flat_size() == c.offset + 16);
      double sum = 0;
      visit_float(dtype, [&]<class T>() {
        for (const T v : store.values().span<T>()) sum += static_cast<double>(v);
      });
      CHECK(sum == 32);
      CHECK(reinterpret_cast<std::uintptr_t>(c.value.raw()) % 64 == 0);
      CHECK(&store.at("b") == &b);
      CHECK(b.index == 1);
    }
  }

  TEST_CASE("an adjoining parameter begins where the previous one ends, the next one at a multiple of 64 bytes again") {
    for (const DType dtype : {DType::f32, DType::f64}) {
      ParamStore store(dtype);
      const Param &a = store.add("a", {3, 5}, init::ones()), &b = store.add_adjoining("b", {3, 5}, init::ones()),
                  &c = store.add_adjoining("c", {1}, init::ones()), &d = store.add("d", {2}, init::ones());
      store.allocate(1);
      const auto line = static_cast<std::int64_t>(64 / size_bytes(dtype));
      CHECK(b.offset == a.offset + 15);
      CHECK(c.offset == b.offset + 15);
      CHECK(d.offset == (31 + line - 1) / line * line);
      CHECK(store.flat_size() == d.offset + line);
    }
  }

  TEST_CASE("values that exceed the memory of the machine are refused; a request to stop ends the initialisation") {
    ParamStore store;
    store.add("w", {std::int64_t{1} << 25, std::int64_t{1} << 25}, init::ones());
    check_mentions(error_of(Fault::usage, [&] { store.allocate(1); }),
                   "building the network: its 1125899906842624 parameters need 4.0 PiB, but ");
    ParamStore other;
    other.add("w", {4}, init::ones());
    stop_request = SIGTERM;
    const std::string message = error_of(kStopRequested, [&] { other.allocate(1); });
    stop_request = 0;
    check_mentions(message, "building the network: stopped by SIGTERM");
    ParamStore copy;  // an evaluation makes one, and no step may be lost
    const Param& w = copy.add("w", {4}, init::ones());
    stop_request = SIGTERM;
    copy.allocate();
    stop_request = 0;
    CHECK(std::ranges::all_of(w.value.span<float>(), [](float value) { return value == 0; }));
  }

  TEST_CASE("initial values depend on seed, name and element only, and f32 values are the rounded f64 values") {
    ParamStore one(DType::f64), other(DType::f32), reseeded(DType::f64);
    const Param& a = one.add("w", {4, 7}, init::normal(2));
    other.add("before", {100}, init::uniform(1));
    const Param& b = other.add("w", {4, 7}, init::normal(2));
    const Param& c = reseeded.add("w", {4, 7}, init::normal(2));
    const Param& d = reseeded.add("v", {4, 7}, init::normal(2));
    one.allocate(5);
    other.allocate(5);
    reseeded.allocate(6);
    CHECK(same_bits(converted(a.value, DType::f32), b.value));
    CHECK_FALSE(same_bits(a.value, c.value));
    CHECK_FALSE(same_bits(c.value, d.value));
    const Philox draws(5, 0, "init.w");
    CHECK(a.value.data<double>()[9] == 2 * draws.normal(9));
  }

  TEST_CASE("the initialisers have the distributions of their names") {
    ParamStore store(DType::f64);
    const Param& n = store.add("n", {20000}, init::normal(3));
    const Param& u = store.add("u", {20000}, init::uniform(0.5));
    const Param& x = store.add("x", {20000}, init::xavier_normal(30, 20));
    const Param& z = store.add("z", {10}, init::zeros());
    store.allocate(1);
    const auto moments = [](const Tensor& t) {
      double mean = 0, square = 0, largest = 0;
      for (const double v : t.span<double>()) mean += v, square += v * v, largest = std::max(largest, std::abs(v));
      const auto size = static_cast<double>(t.size());
      return std::array<double, 3>{mean / size, std::sqrt(square / size), largest};
    };
    CHECK(moments(n.value)[1] == Approx(3).epsilon(0.03));
    CHECK(std::abs(moments(n.value)[0]) < 0.1);
    CHECK(moments(u.value)[2] <= 0.5);
    CHECK(moments(u.value)[2] > 0.499);
    CHECK(moments(u.value)[1] == Approx(0.5 / std::sqrt(3)).epsilon(0.03));
    CHECK(moments(x.value)[1] == Approx(0.2).epsilon(0.03));
    CHECK(moments(z.value)[2] == 0);
  }

  TEST_CASE("the hash changes with one flipped bit and is equal for equal values") {
    ParamStore a, b;
    for (ParamStore* s : {&a, &b}) s->add("w", {33}, init::normal(1)), s->allocate(3);
    CHECK(a.hash() == b.hash());
    reinterpret_cast<std::uint32_t*>(b.at("w").value.data<float>())[32] ^= 1;
    CHECK(a.hash() != b.hash());
  }

  TEST_CASE("misuse is an error that names the parameter") {
    ParamStore store;
    store.add("w", {2}, init::zeros());
    CHECK_THROWS_WITH_AS(store.add("w", {2}, init::zeros()), "adding parameter w: the name is taken", Error);
    CHECK_THROWS_AS(Gradients{store}, Error);
    store.allocate(1);
    CHECK_THROWS_WITH_AS(store.add("v", {2}, init::zeros()),
                         "adding parameter v: all parameters must be added before allocate()", Error);
    CHECK_THROWS_AS(store.allocate(1), Error);
    CHECK_THROWS_WITH_AS(store.at("u"), "looking up parameter u: no parameter has this name", Error);
  }

  TEST_CASE("row-sparse gradients record each touched row once, in packed places, and zero() clears only these") {
    ParamStore store(DType::f64);
    store.add("dense", {5}, init::zeros());
    Param& table = store.add("table", {130, 3}, init::zeros());
    table.row_sparse = true;
    store.add("last", {2, 2}, init::zeros());
    store.allocate(1);
    Gradients gradients(store);
    CHECK(gradients.touched(store.at("dense")) == nullptr);
    TouchedRows& rows = *gradients.touched(table);
    std::vector<std::int32_t> places;
    for (const std::int64_t row : {129, 0, 64, 129, 63, 0}) places.push_back(rows.touch(row));
    CHECK(places == std::vector<std::int32_t>{0, 1, 2, 0, 3, 1});
    CHECK(rows.place(63) == 3);
    CHECK(std::vector<std::int64_t>(rows.rows().begin(), rows.rows().end()) ==
          std::vector<std::int64_t>{129, 0, 64, 63});
    CHECK(rows.bitmap().size() == 3);
    CHECK(rows.bitmap()[0] == (1ull | 1ull << 63));
    CHECK(rows.bitmap()[2] == 2);
    for (double& v : gradients.flat().span<double>()) v = 1;
    gradients.zero();
    CHECK(rows.rows().empty());
    CHECK(rows.bitmap()[0] + rows.bitmap()[1] + rows.bitmap()[2] == 0);
    const auto sum = [&](const Tensor& t) {
      double total = 0;
      for (const double v : t.span<double>()) total += v;
      return total;
    };
    CHECK(sum(gradients.of(store.at("dense"))) == 0);
    CHECK(sum(gradients.of(store.at("last"))) == 0);
    CHECK(sum(gradients.of(table).slice(0, 4)) == 0);
    CHECK(sum(gradients.of(table)) == 126 * 3);  // zero() cleared four rows; by contract the others are zero already
  }

  TEST_CASE("a tape gives rows of a table places in its gradient, and none if the table is frozen or needs none") {
    ParamStore store;
    Param& table = store.add("table", {4, 3}, init::zeros());
    table.row_sparse = true;
    const Param& dense = store.add("dense", {4, 3}, init::zeros());
    store.allocate(1);
    Gradients gradients(store);
    Stream stream;
    Arena arena;
    Tape train(stream, arena, DType::f32, Tape::Mode::train, &gradients),
        inputs(stream, arena, DType::f32, Tape::Mode::inputs, &gradients);
    const std::vector<std::int32_t> ids = {3, 0, 1, 3}, more = {1, 2};
    const auto no_zero = [&](std::size_t i) { return ids[i] != 0; };
    const auto all = [](std::size_t) { return true; };
    const auto list = [](std::span<const std::int32_t> s) { return std::vector<std::int32_t>(s.begin(), s.end()); };
    const RowTarget to = train.grad_of_rows(table, ids, no_zero), then = train.grad_of_rows(table, more, all);
    CHECK(to.tensor.raw() == gradients.of(table).raw());
    CHECK(to.places[0] == 0);
    CHECK(to.places[2] == 1);
    CHECK(to.places[3] == 0);
    CHECK(list(then.places) == std::vector<std::int32_t>{1, 2});
    CHECK(gradients.touched(table)->rows().size() == 3);
    CHECK(list(train.grad_of_rows(dense, ids, no_zero).places) == ids);
    CHECK_FALSE(inputs.grad_of_rows(table, ids, no_zero).tensor);
    table.trainable = false;
    CHECK_FALSE(train.grad_of_rows(table, std::vector<std::int32_t>{0}, all).tensor);
    CHECK(gradients.touched(table)->rows().size() == 3);
  }

  TEST_CASE("operations read a rounded copy, and refresh() updates it from the masters" *
            doctest::test_suite("nn.params.cuda") * doctest::skip(gpu_count() == 0)) {
    const Device gpu{DeviceKind::cuda, 0};
    Stream stream(gpu);
    ParamStore store(DType::f32);
    store.add("before", {3}, init::normal(1));
    const Param& p = store.add("p", {5, 7}, init::normal(1));
    store.allocate(3);
    const OwnedTensor first = converted(p.value, DType::f32);
    store.move_to(gpu);
    for (const DType half : {DType::bf16, DType::f16}) {
      store.store_as(half);
      CHECK(store.storage() == half);
      CHECK(store.dtype() == DType::f32);
      CHECK(Gradients(store).flat().dtype() == DType::f32);
      Arena arena(gpu);
      Tape tape(stream, arena, half, Tape::Mode::forward), single(stream, arena, DType::f32, Tape::Mode::forward);
      CHECK(tape.value(p).dtype() == half);
      CHECK(tape.real_dtype() == DType::f32);
      CHECK(same_bits(HostView(tape.value(p)), converted(first, half)));
      CHECK(same_bits(HostView(single.value(p)), first));
      {
        const HostView masters(p.value, HostView::Access::write);
        for (float& x : masters->span<float>()) x *= 1.5f;
      }
      CHECK(same_bits(HostView(tape.value(p)), converted(first, half)));
      store.refresh(stream);
      CHECK(same_bits(HostView(tape.value(p)), converted(HostView(p.value), half)));
      const HostView masters(p.value, HostView::Access::write);
      std::ranges::copy(first->span<float>(), masters->data<float>());
    }
    store.store_as(DType::f32);
    CHECK(p.stored.raw() == p.value.raw());
    CHECK_THROWS_AS(store.store_as(DType::f64), Error);
  }
}
