#pragma once
#include <cstdint>
#include <span>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// See ops/sampled_cross_entropy.hpp: M tokens of C channels, with neg.size() / M negatives each. df and dtable may be
/// null; dtable has R rows.
template <class T>
void sampled_cross_entropy_forward(const Stream& stream, real_t<T>* loss, real_t<T>* slopes, const T* f, const T* table,
                                   std::int64_t columns, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg, real_t<T> beta);
template <class T>
void sampled_cross_entropy_backward(const Stream& stream, T* df, bool accumulate, real_t<T>* dtable, std::int64_t rows,
                                    const real_t<T>* dloss, const real_t<T>* slopes, const T* f, const T* table,
                                    std::int64_t columns, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg);

}  // namespace lockstep::ops::cuda
