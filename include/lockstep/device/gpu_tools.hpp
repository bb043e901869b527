#pragma once

namespace lockstep {

/// Shows the recorded spans of profile.hpp as ranges (NVTX) in the tools of a GPU's vendor, such as Nsight Systems.
/// Does nothing without CUDA.
void show_spans_to_gpu_tools();

}  // namespace lockstep
