#include "watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep {

namespace {
constexpr double kAnswer_s = 1.5;      // for a node to answer a query, and for node 0 to accept a report
constexpr double kReportEnds_s = 20;   // for the reporter to end the job
constexpr double kRescueEnds_s = 120;  // the same if it saves its state
constexpr double kForwarded_s = 0.5;  // for the launcher to forward a report: it drops the output of ranks that it ends
constexpr double kAbortEnds_s = 4;    // for MPI_Abort to end the job
constexpr double kNeighbourEvery_s = 0.2;  // after a death mpirun leaves the other ranks a second
constexpr double kNoticed_s = 2;           // for the death of a rank to be noticed
constexpr double kQuietBeforeServing_s = 2;
constexpr int kNodesAsked = 3;  // if this many nodes do not answer, a second report is acceptable
}  // namespace

Watchdog::Watchdog(Setup setup) : s_(std::move(setup)) {
  for (int r = 0; r < s_.node_size; ++r) {
    // A container with its own process numbers hides neighbours. An invisible neighbour is not treated as dead.
    const Identity id = s_.boards[r].identity.load();
    visible_.push_back(id.started != 0 && process_state(id.pid, id.started) != Process::dead);
  }
  thread_ = helper_thread([this](const std::stop_token& stop) { run(stop); });
}

int Watchdog::node_count() const { return 1 + *std::max_element(s_.node_of.begin(), s_.node_of.end()); }

double Watchdog::tick_s() const {
  const double timeout = timeout_s_;
  return timeout > 0 ? std::clamp(timeout / 20, 0.01, 0.25) : 0.25;
}

void Watchdog::run(const std::stop_token& stop) {
  looked_ns_ = monotonic_ns();
  std::unique_lock lock(mutex_);
  double unseen_s = 0;
  double unanswered_s = 0;
  double ending_s = 0;
  while (!stop.stop_requested()) {
    const double tick = tick_s();
    wake_.wait_for(lock, stop, std::chrono::duration<double>(tick),
                   [&] { return alarmed_ && s_.threads_may_call_mpi && !acting_; });
    if (stop.stop_requested()) break;
    lock.unlock();
    const std::int64_t now = monotonic_ns();
    // After a longer pause than planned, this process was stopped or starved, and possibly the whole job.
    const double passed_s = std::min(1e-9 * static_cast<double>(now - looked_ns_), 2 * tick + 0.1);
    looked_ns_ = now;
    look_at_self(passed_s);
    unseen_s += passed_s;
    if (unseen_s >= kNeighbourEvery_s) {
      unseen_s = 0;
      look_at_neighbour();
    }
    // Another rank ends the job. The launcher of another host may be unable to end this rank.
    if (s_.board->ending != 0 && !acting_) {
      if (ending_s == 0) announce_end();
      ending_s += passed_s;
      if (const std::int32_t reporter = s_.board->reporter; is_gone(reporter))
        raise({Alarm::Kind::dead, s_.boards[reporter - 1].identity.load().rank, timeout_s_});
    }
    if (ending_s > patience_s()) leave_by_force();
    if (s_.threads_may_call_mpi) {
      // While ranks move from collective to collective no query arrives, so MPI is left to the training thread.
      if (quiet_s_ > std::min(kQuietBeforeServing_s, timeout_s_ / 4)) serve();
      if (alarmed_) act(true);
    } else if (alarmed_) {
      unanswered_s += passed_s;  // the waiting rank did not act, so it seems to be stuck inside MPI
      if (unanswered_s > kReportEnds_s / 2) act(false);
    }
    lock.lock();
  }
}

void Watchdog::look_at_self(double passed_s) {
  const Whereabouts w = s_.boards[s_.node_rank].whereabouts.load();
  quiet_s_ = w.world_sequence == last_sequence_ ? quiet_s_ + passed_s : 0;
  last_sequence_ = w.world_sequence;
  if (w.activity != Activity::in_collective || w.since_ns != late_since_ns_) {
    if (warned_)
      log::warning("the job goes on after ",
                   human_seconds(1e-9 * static_cast<double>(monotonic_ns() - late_since_ns_)));
    noticed_ = warned_ = false;
    late_s_ = 0;
    late_since_ns_ = w.activity == Activity::in_collective ? w.since_ns : 0;
    return;
  }
  late_s_ += passed_s;
  const double timeout = timeout_s_;
  if (timeout > 0 && late_s_ > timeout) raise({Alarm::Kind::late, s_.rank, timeout});
  if (w.step >= 0 && !noticed_ && late_s_ > (timeout > 0 ? std::min(warn_after_s_, timeout / 2) : warn_after_s_)) {
    noticed_ = true;
    warn_after_s_ *= 2;
    warn_of_wait();
  }
}

