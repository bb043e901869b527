#include <filesystem>
#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/describe.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/comparison.hpp"
#include "lockstep/train/ensemble.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

struct EvalArguments {
  RunConfig config;
  std::string checkpoint, split;
  std::vector<std::string> against;
  bool json = false, other_data = false, baseline = false, controls = false, record = false;
};

Options make_options(EvalArguments& a) {
  Options options(
      "lockstep eval", "Evaluate a checkpoint on all ranks together.",
      "Without --config the command uses the configuration of the checkpoint. It uses the averaged weights if the "
      "checkpoint has them. The metrics do not depend on the number of ranks or threads.");
  options
      .add("checkpoint=FILE", &a.checkpoint, "",
           "checkpoint to evaluate; emulator: also several (A.h5,B.h5), or the directory of an ensemble, for their "
           "mean and spread")
      .required();
  options
      .choice("split", &a.split, "test", {"train", "val", "test"},
              "split of the data set; train: emulator and har only")
      .value_alias("validation", "val")
      .value_alias("valid", "val");
  options.add("other-data", &a.other_data, false,
              "accept a data set other than that of the training; its users, items or puzzles must be numbered in the "
              "same way");
  options.add("baseline", &a.baseline, false,
              "also show the metrics of baselines from the training samples, such as the most popular items");
  options.add("controls", &a.controls, false,
              "compare with the same weights on reduced data: kgat with its graph shuffled, then removed. These "
              "weights were trained with the graph; data.graph trains a control without it");
  options.add(
      "against=FILE,...", &a.against, {},
      "compare with the models of other checkpoints of the same data set, such as bprmf or a control (kgat, bprmf)");
  options.add("record", &a.record, false,
              "add the metrics to evaluations.jsonl of the checkpoint's run directory, for lockstep compare");
  options.add("json", &a.json, false, "print one JSON object: metrics, and tables such as a confusion matrix");
  options.list_only({"model.kind",   "data.path",     "data.stage",      "data.percent",      "data.folds",
                     "data.fold",    "data.graph",    "eval.candidates", "eval.both",         "eval.negatives",
                     "eval.repeats", "eval.k",        "eval.users",      "eval.max_examples", "eval.segments",
                     "eval.tries",   "eval.combine",  "eval.noise",      "eval.halt",         "run.seed",
                     "run.device",   "run.threads",   "run.isa",         "run.precision",     "dist.check_collectives",
                     "dist.timeout", "dist.parallel", "dist.gpu_ids",    "data.layout",       "data.memory"});
  options.example("lockstep eval --checkpoint runs/emulator-icecolumn/checkpoints/best.h5",
                  "the metrics of the test samples");
  options.example("lockstep eval --checkpoint runs/ensemble",
                  "the mean, the spread and its calibration of an ensemble");
  options.example("lockstep eval --checkpoint runs/emulator-icecolumn/checkpoints/best.h5 --baseline",
                  "also the metrics of the training mean and of linear regression");
  options.example("lockstep eval --checkpoint runs/kgat-ml1m/checkpoints/best.h5 --controls",
                  "the contribution of the graph to these weights, with 95 % intervals over the users");
  options.example("lockstep eval --checkpoint runs/s4/checkpoints/best.h5 --tries 32 --record",
                  "add the metrics of several tries to a run of HRM");
  return options;
}

/// The tables, with the scores of the classes after each confusion matrix.
std::vector<MetricTable> with_class_scores(const std::vector<MetricTable>& tables) {
  std::vector<MetricTable> all;
  for (const MetricTable& table : tables) {
    all.push_back(table);
    if (table.rows == table.columns) all.push_back(class_scores(table));
  }
  return all;
}

