#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// One array of a reference file beside what this program gets.
struct VerifyRow {
  std::string name;  ///< path in the file; a remark in brackets where a second way to the same numbers is tried
  double error = 0;  ///< largest difference: of the largest reference value, or absolute
  double tolerance = 0;
  bool absolute = false;
  std::int64_t worst = -1;  ///< element with the largest difference
  double value = 0, reference = 0;
  bool ok() const { return error <= tolerance; }  ///< false for NaN
};

struct VerifyOptions {
  bool f64 = false;  ///< compute in double, and compare with the groups `*_f64`
  /// On a GPU: bf16 and f16 store values in halves. Then, and with tf32, values and gradients of the first batch are compared,
  /// with tolerances that fit so few digits, but not what comes after an update: where a gradient is nothing but rounding, Adam
  /// steps as far as anywhere else.
  DType storage = DType::f32;
  bool tf32 = false;
  int threads = 1;
  bool reproducible = false;
  Device device;
  std::int64_t shards = 16;
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  int helpers = 0;             ///< other programs that checked their part of the file
  bool helpers_passed = true;  ///< all of them found it right
  bool passed() const;
  /// One line per row, and the sum of it.
  std::string text() const;
};

/// Names for --model.
std::vector<std::string> verifiable_models();

/// Recomputes everything that a reference file of the model holds: values on the way, losses, gradients, optimizer steps, products. The steps run through
/// ShardedStep, so that on several ranks each batch is split over them. Collective; all ranks return the same rows.
///
/// errors  usage: an unknown model or file; data: a file that is no reference of this model
VerifyReport verify(World& world, const std::string& model, const std::filesystem::path& golden,
                    const VerifyOptions& options);

}  // namespace lockstep
