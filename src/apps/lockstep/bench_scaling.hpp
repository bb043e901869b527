#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/lockstep/measure_step.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/scaling.hpp"

namespace lockstep::apps {

/// What `lockstep bench --predict-ranks` asks for.
struct ScalingQuestion {
  std::string ranks;       ///< "2..1024"
  double latency_s = 0;    ///< of a message; 0: measured here
  double bytes_per_s = 0;  ///< of a link; 0: measured here
};

/// Hosts, or ranks where there is one host: between them the gradient travels.
std::int64_t link_members(const World& world);
/// A measured step as the scaling model takes it, with buckets of so many bytes.
StepWork step_work(const World& world, const RunConfig& config, Model& model, const StepMeasurement& measured,
                   std::int64_t bucket_bytes);

/// The step of a training measured here on other numbers of ranks: the cost of a message is fitted to all-reduces timed on this
/// allocation, or given. Collective; the same on all ranks.
/// errors  Error (usage): one rank and no given cost
nlohmann::ordered_json predict_scaling(World& world, const RunConfig& config, Model& model,
                                       const StepMeasurement& measured, const ScalingQuestion& question);
std::string scaling_text(const nlohmann::ordered_json& prediction);

}  // namespace lockstep::apps