void print(const EvalArguments& a, std::int64_t samples, const std::string& protocol,
           const std::vector<Metric>& metrics, const std::vector<MetricTable>& tables,
           const std::vector<BaselineMetrics>& baselines) {
  if (a.json) {
    Json out = {{"checkpoint", a.checkpoint}, {"data", a.config.data.path}, {"split", a.split},
                {"samples", samples},         {"protocol", protocol},       {"metrics", json_of(metrics)}};
    Json& named = out["tables"] = Json::object();
    for (const MetricTable& t : tables)
      named[t.name] = {{"rows", t.rows}, {"columns", t.columns}, {"values", t.values}};
    for (const BaselineMetrics& b : baselines) out["baselines"][b.name] = json_of(b.metrics);
    std::cout << line_of(out, -1);
    return;
  }
  std::cout << a.checkpoint << ", " << samples << " " << a.split << " samples of " << a.config.data.path << "\n"
            << protocol << "\n";
  std::vector<std::vector<std::string>> rows;
  if (!baselines.empty()) rows.push_back({"", "model"});
  for (const BaselineMetrics& b : baselines) rows[0].push_back(b.name);
  for (const Metric& m : metrics) {
    rows.push_back({m.name, join(m.value)});
    for (const BaselineMetrics& b : baselines) {
      const Metric* found = find_metric(b.metrics, m.name);
      rows.back().push_back(found == nullptr ? "-" : join(found->value));
    }
  }
  std::cout << aligned(rows);
  for (const MetricTable& table : tables) std::cout << text_of(table);
}

constexpr const char* kComparison =
    "Comparisons: the difference is that of the model to the other over the same samples; low and high bound its 95 % "
    "interval (paired bootstrap over the samples, 2000 resamples by run.seed).";

/// Compares the model's samples with those of its controls and of other checkpoints. Collective.
std::vector<MetricTable> compare(World& world, const EvalArguments& a, const SampleTask& model, Split split,
                                 int threads, const SampleValues& mine) {
  std::vector<MetricTable> tables;
  const auto add = [&](const std::string& name, SampleTask& other) {
    SampleValues theirs;
    evaluate(world.communicator(), other, split, threads, nullptr, {.samples = &other, .each = &theirs});
    world.together("comparing samples",
                   [&] { tables.push_back(compare_samples("against " + name, mine, theirs, a.config.run.seed)); });
  };
  const std::vector<Control> controls = a.controls ? model.controls() : std::vector<Control>();
  for (const Control& control : controls) {
    std::unique_ptr<SampleTask> other;
    world.together("making the control", [&] {
      other = control.make();
      place_task(world, a.config, *other);
    });
    add(control.name, *other);
  }
  for (const std::string& path : a.against) {
    RunConfig config;
    config.dist = a.config.dist;
    config.model_kind = model_kind(world, {"--checkpoint", path});
    const auto reader = open_checkpoint(world, path, {}, Options("lockstep eval"), config);
    config.data = a.config.data;
    config.dist = a.config.dist;  // the checkpoint's configuration has replaced it
    config.run.device = a.config.run.device;
    world.together("choosing the model", [&] {
      require_usage(task_kind(config.model_kind).samples != nullptr, "option against = ", path,
                    ": its model.kind = ", config.model_kind, " has no metrics of single samples; kgat and bprmf have");
    });
    const auto data_memory = make_node_data_memory(world);
    const auto other = load_task(world, config, *data_memory, &reader->file());
    world.together("loading the weights", [&] {
      if (!a.other_data) reader->require_data_of(*other, config.data.path);
      reader->load_average_or_weights(other->params());
    });
    add(path, task_kind(config.model_kind).samples(*other));
  }
  return tables;
}

/// The run directory of a checkpoint. errors  Error (usage): the file is in no run directory
fs::path run_of(const std::string& checkpoint) {
  const fs::path folder = fs::absolute(checkpoint).lexically_normal().parent_path();
  fs::path run = folder.parent_path();
  require_usage(folder.filename() == "checkpoints" && fs::exists(run / "config.ini"), "option record: '", checkpoint,
                "' is not in the folder checkpoints of a run directory; omit --record");
  return run;
}

/// ", in PRECISION" if the precision is not that of the training, otherwise "".
std::string other_precision(const CheckpointReader& checkpoint, const RunConfig& config) {
  return trained_precision(checkpoint) == config.precision() ? "" : ", in " + config.precision();
}

using Readers = std::vector<std::unique_ptr<CheckpointReader>>;

