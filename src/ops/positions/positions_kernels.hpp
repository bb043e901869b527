#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// Runs of elements, `stride` apart in x and contiguous in y.
struct Runs {
  std::int64_t count, length;   ///< number of runs, and elements of a run
  std::int64_t stride, offset;  ///< run r begins at element r stride + offset of x
};
template <class T>
void take_runs(const Stream& stream, const Runs& runs, T* y, const T* x);
template <class T>
void take_runs_backward(const Stream& stream, const Runs& runs, T* dx, bool accumulate, const T* dy);

/// x (sequences, positions, columns)
template <class T>
void fill_sequences(const Stream& stream, std::int64_t sequences, std::int64_t positions, std::int64_t columns, T* x,
                    const T* row, const std::int32_t* starts);

}  // namespace lockstep::ops::cuda
