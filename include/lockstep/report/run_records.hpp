#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/report/run_log.hpp"

namespace lockstep {

/// The files of a run directory with one JSON object per record; docs/run-directory.md has the keys.
inline constexpr const char* kMetricsFile = "metrics.jsonl";          ///< the records of the run
inline constexpr const char* kEvaluationsFile = "evaluations.jsonl";  ///< later additions by `lockstep eval --record`

using RunRecord = std::variant<StepRecord, EvalRecord>;

/// The line of a record, with its line break. Bytes of a name that are not UTF-8 become U+FFFD.
std::string record_line(const RunRecord& record);
/// Calls `take` with the records of a text, in order, until it returns false or a line is incomplete or not a record.
/// Returns the total length of the accepted lines, in bytes.
std::size_t read_records(std::string_view text, const std::function<bool(RunRecord)>& take);

/// Sets slowest_rank and slowest_by. seconds: the compute time of each rank, of at least two
void name_slowest(StepRecord& record, const std::vector<double>& seconds);

/// Checks, before an evaluation, that add_evaluation() will be able to open its file.
/// errors  Error (usage): as require_writable(); (internal): as AppendFile
void require_recordable(const std::filesystem::path& run_dir);
/// Adds an evaluation of a run's checkpoint, with the time, to evaluations.jsonl of its directory.
/// errors  Error (internal)
void add_evaluation(const std::filesystem::path& run_dir, EvalRecord record);

/// The records of a run.
struct RunRecords {
  std::int64_t step = 0;   ///< of the last training record
  double epoch = 0;        ///< of the last training record
  double time = 0;         ///< when it was written. Units: seconds since 1970
  double age = 0;          ///< seconds since then
  double seconds = 0;      ///< wall time of all training records
  bool evaluated = false;  ///< whether the run evaluated its test samples after the last step: it has finished
  std::vector<EvalRecord> evaluations;  ///< of both files, each in order
};
/// errors  Error (internal) if a file cannot be read
RunRecords read_run_records(const std::filesystem::path& run_dir);

}  // namespace lockstep
