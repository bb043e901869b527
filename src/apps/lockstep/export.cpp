#include <algorithm>
#include <iostream>
#include <optional>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {
namespace {

struct ExportArguments {
  std::string checkpoint, format, output, weights, data, mask_variable;
  std::vector<double> domain;
  bool tables = false, force = false;
};

/// Endings of file names, their formats, and the kinds of these files.
struct Ending {
  const char *ending, *format;
  FileKind kind;
};
constexpr Ending kEndings[] = {{".lsem", "lsem", FileKind::model},
                               {".h5model", "h5model", FileKind::model},
                               {".h5", "h5model", FileKind::model},
                               {".hdf5", "h5model", FileKind::model},
                               {".onnx", "onnx", FileKind::onnx},
                               {".safetensors", "safetensors", FileKind::safetensors},
                               {".ts", "torchscript", FileKind::torchscript},
                               {".torchscript", "torchscript", FileKind::torchscript},
                               {".pt", "torchscript", FileKind::torchscript},
                               {".pth", "torchscript", FileKind::torchscript}};

/// The format that --format or the ending of the output chooses; `usual` for a name without an ending. Checks that the
/// output may be written.
/// errors  usage: they contradict each other; an unknown ending; see require_replaceable()
std::string chosen_format(const ExportArguments& a, const std::string& usual, const Options& options) {
  const std::string ending = std::filesystem::path(a.output).extension().string();
  const auto known = std::ranges::find(kEndings, ending, &Ending::ending);
  const bool is_known = known != std::end(kEndings);
  if (a.format.empty() && !is_known && !ending.empty())
    options.reject("output", "the ending " + ending +
                                 " names no format; use .lsem, .h5model, .onnx, .ts or .safetensors, or set --format");
  if (!a.format.empty() && is_known && a.format != known->format)
    options.reject("format", "the ending of " + a.output + " is that of " + known->format +
                                 "; choose another ending, or omit --format");
  std::string format = !a.format.empty() ? a.format : is_known ? known->format : usual;
  const FileKind kind = std::ranges::find(kEndings, format, &Ending::format)->kind;
  require_replaceable(a.output, kind, a.force, {a.checkpoint});
  return format;
}

std::string exported_by() { return "lockstep " + build_info().version + " (git " + build_info().git + ")"; }

std::string size_of(const std::string& path) {
  return human_bytes(static_cast<double>(std::filesystem::file_size(path)));
}

/// Adds entries about the export. Existing entries stay unchanged.
void add_provenance(EmulatorMetadata& metadata, const std::filesystem::path& source) {
  const auto add = [&](const std::string& key, const std::string& value) {
    for (const auto& [known, old] : metadata.meta)
      if (known == key) return;
    metadata.meta.emplace_back(key, value);
  };
  add("exported_from", source.filename().string());
  add("exported_by", exported_by());
}

void export_emulator(const ExportArguments& a, const Options& options) {
  if (a.tables) options.reject("tables", "for kgat only");
  const EmulatorWeights weights = a.weights == "trained"   ? EmulatorWeights::trained
                                  : a.weights == "average" ? EmulatorWeights::average
                                                           : EmulatorWeights::automatic;
  if (weights != EmulatorWeights::automatic && file_kind(a.checkpoint) != FileKind::checkpoint)
    options.reject("weights", "a model file has one set of weights; name a checkpoint");
  if (!a.data.empty()) options.reject("data", "an emulator takes no names from it");
  TrainedEmulator emulator = read_emulator(std::filesystem::path(a.checkpoint), nullptr, weights);
  EmulatorMask& mask = emulator.metadata.mask;
  if (!a.mask_variable.empty()) {
    if (std::ranges::count(emulator.metadata.variables.input_names, a.mask_variable) == 0)
      options.reject("mask-variable", "the emulator has no such input");
    mask.variable = a.mask_variable;
  }
  if (!a.domain.empty()) {
    if (a.domain.size() != 2 || !(a.domain[0] <= a.domain[1]) || mask.variable.empty())
      options.reject("domain", "must be MIN,MAX with MIN <= MAX, for a mask variable");
    mask.min = a.domain[0];
    mask.max = a.domain[1];
  }
  add_provenance(emulator.metadata, a.checkpoint);
  const EmulatorFormat format = named<EmulatorFormat>(chosen_format(a, "lsem", options), "model format");
  write_emulator(a.output, format, emulator.network, emulator.metadata);
  const EmulatorArch& arch = emulator.network.arch();
  std::cout << "wrote " << a.output << ": " << name(format) << ", " << arch.n_in << " inputs, " << arch.n_out
            << " outputs, " << arch.parameters() << " parameters, " << size_of(a.output) << std::endl;
}

/// The arrays below a group of a checkpoint.
NamedArrays arrays_below(const CheckpointReader& reader, const std::string& group) {
  NamedArrays out;
  for (const std::string& path : reader.arrays(group)) {
    const H5Info info = reader.info(path);
    std::vector<double> values(info.elements());
    reader.read_into<double>(path, values);
    NamedArray& array = out.arrays.emplace_back();
    array.name = path.substr(group.size() + 1);
    array.shape = info.shape;
    if (info.type == H5Type::f32)
      array.values = std::vector<float>(values.begin(), values.end());
    else
      array.values = std::move(values);
  }
  return out;
}

/// The task of the checkpoint on the data set of its training. errors  usage: no such file, or it is the output; data:
/// another data set
std::unique_ptr<Task> load_on_its_data(const ExportArguments& a, const CheckpointReader& reader,
                                       const RunConfig& config, DataMemory& data_memory) {
  const std::string& path = a.data.empty() ? config.data.path : a.data;
  require_usage(std::filesystem::exists(path), "option ", a.data.empty() ? "tables" : "data",
                ": the data set of the training, '", path, "', does not exist; name it by --data");
  require_writable(a.output, {path});
  auto task = config.task->load({.path = path,
                                 .seed = config.run.seed,
                                 .dtype = config.dtype(),
                                 .data_memory = data_memory,
                                 .checkpoint = &reader.file()});
  const std::string hash = hex64(task->data_hash());
  require_data(hash == reader.data_hash(), "checkpoint ", a.checkpoint, ": it was trained on other data (hash ",
               reader.data_hash(), ") than ", path, " (hash ", hash, "); name the data set of its training by --data");
  return task;
}

/// The tables that the network of the checkpoint computes from the data set of its training.
NamedArrays tables_of(const ExportArguments& a, const CheckpointReader& reader, const RunConfig& config,
                      const WeightExchange& exchange) {
  LocalDataMemory data_memory;
  const auto task = load_on_its_data(a, reader, config, data_memory);
  if (a.weights == "trained")
    reader.load_weights(task->params());
  else
    reader.load_average_or_weights(task->params());
  NamedArrays tables = exchange.tables(*task);
  require_finite(tables, "computing the tables of '" + a.checkpoint + "'");
  return tables;
}

void export_weights(const ExportArguments& a, const Options& options) {
  const CheckpointReader reader(a.checkpoint);
  const std::string kind_name = reader.model_kind();
  const TaskKind& kind = task_kind(kind_name);
  const WeightExchange exchange = kind.exchange != nullptr ? kind.exchange() : WeightExchange{};
  const std::string format = chosen_format(a, "safetensors", options);
  if (format != "safetensors" && (format != "onnx" || exchange.onnx == nullptr))
    options.reject(a.format.empty() ? "output" : "format", "a " + kind_name + " model is exported as safetensors" +
                                                               (exchange.onnx != nullptr ? " or onnx" : " only"));
  if (a.tables && exchange.tables == nullptr)
    options.reject("tables", "for kgat only: a " + kind_name + " model computes with nothing but its weights");
  if (!a.data.empty() && !exchange.names_in_data && !a.tables)
    options.reject("data", "a " + kind_name + " model takes no names from it" +
                               (exchange.tables != nullptr ? ", only the graph of --tables" : ""));
  if (!a.mask_variable.empty()) options.reject("mask-variable", "for emulators only");
  if (!a.domain.empty()) options.reject("domain", "for emulators only");
  if (a.weights == "average" && !reader.has_ema())
    options.reject("weights", "the checkpoint has no averaged weights; see optim.ema");
  const bool average = reader.has_ema() && a.weights != "trained";

  RunConfig config;
  Options stored("lockstep train");
  add_options(stored, config, kind_name);
  stored.parse_ini(reader.config(), a.checkpoint);
  WeightMetadata metadata = {{kFormatEntry, kWeightsFormat},
                             {"version", "1"},
                             {kKindEntry, kind_name},
                             {"weights", average ? "average" : "trained"},
                             {"data_hash", reader.data_hash()},
                             {"config", reader.config()},
                             {"exported_from", std::filesystem::path(a.checkpoint).filename().string()},
                             {"exported_by", exported_by()}};
  NamedArrays arrays;
  if (a.tables) {
    arrays = tables_of(a, reader, config, exchange);
    metadata.erase("config");  // it is of another kind than the tables
  } else {
    arrays = arrays_below(reader, average ? "/ema" : "/model");
    require_finite(arrays, "exporting '" + a.checkpoint + "'");
    std::optional<H5File> data;
    if (!a.data.empty()) {
      LocalDataMemory data_memory;
      load_on_its_data(a, reader, config, data_memory);
      data.emplace(H5File::open(a.data));
    }
    if (exchange.describe != nullptr)
      exchange.describe(*config.task, reader.file(), data ? &*data : nullptr, arrays, metadata);
  }
  arrays.metadata.merge(metadata);
  const std::size_t count = arrays.arrays.size();
  write_text_atomically(a.output, format == "onnx" ? exchange.onnx(arrays, "exporting '" + a.checkpoint + "' as onnx")
                                                   : safetensors_bytes(to_public(std::move(arrays), exchange.names)));
  std::cout << "wrote " << a.output << ": " << format << ", " << kind_name
            << (a.tables ? " as tables of kind bprmf" : "") << ", " << count << " arrays, "
            << (average ? "averaged" : "trained") << " weights, " << size_of(a.output) << std::endl;
}

}  // namespace

