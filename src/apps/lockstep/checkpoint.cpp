#include "lockstep/checkpoint/checkpoint.hpp"

#include <cmath>
#include <iostream>
#include <set>

#include "apps/lockstep/commands.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/proof/proof.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

/// Compares an undamaged checkpoint with the chain of its run: "; RESULT", or "" without a chain. errors  Error (data)
std::string compared_with_chain(const CheckpointReader& reader) {
  const fs::path folder = fs::absolute(reader.path()).parent_path(), chain = folder.parent_path() / kProofFile;
  if (!fs::exists(chain)) return "";
  return "; " + ProofChain::read(chain).compare(reader);
}

int verify(const std::vector<std::string>& files) {
  int code = 0;
  for (const std::string& file : files) {
    require_usage(fs::exists(file), "verifying '", file, "': no such file");
    std::string defect = checkpoint_defect(file);
    const FileKind kind = defect.empty() ? FileKind::checkpoint : file_kind(file);
    if (kind != FileKind::checkpoint && kind != FileKind::checkpoint_part && kind != FileKind::damaged_hdf5)
      defect = join("it is ", name(kind), ", not a checkpoint of lockstep");
    if (!defect.empty()) {
      std::cout << file << ": refused: " << defect << "\n";
      code = static_cast<int>(Fault::data);
      continue;
    }
    const CheckpointReader reader(file);
    const TrainState state = reader.state();
    std::int64_t values = 0;
    for (const std::string& array : reader.arrays("/model")) values += reader.info(array).elements();
    std::string chain;
    try {
      chain = compared_with_chain(reader);
    } catch (const Error& error) {
      chain = join("; refused: ", error.what());
      code = static_cast<int>(error.fault());
    }
    std::cout << file << ": whole; " << reader.model_kind() << ", " << values << " weights, step " << state.step
              << ", epoch " << state.epoch << (reader.has_optimizer() ? "" : ", weights only") << ", "
              << human_bytes(static_cast<double>(reader.size_bytes())) << (is_protected(file) ? ", protected" : "")
              << chain << "\n";
  }
  return code;
}

/// The elements of a numeric array.
std::vector<double> numbers(const CheckpointReader& reader, const std::string& array) {
  const H5Type type = reader.info(array).type;
  const auto read = [&]<class T>() {
    std::vector<T> values(reader.info(array).elements());
    reader.read_into<T>(array, values);
    return std::vector<double>(values.begin(), values.end());
  };
  const bool real = type == H5Type::f32 || type == H5Type::f64;
  return real ? read.template operator()<double>() : read.template operator()<std::int64_t>();
}

/// The difference between two checkpoints in one array, or "".
std::string difference(const CheckpointReader& a, const CheckpointReader& b, const std::string& array) {
  const H5Info in_a = a.info(array), in_b = b.info(array);
  if (in_a.shape != in_b.shape) return "other shape";
  if ((in_a.type == H5Type::text) != (in_b.type == H5Type::text)) return "other type";
  if (in_a.type == H5Type::text) return a.file().read_text(array) == b.file().read_text(array) ? "" : "other text";
  const std::vector<double> x = numbers(a, array), y = numbers(b, array);
  std::size_t differing = 0;
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    scale = std::max(scale, std::abs(x[i]));
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    ++differing;
    largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  if (differing == 0) return "";
  return join(differing, " of ", x.size(), " values, by at most ", largest, " (largest value ", scale, ")");
}

/// The keys in which two configurations differ, without those that may change between the starts of a run.
std::string difference_of_configurations(const CheckpointReader& a, const CheckpointReader& b) {
  RunConfig config;
  Options table("lockstep checkpoint");
  add_options(table, config, a.model_kind());
  table.parse_ini(a.config(), a.path().string());
  std::string list;
  for (const std::string& key : table.differences(b.config(), b.path().string())) list += "\n  " + key;
  return list.empty() ? "" : join(b.path().string(), " there, ", a.path().string(), " here", list);
}

