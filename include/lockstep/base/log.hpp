#pragma once
#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"

namespace lockstep {

enum class LogLevel { info, warning, error };
/// What the console shows: nothing; warnings and errors only; info lines too; also what normally goes to files alone.
enum class LogDetail { nothing, warnings, normal, all };

/// The rank that logs, for the prefix of a line: `[rank 3/8, node04]`. World sets it once. A single rank has no prefix.
struct Speaker {
  int rank = 0;
  int ranks = 1;
  std::string host;
  bool to_sinks_only = false;  ///< info lines, also those of another rank than 0, go to the sinks alone
};

/// The log of the process. It writes to standard error and to every added sink (such as train.log of the run
/// directory). Only rank 0 prints info lines, unless set_all_ranks(true); every rank prints its own warnings and
/// errors.
namespace log {

void set_speaker(Speaker speaker);
/// Like set_speaker(), for the calling thread only: for ranks that are threads of one process.
void set_thread_speaker(Speaker speaker);
/// The speaker of the calling thread if it has one, otherwise that of the process.
const Speaker& speaker();
/// Makes every rank print info lines, each line with its prefix.
void set_all_ranks(bool on);
/// Sinks get every line at any detail.
void set_detail(LogDetail detail);
LogDetail detail();
/// Also sends lines to `sink`, without colour or prefix, until the returned function is called.
std::function<void()> add_sink(std::function<void(LogLevel, std::string_view)> sink);
/// Writes one line. `message` may contain bytes from a foreign file: printable() escapes them.
void write(LogLevel level, std::string_view message);
/// "[rank 3/8, node04]", or "" for a single rank. Warnings and errors read `error [rank 3/8, node04]: what`, or `error:
/// what` for a single rank.
std::string prefix();

/// Whether standard error, or that of the parent mpirun, is a terminal. LOCKSTEP_PROGRESS=bar or =lines overrides the
/// detection.
bool on_terminal();
/// Shows a status line below the log. The next call replaces it; "" removes it. Does nothing without a terminal.
void status(std::string_view line);

/// The Error that an exception is, or that describes one of the standard library: a file operation that fails because
/// of its path (usage) or the machine (internal), lack of memory or a program error (internal).
Error as_error(const std::exception& problem);

template <class... Parts>
void info(const Parts&... parts) {
  write(LogLevel::info, join(parts...));
}
template <class... Parts>
void warning(const Parts&... parts) {
  write(LogLevel::warning, join(parts...));
}
template <class... Parts>
void error(const Parts&... parts) {
  write(LogLevel::error, join(parts...));
}

}  // namespace log
}  // namespace lockstep
