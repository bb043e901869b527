#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/lockstep/measure_step.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/step/scaling.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep::apps {

/// The options of `lockstep bench --predict-ranks`.
struct ScalingQuestion {
  std::string ranks;       ///< "2..1024"
  double latency_s = 0;    ///< of a message; 0: measured here
  double bytes_per_s = 0;  ///< of a link; 0: measured here
};

/// The number of members between which the gradient travels: hosts, or ranks if there is one host.
std::int64_t link_members(const World& world);
/// A measured step as input of the scaling model, with buckets of `bucket_bytes`.
StepWork step_work(const World& world, const RunConfig& config, Task& model, const StepMeasurement& measured,
                   std::int64_t bucket_bytes);

/// Predicts the measured step on other numbers of ranks. The cost of a message comes from the options, or is fitted to
/// all-reduces timed on this allocation. Collective; the same on all ranks.
///
/// errors  Error (usage): one rank, and no cost in the options
nlohmann::ordered_json predict_scaling(World& world, const RunConfig& config, Task& model,
                                       const StepMeasurement& measured, const ScalingQuestion& question);
std::string scaling_text(const nlohmann::ordered_json& prediction);

}  // namespace lockstep::apps
