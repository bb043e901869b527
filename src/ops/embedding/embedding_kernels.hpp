#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// y_m = scale table[ids_m] for M rows of C columns.
template <class T>
void embedding_forward(const Stream& stream, std::int64_t m, std::int64_t c, T* y, const T* table,
                       const std::int32_t* ids, real_t<T> scale);
/// dtable (R, C): dtable[ids_m] += scale dy_m for m ascending, without ids of `padding`.
template <class T>
void embedding_backward(const Stream& stream, std::int64_t m, std::int64_t c, std::int64_t r, real_t<T>* dtable,
                        const T* dy, const std::int32_t* ids, real_t<T> scale, std::int64_t padding);

}  // namespace lockstep::ops::cuda