void Watchdog::warn_of_wait() {
  const bool one_node = node_count() == 1;
  if (s_.node >= kNodesAsked || !(one_node || s_.threads_may_call_mpi) || alarmed_ || s_.board->ending != 0) return;
  const auto warns = [&](const std::vector<RankSeen>& ranks) {
    const auto first = std::find_if(ranks.begin(), ranks.end(), waits);
    return first != ranks.end() && first->identity.rank == s_.rank;
  };
  if (!warns(own_node())) return;
  const std::vector<RankSeen> ranks = all_ranks(!one_node, kLook);
  warned_ = warns(ranks);
  if (warned_) log::warning(report_text({Alarm::Kind::slow, s_.rank, late_s_}, ranks));
}

void Watchdog::look_at_neighbour() {
  if (s_.board->ending != 0) return;  // ranks that end now have not died
  const int neighbour = (s_.node_rank + 1) % s_.node_size;
  if (neighbour == s_.node_rank || !visible_[neighbour]) return;
  const Identity id = s_.boards[neighbour].identity.load();
  if (s_.boards[neighbour].whereabouts.load().activity == Activity::leaving) return;
  if (process_state(id.pid, id.started) == Process::dead) raise({Alarm::Kind::dead, id.rank, timeout_s_});
}

void Watchdog::raise(const Alarm& alarm) {
  const std::lock_guard lock(mutex_);
  if (alarmed_) return;
  alarm_ = alarm;
  alarmed_ = true;
}

void Watchdog::died(const RankSeen& rank) {
  RankSeen seen = rank;
  const auto number = static_cast<std::size_t>(rank.identity.rank);
  seen.identity.node = s_.node_of[number];
  seen.identity.host.set(s_.hosts[number]);
  // Its pulse is up to a second old. The ranks work in step, so the place of this rank is a better one.
  if (const Whereabouts here = s_.boards[s_.node_rank].whereabouts.load(); here.step >= seen.at.step) {
    seen.at.step = here.step;
    seen.at.phase = here.phase;
  }
  {
    const std::lock_guard lock(mutex_);
    fallen_.push_back(seen);
  }
  raise({Alarm::Kind::dead, rank.identity.rank, timeout_s_});
  wake_.notify_all();
}

void Watchdog::wait_failed(const std::string& why, bool late) {
  if (!saves_) return;
  if (late) {
    log::error(why);
    raise({Alarm::Kind::late, s_.rank, timeout_s_});
    wake_.notify_all();
  }
  for (double waited_s = 0; waited_s < kNoticed_s || s_.board->ending != 0; waited_s += kNeighbourEvery_s)
    std::this_thread::sleep_for(std::chrono::duration<double>(kNeighbourEvery_s));
}

void Watchdog::while_waiting() {
  if (s_.threads_may_call_mpi) return;
  serve();
  if (alarmed_) act(true);
}

void Watchdog::act(bool may_call_mpi) {
  if (acting_.exchange(true)) return;
  s_.board->ending = 1;
  if (s_.board->aborting != 0) {  // a rank that may have died since has printed the reason
    await_end(kReportEnds_s);
    leave_by_force();
  }
  if (!may_call_mpi) {
    log::error(report_text(alarm_, all_ranks(false, kQuery)));
    end_by_force(rescue());
  }
  for (std::int32_t reporter = 0; !s_.board->reporter.compare_exchange_strong(reporter, s_.node_rank + 1);)
    if (!serve_until([&] { return is_gone(reporter); }, patience_s())) leave_by_force();
  announce_end();
  // The launcher may kill this rank soon after another one died, so this rank reports the death without asking other
  // hosts.
  if (alarm_.kind == Alarm::Kind::dead) {
    std::vector<RankSeen> known = own_node();
    known.insert(known.end(), fallen_.begin(), fallen_.end());
    log::error(report_text(alarm_, known));
    std::fflush(nullptr);
    abort_job(rescue());
  }
  if (s_.node > 0 && others_take_report(alarm_)) {
    await_end(patience_s());
    leave_by_force();
  }
  log::error(report_text(alarm_, all_ranks(true, kQuery)));
  std::fflush(nullptr);
  abort_job(rescue());
}

int Watchdog::rescue() const {
  const bool saved = s_.rescue();
  s_.board->reporter = -1;  // nothing is left to do for another rank
  return saved ? kExitRescued : 1;
}

double Watchdog::patience_s() const { return saves_ ? kRescueEnds_s : kReportEnds_s; }

bool Watchdog::is_gone(std::int32_t reporter) const {
  if (reporter <= 0 || !visible_[reporter - 1]) return false;
  const Identity id = s_.boards[reporter - 1].identity.load();
  return process_state(id.pid, id.started) == Process::dead;
}

void Watchdog::leave_by_force() {
  std::fprintf(stderr, "error %sthe job did not end; leaving\n", log::prefix().c_str());
  end_by_force(1);
}

void Watchdog::before_end(std::function<void()> announce) {
  const std::lock_guard lock(mutex_);
  announce_end_ = std::move(announce);
}

void Watchdog::announce_end() {
  std::function<void()> announce;
  {
    const std::lock_guard lock(mutex_);
    announce = announce_end_;
  }
  announce();
  if (s_.node_rank == 0) s_.board->announced = 1;  // only this rank is connected to other nodes
}

