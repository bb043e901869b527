#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// Copies row rows_m of `from` to row m of `to`, size_bytes each.
void gather_rows(const Stream& stream, std::int64_t count, std::size_t size_bytes, void* to, const void* from,
                 const std::int64_t* rows);

}  // namespace lockstep::ops::cuda
