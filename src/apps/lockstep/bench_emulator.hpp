#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/models/emulator_model.hpp"
#include "lockstep/models/emulator_operators.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep::apps {

struct SyntheticRows {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
};

/// The configuration's emulator on rows made in memory: targets are a smooth function of standard normal inputs.
/// errors  Error (usage): another kind of model
std::unique_ptr<Model> synthetic_model(const RunConfig& config, const SyntheticRows& size, Placement& placement);

struct OperatorMeasurement {
  std::vector<double> samples_per_s;  ///< over all ranks, one figure per sweep over all rows
  double flops_per_sample = 0;
};

/// Physical predictions or Jacobians of all rows, each rank its part, as `lockstep predict` computes them: `sweeps` times, or when
/// that is 0 as often as fits into the seconds. Collective.
OperatorMeasurement measure_operator(World& world, const EmulatorModel& model, OperatorCall call, int threads,
                                     std::int64_t sweeps, double seconds);

}  // namespace lockstep::apps
