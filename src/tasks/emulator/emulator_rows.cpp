#include "lockstep/tasks/emulator/emulator_rows.hpp"

#include <algorithm>

#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/train/ensemble.hpp"

namespace lockstep {

void add_file_options(Options& options, EmulatorFiles& files, const std::string& written) {
  options.add("checkpoint=FILE", &files.checkpoint, "",
              "checkpoint or model file with the emulator; predict: also several (A.h5,B.h5), or the directory of an "
              "ensemble");
  options.add("model-file=FILE", &files.model_file, "",
              "model file with the emulator (h5model, lsem, onnx, safetensors, torchscript), instead of a checkpoint");
  options.add("input=FILE", &files.input, "", "states").required();
  add_output_options(options, files.output, written).required();
  options.list_only({"run.threads", "run.isa", "run.precision", "dist.timeout", "dist.check_collectives"});
}

void require_precision(const Options& options) {
  const std::string precision = options.value("run.precision");
  if (precision != "auto" && precision != "fp32" && precision != "fp64")
    options.reject("run.precision", "this command computes in fp32 or fp64");
}

PredictionAttributes describe_source(const EmulatorFiles& files, const std::string& command, const Args& args) {
  const std::string source = files.checkpoint.empty() ? files.model_file : files.checkpoint;
  const std::string first = checkpoint_files(source).front();
  const bool trained = file_kind(first) == FileKind::checkpoint;
  return describe_source("emulator", source, trained ? CheckpointReader(first, true).data_hash() : "", command, args);
}

std::vector<std::string> EmulatorFiles::inputs() const {
  std::vector<std::string> all = {input, model_file};
  if (!checkpoint.empty())
    for (std::string& file : checkpoint_files(checkpoint)) all.push_back(std::move(file));
  return all;
}

std::vector<TrainedEmulator> load_emulators(World& world, const EmulatorFiles& files) {
  std::vector<TrainedEmulator> members;
  world.together("loading the emulator", [&] {
    require_usage(files.checkpoint.empty() != files.model_file.empty(),
                  "options checkpoint and model-file: ", files.checkpoint.empty() ? "neither is set" : "both are set",
                  "; set exactly one");
    if (!files.model_file.empty()) return members.push_back(read_emulator(std::filesystem::path(files.model_file)));
    for (const std::string& file : checkpoint_files(files.checkpoint)) {
      members.push_back(read_emulator(std::filesystem::path(file)));
      const EmulatorVariables &first = members.front().metadata.variables, &its = members.back().metadata.variables;
      require_data(its.input_names == first.input_names && its.output_names == first.output_names,
                   "loading an ensemble: '", file, "' has other inputs or outputs than its first member");
      require_same_units(first, its, join("member '", file, "'"));
    }
  });
  return members;
}

TrainedEmulator load_emulator(World& world, const EmulatorFiles& files) {
  std::vector<TrainedEmulator> members = load_emulators(world, files);
  world.together("loading the emulator", [&] {
    require_usage(members.size() == 1, "option checkpoint = ", files.checkpoint, ": ", members.size(),
                  " networks; this command takes one");
  });
  return std::move(members.front());
}

std::string InputRows::where(const std::string& dataset) const {
  return join("reading dataset '", dataset, "' of '", file_.path().string(), "'");
}

std::vector<std::int64_t> InputRows::shape_of(const std::string& dataset) const {
  const H5Info info = file_.info(dataset);
  require_data(info.type == H5Type::f32 || info.type == H5Type::f64, where(dataset), ": elements are ", name(info.type),
               ", expected f32 or f64");
  return info.shape;
}

void InputRows::verify(const std::string& dataset) const {
  const std::string defect = verifies_ && file_.has_attribute(dataset, "xxh3") ? values_defect(file_, dataset) : "";
  require_data(
      defect.empty(), "reading '", file_.path().string(), "': ", defect,
      "; the disk, a copy or another program has changed the file: copy it again, rebuild it, or write states of "
      "your own to a new file");
}

InputRows::InputRows(const std::filesystem::path& path, const TrainedEmulator& emulator, bool verifies)
    : file_(H5File::open(path)), verifies_(verifies) {
  require_data(file_.has("/x"), "opening dataset '/x' of '", path.string(),
               "': no such dataset; it must hold the states (rows, ", emulator.network.arch().n_in,
               ") in physical units");
  const std::vector<std::int64_t> shape = shape_of("/x");
  const std::int64_t n_in = emulator.network.arch().n_in;
  require_data(shape.size() == 2 && shape[1] == n_in, where("/x"), ": the shape is ", shape_text(shape),
               ", expected (rows, ", n_in, ") for this emulator");
  rows_ = shape[0];
  verify("/x");
  const bool outputs_named = file_.has("/vars/output_names");
  other_outputs_ = outputs_named && file_.read_text("/vars/output_names") != emulator.metadata.variables.output_names;
  const bool named = file_.has("/vars/input_names");
  const auto names = named ? file_.read_text("/vars/input_names") : std::vector<std::string>();
  const std::vector<std::string>& expected = emulator.metadata.variables.input_names;
  for (std::size_t i = 0; i < std::min(names.size(), expected.size()); ++i)
    require_data(names[i] == expected[i], where("/vars/input_names"), ": column ", i, " is '", names[i],
                 "', the emulator's is '", expected[i], "'");
  EmulatorVariables found;
  const auto texts = [&](const char* dataset, std::vector<std::string>& to) {
    if (file_.has(dataset)) to = file_.read_text(dataset);
  };
  const auto levels = [&](const char* dataset, std::vector<std::int64_t>& to) {
    if (file_.has(dataset)) to = file_.read<std::int64_t>(dataset);
  };
  texts("/vars/input_units", found.input_units);
  found.input_units.resize(expected.size());
  levels("/vars/input_level", found.input_level);
  if (outputs_named && !other_outputs_) {
    texts("/vars/output_units", found.output_units);
    levels("/vars/output_level", found.output_level);
  }
  require_same_units(emulator.metadata.variables, found, join("input '", path.string(), "'"));
}

bool InputRows::has(const std::string& dataset, std::int64_t columns) const {
  if (!file_.has(dataset)) return false;
  const std::vector<std::int64_t> expected =
      columns == 0 ? std::vector<std::int64_t>{rows_} : std::vector<std::int64_t>{rows_, columns};
  const std::vector<std::int64_t> shape = shape_of(dataset);
  require_data(shape == expected, where(dataset), ": the shape is ", shape_text(shape), ", expected ",
               shape_text(expected), " to match /x");
  verify(dataset);
  return true;
}

std::span<double> BlockSums::next_block() {
  blocks_.resize(blocks_.size() + count_, 0);
  return std::span(blocks_).last(count_);
}

std::vector<double> BlockSums::total(World& world) const {
  const Gathered parts = world.communicator().all_gather(std::as_bytes(std::span(blocks_)), "sums over rows");
  std::vector<double> sums(count_, 0);
  const std::size_t block_bytes = count_ * sizeof(double);
  for (std::size_t round = 0; round * block_bytes < parts.of(0).size(); ++round)  // rank 0 has the most blocks
    for (int r = 0; r < parts.ranks(); ++r) {
      if ((round + 1) * block_bytes > parts.of(r).size()) continue;
      const auto block = values_of<double>(parts.of(r).subspan(round * block_bytes, block_bytes));
      for (std::size_t k = 0; k < count_; ++k) sums[k] += block[k];
    }
  return sums;
}

}  // namespace lockstep
