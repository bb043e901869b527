#include "tasks/emulator/constraint.hpp"

#include "lockstep/nn/own_tape.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "support/emulator_file.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"
#include "tasks/evaluation.hpp"

namespace {

EmulatorVariables variables() {
  EmulatorVariables v;
  v.input_names = {"sst", "aice"};
  v.output_names = {"aice", "hice", "t2m"};
  return v;
}

constexpr std::array<float, 2> kX = {2.5f, -1.25f};
constexpr std::array<double, 3> kY = {-0.3, 1.7, 0.9};

std::vector<double> values(const std::string& text) {
  const Constraint c(text, variables());
  std::vector<double> out(to_size(c.size()));
  c.evaluate(kX.data(), kY.data(), out.data(), nullptr);
  return out;
}

}  // namespace

TEST_SUITE("tasks.constraint") {
  TEST_CASE("expressions have the values of arithmetic, and names mean outputs before inputs") {
    const double a = -0.3, h = 1.7, t = 0.9, s = 2.5, in = -1.25;
    CHECK(values("max(0, -aice) ; sum(y) - sum(x)") == std::vector{0.3, a + h + t - (s + in)});
    const std::vector<std::pair<std::string, double>> cases = {
        {"1 + 2*3 - 4/8", 6.5},
        {"-2^2", -4},  // as in mathematics and Python
        {"2^-1", 0.5},
        {"2^3^2", 512},
        {"8/4/2", 1},
        {"5-3-1", 1},
        {"(hice - sst) * x[1]", (h - s) * in},
        {"y[2]/mean(y)", t / ((a + h + t) / 3)},
        {"abs(aice) + min(hice, 1e-1) + relu(-sst)", 0.3 + 0.1},
        {"exp(log(hice)) - sqrt(t2m)^2 + tanh(.5)", h - t + std::tanh(0.5)},
        {"- - aice", a}};
    for (const auto& [text, expected] : cases) {
      CAPTURE(text);
      CHECK(values(text)[0] == Approx(expected).epsilon(1e-14));
    }
    CHECK(values(" aice ;hice*2 ") == std::vector{a, 2 * h});
    for (const char* undefined : {"max(0, log(aice))", "max(log(aice), 0)", "min(1, sqrt(aice))", "relu(log(aice))"})
      CHECK(std::isnan(values(undefined)[0]));
  }

  TEST_CASE("the gradient of the sum of squares agrees with differences") {
    for (const char* text : {"aice*hice - t2m", "aice/hice", "hice^2.5 ; t2m^hice", "max(aice, hice) ; min(aice, hice)",
                             "exp(aice) + log(hice)", "sqrt(hice) * tanh(t2m)", "abs(aice) ; relu(-aice)",
                             "mean(y) - mean(x) ; sum(y)^2", "-(hice - -t2m) * aice^3"}) {
      CAPTURE(text);
      const Constraint c(text, variables());
      std::vector<double> v(to_size(c.size()));
      std::array<double, 3> slope{};
      c.evaluate(kX.data(), kY.data(), v.data(), slope.data());
      for (std::size_t o = 0; o < 3; ++o) {
        const auto at = [&](double h) {
          std::array<double, 3> y = kY;
          y[o] += h;
          c.evaluate(kX.data(), y.data(), v.data(), nullptr);
          double sum = 0;
          for (const double each : v) sum += each * each;
          return sum;
        };
        const double h = 1e-3, difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        CHECK(slope[o] == Approx(difference).epsilon(1e-8));
      }
    }
  }

  TEST_CASE("an error points at the character") {
    const auto error = [](const std::string& text) {
      return error_of(Fault::usage, [&] { Constraint(text, variables()); });
    };
    check_mentions(error("max(0, -aise)"), "at character 9: the data set has no variable 'aise'; did you mean aice?",
                   "\n  max(0, -aise)\n          ^");
    check_mentions(error("sum(aice)"), "at character 5: sum takes x or y");
    check_mentions(error("(aice"), "at character 6: ')' is missing");
    check_mentions(error("aice hice"), "at character 6: 'h' is not expected here");
    check_mentions(error("max(aice)"), "at character 9: ',' is missing");
    check_mentions(error("y[3]"), "at character 3: the index of y must be a number from 0 to 2");
    check_mentions(error("sinh(aice)"), "at character 1: no function 'sinh'");
    check_mentions(error("aice ;"), "at character 7: a value is missing");
    check_mentions(error("aice * $"), "at character 8: '$' is not a value");
    for (const char c : {'(', '-'})
      check_mentions(error(std::string(100000, c) + "aice"), "more than 200 operations are nested");
  }

  TEST_CASE("a task adds the squares to its loss, reports the mean violation and refuses a GPU") {
    const EmulatorContents contents = emulator_contents(200, 4, 2);
    const auto task = [&](const std::string& constraint) {
      EmulatorTask::Options options = {
          .arch = {.hidden = 7}, .loss = {.constraint = constraint, .constraint_weight = 0.7}, .dtype = DType::f64};
      return std::make_unique<EmulatorTask>(options, read_data(contents));
    };
    const auto metric = [](EmulatorTask& t, const std::string& name) {
      const auto all = evaluation_metrics(t, Split::validation, {20});
      return all.contains(name) ? all.at(name) : -1.0;
    };
    const auto plain = task(""), with = task("aice - 3 ; max(0, out1)");
    CHECK(metric(*plain, "constraint.1") == -1);
    CHECK(metric(*with, "constraint.1") > 1);  // |aice - 3| of an untrained network
    CHECK(metric(*with, "loss") > metric(*plain, "loss") + 0.7 * std::pow(metric(*with, "constraint.1"), 2) - 1e-9);
    const auto loss = [&](Tape& tape, const std::vector<Var>&) {
      return with->loss(tape, {.seed = 5, .epoch = 0, .step = 1, .first = 3, .count = 9}).sum;
    };
    CHECK(gradcheck(loss, {}, &with->params(), 1, Where::cpu) < 1e-7);
    for (const char* outside : {"log(0 * aice - 1)", "sqrt(0 * aice) - 1"}) {  // no value; no slope
      const std::string message = error_of(Fault::usage, [&] {
        const auto model = task(outside);
        Gradients gradients(model->params());
        OwnTape tape(DType::f64, Tape::Mode::train, &gradients);
        model->loss(tape, {.seed = 5, .epoch = 0, .step = 1, .first = 3, .count = 9});
      });
      check_mentions(message, outside, "is not finite in row ", "for the prediction aice = ");
    }
    constexpr Device kElsewhere{DeviceKind::cuda, 0};
    CHECK(contains(error_of(Fault::usage, [&] { with->move_to(kElsewhere); }), "run on the processor only"));
  }
}
