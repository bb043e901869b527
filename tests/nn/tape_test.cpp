#include "lockstep/nn/tape.hpp"

#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
/// Two layers with a shared weight and a third layer, for tests of order and counting.
struct Net {
  ParamStore params{DType::f64};
  Linear shared, last;
  Net() {
    shared = add_linear(params, "shared", 4, 4, init::normal(0.5), init::normal(0.5));
    last = add_linear(params, "last", 4, 2, init::normal(0.5), init::normal(0.5));
    params.allocate(7);
  }
  Var forward(Tape& t, Var x) const {
    return linear(t, linear(t, linear(t, x, shared, Activation::gelu), shared, Activation::tanh), last);
  }
};

struct Recorded {
  Net net;
  Stream stream;
  Arena arena;
};

/// y = factor x as a recorded operation. `claimed` is the factor of the backward; another value makes the gradient
/// wrong.
Var times(Tape& t, Var x, double factor, double claimed) {
  Var y = t.output(x.shape(), t.wants_grad({x}));
  for (std::int64_t i = 0; i < x.value().size(); ++i)
    y.value().data<double>()[i] = factor * x.value().data<double>()[i];
  t.record("times", y, {}, [=, &t] {
    const Target dx = t.grad_of(x);
    for (std::int64_t i = 0; i < x.value().size(); ++i) {
      double& at = dx.tensor.data<double>()[i];
      at = claimed * y.grad().data<double>()[i] + (dx.accumulate ? at : 0);
    }
  });
  return y;
}
double first(const Tensor& t) { return t.data<double>()[0]; }
}  // namespace

