#include "thread_team.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "fault_report.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep {

ThreadTeam::ThreadTeam(int ranks, const std::string& host)
    : world(ranks),
      node(ranks),
      boards_(std::make_unique<RankBoard[]>(static_cast<std::size_t>(ranks))),
      waits_(static_cast<std::size_t>(ranks)) {
  for (int r = 0; r < ranks; ++r) {
    Identity id{};
    id.pid = getpid();
    id.started = process_started(id.pid);
    id.rank = id.node_rank = r;
    id.host.set(host);
    Status status(board(r));
    status.introduce(id);
    status.at("start", -1);
  }
}

void ThreadTeam::look(int rank, double timeout_s) {
  constexpr double kLongestPause_s = 0.25;  // after a longer pause, the process was suspended or starved
  const Whereabouts at = board(rank)->whereabouts.load();
  Wait& wait = waits_[rank];
  if (at.since_ns != wait.since_ns) wait = {.since_ns = at.since_ns, .looked_ns = at.since_ns, .waited_s = 0};
  const std::int64_t now = monotonic_ns();
  wait.waited_s += std::min(1e-9 * static_cast<double>(now - wait.looked_ns), kLongestPause_s);
  wait.looked_ns = now;
  if (timeout_s == 0 || wait.waited_s <= timeout_s) return;
  std::vector<RankSeen> seen;
  for (int r = 0; r < size(); ++r) seen.push_back(seen_on(*board(r), Process::running));
  end(1, report_text({Alarm::Kind::late, rank, timeout_s}, seen));
}

void ThreadTeam::end(int exit_code, const std::string& message) {
  while (ending_.exchange(true))
    std::this_thread::sleep_for(std::chrono::seconds(1));  // until the first caller ends the process
  log::error(message);
  std::fflush(nullptr);
  _exit(exit_code);
}

}  // namespace lockstep
