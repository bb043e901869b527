#include "lockstep/base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>

#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::log {

namespace {
struct State {
  std::mutex mutex;
  Speaker speaker;
  std::atomic<bool> all_ranks = false;
  std::atomic<LogDetail> detail = LogDetail::normal;
  std::map<int, std::function<void(LogLevel, std::string_view)>> sinks;
  int next_sink = 0;
  std::string status;
};
State& state() {
  static State s;
  return s;
}
std::optional<Speaker>& thread_speaker() {
  thread_local std::optional<Speaker> speaker;
  return speaker;
}

bool find_terminal() {
  const char* mode = std::getenv("LOCKSTEP_PROGRESS");
  if (mode != nullptr && std::string_view(mode) == "bar") return true;
  if (mode != nullptr && std::string_view(mode) == "lines") return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  if (::isatty(STDERR_FILENO) != 0) return true;
  // mpirun reads our standard error through a pipe and copies it to its own, which may be a terminal.
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr && std::getenv("PMI_RANK") == nullptr) return false;
  char target[256];
  const std::string link = join("/proc/", ::getppid(), "/fd/2");
  const auto length = ::readlink(link.c_str(), target, sizeof target);
  const std::string_view device(target, length < 0 ? 0 : static_cast<std::size_t>(length));
  return device.starts_with("/dev/pts/") || device.starts_with("/dev/tty");
}

constexpr std::string_view kClearLine = "\r\x1b[K";
}  // namespace

void set_speaker(Speaker speaker) {
  const std::lock_guard lock(state().mutex);
  state().speaker = std::move(speaker);
}
void set_thread_speaker(Speaker speaker) { thread_speaker() = std::move(speaker); }
const Speaker& speaker() { return thread_speaker() ? *thread_speaker() : state().speaker; }
void set_all_ranks(bool on) { state().all_ranks = on; }
void set_detail(LogDetail detail) { state().detail = detail; }
LogDetail detail() { return state().detail; }

std::function<void()> add_sink(std::function<void(LogLevel, std::string_view)> sink) {
  const std::lock_guard lock(state().mutex);
  const int id = state().next_sink++;
  state().sinks.emplace(id, std::move(sink));
  return [id] {
    const std::lock_guard relock(state().mutex);
    state().sinks.erase(id);
  };
}

std::string prefix() {
  const Speaker& s = speaker();
  if (s.ranks <= 1) return {};
  return join("[rank ", s.rank, "/", s.ranks, s.host.empty() ? "" : ", ", s.host, "]");
}

bool on_terminal() {
  static const bool yes = find_terminal();
  return yes;
}

void status(std::string_view line) {
  if (!on_terminal() || speaker().to_sinks_only) return;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.status.empty() && line.empty()) return;
  s.status = line;
  const std::string text = join(kClearLine, line);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void write(LogLevel level, std::string_view message) {
  State& s = state();
  const std::string line = printable(message);
  const bool serious = level >= LogLevel::warning;
  const bool to_sinks_only = speaker().to_sinks_only && !serious;
  if (!serious && !s.all_ranks && speaker().rank != 0 && !to_sinks_only) return;
  std::string who = serious || s.all_ranks ? prefix() : std::string();
  const char* what = level == LogLevel::warning ? "warning" : level == LogLevel::error ? "error" : "";
  if (*what != 0 && !who.empty()) who.insert(0, " ");
  if (*what != 0 || !who.empty()) who += ": ";
  const std::lock_guard lock(s.mutex);
  // One write per line: lines of several ranks may interleave, their characters may not.
  const std::string text = join(s.status.empty() ? "" : kClearLine, what, who, line, "\n", s.status);
  const LogDetail least = serious ? LogDetail::warnings : LogDetail::normal;
  if (s.detail >= least && (serious || !to_sinks_only || s.all_ranks)) std::fwrite(text.data(), 1, text.size(), stderr);
  for (const auto& [id, sink] : s.sinks) sink(level, line);
}

Error as_error(const std::exception& problem) {
  if (const auto* error = dynamic_cast<const Error*>(&problem)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&problem) != nullptr)
    return out_of_memory("", "use more memory, smaller data or a smaller batch");
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&problem)) {
    constexpr std::array kOfPath = {
        std::errc::permission_denied, std::errc::operation_not_permitted,       std::errc::no_such_file_or_directory,
        std::errc::not_a_directory,   std::errc::too_many_symbolic_link_levels, std::errc::is_a_directory,
        std::errc::filename_too_long, std::errc::read_only_file_system,         std::errc::file_exists};
    const bool of_path = std::find(kOfPath.begin(), kOfPath.end(), file->code()) != kOfPath.end();
    return {of_path ? Fault::usage : Fault::internal,
            join("using '", file->path1().string(), "': ", file->code().message())};
  }
  return {Fault::internal, join("internal error (", problem.what(), "); report it together with the command")};
}

}  // namespace lockstep::log
