#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/report/metric.hpp"

namespace lockstep {

class Options;

/// What to do with a directory that already holds a run.
enum class RunStart : std::uint8_t {
  resume,  ///< continue it; it must have the same configuration (Options::differences)
  fresh,   ///< start again; all files of the previous run move to `previous-1/`, `previous-2/`, ...
};

/// Whether a run takes its directory from another run that seems active.
enum class TakeOver : std::uint8_t { no, yes };

/// Prepares the run directory and reserves it for this process until its end. Rank 0 calls it, inside World::together.
/// A directory holds a run if the run itself, or one of nested_runs(), has recorded a step or written a checkpoint. If
/// the directory belongs to a run on another host, waits up to a minute to find out whether that run is active.
///
/// errors  Error (usage) if the directory cannot be created or written, is in use, or holds a run of another
///         configuration (names each differing key). Error (data) if its config.ini is damaged
void open_run_directory(const std::filesystem::path& dir, const Options& options, RunStart start,
                        TakeOver take_over = TakeOver::no);

/// Ends the reservation early: the process goes on with another directory.
void release_run_directory(const std::filesystem::path& dir);

/// The run that has taken the directory from this process; "" if there is none.
std::string successor_in(const std::filesystem::path& dir);

/// The process that last wrote in a run directory: "process 17 on node04, job 5, since ...".
struct DirectoryOwner {
  std::string who;     ///< "": none is named
  bool lives = false;  ///< by this host's process table; of another host: it has touched its file within a minute
};
DirectoryOwner owner_of(const std::filesystem::path& dir);

/// The first of `previous-1`, `previous-2`, ... in a run directory that does not exist.
std::filesystem::path next_previous(const std::filesystem::path& dir);

/// The name of a fact: the nodes of the job that a start was launched without.
inline constexpr const char* kNodesLeftOut = "nodes left out";

/// Facts about the run as a whole, for its files and report.
struct RunFacts {
  std::string title;                 ///< "emulator, icecolumn.h5"
  std::int64_t steps = 0;            ///< of the whole run, for the progress bar and the time left; 0: unknown
  std::int64_t steps_per_epoch = 0;  ///< 0: unknown
  std::int64_t resumed_at = 0;       ///< steps before this start; later records are removed from the files
  std::string decides = {};          ///< metric that selects the best weights; "": the first of an evaluation
  double limit_s = 0;                ///< until the job ends or its time limit stops the run; 0: unknown
  std::string config;                ///< the resolved INI text
  /// Name and value, shown in the report in this order: ranks, hosts, threads, device, batch, ...
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<std::string, std::string>> searched = {};  ///< RunConfig::searched, for TensorBoard's HParams
};

/// Seconds per phase ("forward_backward", "reduce", "update", ...), in display order.
using PhaseSeconds = std::vector<std::pair<std::string, double>>;

/// The measurements of a GPU. A GPU that several ranks share counts once.
struct GpuValues {
  int rank = 0;                ///< the first that uses it
  std::vector<Metric> values;  ///< as the driver provides: utilization_percent, memory_bytes, power_w, sm_clock_mhz
};

/// One or more training steps, the last of which is `step`.
struct StepRecord {
  std::int64_t step = 0;            ///< steps since the start of the run
  double epoch = 0;                 ///< epochs since the start of the run, fractional
  std::optional<double> loss = {};  ///< mean over the samples of these steps; none: these steps have another loss
  double lr = 0;
  double grad_norm = -1;             ///< of the last step; negative: not computed
  double samples_per_s = 0;          ///< over all ranks
  double seconds = 0;                ///< wall time of these steps
  PhaseSeconds phases;               ///< of rank 0, summed over these steps
  std::int64_t ranks = 0;            ///< that computed these steps; 0: unknown
  int slowest_rank = -1;             ///< the rank that computed longest; negative: a single rank
  double slowest_by = 0;             ///< excess over the median time of the others, as a fraction of it
  std::vector<GpuValues> gpus = {};  ///< at the end of these steps
  std::vector<Metric> metrics;       ///< loss_scale, loss_unweighted, ...
  double time = 0;                   ///< when it was written, set by RunLog. Units: seconds since 1970
};

/// One evaluation of a split.
struct EvalRecord {
  std::int64_t step = 0;
  double epoch = 0;
  std::string split;                ///< "validation" or "test"
  std::optional<double> loss = {};  ///< none: this evaluation has no loss (ranking)
  std::vector<Metric> metrics;
  double samples_per_s = 0;
  double seconds = 0;
  bool best = false;                     ///< the best validation so far
  std::vector<MetricTable> tables = {};  ///< drawn as pictures in the report and for TensorBoard
  std::string protocol = {};             ///< how the metrics are computed: protocol_of()
  std::string data_file = {}, data_hash = {};
  std::string weights = {};  ///< checkpoint that holds the weights: "best"; "": the weights of this step
  double time = 0;           ///< as StepRecord::time
};

/// A table for the report, such as the final metrics.
struct ReportTable {
  std::string title;
  std::vector<std::string> columns;  ///< the first column holds names
  std::vector<std::vector<std::string>> rows;
};

/// A picture for the report: SVG that may use the page's colours, such as var(--ink).
struct ReportPicture {
  std::string title, svg;
};

/// Writes `config.ini` and the records of a run: `train.log`, `val.log`, `metrics.jsonl`, TensorBoard event files and
/// `report.html` in the run directory (formats: docs/run-directory.md). The console gets a table with a row per
/// evaluation, and between evaluations the progress line on a terminal, or at most a row per minute.
///
/// Every rank may create and call a RunLog; only the one of rank 0 writes. After a resume each (step, split) occurs
/// once in every file: records past `resumed_at` are removed first, and existing records are not repeated.
///
/// A write that fails, such as on a full disk, is a warning: the records wait in memory and are written later. The
/// constructor throws.
class RunLog {
 public:
  /// A log that writes nothing: other ranks, benchmarks.
  RunLog();
  /// Opens the files in `dir`. During its lifetime lines of log:: also go to train.log.
  RunLog(const std::filesystem::path& dir, RunFacts facts);
  RunLog(RunLog&&) noexcept;
  RunLog& operator=(RunLog&&) noexcept;
  ~RunLog();

  bool writes() const { return impl_ != nullptr; }
  /// Call after every step. Updates the progress line at most ten times a second. A negative loss is not shown.
  void progress(std::int64_t step, double loss);
  void record(StepRecord record);
  void record(EvalRecord record);
  /// Adds to the report, or replaces the item of the same title.
  void add(ReportTable table);
  void add(ReportPicture picture);
  /// Adds a file of the run to the report, with its description.
  void made(const std::filesystem::path& file, std::string what);
  /// Writes report.html. finish() does so too, and evaluations at most every 20 s.
  void write_report();
  /// Removes the records of later steps, as a resume at this step does.
  void continue_after(std::int64_t step);
  /// Flushes all records to the disk; returns why that failed, or "". Call it before writing a checkpoint, so that a
  /// resume finds them. Another thread may record meanwhile.
  [[nodiscard]] std::string sync() const;
  /// Ends the progress line, writes the report and prints the paths. `outcome`: "finished after 60 epochs", "stopped by
  /// SIGTERM".
  void finish(std::string_view outcome);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
