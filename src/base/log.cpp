#include "lockstep/base/log.hpp"

#include <cstdio>
#include <map>
#include <mutex>

namespace lockstep::log {

namespace {
struct State {
  std::mutex mutex;
  Speaker speaker;
  LogLevel lowest = LogLevel::info;
  bool all_ranks = false;
  std::map<int, std::function<void(LogLevel, std::string_view)>> sinks;
  int next_sink = 0;
};
State& state() {
  static State s;
  return s;
}
}  // namespace

void set_speaker(Speaker speaker) {
  const std::lock_guard lock(state().mutex);
  state().speaker = std::move(speaker);
}
const Speaker& speaker() { return state().speaker; }
void set_level(LogLevel lowest) { state().lowest = lowest; }
void set_all_ranks(bool on) { state().all_ranks = on; }

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
  const Speaker& s = state().speaker;
  if (s.ranks <= 1) return {};
  return join("[rank ", s.rank, "/", s.ranks, s.host.empty() ? "" : ", ", s.host, "] ");
}

void write(LogLevel level, std::string_view line) {
  State& s = state();
  if (level < s.lowest) return;
  const bool serious = level >= LogLevel::warning;
  if (!serious && !s.all_ranks && s.speaker.rank != 0) return;
  const std::string who = serious || s.all_ranks ? prefix() : std::string();
  const char* what = level == LogLevel::warning ? "warning " : level == LogLevel::error ? "error " : "";
  const std::lock_guard lock(s.mutex);
  // One write per line: lines of several ranks may interleave, their characters may not.
  const std::string text = join(what, who, line, "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
  for (const auto& [id, sink] : s.sinks) sink(level, line);
}

}  // namespace lockstep::log
