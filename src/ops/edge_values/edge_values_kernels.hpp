#pragma once
#include "lockstep/ops/edge_values.hpp"

/// Kernels of edge_values.hpp.
namespace lockstep::ops::cuda {

template <class T>
void transpose_edges(const Stream& stream, std::int64_t count, T* y, const T* x, const std::int64_t* opposite);
template <class T>
void drop_edges(const Stream& stream, std::int64_t count, T* y, const T* x, std::uint64_t threshold, T scale,
                const Dropout& dropout);

}  // namespace lockstep::ops::cuda
