#include "tasks/kgat/program_checks.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

void require_supported(const RunConfig& config, const char* kind) {
  const auto& o = config.optim;
  require_usage(o.name == "adam" && o.weight_decay == 0, "option optim.name = ", o.name,
                ", optim.weight_decay = ", o.weight_decay, ": a model of kind ", kind,
                " is trained by adam without weight decay");
  require_usage(o.ema == 0, "option optim.ema = ", o.ema, ": a model of kind ", kind, " is trained without it");
}

std::int64_t interactions_per_step(const RunConfig& config, int ranks) {
  return config.batch.accumulate * config.global_batch(ranks);
}

std::string interactions_text(const RunConfig& config, int ranks) {
  const std::int64_t micro = config.global_batch(ranks), k = config.batch.accumulate;
  return config.batch_text(k * micro, ranks) + " of interactions" +
         (k > 1 ? join(", ", k, " micro-batches of ", micro, " at once") : "");
}

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
