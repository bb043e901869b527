#include "apps/lockstep/import.hpp"

#include <algorithm>
#include <iostream>
#include <map>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/io/file_kind.hpp"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

/// Keys beside the network's that decide what a checkpoint computes: its graph, and how it is evaluated and predicts.
bool serves_checkpoint(const std::string& key) {
  return key == "data.graph" || key == "run.seed" || key.starts_with("eval.");
}

/// The model options of the training, if lockstep export wrote the file and its weights are of this kind; for a
/// checkpoint also the others that serve it and are not the defaults.
/// errors  usage: `given` has another value
OptionValues exported_options(const WeightMetadata& metadata, const std::string& kind, const std::string& source,
                              const Options& given, bool for_checkpoint) {
  OptionValues values;
  const auto config = metadata.find("config"), found = metadata.find(kKindEntry);
  if (config == metadata.end() || found == metadata.end() || found->second != kind) return values;
  require_same_network(given, config->second, "weight file " + source, false);
  for (const IniEntry& entry : read_ini(config->second, source)) {
    const bool of_network = entry.key.starts_with("model.") && entry.key != "model.kind" &&
                            entry.key != "model.pretrain" && entry.key != "model.encoder_weights";
    const bool serves = for_checkpoint && serves_checkpoint(entry.key) && given.knows(entry.key);
    if (of_network || (serves && entry.value != given.initial(entry.key))) values.emplace_back(entry.key, entry.value);
  }
  return values;
}

/// Where each option of the network comes from: "command line", a file, or the arrays.
using Origins = std::map<std::string, std::string>;

/// Sets the options that nothing has set yet.
void set_missing(Options& options, const OptionValues& values, const std::string& source, Origins& origins) {
  for (const auto& [key, value] : values)
    if (origins.try_emplace(key, source).second) options.parse_ini(ini_line(key, value), source);
}

/// Lists the options that the arrays do not determine and nothing has set. errors  usage: there is one
void require_asked(const Options& options, const WeightExchange& exchange, const Origins& origins,
                   const std::string& what) {
  std::string list;
  for (const AskedOption& asked : exchange.asked) {
    if (origins.contains(asked.key)) continue;
    std::string where;
    if (asked.where != nullptr && !origins.contains(asked.where))
      where = join(" (where ", asked.where, " = ", asked.is, ")");
    else if (asked.where != nullptr && std::ranges::count(split(asked.is, '|'), options.value(asked.where)) == 0)
      continue;
    list += join("\n  --", asked.key, " ", options.accepted(asked.key), where, "; ", exchange.upstream, ": ",
                 asked.upstream);
  }
  require_usage(list.empty(), what, ": the arrays do not determine these options of the network:", list,
                "\nset each of them to its value in the program that trained the weights");
}

/// A line per origin with the options of the network that come from there.
std::string text_of(const Options& options, const Origins& origins) {
  std::map<std::string, std::string> lines;
  for (const auto& [key, origin] : origins) {
    std::string& line = lines[origin];
    line += (line.empty() ? "" : ", ") + key.substr(key.starts_with("model.") ? 6 : 0) + " = " + options.value(key);
  }
  return listed(lines, "", [](const auto& line) { return "\nfrom " + line.first + ": " + line.second; });
}

/// "2 of Half as f32, 1 of f64 as f32", or "".
std::string conversions(const NamedArrays& arrays, DType dtype) {
  std::map<std::string, int> counts;
  for (const NamedArray& array : arrays.arrays) {
    const std::string now = array.dtype();
    const bool half = now == "f32" && array.stored != "F32" && array.stored != "Float" && array.stored != "f4";
    if (half || now != name(dtype)) ++counts[join(array.stored, " as ", name(dtype))];
  }
  return listed(counts, ", ", [](const auto& entry) { return join(entry.second, " of ", entry.first); });
}

}  // namespace

bool holds_foreign_weights(const std::string& path) {
  constexpr FileKind kKinds[] = {FileKind::safetensors, FileKind::numpy, FileKind::pytorch};
  return fs::exists(path) && std::ranges::find(kKinds, file_kind(path)) != std::end(kKinds);
}

ForeignWeights::ForeignWeights(const std::string& path, const std::string& key, const std::string& kind)
    : path_(path), kind_(kind), what_("importing '" + path + "' as " + kind) {
  if (const TaskKind& its = task_kind(kind); its.exchange != nullptr) exchange_ = its.exchange();
  arrays_ = from_public(without_prefixes(read_weights(path, key)), exchange_.names);
}

