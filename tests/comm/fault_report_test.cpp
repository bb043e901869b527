#include "comm/fault_report.hpp"

#include "support/test.hpp"

namespace {
/// Rank r on host r/2, waiting in collective 12 of step 5.
RankSeen waiting(int r) {
  RankSeen seen{};
  seen.identity.pid = 1000 + r;
  seen.identity.started = 1;
  seen.identity.rank = r;
  seen.identity.node = r / 2;
  seen.identity.node_rank = r % 2;
  seen.identity.host.set("host" + std::to_string(r / 2));
  seen.at.step = 5;
  seen.at.sequence = seen.at.world_sequence = 12;
  seen.at.count = 100;
  seen.at.activity = Activity::in_collective;
  seen.at.phase.set("train");
  seen.at.channel.set("world");
  seen.at.operation.set("all_reduce sum");
  seen.at.type.set("f32");
  seen.at.what.set("gradient");
  seen.age_s = 60;
  seen.process = Process::running;
  seen.answered = true;
  return seen;
}

std::vector<RankSeen> all_waiting(int ranks) {
  std::vector<RankSeen> all;
  for (int r = 0; r < ranks; ++r) all.push_back(waiting(r));
  return all;
}

const Alarm kLate{Alarm::Kind::late, 0, 60};
}  // namespace

TEST_SUITE("comm.fault_report") {
  TEST_CASE("if all ranks are in the same collective, no rank is at fault") {
    const std::string text = report_text(kLate, all_waiting(4));
    check_mentions(text, "4 of 4 ranks wait in collective #12 all_reduce sum of 100 f32 'gradient' of train, step 5",
                   "every rank is in it");
    CHECK_FALSE(contains(text, "is late"));
  }

  TEST_CASE("each rank of a host that does not answer is named") {
    std::vector<RankSeen> ranks = all_waiting(4);
    for (const std::size_t r : {2u, 3u}) {
      RankSeen silent{};
      silent.identity.rank = static_cast<int>(r);
      silent.identity.node = 1;
      silent.identity.host.set("host1");
      silent.at.step = -1;
      silent.process = Process::unknown;
      ranks[r] = silent;
    }
    check_mentions(report_text(kLate, ranks), "2 of 4 ranks wait", "rank 2 (host1) gives no answer",
                   "rank 3 (host1) gives no answer");
  }

  TEST_CASE("dead ranks are named first, then stopped ranks, then late ranks") {
    std::vector<RankSeen> ranks = all_waiting(4);
    ranks[1].at.activity = Activity::working;
    ranks[1].at.sequence = ranks[1].at.world_sequence = 11;
    ranks[1].at.phase.set("evaluate");
    ranks[2].process = Process::stopped;
    ranks[3].process = Process::dead;
    const std::string text = report_text({Alarm::Kind::dead, 3, 60}, ranks);
    const std::size_t dead = text.find("rank 3 (host1, pid 1003) has died, last seen in train, step 5");
    const std::size_t stopped = text.find("rank 2 (host1, pid 1002) is stopped by a signal");
    const std::size_t late = text.find("rank 1 (host0, pid 1001) is late: it has been in evaluate, step 5");
    CHECK(dead != std::string::npos);
    CHECK(stopped != std::string::npos);
    CHECK(late != std::string::npos);
    CHECK(dead < stopped);
    CHECK(stopped < late);
    CHECK(text.rfind("the job cannot continue: rank 3 has died", 0) == 0);
  }

  TEST_CASE("a minority in another collective is named, and so are ranks that are behind") {
    std::vector<RankSeen> ranks = all_waiting(4);
    ranks[0].at.operation.set("barrier");
    ranks[0].at.what.set("end of epoch");
    ranks[3].at.sequence = ranks[3].at.world_sequence = 9;
    check_mentions(report_text(kLate, ranks), "2 of 4 ranks wait in collective #12 all_reduce sum",
                   "rank 0 (host0, pid 1000) calls #12 barrier of 100 f32 'end of epoch'",
                   "rank 3 (host1, pid 1003) is late: it waits in #9 all_reduce sum");
  }

  TEST_CASE("a warning names what the ranks wait for and the ranks at fault, without a table") {
    std::vector<RankSeen> ranks = all_waiting(4);
    ranks[1].process = Process::stopped;
    CHECK(report_text({Alarm::Kind::slow, 0, 10}, ranks) ==
          "no step for 10.0s, and the job still waits: 3 of 4 ranks wait in collective #12 all_reduce sum of 100 f32 "
          "'gradient' of train, step 5;\n  rank 1 (host0, pid 1001) is stopped by a signal (SIGSTOP, a debugger?); it "
          "was in train, step 5");
  }

  TEST_CASE("the table for a thousand ranks is short and contains the ranks at fault") {
    std::vector<RankSeen> ranks = all_waiting(1000);
    ranks[777].process = Process::stopped;
    const std::string text = report_text(kLate, ranks);
    check_mentions(text, "\n   777  host388", "(936 more ranks, not at fault)");
    CHECK(text.size() < 10000);
  }
}
