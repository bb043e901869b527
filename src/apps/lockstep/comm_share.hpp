#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/measure_step.hpp"
#include "lockstep/doctor/communication_check.hpp"
#include "lockstep/step/scaling.hpp"

namespace lockstep::apps {

/// The cost of communication in the training of a model on this allocation: a measured step, and predictions for other
/// bucket sizes.
struct CommShare {
  struct Choice {
    std::int64_t bucket_bytes = 0;
    std::size_t messages = 0;
    StepPrediction step;
  };
  std::string kind;
  StepMeasurement measured;
  LinkCost cost;
  /// The configured bucket size first. Empty on one rank, and if the gradient does not travel in buckets.
  std::vector<Choice> choices;
  /// Index of the choice with the shortest step; 0 if it saves less than 1 % of the configured step.
  std::size_t best = 0;
  std::string paying;  ///< paying_text() with the best choice
};

/// Runs steps for about `seconds` and fits the cost of a message to the asynchronous all-reduces of the report.
/// Collective.
CommShare comm_share(World& world, const RunConfig& config, Task& model, const CommReport& report, int threads,
                     double seconds);
std::string comm_share_text(const CommShare& share);
nlohmann::ordered_json comm_share_json(const CommShare& share);

}  // namespace lockstep::apps
