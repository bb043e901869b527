#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace lockstep::ops {

/// The choices of ops/product_choices.hpp.
struct AlgorithmTable {
  bool tuned = false;
  std::int64_t edition = 0;                       ///< grows whenever plans may hold an outdated algorithm
  std::map<std::string, std::string> algorithms;  ///< by library, GPU and shape
};
/// That of the calling thread.
AlgorithmTable& algorithm_table();

namespace cuda {
/// "cuBLASLt 130002, NVIDIA H200, compute capability 9.0, 139.8 GiB": the beginning of each choice.
std::string product_library(int gpu);
}  // namespace cuda

}  // namespace lockstep::ops
