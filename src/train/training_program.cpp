#include "lockstep/train/training_program.hpp"

#include "lockstep/models/hrm_model.hpp"
#include "train/hrm_program.hpp"
#include "train/sharded_program.hpp"

namespace lockstep {

std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, Model& model, int threads) {
  if (auto* hrm = dynamic_cast<HrmModel*>(&model)) return std::make_unique<HrmProgram>(world, config, *hrm, threads);
  return std::make_unique<ShardedProgram>(world, config, model, threads);
}

}  // namespace lockstep
