#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep::apps {

struct SyntheticRows {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
};

/// The configuration's emulator on synthetic rows: targets are a smooth function of standard normal inputs.
/// errors  Error (usage): another kind of model
std::unique_ptr<Task> synthetic_model(const RunConfig& config, const SyntheticRows& size, DataMemory& data_memory);

struct OperatorMeasurement {
  std::vector<double> samples_per_s;  ///< over all ranks, one value per sweep over all rows
  double flops_per_sample = 0;
};

/// Measures physical predictions or Jacobians of all rows, distributed over the ranks as in `lockstep predict`:
/// `sweeps` times, or, if that is 0, for about `seconds`. Collective.
OperatorMeasurement measure_operator(World& world, const EmulatorTask& model, OperatorCall call, int threads,
                                     std::int64_t sweeps, double seconds);

}  // namespace lockstep::apps
