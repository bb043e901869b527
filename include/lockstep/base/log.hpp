#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"

namespace lockstep {

enum class LogLevel { debug, info, warning, error };

/// Who speaks, for the prefix of a line: `[rank 3/8, node04]`. Set once by World; one rank on its own has no prefix.
struct Speaker {
  int rank = 0;
  int ranks = 1;
  std::string host;
};

/// The process's log: to standard error, and to any sink that is added (the run directory's train.log).
/// Debug and info lines are printed by rank 0 only, unless all_ranks is on; warnings and errors by everyone who has
/// one.
namespace log {

void set_speaker(Speaker speaker);
/// The same for what the calling thread says: a rank that is a thread of its process.
void set_thread_speaker(Speaker speaker);
/// The calling thread's, or else the process's.
const Speaker& speaker();
void set_level(LogLevel lowest);
/// Every rank prints, each line with its prefix.
void set_all_ranks(bool on);
/// Lines also go to `sink` (without colour or prefix) until the returned function is called.
std::function<void()> add_sink(std::function<void(LogLevel, std::string_view)> sink);
void write(LogLevel level, std::string_view line);
/// "[rank 3/8, node04]" or "" when there is one rank. A serious line reads `error [rank 3/8, node04]: what`, or `error:
/// what`.
std::string prefix();

/// Whether a person watches: standard error is a terminal, or that of the mpirun which started this process is.
/// LOCKSTEP_PROGRESS=bar or =lines decides otherwise.
bool on_terminal();
/// A last line on the terminal that later lines push down and that the next call replaces; "" takes it away. Nothing
/// without a terminal.
void status(std::string_view line);

template <class... Parts>
void debug(const Parts&... parts) {
  write(LogLevel::debug, join(parts...));
}
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
