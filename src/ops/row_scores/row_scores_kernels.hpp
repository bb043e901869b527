#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// See ops/row_scores.hpp: `count` scores, `each` for each row of f.
template <class T>
void row_scores(const Stream& stream, std::int64_t count, std::int64_t each, std::int64_t columns, real_t<T>* scores,
                const T* f, const T* table, const std::int32_t* ids);

}  // namespace lockstep::ops::cuda
