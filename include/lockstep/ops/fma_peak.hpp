#pragma once
#include "lockstep/ops/isa.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// What the processor reaches in a loop of fused multiply-adds on registers alone: the yardstick of "% of peak".
///
/// The best of several windows of `seconds` / 8 per thread, by each thread's own CPU time, with the active instruction
/// set, added over threads: a neighbour that takes the core away for a while does not lower it.
///
/// units   floating-point operations per second
double measure_fma_peak(DType dtype = DType::f32, int threads = 1, double seconds = 0.05);

}  // namespace lockstep::ops
