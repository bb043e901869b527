#include "comm/node_reduce.hpp"

#include "lockstep/device/device.hpp"
#include "support/test.hpp"

namespace {
constexpr std::size_t kSlotBytes = 4096;

/// Runs threads as the ranks of a node: more ranks than mpirun starts in the tests.
void as_ranks(int ranks, const std::function<void(NodeReduce&, CommContext&, int)>& body) {
  const Buffer region({}, NodeReduce::region_bytes(ranks, kSlotBytes));
  const Buffer boards({}, sizeof(RankBoard) * to_size(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      CommContext context(reinterpret_cast<RankBoard*>(boards.data()) + r);
      context.crowded = true;
      NodeReduce reduce({region.data(), region.size_bytes()}, r, ranks, kSlotBytes);
      body(reduce, context, r);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

NodeReduce::Call call_for(ReduceOp op) {
  NodeReduce::Call call;
  call.op = op;
  call.what = "test";
  call.progress = [] {};
  call.name_rank = [](int r) { return join("rank ", r); };
  return call;
}
}  // namespace

TEST_SUITE("comm.node_reduce") {
  TEST_CASE("sums are right for few and many ranks, short and long vectors, in repeated calls") {
    for (const int ranks : {1, 2, 5, 7}) {
      std::vector<int> wrong(to_size(ranks));
      as_ranks(ranks, [&](NodeReduce& reduce, CommContext& context, int rank) {
        for (int round = 0; round < 20; ++round) {
          for (const std::size_t count : {0u, 1u, 3u, 6u, 700u, 1024u}) {  // 1024 floats fill a slot
            std::vector<float> values(count);
            for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + round + static_cast<int>(i));
            reduce.all_reduce(context, std::span<float>(values), call_for(ReduceOp::sum));
            for (std::size_t i = 0; i < count; ++i) {
              const int wanted = ranks * (round + static_cast<int>(i)) + ranks * (ranks - 1) / 2;
              wrong[to_size(rank)] += values[i] != static_cast<float>(wanted);
            }
          }
        }
      });
      CAPTURE(ranks);
      CHECK(std::count(wrong.begin(), wrong.end(), 0) == ranks);
    }
  }

  TEST_CASE("across nodes the first rank reduces the sum of its whole node") {
    std::vector<int> wrong(3);
    as_ranks(3, [&](NodeReduce& reduce, CommContext& context, int rank) {
      NodeReduce::Call call = call_for(ReduceOp::max);
      call.between_nodes = [](std::byte* values) { reinterpret_cast<std::int64_t*>(values)[1] += 1000; };
      for (std::int64_t round = 0; round < 50; ++round) {
        std::vector<std::int64_t> values = {rank, round, -rank};
        reduce.all_reduce(context, std::span<std::int64_t>(values), call);
        wrong[to_size(rank)] += values != std::vector<std::int64_t>{2, round + 1000, 0};
      }
    });
    CHECK(wrong == std::vector<int>{0, 0, 0});
  }

  TEST_CASE("contributions of different lengths, including 0, are in rank order") {
    std::vector<int> wrong(5);
    as_ranks(5, [&](NodeReduce& reduce, CommContext& context, int rank) {
      const std::vector<std::int64_t> sizes = {3, 0, 4096, 1, 7};
      for (int round = 0; round < 20; ++round) {
        const auto letter = [&](int r) { return static_cast<std::byte>(r + round); };
        const std::vector<std::byte> mine(to_size(sizes[to_size(rank)]), letter(rank));
        std::vector<std::byte> all(4107), wanted;
        for (int r = 0; r < 5; ++r) wanted.insert(wanted.end(), to_size(sizes[to_size(r)]), letter(r));
        reduce.all_gather(context, mine, sizes, all, call_for(ReduceOp::sum));
        wrong[to_size(rank)] += all != wanted;
      }
    });
    CHECK(wrong == std::vector<int>(5, 0));
  }

  TEST_CASE("a different type is an error on both sides that names both calls") {
    std::vector<std::string> messages(2);
    as_ranks(2, [&](NodeReduce& reduce, CommContext& context, int rank) {
      std::vector<float> floats(8);
      std::vector<double> doubles(8);
      try {
        if (rank == 0)
          reduce.all_reduce(context, std::span<float>(floats), call_for(ReduceOp::sum));
        else
          reduce.all_reduce(context, std::span<double>(doubles), call_for(ReduceOp::sum));
      } catch (const Error& problem) {
        messages[to_size(rank)] = problem.what();
      }
    });
    for (const std::string& message : messages)
      check_mentions(message, "all_reduce sum of 8 f32", "all_reduce sum of 8 f64");
  }
}
