#pragma once
// The parts of HRM that are verified apart from its network: update rules, and batches of puzzles.
#include <algorithm>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "tasks/verifier.hpp"

namespace lockstep {

/// An array of the data_memory with these values.
template <class T>
Tensor place(DataMemory& data_memory, const std::vector<T>& values, Shape shape) {
  return data_memory.place(dtype_of<T>::value, shape,
                           [&](const Tensor& to) { std::copy(values.begin(), values.end(), to.data<T>()); });
}

/// Adam-atan2, sign descent, schedule, initial values, losses.
void verify_hrm_rules(Verifier& v, const H5File& file, Device device);
/// The training batches of each rank of 1, 2 and 3, from the reference's draws.
void verify_hrm_sampler(Verifier& v, const H5File& file);

}  // namespace lockstep
