#include "lockstep/base/bf16.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/doctor/communication_check.hpp"
#include "support/test.hpp"

namespace {

/// Runs `body` on threads as ranks and returns the exit code.
int on_threads(int ranks, const std::function<int(World&)>& body) {
  int argc = 0;
  char** argv = nullptr;
  World process(&argc, &argv);
  return run_as_threads(process, ranks, body);
}

std::vector<float> fractions(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 1.0F / static_cast<float>(1 + (i * 31 + to_size(rank) * 17) % 997);
  return values;
}

}  // namespace

TEST_SUITE("comm.thread_ranks") {
  TEST_CASE("threads as ranks have numbers, one host and their own log prefix") {
    std::vector<std::string> prefixes(3);
    CHECK(on_threads(3, [&](World& world) {
            prefixes[to_size(world.rank())] = log::prefix();
            const bool right = world.size() == 3 && world.node_size() == 3 && world.node_rank() == world.rank() &&
                               world.nodes() == 1 && world.communicator().rank() == world.rank() &&
                               world.node_communicator().size() == 3;
            return right ? world.rank() : 99;
          }) == 2);  // the largest
    CHECK(std::set<std::string>(prefixes.begin(), prefixes.end()).size() == 3);
    CHECK(prefixes[1].starts_with("[rank 1/3, "));
    CHECK(log::prefix() == "");
  }

  TEST_CASE("every collective returns the right result") {
    for (const int ranks : {1, 3}) {
      CommReport report;
      on_threads(ranks, [&](World& world) {
        CommReport mine = comm_test(world, {.max_bytes = 4096, .budget_s = 0.05});
        if (world.rank() == ranks - 1) report = std::move(mine);
        return 0;
      });
      for (const CommCheck& check : report.checks) CHECK_MESSAGE(check.passed, check.name, ": ", check.problem);
      CHECK(report.checks.size() == 12);
      CHECK(static_cast<int>(report.ranks.size()) == ranks);
      CHECK(report.timings.empty() == (ranks == 1));
      CHECK((comm_test_line(report).find("; all-reduce of 8 B in ") == std::string::npos) == (ranks == 1));
      CHECK((comm_test_text(report).find("One rank sends nothing") != std::string::npos) == (ranks == 1));
      double highest = 0;  // share of the link
      for (const CommTiming& t : report.timings) highest = std::max(highest, t.link_share);
      CHECK(highest == (ranks > 1 ? 1 : 0));
    }
  }

  TEST_CASE("sums are in rank order with the same bits on each rank: blocking, started, and completed in any order") {
    constexpr int kRanks = 3;
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{50021}}) {
      std::vector<float> wanted = fractions(0, count), short_sum(count);
      for (int r = 1; r < kRanks; ++r) {
        const std::vector<float> values = fractions(r, count);
        for (std::size_t i = 0; i < count; ++i) wanted[i] += values[i];
      }
      for (std::size_t owner = 0; owner < kRanks; ++owner)  // each rank sums one chunk, with its own values unrounded
        for (std::size_t i = count * owner / kRanks; i < count * (owner + 1) / kRanks; ++i) {
          float sum = 0;
          for (std::size_t r = 0; r < kRanks; ++r) {
            const float value = 1.0F / static_cast<float>(1 + (i * 31 + r * 17) % 997);
            sum += r == owner ? value : from_bf16(to_bf16(value));
          }
          short_sum[i] = from_bf16(to_bf16(sum));
        }
      std::atomic<int> wrong = 0;
      on_threads(kRanks, [&](World& world) {
        Communicator& comm = world.communicator();
        std::vector<float> blocking = fractions(world.rank(), count), started = blocking, compressed = blocking;
        std::vector<std::unique_ptr<Request>> requests;
        requests.push_back(comm.start_all_reduce(std::span(started), "started"));
        requests.push_back(comm.start_compressed_sum(compressed, "compressed"));
        comm.all_reduce(std::span(blocking), ReduceOp::sum, "blocking");
        if (world.rank() % 2 == 0) std::reverse(requests.begin(), requests.end());
        for (auto& request : requests) request->wait();
        wrong += (blocking != wanted) + (started != wanted) + (compressed != short_sum);
        return 0;
      });
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("the tree over shards has the same bits as on one rank") {
    constexpr std::int64_t kShards = 16;
    constexpr std::size_t kCount = 5003;
    std::vector<std::vector<float>> sums;
    for (const int ranks : {1, 2, 3, 4}) {
      std::vector<float>& sum = sums.emplace_back(kCount);
      on_threads(ranks, [&](World& world) {
        const ShardRange mine = shards_of(kShards, world.rank(), ranks);
        std::vector<std::vector<float>> shards;
        for (std::int64_t s = mine.begin; s < mine.end; ++s) shards.push_back(fractions(static_cast<int>(s), kCount));
        const std::vector<std::span<float>> local(shards.begin(), shards.end());
        std::vector<float> own(kCount);
        tree_all_reduce(world.communicator(), kShards, local, std::span(own), "tree");
        if (world.rank() == ranks - 1) sum = own;
        return 0;
      });
      CHECK(sum == sums.front());
    }
  }

  TEST_CASE("memory of the node is shared and initially zero") {
    std::atomic<int> wrong = 0;
    on_threads(4, [&](World& world) {
      for (const std::size_t size : {std::size_t{8}, std::size_t{0}, std::size_t{1} << 20}) {
        const auto memory = world.share_on_node(size);
        wrong += memory->bytes().size() != size;
        wrong +=
            std::any_of(memory->bytes().begin(), memory->bytes().end(), [](std::byte b) { return b != std::byte{0}; });
        world.node_communicator().barrier("looked");
        if (size > 0 && world.rank() == 3) memory->bytes().back() = std::byte{42};
        world.node_communicator().barrier("written");
        wrong += size > 0 && memory->bytes().back() != std::byte{42};
      }
      return 0;
    });
    CHECK(wrong == 0);
  }

  TEST_CASE("a failure inside together() ends all ranks with one exit code") {
    CHECK(on_threads(3, [&](World& world) {
            world.together("reading", [&] { require_data(world.rank() != 1, "a file that a test has damaged"); });
            return 0;
          }) == 3);
  }
}
