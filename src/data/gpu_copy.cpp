#include "lockstep/data/gpu_copy.hpp"

#include <cmath>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

bool may_copy_to_gpu(Device device, const std::string& what, std::size_t size_bytes, double share) {
  const auto free = static_cast<double>(gpu_memory(device.index).free), size = static_cast<double>(size_bytes);
  const bool fits = size <= share * free;
  if (fits)
    log::info("the GPU makes the batches: ", what, " have ", human_bytes(size), " of its memory");
  else
    log::info("the host makes the batches: ", what, " have ", human_bytes(size), ", more than ",
              std::lround(100 * share), " % of the ", human_bytes(free), " that are free on the GPU");
  return fits;
}

}  // namespace lockstep