int run_export(World& world, const Args& args) {
  ExportArguments a;
  Options options(
      "lockstep export", "Write a trained network for other programs.",
      "The command reads and verifies a checkpoint or, for emulators, a model file, also an ONNX file or a TorchScript "
      "archive of another program. It writes the averaged weights if the checkpoint has them. safetensors, for every "
      "kind: arrays with the names and shapes of the public code's state_dict, and a description of the network as "
      "metadata (docs/weights.md). onnx, for sasrec, har of signals and emulators: the network for ONNX runtimes. "
      "Emulators carry their normalisation, variable names, units, levels and mask. Their other formats: lsem and "
      "h5model for liblockstep in C, C++ and Fortran; torchscript for torch::jit::load, with predict and jac_physical. "
      "An existing file is replaced only when the new one is complete.");
  options.add("checkpoint=FILE", &a.checkpoint, "", "checkpoint or model file to read").required();
  options.choice("format", &a.format, "", {"", "h5model", "lsem", "onnx", "torchscript", "safetensors"},
                 "format of the output; default: that of its ending (.lsem, .h5model, .onnx, .ts, .safetensors); "
                 "without an ending lsem for emulators, else safetensors");
  options.add("output=FILE", &a.output, "", "file to write").required();
  options.add("force", &a.force, false,
              "replace an existing file of another kind, or one in a folder named checkpoints");
  options.choice("weights", &a.weights, "auto", {"auto", "trained", "average"},
                 "trained: those of the last step; average: their moving average; auto: the average if there is one");
  options.add("data=FILE", &a.data, "",
              "data set of the training: adds the raw ids of its items (sasrec, tisasrec); with --tables: replaces the "
              "path in the checkpoint");
  options.add("tables", &a.tables, false,
              "kgat: write the final vectors of all users and items, computed from the data set of the training, as a "
              "file of kind bprmf, which needs no graph; their inner products are the scores");
  options.add("mask-variable=NAME", &a.mask_variable, "",
              "emulators: input whose value decides where the Jacobian is used; see --domain");
  options.add("domain=MIN,MAX", &a.domain, {},
              "emulators: smallest and largest value of the mask variable with a Jacobian; it is zero elsewhere");
  options.example("lockstep export --checkpoint runs/ice/checkpoints/best.h5 --output ice.lsem",
                  "for a forecast model, with liblockstep");
  options.example("lockstep export --checkpoint ice.lsem --output ice.ts", "convert a model file to another format");
  options.example("lockstep export --checkpoint runs/ml-1m/checkpoints/best.h5 --output sasrec.safetensors",
                  "for load_state_dict() in PyTorch");
  options.example(
      "lockstep export --checkpoint runs/kgat-ml1m/checkpoints/best.h5 --tables --output tastes.safetensors",
      "KGAT's scores as a product of two matrices");
  if (!parse(world, options, args)) return 0;

  world.together("exporting", [&] {
    if (world.rank() != 0) return;
    const FileKind found = file_kind(a.checkpoint);
    // A file of an unknown kind may be a model: its reader says what it lacks.
    for (const FileKind other :
         {FileKind::checkpoint_part, FileKind::data_set, FileKind::predictions, FileKind::hdf5, FileKind::pytorch,
          FileKind::numpy, FileKind::configuration, FileKind::text, FileKind::empty, FileKind::compressed})
      require_data(found != other, "exporting '", a.checkpoint, "': it is ", name(found),
                   ", neither a checkpoint of lockstep nor a model file (lsem, h5model, safetensors, ONNX, "
                   "TorchScript); lockstep import makes a checkpoint of weights");
    if (found == FileKind::checkpoint && H5File::open(a.checkpoint).text_attribute("/", "model_kind") != "emulator")
      export_weights(a, options);
    else
      export_emulator(a, options);
  });
  return 0;
}

}  // namespace lockstep::apps