int diff(const std::string& left, const std::string& right, const std::string& group) {
  const CheckpointReader a(left), b(right);
  std::set<std::string> names;
  for (const CheckpointReader* r : {&a, &b})
    for (std::string& name : r->arrays(group)) names.insert(std::move(name));
  require_usage(!names.empty(), "option under = ", group, ": neither checkpoint holds such a group");
  std::size_t different = 0;
  for (const std::string& name : names) {
    const bool in_a = a.has(name), in_b = b.has(name);
    const std::string what = !in_a               ? "only in " + right
                             : !in_b             ? "only in " + left
                             : name == "/config" ? difference_of_configurations(a, b)
                                                 : difference(a, b, name);
    if (what.empty()) continue;
    ++different;
    std::cout << name << ": " << what << "\n";
  }
  std::cout << (different == 0 ? join("all ", names.size(), " datasets are equal")
                               : join(different, " of ", names.size(), " datasets differ"))
            << "; steps " << a.state().step << " and " << b.state().step << "\n";
  return different == 0 ? 0 : 1;
}

}  // namespace

int run_checkpoint(World& world, const Args& args) {
  std::vector<std::string> words;
  std::string group;
  bool force = false;
  Options options("lockstep checkpoint", "Verify, compare, merge and protect checkpoints.",
                  "verify FILE...: checks that each file is whole (length and checksum of its bytes, of every dataset "
                  "and of the structure), and that it agrees with the proof chain of its run directory; exit code 3 if "
                  "not.\n\ndiff A B: lists datasets whose values differ, with the largest difference, and keys of the "
                  "configuration that differ, except those that affect only the execution; exit code 0 if there are "
                  "none, otherwise 1.\n\nmerge MANIFEST FILE: writes a sharded checkpoint as one file. verify and diff "
                  "accept sharded checkpoints directly.\n\nkeep FILE...: protects checkpoints from removal by "
                  "checkpoint.keep, with a file FILE.keep beside each; unkeep FILE...: ends the protection.");
  options.positional("verify|diff|merge|keep|unkeep FILE...", &words, "what to do, and with which checkpoints", 2);
  options.add("force", &force, false,
              "merge: replace an existing file of another kind, or one in a folder named checkpoints");
  options.add("under=GROUP", &group, "/", "diff: only datasets below this group");
  options.example("lockstep checkpoint verify runs/a/checkpoints/*.h5", "are they whole?");
  options.example("lockstep checkpoint keep runs/a/checkpoints/step-3000.h5", "protect this checkpoint from removal");
  options.example("lockstep checkpoint diff --under /model a.h5 b.h5", "are the weights the same?");
  if (!parse(world, options, args)) return 0;
  int code = 0;
  world.together("reading checkpoints", [&] {
    const std::string what = words.front();
    const bool two = what == "diff" || what == "merge", protect = what == "keep";
    require_usage(two || protect || what == "verify" || what == "unkeep", "lockstep checkpoint ", what,
                  ": must be verify, diff, merge, keep or unkeep");
    require_usage(!two || words.size() == 3, "lockstep checkpoint ", what, ": takes two files, not ", words.size() - 1);
    if (world.rank() != 0) return;
    if (what == "merge") {
      merge_checkpoint(words[1], words[2], force);
      std::cout << "wrote " << words[2] << ": step " << CheckpointReader(words[2], true).state().step << " of "
                << words[1] << ", " << human_bytes(static_cast<double>(fs::file_size(words[2]))) << std::endl;
      return;
    }
    if (!two && what != "verify") {
      for (std::size_t i = 1; i < words.size(); ++i) {
        const FileKind kind = file_kind(words[i]);
        require_data(!protect || kind == FileKind::checkpoint, "protecting '", words[i], "': it is ", name(kind),
                     ", not a checkpoint of lockstep");
        set_protected(words[i], protect);
        std::cout << words[i] << (protect ? ": protected" : ": no longer protected") << " from removal" << std::endl;
      }
      return;
    }
    code = what == "verify" ? verify({words.begin() + 1, words.end()}) : diff(words[1], words[2], group);
  });
  return static_cast<int>(world.communicator().all_reduced(static_cast<std::int64_t>(code), ReduceOp::max, "result"));
}

}  // namespace lockstep::apps
