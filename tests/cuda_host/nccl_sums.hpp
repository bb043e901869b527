#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "nccl.h"

/// The arithmetic of NCCL's collectives.
namespace cuda_host {

inline std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

/// out_i = op over ranks, in the order of ranks. Half precisions are summed in float.
template <class T, class Sum = T>
void reduce_as(std::byte* out, const std::vector<const std::byte*>& from, std::size_t count, ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t rank) {
      T value;
      std::memcpy(&value, from[rank] + i * sizeof(T), sizeof value);
      return static_cast<Sum>(value);
    };
    Sum result = at(0);
    for (std::size_t rank = 1; rank < from.size(); ++rank) {
      const Sum value = at(rank);
      result = op == ncclProd  ? static_cast<Sum>(result * value)
               : op == ncclMax ? std::max(result, value)
               : op == ncclMin ? std::min(result, value)
                               : static_cast<Sum>(result + value);
    }
    if (op == ncclAvg) result = static_cast<Sum>(result / static_cast<Sum>(from.size()));
    const T value(result);
    std::memcpy(out + i * sizeof(T), &value, sizeof value);
  }
}
inline void reduce(ncclDataType_t type, std::byte* out, const std::vector<const std::byte*>& from, std::size_t count,
                   ncclRedOp_t op) {
  switch (type) {
    case ncclInt8:
      return reduce_as<std::int8_t>(out, from, count, op);
    case ncclUint8:
      return reduce_as<std::uint8_t>(out, from, count, op);
    case ncclInt32:
      return reduce_as<std::int32_t>(out, from, count, op);
    case ncclUint32:
      return reduce_as<std::uint32_t>(out, from, count, op);
    case ncclInt64:
      return reduce_as<std::int64_t>(out, from, count, op);
    case ncclUint64:
      return reduce_as<std::uint64_t>(out, from, count, op);
    case ncclFloat16:
      return reduce_as<__half, float>(out, from, count, op);
    case ncclBfloat16:
      return reduce_as<__nv_bfloat16, float>(out, from, count, op);
    case ncclFloat32:
      return reduce_as<float>(out, from, count, op);
    case ncclFloat64:
      return reduce_as<double>(out, from, count, op);
  }
}

}  // namespace cuda_host
