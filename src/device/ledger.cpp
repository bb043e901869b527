#include "lockstep/device/ledger.hpp"

namespace lockstep {

double LedgerEntry::memory_bytes(double cache_bytes) const {
  double bytes = first_bytes;
  if (touched_bytes > cache_bytes * static_cast<double>(launches))
    for (std::size_t mib = 0; mib < again_bytes.size(); ++mib)
      if (static_cast<double>((mib + 1) << 20) > cache_bytes) bytes += again_bytes[mib];
  return bytes;
}

}  // namespace lockstep
