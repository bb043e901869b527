#include "apps/lockstep/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

int run_predict(World& world, const Args& args) {
  const std::string name = model_kind(world, args);
  const TaskKind* kind = nullptr;
  world.together("choosing the model", [&] {
    kind = &task_kind(name);
    require_usage(kind->predict != nullptr, "lockstep predict: not available for model.kind = ", name);
  });
  return kind->predict(world, args);
}

}  // namespace lockstep::apps
