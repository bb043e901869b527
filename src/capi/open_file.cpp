#include <mutex>

#include "capi.hpp"

namespace lockstep::capi {

TrainedEmulator open_file(const char* path, EmulatorSelfTest& selftest) {
  if constexpr (LOCKSTEP_CAPI_HDF5) {
    static std::mutex one_at_a_time;  // HDF5 is not thread-safe
    const std::lock_guard lock(one_at_a_time);
    return read_emulator(path, &selftest);
  }
  return read_flat_emulator(path, &selftest);
}

}  // namespace lockstep::capi
