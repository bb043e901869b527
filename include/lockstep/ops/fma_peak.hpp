#pragma once
#include "lockstep/ops/isa.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The rate that the processor reaches in a loop of fused multiply-adds on registers alone: the reference for "% of
/// peak".
///
/// Each thread measures several windows of `seconds` / 8 of its own CPU time with the active instruction set and keeps
/// the best. The result is the sum over threads. Time that other processes take from a core does not lower it.
/// units   floating-point operations per second
double measure_fma_peak(DType dtype = DType::f32, int threads = 1, double seconds = 0.05);

}  // namespace lockstep::ops
