#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/nested_runs.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/report/run_records.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

/// The time that the configured steps of a run still need at its mean speed, or "".
std::string time_left(const fs::path& dir, const RunRecords& records) {
  if (records.epoch <= 0 || records.step == 0) return "";
  std::map<std::string, double> values;
  for (const IniEntry& entry : read_ini(read_if_there(dir / "config.ini"), "config.ini"))
    if (entry.key.starts_with("train.")) values[entry.key] = std::atof(entry.value.c_str());
  const auto step = static_cast<double>(records.step);
  double steps = values["train.epochs"] * step / records.epoch;
  if (values["train.steps"] > 0) steps = std::min(steps, values["train.steps"]);
  return steps > step ? human_seconds((steps - step) * records.seconds / step) : "";
}

/// The newest file of the checkpoints folder, with its age; "" if there is none.
std::string last_checkpoint(const fs::path& dir) {
  fs::path newest;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(CheckpointFolder(dir).path(), failed))
    if (entry.path().extension() == ".h5" && (newest.empty() || entry.last_write_time() > fs::last_write_time(newest)))
      newest = entry.path();
  if (newest.empty()) return "";
  const std::chrono::duration<double> age = fs::file_time_type::clock::now() - fs::last_write_time(newest);
  return join(newest.filename().string(), ", ", human_seconds(std::max(0.0, age.count())), " ago");
}

constexpr const char* kContinued = "  continued after step ";

/// ", without node2": the nodes that a start was launched without, of its part of train.log; or "".
std::string nodes_left_out(const std::string& log) {
  const std::string line = join("  ", kNodesLeftOut, ": ");
  const auto at = log.find(line);
  return at == std::string::npos ? ""
                                 : ", without " + log.substr(at + line.size(), log.find('\n', at) - at - line.size());
}

/// The rows of a run and of the runs in its directory.
void add_rows(const fs::path& dir, std::vector<std::vector<std::string>>& rows) {
  const RunRecords records = read_run_records(dir);
  const DirectoryOwner owner = owner_of(dir);
  std::vector<fs::path> nested = nested_runs(dir);
  std::ranges::sort(nested);
  if (records.step > 0 || nested.empty()) {
    const bool done = !owner.lives && has_finished(dir, records);
    const std::string log = read_if_there(dir / "train.log");
    std::int64_t starts = 1;
    std::size_t last_start = 0;
    for (auto at = log.find(kContinued); at != std::string::npos; at = log.find(kContinued, at + 1)) {
      ++starts;
      last_start = at;
    }
    const std::string last = last_checkpoint(dir);
    const char* state = owner.lives                         ? "running"
                        : done                              ? "done"
                        : records.step == 0 && last.empty() ? "not begun"
                                                            : "stopped";
    rows.push_back({dir.string(), state + nodes_left_out(log.substr(last_start)), join(records.step),
                    printed("%.1f", records.epoch), done ? "" : time_left(dir, records), last, join(starts),
                    owner.who});
  }
  for (const fs::path& run : nested) add_rows(run, rows);
}

}  // namespace

int run_status(World& world, const Args& args) {
  std::vector<std::string> runs;
  Options options(
      "lockstep status", "Print the state of runs: running or not, step, time left, last checkpoint, owner.",
      "A run is running if its process lives; on another host, if that has touched the directory within a minute. A "
      "stopped run continues with its command. The time left is that of all configured steps at the mean speed.");
  options.positional("RUN", &runs, "run directories", 1);
  options.example("lockstep status runs/*", "all runs of a project");
  if (!parse(world, options, args)) return 0;
  world.together("reading the runs", [&] {
    if (world.rank() != 0) return;
    std::vector<std::vector<std::string>> rows = {
        {"run", "state", "step", "epoch", "time left", "last checkpoint", "starts", "owner"}};
    for (const std::string& dir : runs) {
      require_usage(fs::exists(fs::path(dir) / "config.ini") || fs::exists(fs::path(dir) / ".lock"),
                    "reading the state of '", dir, "': no run has written there; name the directory of a run");
      add_rows(dir, rows);
    }
    std::cout << aligned(rows);
  });
  return 0;
}

}  // namespace lockstep::apps
