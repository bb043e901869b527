#include "apps/lockstep/commands.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

namespace {

/// Prints the help for a command line that names no kind of model.
int print_overview(World& world, const std::string& help_argument) {
  std::string checkpoint, list = "What the command predicts depends on the kind of the model:";
  for (const TaskKind& kind : task_kinds())
    if (kind.predict != nullptr) list += join("\n- ", kind.name, ": ", kind.summary);
  Options options("lockstep predict", "Apply a trained model.", list);
  options.describe("Each kind has its own options: add --checkpoint FILE or --model.kind KIND to --help.");
  options.add("checkpoint=FILE", &checkpoint, "", "checkpoint with the model").required();
  options.example("lockstep predict --checkpoint run/checkpoints/best.h5 --help", "the options for this checkpoint");
  options.example("lockstep predict --model.kind hrm --help", "the options for puzzles");
  parse(world, options, {help_argument});
  return 0;
}

}  // namespace

int run_predict(World& world, const Args& args) {
  const std::string name = model_kind(world, args), help = help_argument(args);
  if (name.empty() && !help.empty()) return print_overview(world, help);
  const TaskKind* kind = nullptr;
  world.together("choosing the model", [&] {
    kind = name.empty() ? &task_kinds().front() : &task_kind(name);  // of a model file: an emulator
    require_usage(kind->predict != nullptr, "lockstep predict: not available for model.kind = ", name);
  });
  return kind->predict(world, args);
}

}  // namespace lockstep::apps
