#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

struct EvalArguments {
  RunConfig config;
  std::string checkpoint, split;
  bool json = false;
};

Options make_options(EvalArguments& a) {
  Options options(
      "lockstep eval", "Evaluate a checkpoint on all ranks together.",
      "Without --config the configuration is the one that the checkpoint holds. The weights are the averaged "
      "ones when the run kept an average. The figures do not depend on the number of ranks or threads.");
  options.add("checkpoint", &a.checkpoint, "", "checkpoint whose weights are evaluated").value_name("FILE").required();
  options.choice("split", &a.split, "test", {"train", "val", "test"}, "which samples of the data set");
  options.add("json", &a.json, false, "print one JSON object");
  options.example("lockstep eval --checkpoint runs/emulator-icecolumn/checkpoints/best.h5",
                  "the figures of the test samples");
  return options;
}

void print(const EvalArguments& a, std::int64_t samples, const std::vector<Metric>& metrics) {
  if (a.json) {
    nlohmann::ordered_json values;
    for (const Metric& m : metrics) values[m.name] = m.value;
    std::cout << nlohmann::ordered_json{{"checkpoint", a.checkpoint},
                                        {"data", a.config.data.path},
                                        {"split", a.split},
                                        {"samples", samples},
                                        {"metrics", values}}
                     .dump()
              << "\n";
    return;
  }
  std::cout << a.checkpoint << ", " << samples << " " << a.split << " samples of " << a.config.data.path << "\n";
  std::size_t width = 0;
  for (const Metric& m : metrics) width = std::max(width, m.name.size());
  for (const Metric& m : metrics)
    std::cout << "  " << std::left << std::setw(static_cast<int>(width)) << m.name << "  " << join(m.value) << "\n";
}

/// The evaluation as one rank of it.
int eval(World& world, const EvalArguments& a, const CheckpointReader& reader) {
  const int threads = choose_threads(world, a.config.run.threads);
  const auto placement = make_node_placement(world);
  const auto model = load_model(world, a.config, *placement, &reader.file());
  const Split split = a.split == "train" ? Split::train : a.split == "val" ? Split::validation : Split::test;
  world.together("loading the weights", [&] {
    reader.load_average_or_weights(model->params());
    require_data(model->size(split) > 0, a.config.data.path, ": it has no ", name(split), " samples");
  });
  const std::vector<Metric> metrics = evaluate(world.communicator(), *model, split, threads);
  if (world.rank() == 0) print(a, model->size(split), metrics);
  return 0;
}

}  // namespace

int run_eval(World& world, const Args& args) {
  EvalArguments a;
  Options options = make_options(a);
  if (!parse(world, options, args, a.config)) return 0;
  const auto reader = open_checkpoint(world, a.checkpoint, args, options, a.config);
  return on_each_gpu(world, a.config, [&](World& rank) { return eval(rank, a, *reader); });
}

}  // namespace lockstep::apps