void ForeignWeights::set_options(Options& options, bool for_checkpoint) {
  Origins origins;
  for (const std::string& option : options.keys()) {
    const std::string from = options.origin(option);
    const bool counts =
        (option.starts_with("model.") && option != "model.kind") || (for_checkpoint && serves_checkpoint(option));
    if (options.given(option) && counts)
      origins[option] = from == "command line" ? "the command line" : from.substr(0, from.rfind(':'));
  }
  set_missing(options, exported_options(arrays_.metadata, kind_, path_, options, for_checkpoint),
              "the configuration in " + path_, origins);
  if (exchange_.options != nullptr)
    set_missing(options, exchange_.options(arrays_, options), "the arrays in " + path_, origins);
  require_asked(options, exchange_, origins, what_);
  sources_ = text_of(options, origins);
}

std::string ForeignWeights::write(const std::string& output, const RunConfig& config, const std::string& text) {
  const std::string from_data = exchange_.from_data == nullptr ? "" : exchange_.from_data(arrays_);
  LocalDataMemory data_memory;
  const TaskSource source = {
      .path = config.data.path, .seed = config.run.seed, .dtype = config.dtype(), .data_memory = data_memory};
  const auto task =
      exchange_.load != nullptr ? exchange_.load(*config.task, source, arrays_) : config.task->load(source);
  const auto data = arrays_.metadata.find("data_hash");
  if (task->tied_to_data() && data != arrays_.metadata.end() && data->second != hex64(task->data_hash()))
    log::warning(path_, ": it was trained on other data than ", config.data.path,
                 "; its rows must belong to the same users, items or puzzles");
  load_arrays(task->params(), arrays_, exchange_.names, what_);
  if (exchange_.complete != nullptr) exchange_.complete(*task);

  const TrainState state;
  save_checkpoint(output, {.model = task.get(),
                           .params = &task->params(),
                           .optimizers = {},
                           .vectors = {},
                           .state = &state,
                           .config = text,
                           .seed = config.run.seed,
                           .data_hash = task->data_hash()});
  const std::string converted = conversions(arrays_, task->params().dtype());
  return join(kind_, ", ", arrays_.arrays.size(), " arrays, ", task->params().count(), " parameters",
              converted.empty() ? "" : "\nconverted: ", converted, sources_, "\nfrom ", config.data.path, ": ",
              from_data);
}

int run_import(World& world, const Args& args) {
  RunConfig config;
  std::string weights, key, output;
  bool force = false;
  Options options(
      "lockstep import", "Make a checkpoint from weights that another program has written.",
      "The command reads .safetensors, .npz of NumPy, and .pt or .pth of torch.save, whose pickle it never executes. "
      "Names and shapes are those of the public code's state_dict (docs/weights.md), with or without the prefixes "
      "module., _orig_mod. and model.inner. Sizes that no option gives follow from the shapes of the arrays; every "
      "other option of the network must be set, unless lockstep export has written it into the file. "
      "lockstep eval, predict, export, and train --init-from accept the checkpoint.");
  options.add("weights=FILE", &weights, "", "file of arrays to read").required();
  options.add("key=PATH", &key, "",
              "dictionary of a .pt file that holds the weights, such as model or ema.state_dict; \"\": the only one");
  options.add("output=FILE", &output, "", "checkpoint to write").required();
  options.add("force", &force, false, "replace an existing file of another kind, or one in a folder named checkpoints");
  options.list_only({"model.*", "data.*", "run.seed", "run.precision"});
  options.example(
      "lockstep import --model.kind sasrec --weights sasrec.pt --model.num_heads 1 --model.norm post "
      "--model.pad_mask none --model.ln_eps 1e-8 --data.path ml-1m.h5 --output sasrec.h5",
      "weights of pmixer's PyTorch program");
  options.example("lockstep eval --checkpoint sasrec.h5", "the metrics of these weights");
  if (!parse(world, options, args, config)) return 0;
  const std::string kind_name = model_kind(world, args);

  world.together("importing", [&] {
    require_usage(!kind_name.empty(), "option model.kind is missing: name the kind of the network");
    if (world.rank() != 0) return;
    require_replaceable(output, FileKind::checkpoint, force, {weights, config.data.path});
    ForeignWeights found(weights, key, kind_name);
    found.set_options(options, true);
    if (!config.data.path.empty()) config.data.path = fs::absolute(config.data.path).lexically_normal().string();
    check(config);
    const std::string written = found.write(output, config, options.ini());
    std::cout << "wrote " << output << ": " << written << std::endl;
  });
  return 0;
}

}  // namespace lockstep::apps
