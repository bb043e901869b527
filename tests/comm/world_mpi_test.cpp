#include <stdexcept>

#include "lockstep/base/log.hpp"
#include "lockstep/comm/world.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"

TEST_SUITE("comm.world") {
  TEST_CASE("ranks, nodes and hosts are consistent") {
    World& world = test_world();
    Communicator& all = world.communicator();
    CHECK(all.rank() == world.rank());
    CHECK(all.size() == world.size());
    CHECK(world.node_communicator().size() == world.node_size());
    CHECK(world.node_communicator().rank() == world.node_rank());
    // Every node has one rank 0, and the sizes of the nodes add up.
    CHECK(all.all_reduced(std::int64_t{world.node_rank() == 0}, ReduceOp::sum, "first ranks") == world.nodes());
    const double share = all.all_reduced(1.0 / world.node_size(), ReduceOp::sum, "shares");
    CHECK(share == Approx(world.nodes()));
    CHECK(world.node() < world.nodes());
    CHECK_FALSE(world.host().empty());
    CHECK(log::speaker().ranks == world.size());
    CHECK((log::prefix().empty() == (world.size() == 1)));
  }

  TEST_CASE("groups of ranks work for themselves, and an error of one leaves the others alone") {
    World& world = test_world();
    const int groups = world.size() > 2 ? 2 : 1, mine = world.rank() % groups;
    const auto part = world.part(mine);
    CHECK(part->size() == (world.size() + groups - 1 - mine) / groups);
    CHECK(part->rank() == world.rank() / groups);
    std::vector<double> values(40000, 1.0);  // more than a message of the node's memory
    part->communicator().all_reduce(std::span(values), ReduceOp::sum, "values of a group");
    CHECK(values.back() == part->size());
    if (mine == 0 && part->size() > 1)
      CHECK_THROWS_AS(part->together("failing", [&] { require_usage(part->rank() != 0, "group 0 fails"); }),
                      CollectiveError);
    const auto memory = part->share_on_node(64);
    if (part->node_rank() == 0) memory->bytes().front() = std::byte{7};
    part->node_communicator().barrier("written");
    CHECK(memory->bytes().front() == std::byte{7});
    world.communicator().barrier("groups are done");
  }

  TEST_CASE("rank 0 answers the questions of all ranks at its desk, each once") {
    World& world = test_world();
    std::int64_t next = 0;
    const auto desk = world.open_desk([&](const std::string& question) {
      require_usage(question != "wrong", "a wrong question");
      return std::to_string(next++);
    });
    std::int64_t sum = 0;
    for (int i = 0; i < 5; ++i) sum += std::stoll(desk->ask("next"));
    CHECK_THROWS_WITH(desk->ask("wrong"), doctest::Contains("a wrong question"));
    const std::int64_t count = 5 * world.size();
    CHECK(world.communicator().all_reduced(sum, ReduceOp::sum, "answers") == count * (count - 1) / 2);
  }

  TEST_CASE("memory of the node is initially zero, aligned, and shared by all ranks") {
    World& world = test_world();
    for (const std::size_t size : {std::size_t{0}, std::size_t{24}, std::size_t{3} << 20}) {
      const auto memory = world.share_on_node(size);
      CHECK(memory->bytes().size() == size);
      CHECK(reinterpret_cast<std::uintptr_t>(memory->bytes().data()) % 64 == 0);
      CHECK(std::accumulate(memory->bytes().begin(), memory->bytes().end(), 0,
                            [](int sum, std::byte b) { return sum + static_cast<int>(b); }) == 0);
      world.node_communicator().barrier("looked");
      if (size == 0) continue;
      if (world.node_rank() == world.node_size() - 1) memory->bytes().back() = std::byte{42};
      world.node_communicator().barrier("written");
      CHECK(memory->bytes().back() == std::byte{42});
      world.node_communicator().barrier("read");
    }
  }

  TEST_CASE("together: without an error all ranks continue") {
    int ran = 0;
    test_world().together("counting", [&] { ++ran; });
    CHECK(ran == 1);
  }

  TEST_CASE("together: if one rank fails, all throw its error and one message is printed") {
    World& world = test_world();
    const int guilty = world.size() - 1;
    std::int64_t lines = 0;
    const auto remove = log::add_sink([&](LogLevel level, std::string_view) { lines += level == LogLevel::error; });
    std::string message;
    Fault fault = Fault::internal;
    bool collective = false;
    try {
      world.together("opening files", [&] {
        if (world.rank() == guilty) throw Error(Fault::data, "opening 'x.h5': (this line belongs to a test)");
      });
    } catch (const Error& problem) {
      message = problem.what();
      fault = problem.fault();
      collective = dynamic_cast<const CollectiveError*>(&problem) != nullptr;
    }
    remove();
    CHECK(message == "opening 'x.h5': (this line belongs to a test)");
    CHECK(fault == Fault::data);
    CHECK(collective == (world.size() > 1));
    CHECK(world.communicator().all_reduced(lines, ReduceOp::sum, "lines") == (world.size() > 1 ? 1 : 0));
  }

  TEST_CASE("together: the lowest failing rank prints its message; other exceptions are internal errors") {
    World& world = test_world();
    if (world.size() < 3) return;
    const std::string message = error_of(Fault::internal, [&] {
      world.together("thinking", [&] {
        if (world.rank() >= 1) throw std::runtime_error(join("(a test's) rank ", world.rank()));
      });
    });
    CHECK(message == "thinking: internal error ((a test's) rank 1); report it together with the command");
  }

  TEST_CASE("run returns the exit code of an error that all ranks throw") {
    World& world = test_world();
    CHECK(world.run([] { return 85; }) == 85);
    const int code = world.run([&]() -> int {
      world.together("checking options", [] { throw Error(Fault::usage, "(this line belongs to a test)"); });
      return 0;
    });
    CHECK(code == 2);
  }

  TEST_CASE("options that differ between ranks are an error") {
    World& world = test_world();
    WorldOptions options = world.options();
    options.node_path_bytes = 1000 + to_size(world.rank());
    if (world.size() > 1) CHECK_THROWS_AS(world.configure(options), Error);
    options.timeout_s = -1;
    CHECK_THROWS_AS(world.configure(options), Error);
  }
}
