#include "tasks/kgat/program_checks.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

void require_finite(World& world, const RunConfig& config, std::int64_t step, std::int64_t epoch, const char* phase,
                    double loss, double norm) {
  if (std::isfinite(loss) && std::isfinite(norm)) return;
  world.together("checking the step", [&] {
    throw Error(Fault::usage, join("step ", step, " (epoch ", epoch, ", phase ", phase, "): the loss is ", loss,
                                   ", the norm of its gradient ", norm, "; lower optim.lr = ", exact(config.optim.lr),
                                   " or set optim.clip_norm"));
  });
}

}  // namespace lockstep
