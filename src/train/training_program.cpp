#include "lockstep/train/training_program.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/models/hrm_model.hpp"
#include "train/bprmf_program.hpp"
#include "train/hrm_program.hpp"
#include "train/kgat_program.hpp"
#include "train/sharded_program.hpp"

namespace lockstep {

std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, Model& model, int threads) {
  if (auto* hrm = dynamic_cast<HrmModel*>(&model)) return std::make_unique<HrmProgram>(world, config, *hrm, threads);
  auto* kgat = dynamic_cast<KgatModel*>(&model);
  auto* bprmf = dynamic_cast<BprmfModel*>(&model);
  require_usage(config.run.graphs != "on" || (!kgat && !bprmf), "option run.graphs = on: steps of ", model.kind(),
                " are not put into graphs; use auto");
  if (kgat) return std::make_unique<KgatProgram>(world, config, *kgat);
  if (bprmf) return std::make_unique<BprmfProgram>(world, config, *bprmf);
  return std::make_unique<ShardedProgram>(world, config, model, threads);
}

}  // namespace lockstep