/// The evaluation on one rank. Several checkpoints are an ensemble.
int eval(World& world, const EvalArguments& a, const Readers& readers) {
  const CheckpointReader& reader = *readers.front();
  const int threads = prepare_cpu(world, a.config);
  const auto data_memory = make_node_data_memory(world, a.config.row_options());
  const auto model = load_task(world, a.config, *data_memory, &reader.file());
  const TaskKind& kind = task_kind(a.config.model_kind);
  const SampleTask* samples = kind.samples != nullptr ? &kind.samples(*model) : nullptr;
  const Split split = a.split == "train" ? Split::train : a.split == "test" ? Split::test : Split::validation;
  world.together("loading the weights", [&] {
    require_usage(model->evaluates(split), "option split = ", a.split, ": model.kind = ", model->kind(),
                  " evaluates held-out samples only; choose val or test");
    require_usage(!a.record || split != Split::train,
                  "option record: a run directory holds metrics of validation and test samples; choose --split val or "
                  "test");
    require_usage(!a.record || readers.size() == 1, "option record: ", readers.size(),
                  " checkpoints, which are an ensemble; name one checkpoint, or omit --record");
    if (a.record && world.rank() == 0) require_recordable(run_of(a.checkpoint));
    if (!a.other_data) reader.require_data_of(*model, a.config.data.path);
    if (readers.size() == 1) {
      reader.load_average_or_weights(model->params());
    } else {
      require_usage(kind.ensemble != nullptr, "option checkpoint = ", a.checkpoint, ": ", readers.size(),
                    " checkpoints; model.kind = ", model->kind(), " has no ensembles, so name one");
      EnsembleTask& ensemble = kind.ensemble(*model);
      const std::vector<ParamStore*> members = ensemble.make_ensemble(std::ssize(readers));
      for (std::size_t i = 0; i < readers.size(); ++i) {
        require_data(readers[i]->data_hash() == reader.data_hash(),
                     "evaluating an ensemble: ", readers[i]->path().string(), " was trained on another data set than ",
                     reader.path().string(), "; the normalisation of its members must be the same");
        ensemble.require_member(readers[i]->file());
        readers[i]->load_average_or_weights(*members[i]);
      }
    }
    require_data(model->size(split) > 0, a.config.data.path, ": it has no ", name(split),
                 " samples to evaluate: ", protocol_of(*model, split));
    require_usage(!a.controls || (samples != nullptr && !samples->controls().empty()),
                  "option controls: model.kind = ", model->kind(), samples == nullptr ? "" : ", as it was trained,",
                  " has no graph to shuffle or remove; controls are for kgat with data.graph = whole");
    require_usage(a.against.empty() || samples != nullptr, "option against: model.kind = ", model->kind(),
                  " has no metrics of single samples; kgat and bprmf have");
  });
  std::vector<MetricTable> tables;
  SampleValues mine;
  const bool compares = a.controls || !a.against.empty();
  const Stopwatch watch;
  const std::vector<Metric> metrics = evaluate(world.communicator(), *model, split, threads, &tables,
                                               {.samples = compares ? samples : nullptr, .each = &mine});
  if (a.record)
    world.together("recording the evaluation", [&] {
      if (world.rank() != 0) return;
      EvalRecord record = record_of(*model, a.config.data.path, split, 0, metrics, tables, watch.seconds());
      const TrainState state = reader.state();
      record.step = state.step;
      record.epoch = static_cast<double>(state.epoch);
      record.weights = fs::path(a.checkpoint).stem().string();
      record.protocol += other_precision(reader, a.config);
      add_evaluation(run_of(a.checkpoint), std::move(record));
    });
  if (split == Split::validation && model->validates_on_test())
    log::warning(a.config.data.path, ": it has no validation samples; these metrics are of test samples");
  std::vector<BaselineMetrics> baselines;
  if (a.baseline) baselines = evaluate_baselines(world.communicator(), *model, split, threads);
  tables = with_class_scores(tables);
  if (compares) {
    const std::vector<MetricTable> more = compare(world, a, *samples, split, threads, mine);
    tables.insert(tables.end(), more.begin(), more.end());
  }
  if (world.rank() == 0) print(a, model->size(split), protocol_of(*model, split), metrics, tables, baselines);
  if (world.rank() == 0 && compares && !a.json) std::cout << kComparison << "\n";
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
