#include "comm/lifeline.hpp"

#include <dirent.h>
#include <sys/socket.h>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/comm/world.hpp"
#include "support/test.hpp"

namespace {
constexpr int kRanks = 3;

/// TCP sockets of this process.
std::set<int> connections() {
  std::set<int> found;
  DIR* files = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(files)) {
    const int file = std::atoi(entry->d_name);
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM) found.insert(file);
  }
  closedir(files);
  return found;
}

enum class End { broken, announced, orderly };

struct Seen {
  std::atomic<int> deaths{0}, endings{0};
  std::atomic<int> dead[kRanks];  ///< by the rank that saw it: the rank that died
  std::atomic<std::int64_t> step{0};
};

/// Connects a ring of ranks that stand for hosts, and ends it.
void run_ring(End end, Seen& seen) {
  World process(nullptr, nullptr);
  run_as_threads(process, kRanks, [&](World& world) {
    Communicator& comm = world.communicator();
    RankBoard board{};
    Status status(&board);
    Identity me{};
    me.rank = world.rank();
    status.introduce(me);
    status.at("train", 7);
    const std::set<int> before = connections();
    comm.barrier("no connection yet");
    const auto died = [&](const RankSeen& rank) {
      seen.dead[world.rank()] = rank.identity.rank;
      seen.step += rank.at.step;
      ++seen.deaths;
    };
    Lifeline lifeline(comm, {0, 1, 2}, {true, true, true}, board, {.died = died, .ending = [&] { ++seen.endings; }});
    comm.barrier("connected");
    // The first pulse follows the connection at once; give a busy machine time for it.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (world.rank() == 1 && end == End::announced) lifeline.announce_end();
    const Stopwatch watch;
    while (end == End::announced && seen.endings < kRanks - 1 && watch.seconds() < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    comm.barrier("the news has arrived");
    // Closes the connections, as the system does when a process dies.
    if (world.rank() == 0 && end != End::orderly)
      for (const int socket : connections())
        if (!before.contains(socket)) shutdown(socket, SHUT_RDWR);
    while (end == End::broken && seen.deaths < kRanks && watch.seconds() < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    comm.barrier("end of the test");
    if (end != End::broken) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return 0;
  });
}
}  // namespace

TEST_SUITE("comm.lifeline") {
  TEST_CASE("the end of a connection is reported once, with the rank that died and its last step") {
    Seen seen;
    run_ring(End::broken, seen);
    CHECK(seen.deaths == kRanks);
    for (int r = 0; r < kRanks; ++r) CHECK(seen.dead[r] == (r + 1) % kRanks);
    CHECK(seen.step == kRanks * 7);
  }

  TEST_CASE("no death is reported once the job is being ended, or after an orderly end") {
    Seen announced, orderly;
    run_ring(End::announced, announced);
    CHECK(announced.endings >= kRanks - 1);
    CHECK(announced.deaths == 0);
    run_ring(End::orderly, orderly);
    CHECK(orderly.deaths == 0);
    CHECK(orderly.endings == 0);
  }
}
