#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/report/run_records.hpp"
#include "report/run_owner.hpp"
#include "report/tensorboard.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
constexpr const char* kPart = "previous.part";

/// The directories that this process has opened, until it ends. Each has one name in it.
std::map<fs::path, std::unique_ptr<RunOwner>>& owned() {
  static std::map<fs::path, std::unique_ptr<RunOwner>> directories;
  return directories;
}

/// Whether --profile has written the file: profile-A-B.json.
bool is_timeline(const fs::path& file) {
  return file.filename().string().starts_with("profile-") && file.extension() == ".json";
}

/// The files of a run in its directory. Other files are never moved. Those of lockstep_reader.py are the first: their
/// absence tells it that the run was moved.
std::vector<fs::path> outputs_of_a_run(const fs::path& dir) {
  std::vector<fs::path> found;
  for (const char* name : {"tracker-mlflow.json", "tracker-wandb.json", "config.ini", "train.log", "val.log",
                           kMetricsFile, kEvaluationsFile, "report.html", "proof.chain", "checkpoints", "folds.json",
                           kCampaignFile, "sweep.json", "best.ini"})
    if (fs::exists(dir / name)) found.push_back(dir / name);
  for (const fs::path& run : nested_runs(dir)) found.push_back(run);
  for (const auto& entry : fs::directory_iterator(dir))
    if (is_event_file(entry.path()) || is_timeline(entry.path())) found.push_back(entry.path());
  return found;
}

/// Whether the directory holds a run. A start that ended before its first record leaves a config.ini, which may change.
bool holds_a_run(const fs::path& dir) {
  const fs::path metrics = dir / kMetricsFile, checkpoints = dir / "checkpoints";
  return (fs::exists(metrics) && fs::file_size(metrics) > 0) ||
         (fs::exists(checkpoints) && !fs::is_empty(checkpoints)) || std::ranges::any_of(nested_runs(dir), holds_a_run);
}

/// Moves the previous run to `previous-N`. The folder gets this name last: a start that is killed earlier leaves
/// `previous.part`, and the next start completes the move.
void move_aside(const fs::path& dir) {
  const auto files = outputs_of_a_run(dir);
  const fs::path part = dir / kPart, place = next_previous(dir);
  if (files.empty() && !fs::exists(part)) return;
  std::error_code failed;
  fs::create_directory(part, failed);
  for (const auto& file : files)
    if (!failed) fs::rename(file, part / file.filename(), failed);
  if (!failed) fs::rename(part, place, failed);
  require(!failed, "moving the previous run in '", dir.string(), "' to '", place.string(), "': ", failed.message());
  log::info("moved the previous run in ", dir.string(), " to ", place.string());
}

}  // namespace

std::string member_folder(std::int64_t number) { return join("member-", number); }
std::string fold_folder(std::int64_t number) { return join("fold-", number); }
std::string trial_folder(std::int64_t number) { return join("trial-", number); }

std::vector<fs::path> nested_runs(const fs::path& run_dir) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(run_dir, failed)) {
    const std::string name = entry.path().filename().string();
    const auto numbered = [&](std::string_view stem) {
      return name.starts_with(stem) && name.size() > stem.size() &&
             name.find_first_not_of("0123456789", stem.size()) == std::string::npos;
    };
    if (entry.is_directory() &&
        (name == kPretrainingFolder || numbered("member-") || numbered("fold-") || numbered("trial-")))
      found.push_back(entry.path());
  }
  return found;
}

fs::path next_previous(const fs::path& dir) {
  int number = 1;
  while (fs::exists(dir / join("previous-", number))) ++number;
  return dir / join("previous-", number);
}

void release_run_directory(const fs::path& dir) { owned().erase(dir); }

std::string successor_in(const fs::path& dir) {
  const auto found = owned().find(dir);
  return found == owned().end() ? "" : found->second->successor();
}

void open_run_directory(const fs::path& dir, const Options& options, RunStart start, TakeOver take_over) {
  create_directories_on_disk(dir, Fault::usage);
  require_usage(fs::is_directory(dir), "run directory '", dir.string(), "' cannot be created: a file has this name");
  // Two statements: the arguments of one call, and so errno, may be evaluated in any order.
  const int problem = ::access(dir.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  require_usage(problem == 0, "run directory '", dir.string(), "': cannot write into it: ", std::strerror(problem));
  if (auto& owner = owned()[dir]; !owner) owner = std::make_unique<RunOwner>(dir, take_over, RunOwner::Times{});
  if (start == RunStart::fresh || fs::exists(dir / kPart)) move_aside(dir);

  const fs::path file = dir / "config.ini";
  if (fs::exists(file) && holds_a_run(dir)) {
    std::vector<std::string> differing;
    try {
      differing = options.differences(read_if_there(file), file.string());
    } catch (const Error& e) {
      throw Error(Fault::data,
                  join(e.what(),
                       "; the configuration of the run directory is damaged: repair it, or choose another --run-dir"));
    }
    std::string list;
    for (const auto& key : differing) list += "\n  " + key;
    require_usage(differing.empty(), "run directory '", dir.string(), "' holds a run of another configuration:", list,
                  "\nchoose another --run-dir, or --resume never to start again (the old run moves to ", dir.string(),
                  "/previous-N)");
  }
  for (const fs::path& place : {dir, dir / "checkpoints"}) remove_stale_temporaries(place, Writers::none);
}

}  // namespace lockstep
