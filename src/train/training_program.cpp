#include "lockstep/train/training_program.hpp"

#include "train/sharded_program.hpp"

namespace lockstep {

std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, Model& model, int threads) {
  return std::make_unique<ShardedProgram>(world, config, model, threads);
}

}  // namespace lockstep
