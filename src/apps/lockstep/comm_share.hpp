#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/measure_step.hpp"
#include "lockstep/comm/comm_test.hpp"
#include "lockstep/train/scaling.hpp"

namespace lockstep::apps {

/// What communication costs the training of one model on this allocation: a measured step, and what the scaling model expects of other
/// sizes of buckets.
struct CommShare {
  struct Choice {
    std::int64_t bucket_bytes = 0;
    std::size_t messages = 0;
    StepPrediction step;
  };
  std::string kind;
  StepMeasurement measured;
  LinkCost cost;
  std::vector<Choice>
      choices;  ///< the configured one first; none on one rank, or when the gradient does not travel in buckets
  std::size_t best = 0;  ///< among choices: the least step, the configured one within 1 % of it
};

/// Takes steps for about `seconds` and fits the cost of a message to the started all-reduces of the report. Collective.
CommShare comm_share(World& world, const RunConfig& config, Model& model, const CommReport& report, int threads,
                     double seconds);
std::string comm_share_text(const CommShare& share);
nlohmann::ordered_json comm_share_json(const CommShare& share);

}  // namespace lockstep::apps
