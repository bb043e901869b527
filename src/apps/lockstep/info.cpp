#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/describe.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

/// Cores that this process may run on.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// The processor's name; on AArch64, whose /proc/cpuinfo has no names, the numbers of implementer and part.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string maker;
  for (std::string line; std::getline(in, line);) {
    std::string value = trim(line.substr(line.find(':') + 1));
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) maker = value;
    if (line.starts_with("CPU part")) return "implementer " + maker + ", part " + value;
  }
  return "unknown";
}

Json gpus() {
  Json list = Json::array();
  for (int i = 0; i < gpu_count(); ++i) list.push_back(describe_gpu(i));
  return list;
}

Json machine(World& world) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  const Json mine = {{"rank", world.rank()},
                     {"host", world.host()},
                     {"pid", ::getpid()},
                     {"cores", usable_cores()},
                     {"processor", processor()},
                     {"isa", name(ops::available_isas().back())},
                     {"memory_bytes", memory_limit().bytes},
                     {"gpus", gpus()},
                     {"OMP_NUM_THREADS", threads == nullptr ? Json() : Json(threads)}};
  Json ranks = Json::array();
  for (const auto& text : world.communicator().all_gather_text(line_of(mine, -1), "machine facts"))
    ranks.push_back(parse_ordered_json(text));
  const BuildInfo& build = build_info();
  choose_isa(world, "auto");
  Json isas = Json::array();
  for (const ops::Isa isa : ops::available_isas()) isas.push_back(name(isa));
  return {{"build",
           {{"version", build.version},
            {"git", build.git},
            {"compiler", build.compiler},
            {"type", build.type},
            {"mpi", build.mpi},
            {"hdf5", build.hdf5},
            {"boost", build.boost},
            {"cuda", built_with_cuda()}}},
          {"mpi", world.mpi_description()},
          {"isa", name(ops::active_isa())},
          {"devices", {{"cpu", isas}, {"cuda", gpus()}}},
          {"ranks", ranks}};
}

std::string cuda_text(const Json& facts) {
  if (!facts["build"]["cuda"].get<bool>()) return "not built (the CPU mode is complete without it)";
  const std::string text = listed(facts["devices"]["cuda"], "; ", text_of);
  return text.empty() ? "built; no GPU here: " + why_no_gpu() : text;
}

std::string machine_text(const Json& facts) {
  std::string out =
      version_line() + "\n\n" +
      aligned({{"MPI", text_of(facts["mpi"])},
               {"CPU kernels", text_of(facts["isa"]) + " (of " + json_text(facts["devices"]["cpu"]) + ")"},
               {"CUDA", cuda_text(facts)}});
  std::vector<std::vector<std::string>> rows = {
      {"rank", "host", "pid", "cores", "OMP_NUM_THREADS", "memory", "CPU kernels", "processor"}};
  for (const Json& r : facts["ranks"])
    rows.push_back({text_of(r["rank"]), text_of(r["host"]), text_of(r["pid"]), text_of(r["cores"]),
                    text_of(r["OMP_NUM_THREADS"]), human_bytes(r["memory_bytes"].get<double>()), text_of(r["isa"]),
                    text_of(r["processor"])});
  return out + "\n" + aligned(rows);
}

/// Whether the safetensors file is an exported emulator, or might be a damaged one.
bool is_emulator_safetensors(const std::filesystem::path& file) {
  constexpr std::size_t kHead = std::size_t{1} << 20;  // metadata are the header's first entry
  std::ifstream in(file, std::ios::binary);
  std::string head(kHead, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head.find("lockstep-emulator-model") != std::string::npos;
}

std::string description(const std::filesystem::path& file, bool as_json) {
  struct Reader {
    Json (*facts)(const std::filesystem::path&);
    std::string (*text)(const Json&);
  };
  const FileKind kind = file_kind(file);
  const auto reader = [&]() -> Reader {
    switch (kind) {
      case FileKind::checkpoint:
      case FileKind::damaged_hdf5:  // the reader names the damage
        return {checkpoint_facts, checkpoint_text};
      case FileKind::data_set:
        return {dataset_facts, dataset_text};
      case FileKind::model:
      case FileKind::onnx:
      case FileKind::torchscript:
        return {model_facts, model_text};
      case FileKind::safetensors:
        return is_emulator_safetensors(file) ? Reader{model_facts, model_text} : Reader{weights_facts, weights_text};
      case FileKind::pytorch:
      case FileKind::numpy:
        return {weights_facts, weights_text};
      default:
        throw Error(Fault::data, join("describing '", file.string(), "': it is ", name(kind),
                                      ", not a checkpoint, a prepared data set, a model file or weights"));
    }
  }();
  const Json facts = reader.facts(file);
  return as_json ? line_of(facts, 2) : reader.text(facts);
}

}  // namespace

int run_info(World& world, const Args& args) {
  std::vector<std::string> files, checkpoints, datasets;
  bool as_json = false;
  Options options(
      "lockstep info", "Print build, devices and ranks, or the contents of files",
      "Without a FILE the command prints the build and where each rank runs. A FILE may be a checkpoint, a "
      "prepared data set, an emulator's model file (also ONNX or TorchScript), or weights (.safetensors, .npz, .pt); "
      "checkpoints and model files are verified.");
  options.positional("FILE", &files, "what to describe");
  options.add("checkpoint=FILE", &checkpoints, {}, "the same as FILE");
  options.add("dataset=FILE", &datasets, {}, "the same as FILE");
  options.add("json", &as_json, false, "print JSON");
  options.example("mpirun -n 2 lockstep info", "the build, and where each rank runs");
  options.example("lockstep info run/checkpoints/best.h5", "step, metrics and weights of a checkpoint");
  if (!parse(world, options, args)) return 0;
  files.insert(files.end(), checkpoints.begin(), checkpoints.end());
  files.insert(files.end(), datasets.begin(), datasets.end());

  std::string text;
  if (files.empty()) {
    const Json facts = machine(world);
    text = as_json ? line_of(facts, 2) : machine_text(facts);
  } else {
    world.together("reading the file", [&] {
      if (world.rank() != 0) return;
      for (const std::string& file : files) text += description(file, as_json);
    });
  }
  if (world.rank() == 0) std::cout << text;
  return 0;
}

}  // namespace lockstep::apps