void Watchdog::abort_job(int exit_code) {
  announce_end();
  // Other nodes must know of the end before this node's ranks are gone.
  for (int i = 0; node_count() > 1 && s_.board->announced == 0 && i < 100; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  helper_thread([this, exit_code] {
    std::this_thread::sleep_for(std::chrono::duration<double>(kForwarded_s + kAbortEnds_s));
    end_by_force(exit_code);
  }).detach();
  std::this_thread::sleep_for(std::chrono::duration<double>(kForwarded_s));
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

bool Watchdog::serve_until(const std::function<bool()>& done, double seconds) {
  const std::int64_t until = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
  while (monotonic_ns() < until) {
    serve();
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

void Watchdog::await_end(double seconds) {
  serve_until([] { return false; }, seconds);
}

void Watchdog::end_by_force(int exit_code) {
  for (int r = 0; r < s_.node_size; ++r) {
    const Identity id = s_.boards[r].identity.load();
    if (r == s_.node_rank || !visible_[r]) continue;
    if (process_state(id.pid, id.started) != Process::dead) kill(static_cast<pid_t>(id.pid), SIGKILL);
  }
  _exit(exit_code);
}

std::vector<RankSeen> Watchdog::own_node() const {
  std::vector<RankSeen> seen;
  for (int r = 0; r < s_.node_size; ++r) {
    RankSeen& rank = seen.emplace_back(seen_on(s_.boards[r], Process::unknown));
    if (visible_[r]) rank.process = process_state(rank.identity.pid, rank.identity.started);
  }
  return seen;
}

std::vector<RankSeen> Watchdog::all_ranks(bool may_call_mpi, Tag query) {
  std::vector<RankSeen> all(s_.size);
  for (int r = 0; r < s_.size; ++r) {
    RankSeen& rank = all[r];
    rank = RankSeen{};
    rank.identity.rank = r;
    rank.identity.node = s_.node_of[r];
    rank.identity.host.set(s_.hosts[r]);
    rank.at.step = -1;
    rank.process = Process::unknown;
  }
  for (const RankSeen& rank : own_node()) all[rank.identity.rank] = rank;
  if (may_call_mpi && node_count() > 1) {
    replies_.clear();
    gather(all, true, query);
    gather(all, false, query);
  }
  return all;
}

void Watchdog::gather(std::vector<RankSeen>& all, bool first_ranks_only, Tag query) {
  std::vector<bool> asked(node_count(), false);
  for (int r = 0; r < s_.size; ++r) {
    const auto node = static_cast<std::size_t>(s_.node_of[r]);
    if (all[r].answered || (first_ranks_only && asked[node])) continue;
    asked[node] = true;
    send(r, query, {});
  }
  const auto complete = [&] {
    for (const RankSeen& rank : replies_) all[rank.identity.rank] = rank;
    replies_.clear();
    return std::all_of(all.begin(), all.end(), [](const RankSeen& r) { return r.answered; });
  };
  serve_until(complete, kAnswer_s);
}

bool Watchdog::others_take_report(const Alarm& alarm) {
  for (int node = 0; node < std::min(s_.node, kNodesAsked); ++node) {
    for (int r = 0; r < s_.size; ++r)
      if (s_.node_of[r] == node) send(r, kAlarm, std::as_bytes(std::span(&alarm, 1)));
    if (serve_until([&] { return taken_; }, kAnswer_s)) return true;
  }
  return false;
}

void Watchdog::send(int to, Tag tag, std::span<const std::byte> bytes) {
  Outgoing& out = outgoing_.emplace_back();
  out.bytes.assign(bytes.begin(), bytes.end());
  MPI_Isend(out.bytes.data(), static_cast<int>(out.bytes.size()), MPI_BYTE, to, tag, s_.comm, &out.request);
}

void Watchdog::serve() {
  if (s_.comm == MPI_COMM_NULL || node_count() == 1) return;
  outgoing_.remove_if([](Outgoing& out) {
    int done = 0;
    return MPI_Test(&out.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  });
  for (;;) {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, s_.comm, &found, &status) != MPI_SUCCESS || !found) return;
    int size_bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &size_bytes);
    std::vector<std::byte> bytes(size_bytes);
    if (MPI_Recv(bytes.data(), size_bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, s_.comm, MPI_STATUS_IGNORE) !=
        MPI_SUCCESS)
      return;
    switch (status.MPI_TAG) {
      case kQuery:
        s_.board->ending = 1;
        [[fallthrough]];
      case kLook:
        send(status.MPI_SOURCE, kReply, std::as_bytes(std::span<const RankSeen>(own_node())));
        break;
      case kReply:
        for (const RankSeen& seen : values_of<RankSeen>(bytes)) replies_.push_back(seen);
        break;
      case kAlarm:
        s_.board->ending = 1;
        send(status.MPI_SOURCE, kTaken, {});
        raise(values_of<Alarm>(bytes).at(0));
        break;
      case kTaken:
        taken_ = true;
        break;
      default:
        break;
    }
  }
}

}  // namespace lockstep
