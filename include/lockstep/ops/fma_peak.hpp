#pragma once
#include <span>
#include <vector>

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

/// The rates that the matrix products of layers of 64 and 100 columns, forward and backward, reach with each of these
/// instruction sets: the best of 8 windows of 1 ms of this thread's CPU time, in turns, so that disturbances affect all
/// sets. Call it while no op runs; the active set stays active.
/// units   floating-point operations per second
std::vector<double> measure_products(std::span<const Isa> isas);
/// The set with the highest of the measured rates; the last one if no other is more than 5 % faster, so that noise
/// seldom decides.
Isa fastest(std::span<const Isa> isas, std::span<const double> rates);

}  // namespace lockstep::ops
