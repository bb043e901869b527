#include "lockstep/device/ledger.hpp"

#include "cuda_device.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep {

double LedgerEntry::memory_bytes(double cache_bytes) const {
  double bytes = first_bytes;
  if (touched_bytes > cache_bytes * static_cast<double>(launches))
    for (std::size_t mib = 0; mib < again_bytes.size(); ++mib)
      if (static_cast<double>((mib + 1) << 20) > cache_bytes) bytes += again_bytes[mib];
  return bytes;
}

std::string why_no_ledger() {
  if constexpr (kHasCuda) return gpu::why_no_ledger();
  return "this program was built without CUDA; the stand-in for tests counts (make cuda-host)";
}

void start_ledger() {
  const std::string why = why_no_ledger();
  require(why.empty(), "keeping a ledger of GPU work: ", why);
  if constexpr (kHasCuda) gpu::start_ledger();
}

Ledger finish_ledger() {
  if constexpr (kHasCuda) return gpu::finish_ledger();
  return {};
}

}  // namespace lockstep
