#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/ensemble.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

struct EvalArguments {
  RunConfig config;
  std::string checkpoint, split;
  bool json = false, other_data = false, baseline = false;
};

Options make_options(EvalArguments& a) {
  Options options(
      "lockstep eval", "Evaluate a checkpoint on all ranks together.",
      "Without --config the command uses the configuration of the checkpoint. It uses the averaged weights if the "
      "checkpoint has them. The metrics do not depend on the number of ranks or threads.");
  options
      .add("checkpoint", &a.checkpoint, "",
           "checkpoint to evaluate; emulator: also several (A.h5,B.h5), or the directory of an ensemble, for their "
           "mean and "
           "spread")
      .value_name("FILE")
      .required();
  options.choice("split", &a.split, "test", {"train", "val", "test"},
                 "split of the data set; train: emulator and har only");
  options.add(
      "other-data", &a.other_data, false,
      "accept another data set than that of the training; its users, items or puzzles must have the same numbers");
  options.add("baseline", &a.baseline, false,
              "show beside the model what a first guess from the training samples reaches, such as the most popular "
              "items");
  options.add("json", &a.json, false, "print one JSON object: metrics, and tables such as a confusion matrix");
  options.list_only({"model.kind", "data.*", "eval.*", "run.seed", "run.device", "run.threads", "run.precision",
                     "dist.timeout", "dist.check_collectives", "dist.parallel", "dist.gpu_ids"});
  options.example("lockstep eval --checkpoint runs/emulator-icecolumn/checkpoints/best.h5",
                  "the metrics of the test samples");
  options.example("lockstep eval --checkpoint runs/ensemble",
                  "the mean, the spread and its calibration of an ensemble");
  options.example("lockstep eval --checkpoint runs/emulator-icecolumn/checkpoints/best.h5 --baseline",
                  "and beside them those of the training mean and of linear regression");
  return options;
}

/// The tables, and behind each confusion matrix the scores of its classes.
std::vector<MetricTable> with_class_scores(const std::vector<MetricTable>& tables) {
  std::vector<MetricTable> all;
  for (const MetricTable& table : tables) {
    all.push_back(table);
    if (table.rows == table.columns) all.push_back(class_scores(table));
  }
  return all;
}

nlohmann::ordered_json object(const std::vector<Metric>& metrics) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const Metric& m : metrics) values[m.name] = m.value;
  return values;
}

void print(const EvalArguments& a, std::int64_t samples, const std::vector<Metric>& metrics,
           const std::vector<MetricTable>& tables, const std::vector<BaselineMetrics>& baselines) {
  if (a.json) {
    nlohmann::ordered_json out = {{"checkpoint", a.checkpoint},
                                  {"data", a.config.data.path},
                                  {"split", a.split},
                                  {"samples", samples},
                                  {"metrics", object(metrics)}};
    nlohmann::ordered_json& named = out["tables"] = nlohmann::ordered_json::object();
    for (const MetricTable& t : tables)
      named[t.name] = {{"rows", t.rows}, {"columns", t.columns}, {"values", t.values}};
    for (const BaselineMetrics& b : baselines) out["baselines"][b.name] = object(b.metrics);
    std::cout << out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    return;
  }
  std::cout << a.checkpoint << ", " << samples << " " << a.split << " samples of " << a.config.data.path << "\n";
  std::size_t width = 0;
  for (const Metric& m : metrics) width = std::max(width, m.name.size());
  constexpr int kValue = 14;
  const auto column = [](std::size_t name) { return static_cast<int>(std::max<std::size_t>(name, kValue)); };
  if (!baselines.empty()) {
    std::cout << std::left << std::setw(static_cast<int>(width) + 4) << "" << std::setw(kValue) << "model";
    for (const BaselineMetrics& b : baselines) std::cout << "  " << std::setw(column(b.name.size())) << b.name;
    std::cout << "\n";
  }
  for (const Metric& m : metrics) {
    std::cout << "  " << std::left << std::setw(static_cast<int>(width)) << m.name << "  "
              << std::setw(baselines.empty() ? 0 : kValue) << join(m.value);
    for (const BaselineMetrics& b : baselines) {
      const Metric* found = b.find(m.name);
      std::cout << "  " << std::setw(column(b.name.size())) << (found == nullptr ? "-" : join(found->value));
    }
    std::cout << "\n";
  }
  for (const MetricTable& table : tables) std::cout << text_of(table);
}

using Readers = std::vector<std::unique_ptr<CheckpointReader>>;

/// The evaluation on one rank. Several checkpoints are an ensemble.
int eval(World& world, const EvalArguments& a, const Readers& readers) {
  const CheckpointReader& reader = *readers.front();
  const int threads = prepare_cpu(world, a.config);
  const auto placement = make_node_placement(world);
  const auto model = load_task(world, a.config, *placement, &reader.file());
  const Split split = a.split == "train" ? Split::train : a.split == "val" ? Split::validation : Split::test;
  world.together("loading the weights", [&] {
    require_usage(model->evaluates(split), "option split = ", a.split, ": model.kind = ", model->kind(),
                  " evaluates held-out samples only; choose val or test");
    if (!a.other_data) reader.require_data_of(*model, a.config.data.path);
    if (readers.size() == 1) {
      reader.load_average_or_weights(model->params());
    } else {
      auto* ensemble = dynamic_cast<EnsembleTask*>(model.get());
      require_usage(ensemble != nullptr, "option checkpoint = ", a.checkpoint, ": ", readers.size(),
                    " checkpoints; model.kind = ", model->kind(), " has no ensembles, so name one");
      const std::vector<ParamStore*> members = ensemble->make_ensemble(std::ssize(readers));
      for (std::size_t i = 0; i < readers.size(); ++i) {
        require_data(readers[i]->data_hash() == reader.data_hash(),
                     "evaluating an ensemble: ", readers[i]->path().string(), " was trained on another data set than ",
                     reader.path().string(), "; the normalisation of its members must be the same");
        readers[i]->load_average_or_weights(*members[i]);
      }
    }
    require_data(model->size(split) > 0, a.config.data.path, ": it has no ", name(split), " samples");
  });
  std::vector<MetricTable> tables;
  const std::vector<Metric> metrics = evaluate(world.communicator(), *model, split, threads, &tables);
  if (split == Split::validation && model->validates_on_test())
    log::warning(a.config.data.path, ": it has no validation samples; these metrics are of test samples");
  std::vector<BaselineMetrics> baselines;
  if (a.baseline) baselines = evaluate_baselines(world.communicator(), *model, split, threads);
  if (world.rank() == 0) print(a, model->size(split), metrics, with_class_scores(tables), baselines);
  return 0;
}

}  // namespace

int run_eval(World& world, const Args& args) {
  EvalArguments a;
  Options options = make_options(a);
  if (!parse(world, options, args, a.config)) return 0;
  std::vector<std::string> files;
  world.together("opening the checkpoint", [&] { files = checkpoint_files(a.checkpoint); });
  Readers readers;
  readers.push_back(open_checkpoint(world, files.front(), args, options, a.config));
  for (std::size_t i = 1; i < files.size(); ++i)
    world.together("opening the checkpoints", [&] { readers.push_back(std::make_unique<CheckpointReader>(files[i])); });
  return on_each_gpu(world, a.config, [&](World& rank) { return eval(rank, a, readers); });
}

}  // namespace lockstep::apps
