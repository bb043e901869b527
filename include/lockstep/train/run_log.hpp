#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/models/model.hpp"

namespace lockstep {

class Options;

/// What to do with a directory that already holds a run.
enum class RunStart : std::uint8_t {
  resume,  ///< go on with it: it must be of the same configuration (Options::differences)
  fresh,   ///< begin again: what the former run left moves, whole, to `previous-1/`, `previous-2/`, ...
};

/// Makes `dir` this run's directory and writes `config.ini` into it. Rank 0 calls this, inside World::together.
///
/// A directory holds a run once that has recorded a step or written a checkpoint.
/// errors  Error (usage) if the directory cannot be made or written, or holds a run of another configuration (each
///         differing key is named). Error (data) if its config.ini is damaged. Error (internal) when the disk is full
void open_run_directory(const std::filesystem::path& dir, const Options& options, RunStart start);

/// What the run's files and report say about the run as a whole.
struct RunFacts {
  std::string title;                 ///< "emulator, icecolumn.h5"
  std::int64_t steps = 0;            ///< steps of the whole run, for the progress bar and the time left; 0 when unknown
  std::int64_t steps_per_epoch = 0;  ///< 0 when unknown
  std::int64_t resumed_at =
      0;               ///< steps done before this start: later records of the files are dropped. 0 at a new run
  std::string config;  ///< the resolved INI text
  std::vector<std::pair<std::string, std::string>>
      facts;  ///< shown in the report, in order: ranks, hosts, threads, device, batch, rows, parameters
};

/// Seconds spent per phase ("data", "forward_backward", "reduce", "update", ...), in the order in which they are shown.
using PhaseSeconds = std::vector<std::pair<std::string, double>>;

/// Some training steps that end with `step`.
struct StepRecord {
  std::int64_t step = 0;  ///< steps done so far
  double epoch = 0;       ///< epochs done so far, fractional
  double loss = 0;        ///< mean over the samples of these steps
  double lr = 0;
  double grad_norm = -1;        ///< negative: not computed
  double samples_per_s = 0;     ///< over all ranks
  double seconds = 0;           ///< wall time of these steps
  PhaseSeconds phases;          ///< of rank 0, summed over these steps
  std::vector<Metric> metrics;  ///< further figures: loss_scale, loss_unweighted, ...
};

/// One evaluation of a split.
struct EvalRecord {
  std::int64_t step = 0;
  double epoch = 0;
  std::string split;  ///< "validation" or "test"
  double loss = 0;
  std::vector<Metric> metrics;
  double samples_per_s = 0;
  double seconds = 0;
  bool best = false;                     ///< the best validation so far
  std::vector<MetricTable> tables = {};  ///< drawn as pictures in the report and for TensorBoard
};

/// A table of figures for the report: final metrics per output column, sensitivities.
struct ReportTable {
  std::string title;
  std::vector<std::string> columns;  ///< the first column holds names
  std::vector<std::vector<std::string>> rows;
};

/// Predictions against targets of one output, for a scatter plot; a few thousand points at most are drawn.
struct ReportScatter {
  std::string title, unit;
  std::vector<double> target, prediction;
};

/// A picture for the report: SVG that may use the page's colours (var(--ink), var(--muted)).
struct ReportPicture {
  std::string title, svg;
};

/// What a run leaves for people and scripts, in its directory: `train.log`, `val.log`, `metrics.jsonl`, TensorBoard
/// event files, `report.html`; and the progress line on a terminal, or plain lines now and then in a batch log.
/// docs/run-directory.md has the formats.
///
/// Every rank may make one and call it; only the writer (rank 0) writes. After a resume each (step, split) stands once
/// in every file: what was written past `resumed_at` is dropped first, and a record that is there already is not
/// repeated. errors  Error (internal) naming the file when a write fails (disk full)
class RunLog {
 public:
  /// A log that writes nothing: other ranks, benchmarks.
  RunLog();
  /// Opens the files in `dir`; while it lives, lines of log:: also go to train.log.
  RunLog(const std::filesystem::path& dir, RunFacts facts);
  RunLog(RunLog&&) noexcept;
  RunLog& operator=(RunLog&&) noexcept;
  ~RunLog();

  bool writes() const { return impl_ != nullptr; }
  /// Every step, cheap: moves the progress line (at most ten times a second). A loss below 0: there is none.
  void progress(std::int64_t step, double loss);
  void record(const StepRecord& record);
  void record(const EvalRecord& record);
  /// For the report: replaces a table or plot of the same title.
  void add(ReportTable table);
  void add(ReportScatter scatter);
  void add(ReportPicture picture);
  /// For the report and the last lines: a file that the run made and what it is ("best weights, validation loss
  /// 0.0123").
  void made(const std::filesystem::path& file, std::string what);
  /// Writes report.html as of now; also done by finish(), and at evaluations not more often than every 20 s.
  void write_report();
  /// Before a checkpoint is written: everything recorded so far is on the disk, so a resume from it finds its lines.
  void sync();
  /// Ends the progress line, writes the report, says where everything is. `outcome`: "finished after 60 epochs",
  /// "stopped by SIGTERM".
  void finish(std::string_view outcome);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
