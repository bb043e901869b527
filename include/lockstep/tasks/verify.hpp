#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/io/reference_report.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// How a network is recomputed for the comparison with a reference file.
struct VerifyOptions {
  bool f64 = false;  ///< compute in double, and compare with the groups `*_f64`
  /// On a GPU, bf16 and f16 store values in halves. Then, and with tf32, only values and gradients of the first batch
  /// are compared, with tolerances for this precision. The arrays after an update are not compared: Adam's step is as
  /// large for a gradient that is only rounding noise.
  DType storage = DType::f32;
  bool tf32 = false;
  Device device;
  StepOptions step;
};

/// The kinds that have reference files: the values of --model.
std::vector<std::string> verifiable_kinds();

/// Recomputes the part of a reference file that belongs to a network: intermediate values, losses, gradients, optimizer
/// steps, products. Steps run through ShardedStep, so on several ranks each batch is split over them. Collective; all
/// ranks return the same rows, none for a file of prepared data alone.
///
/// errors  usage: an unknown kind or file; data: a file that is no reference of this kind
ReferenceReport verify(World& world, const std::string& kind, const std::filesystem::path& golden,
                       const VerifyOptions& options);

}  // namespace lockstep