TEST_SUITE("nn.tape") {
  TEST_CASE("the gradient check accepts a correct gradient and rejects a wrong one") {
    const auto check = [](double claimed) {
      return gradcheck([=](Tape& t, const std::vector<Var>& v) { return times(t, v[0], 3, claimed); }, {{4, 2}},
                       nullptr, 1, Where::cpu);
    };
    CHECK(check(3) < 1e-9);
    CHECK(check(3.001) > 1e-5);
    CHECK(check(-3) > 0.1);
    CHECK(check(NAN) > 1e300);
  }

  TEST_CASE("the gradient check finds operations that store instead of adding or add to unwritten memory") {
    const auto check = [](bool honest_store, bool honest_add) {
      return gradcheck(
          [=](Tape& t, const std::vector<Var>& v) {
            Var x = v[0], y = t.output(x.shape(), t.wants_grad({x}));
            for (std::int64_t i = 0; i < x.value().size(); ++i)
              y.value().data<double>()[i] = x.value().data<double>()[i];
            t.record("copy", y, {}, [=, &t] {
              Target dx = t.grad_of(x);
              if (!dx.accumulate && !honest_store) dx.tensor.data<double>()[0] = 5;
              const bool add = dx.accumulate ? honest_add : !honest_store;
              for (std::int64_t i = 0; i < x.value().size(); ++i) {
                double& at = dx.tensor.data<double>()[i];
                at = y.grad().data<double>()[i] + (add ? at : 0);
              }
            });
            return y;
          },
          {{3}}, nullptr, 1, Where::cpu);
    };
    CHECK(check(true, true) < 1e-9);
    CHECK(check(true, false) > 0.01);
    CHECK(check(false, true) > 0.01);
  }

  TEST_CASE("gradients of a network agree with finite differences, including a weight that is used twice") {
    Net net;
    CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return net.forward(t, v[0]); }, {{5, 4}}, &net.params) <
          1e-7);
  }

  TEST_CASE("the first writer stores, later writers add, and records run in reverse order") {
    OwnTape t(DType::f64, Tape::Mode::inputs);
    double value = 2;
    Var x = t.variable(Tensor::of(&value, {1}));
    std::string order;
    std::vector<bool> accumulated;
    const auto note = [&](char name, Var in) {
      Var y = t.output(in.shape(), t.wants_grad({in}));
      *y.value().data<double>() = first(in.value());
      t.record("note", y, {}, [=, &t, &order, &accumulated] {
        order += name;
        const Target d = t.grad_of(in);
        accumulated.push_back(d.accumulate);
        double& at = *d.tensor.data<double>();
        at = first(y.grad()) + (d.accumulate ? at : 0);
      });
      return y;
    };
    Var a = note('a', x), b = note('b', a), c = note('c', x);
    Var unused = note('u', x);
    CHECK(first(unused.value()) == 2);
    t.backward(add(t, b, c), 10);
    CHECK(order == "cba");  // 'u' received no gradient and did not run
    CHECK(accumulated == std::vector<bool>{false, false, true});
    CHECK(first(x.grad()) == 20);
  }

  TEST_CASE_FIXTURE(Recorded,
                    "sums pass their gradient on, also to inputs whose gradient has other writers before or after") {
    std::vector<double> x = {5};
    const auto slope = [&](auto&& network) {
      Tape t(stream, arena, DType::f64, Tape::Mode::inputs);
      const Var a = t.variable(Tensor::of(x.data(), {1}));
      t.backward(network(t, a));
      return first(a.grad());
    };
    CHECK(slope([](Tape& t, Var a) { return add(t, a, a); }) == 2);
    CHECK(slope([](Tape& t, Var a) { return add(t, times(t, a, 3, 3), a); }) == 4);
    CHECK(slope([](Tape& t, Var a) { return add(t, a, times(t, a, 3, 3)); }) == 4);
    CHECK(slope([](Tape& t, Var a) {
            const Var b = times(t, a, 2, 2), s = add(t, b, a);  // 3 a
            return add(t, add(t, s, s), b);                     // 6 a + 2 a
          }) == 8);
    CHECK(slope([](Tape& t, Var a) {
            const Var one = t.constant(a.value()), s = add(t, one, a);  // the constant needs no gradient
            return add(t, times(t, s, 5, 5), add(t, one, s));
          }) == 6);
  }

  TEST_CASE_FIXTURE(Recorded, "parameter gradients accumulate over calls and tapes, and scale with the seed") {
    Gradients once(net.params), thrice(net.params);
    const OwnedTensor x = random_tensor(DType::f64, {6, 4}, "x"), target(DType::f64, {6, 2});
    const auto step = [&](Gradients& g, double scale) {
      arena.reset();
      Tape t(stream, arena, DType::f64, Tape::Mode::train, &g);
      t.backward(regression_loss(t, net.forward(t, t.constant(x)), target, Regression::mse), scale);
    };
    step(once, 1);
    step(thrice, 1);
    step(thrice, 2);
    OwnedTensor expected = converted(once.flat(), DType::f64);
    for (double& v : expected->span<double>()) v *= 3;
    CHECK(difference(thrice.flat(), expected) < 1e-14);
    thrice.zero();
    for (const double v : thrice.flat().span<double>()) CHECK(v == 0);
  }

  TEST_CASE_FIXTURE(Recorded, "mode inputs computes gradients of variables and no parameter gradients") {
    Gradients gradients(net.params);
    const OwnedTensor x = random_tensor(DType::f64, {3, 4}, "x"), seed = random_tensor(DType::f64, {3, 2}, "seed");
    Tape both(stream, arena, DType::f64, Tape::Mode::train, &gradients);
    Var vx = both.variable(x);
    both.backward(net.forward(both, vx), seed);
    const OwnedTensor expected = converted(vx.grad(), DType::f64);
    CHECK(std::abs(first(gradients.of(*net.last.bias))) > 0);

    gradients.zero();
    for (Gradients* g : {static_cast<Gradients*>(nullptr), &gradients}) {
      Tape only(stream, arena, DType::f64, Tape::Mode::inputs, g);
      Var v = only.variable(x);
      only.backward(net.forward(only, v), seed);
      CHECK(same_bits(v.grad(), expected));
      for (const double value : gradients.flat().span<double>()) CHECK(value == 0);
    }
  }

  TEST_CASE_FIXTURE(Recorded, "mode forward records nothing, returns the same values and rejects a backward") {
    Gradients gradients(net.params);
    const OwnedTensor x = random_tensor(DType::f64, {3, 4}, "x");
    Tape train(stream, arena, DType::f64, Tape::Mode::train, &gradients);
    const OwnedTensor y = converted(net.forward(train, train.constant(x)).value(), DType::f64);
    Tape plain(stream, arena, DType::f64, Tape::Mode::forward);
    Var v = net.forward(plain, plain.variable(x));
    CHECK(same_bits(v.value(), y));
    CHECK_FALSE(v.wants_grad());
    CHECK_THROWS_AS(plain.backward(v), Error);
    CHECK_THROWS_AS(Tape(stream, arena, DType::f64, Tape::Mode::train), Error);
  }

  TEST_CASE_FIXTURE(Recorded, "frozen parameters get no gradient, and work that only they need is skipped") {
    net.params.at("shared.weight").trainable = net.params.at("shared.bias").trainable = false;
    Gradients gradients(net.params);
    const OwnedTensor x = random_tensor(DType::f64, {3, 4}, "x");
    OwnTape t(DType::f64, Tape::Mode::train, &gradients);
    Var hidden = linear(t, t.constant(x), net.shared, Activation::gelu);
    CHECK_FALSE(hidden.wants_grad());
    t.backward(linear(t, hidden, net.last));
    for (const double v : gradients.of(*net.shared.weight).span<double>()) CHECK(v == 0);
    CHECK(std::abs(first(gradients.of(*net.last.bias))) == 3);
  }

  TEST_CASE_FIXTURE(Recorded, "a parameter is ready once, after the last record that adds to it, in backward order") {
    Gradients gradients(net.params);
    const OwnedTensor x = random_tensor(DType::f64, {3, 4}, "x");
    OwnTape t(DType::f64, Tape::Mode::train, &gradients);
    std::vector<std::string> ready;
    OwnedTensor at_ready(DType::f64, {4, 4});
    t.on_param_ready([&](const Param& p) {
      ready.push_back(p.name);
      if (p.name == "shared.weight") at_ready = converted(gradients.of(p), DType::f64);
    });
    // An unused result also counts as a use of 'last'; it must not delay the parameter.
    Var y = net.forward(t, t.constant(x));
    linear(t, t.constant(x), net.last);
    t.backward(y);
    CHECK(ready == std::vector<std::string>{"last.weight", "last.bias", "shared.weight", "shared.bias"});
    CHECK(same_bits(at_ready, gradients.of(*net.shared.weight)));
  }

  TEST_CASE_FIXTURE(
      Recorded, "with parameters_last() the bits are the same, and a table is ready before the products for weights") {
    ParamStore params(DType::f64);
    const Param& table = params.add("table", {5, 4}, init::normal(0.5));
    const Linear shared = add_linear(params, "shared", 4, 4, init::normal(0.5), init::normal(0.5));
    const Linear last = add_linear(params, "last", 4, 2, init::normal(0.5), init::normal(0.5));
    params.allocate(7);
    const std::vector<std::int32_t> ids = {3, 1, 3};
    const auto gradient = [&](bool parameters_last, std::vector<std::string>& ready) {
      Gradients gradients(params);
      arena.reset();
      Tape t(stream, arena, DType::f64, Tape::Mode::train, &gradients);
      t.on_param_ready([&](const Param& p) { ready.push_back(p.name); });
      if (parameters_last) t.parameters_last();
      const Var x = embedding(t, table, ids);
      t.backward(linear(t, linear(t, linear(t, x, shared, Activation::gelu), shared, Activation::tanh), last));
      return converted(gradients.flat(), DType::f64);
    };
    std::vector<std::string> usual, late;
    CHECK(same_bits(gradient(true, late), gradient(false, usual)));
    CHECK(usual == std::vector<std::string>{"last.weight", "last.bias", "shared.weight", "shared.bias", "table"});
    CHECK(late == std::vector<std::string>{"table", "last.weight", "last.bias", "shared.weight", "shared.bias"});
  }

  TEST_CASE_FIXTURE(Recorded, "after the first step the arena does not grow and every address repeats") {
    Arena arena(Device{}, 256);
    Gradients gradients(net.params);
    const OwnedTensor x = random_tensor(DType::f64, {20, 4}, "x"), target(DType::f64, {20, 2});
    std::vector<const void*> addresses;
    std::size_t high_water = 0;
    for (int step = 0; step < 4; ++step) {
      arena.reset();
      Tape t(stream, arena, DType::f64, Tape::Mode::train, &gradients);
      Var vx = t.variable(x), y = net.forward(t, vx), loss = regression_loss(t, y, target, Regression::mse);
      t.backward(loss);
      const std::vector<const void*> now = {y.value().raw(), loss.value().raw(), y.grad().raw(), vx.grad().raw()};
      if (step >= 2) CHECK(now == addresses);
      if (step >= 1) CHECK(arena.high_water_bytes() == high_water);
      addresses = now;
      high_water = arena.high_water_bytes();
    }
  }

  TEST_CASE("a failing backward names its operation") {
    OwnTape t(DType::f64, Tape::Mode::inputs);
    double value = 1;
    Var x = t.variable(Tensor::of(&value, {}));
    Var y = t.output({}, true);
    t.record("broken", y, {}, [] { throw Error(Fault::data, "no luck"); });
    CHECK_THROWS_WITH_AS(t.backward(y), "backward of broken: no luck", Error);
    CHECK_THROWS_AS(t.backward(x, OwnedTensor(DType::f64, {2})), Error);
  }
}
