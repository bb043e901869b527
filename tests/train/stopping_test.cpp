#include "lockstep/train/stopping.hpp"

#include "support/test.hpp"

namespace {

TrainState state_with(const char* series, const std::vector<double>& values) {
  TrainState state;
  for (const double value : values) state.history.append({{series, value}});
  state.epoch = std::ssize(values);
  return state;
}

bool says(const std::string& reason, const char* rule) { return reason.find(rule) != std::string::npos; }

}  // namespace

TEST_SUITE("train.stopping") {
  TEST_CASE("patience counts evaluations without improvement; zero turns it off") {
    TrainState state;
    state.since_best = 4;
    CHECK(stop_reason({.patience = 5}, state) == "");
    state.since_best = 5;
    CHECK(says(stop_reason({.patience = 5}, state), "stop.patience"));
    CHECK(stop_reason({.patience = 0}, state) == "");
  }

  TEST_CASE("the rule of training losses checks every ten epochs and stops after three checks without progress") {
    const RunConfig::Stop rules{.rule = "train_loss"};
    std::vector<double> losses;
    const auto stops = [&](double at_look) {
      losses.insert(losses.end(), 9, 100.0);  // epochs between the checks do not matter
      losses.push_back(at_look);
      return says(stop_reason_of_epoch(rules, state_with("loss", losses)), "train_loss");
    };
    CHECK_FALSE(stops(2.0));
    CHECK_FALSE(stops(1.5));
    CHECK_FALSE(stops(2.1));    // rises: one
    CHECK_FALSE(stops(1.499));  // falls by less than 0.5 %: two
    CHECK_FALSE(stops(1.0));    // falls: none
    CHECK_FALSE(stops(1.6));
    CHECK_FALSE(stops(1.7));
    CHECK(stops(1.599));
    CHECK(stop_reason_of_epoch({.rule = "valid"}, state_with("loss", losses)) == "");
    losses.push_back(1.6);
    CHECK(stop_reason_of_epoch(rules, state_with("loss", losses)) == "");
    TrainState state;
    state.since_best = 99;
    CHECK(stop_reason({.rule = "train_loss", .patience = 1}, state) == "");
    CHECK(stop_reason({.rule = "none", .patience = 1}, state) == "");
  }

  TEST_CASE("an evaluation counts as better only by more than the least gain over the last that did") {
    TrainState state;
    const auto since = [&](double value, bool larger) {
      note_score(state, value, larger, 0.1);
      return state.since_best;
    };
    CHECK(since(0.5, true) == 0);
    CHECK(since(0.55, true) == 1);
    CHECK(since(0.6, true) == 2);  // 0.1 is not more than 0.1
    CHECK(since(0.65, true) == 0);
    CHECK(since(std::nan(""), true) == 1);
    state = {};
    CHECK(since(std::nan(""), false) == 1);
    CHECK(since(2, false) == 0);
    CHECK(since(1.95, false) == 1);
    CHECK(since(1.85, false) == 0);
  }

  TEST_CASE("a loss plateau is the spread of the last window, relative to its largest") {
    const TrainState flat = state_with(kValidationLoss, {5, 1.00, 0.99, 1.00}),
                     moving = state_with(kValidationLoss, {5, 1.0, 0.9, 1.0});
    const RunConfig::Stop rules{.min_epochs = 4, .window = 3, .tolerance = 0.05};
    CHECK(says(stop_reason(rules, flat), "stop.tolerance"));
    CHECK(stop_reason(rules, moving) == "");
    CHECK(stop_reason({.min_epochs = 5, .window = 3, .tolerance = 0.05}, flat) == "");  // too early
    CHECK(stop_reason({.min_epochs = 0, .window = 4, .tolerance = 0.05}, flat) == "");  // the window reaches the 5
    CHECK(stop_reason({.min_epochs = 0, .window = 5, .tolerance = 0.05}, flat) == "");  // not enough values
  }

  TEST_CASE("a jacobian plateau uses the mean absolute sensitivity, else the Frobenius norm") {
    const RunConfig::Stop rules{.jacobian_min_epochs = 2, .jacobian_window = 3, .jacobian_tolerance = 0.01};
    CHECK(says(stop_reason(rules, state_with(kMeanAbsGradient, {2, 2, 2})), "stop.jacobian_tolerance"));
    CHECK(says(stop_reason(rules, state_with(kFrobeniusNorm, {2, 2, 2})), "stop.jacobian_tolerance"));
    TrainState both = state_with(kFrobeniusNorm, {2, 2, 2});
    for (const double value : {1.0, 2.0, 3.0}) both.history.append({{kMeanAbsGradient, value}});
    CHECK(stop_reason(rules, both) == "");
  }

  TEST_CASE("no evaluation starts that leaves no time for a checkpoint, but each start makes progress") {
    constexpr double kLimit = 1000;
    CHECK_FALSE(too_late(1e9, 0, 10, 1e9));  // no limit
    CHECK_FALSE(too_late(979, kLimit, 10, 0));
    CHECK(too_late(981, kLimit, 10, 0));
    CHECK(too_late(951, kLimit, 0, 0));  // no checkpoint so far
    CHECK_FALSE(too_late(679, kLimit, 10, 300));
    CHECK(too_late(681, kLimit, 10, 300));
    CHECK_FALSE(too_late(499, kLimit, 10, 1e9));
    CHECK(too_late(501, kLimit, 10, 1e9));
  }
}
