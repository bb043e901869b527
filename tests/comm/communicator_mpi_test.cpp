#include "lockstep/base/hash.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/doctor/communication_check.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"

namespace {
Communicator& comm() { return test_world().communicator(); }

/// Changes the options and restores them at the end of its scope.
class WithOptions {
 public:
  explicit WithOptions(const std::function<void(WorldOptions&)>& change) : before_(test_world().options()) {
    WorldOptions options = before_;
    change(options);
    test_world().configure(options);
  }
  ~WithOptions() { test_world().configure(before_); }

 private:
  WorldOptions before_;
};

std::vector<float> fractions(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 1.0f / static_cast<float>(1 + (i * 31 + to_size(rank) * 17) % 997);
  return values;
}

std::uint64_t bits_differ(std::span<const float> values) {
  std::uint64_t high = hash64(values.data(), values.size_bytes()), low = ~high;
  comm().all_reduce(std::span(&high, 1), ReduceOp::max, "hash");
  comm().all_reduce(std::span(&low, 1), ReduceOp::max, "hash");
  return high ^ ~low;
}
}  // namespace

TEST_SUITE("comm.communicator") {
  TEST_CASE("compressed sums work for any length, several at once, completed in any order") {
    const int ranks = comm().size();
    const std::vector<std::size_t> counts = {0, 1, 3, 100, 5001, 70001};
    std::vector<std::vector<float>> values;
    std::vector<std::unique_ptr<Request>> requests;
    for (const std::size_t count : counts) {
      // bf16 represents small integers exactly, and so the sum is exact while it is small.
      std::vector<float>& v = values.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<float>((i + to_size(comm().rank())) % 32);
      requests.push_back(comm().start_compressed_sum(v, "compressed"));
    }
    if (comm().rank() % 2 == 0) std::reverse(requests.begin(), requests.end());
    for (auto& request : requests) request->wait();
    for (const std::vector<float>& v : values) {
      for (std::size_t i = 0; i < v.size(); ++i) {
        float expected = 0;
        for (int r = 0; r < ranks; ++r) expected += static_cast<float>((i + to_size(r)) % 32);
        CHECK(v[i] == expected);
      }
    }
    std::vector<float> sum = fractions(comm().rank(), 5001), exact = sum;
    comm().start_compressed_sum(sum, "compressed")->wait();
    comm().all_reduce(std::span(exact), ReduceOp::sum, "exact");
    CHECK(bits_differ(sum) == 0);
    for (std::size_t i = 0; i < sum.size(); ++i)
      CHECK(std::abs(sum[i] - exact[i]) <= (ranks == 1 ? 0 : exact[i] / 128));
    {
      const WithOptions split([](WorldOptions& o) { o.max_message_bytes = 64; });
      std::vector<float> pieces = fractions(comm().rank(), 5001);
      comm().start_compressed_sum(pieces, "in pieces")->wait();
      CHECK(pieces == sum);
    }
    sum.assign(9, std::numeric_limits<float>::quiet_NaN());
    comm().start_compressed_sum(sum, "compressed")->wait();
    CHECK(std::isnan(sum[8]));
  }

  TEST_CASE("an all-gather of empty contributions is empty") {
    CHECK(comm().all_gather({}, "nothing").bytes.empty());
    Communicator& of_node = test_world().node_communicator();
    CHECK(of_node.all_gather({}, "nothing").ranks() == of_node.size());
  }

  TEST_CASE("every collective returns the right result, also with split messages, without shared memory, and checked") {
    const std::function<void(WorldOptions&)> changes[] = {[](WorldOptions&) {},
                                                          [](WorldOptions& o) {
                                                            o.max_message_bytes = 4096;
                                                            o.node_path_bytes = 0;
                                                          },
                                                          [](WorldOptions& o) { o.check_collectives = true; }};
    for (const auto& change : changes) {
      const WithOptions changed(change);
      const CommReport report = comm_test(test_world(), {.max_bytes = 4096, .budget_s = 0.1});
      for (const CommCheck& check : report.checks) CHECK_MESSAGE(check.passed, check.name, ": ", check.problem);
      CHECK(report.checks.size() == 12);
      CHECK(report.passed());
      CHECK(static_cast<int>(report.ranks.size()) == comm().size());
    }
  }

  TEST_CASE("a short and a long message are timed for any time budget, in ascending order, but not on one rank") {
    std::vector<std::size_t> sizes;
    for (const CommTiming& t : comm_test(test_world(), {.max_bytes = 4096, .budget_s = 1e-9}).timings)
      if (t.collective == "all_reduce") sizes.push_back(t.bytes);
    CHECK(sizes == (comm().size() > 1 ? std::vector<std::size_t>{8, 4096} : std::vector<std::size_t>{}));
  }

  TEST_CASE("sums of fractions have the same bits on every rank: short, long, blocking and started") {
    const auto check = [](std::size_t count) {
      CAPTURE(count);
      std::vector<float> values = fractions(comm().rank(), count), started = values;
      comm().all_reduce(std::span<float>(values), ReduceOp::sum, "fractions");
      CHECK(bits_differ(values) == 0);
      comm().start_all_reduce(std::span<float>(started), "fractions")->wait();
      CHECK(bits_differ(started) == 0);
      double exact = 0;
      for (int r = 0; r < comm().size(); ++r) exact += static_cast<double>(fractions(r, count)[count - 1]);
      CHECK(std::abs(static_cast<double>(values[count - 1]) - exact) < 1e-6 * exact);
      CHECK(std::abs(static_cast<double>(started[count - 1]) - exact) < 1e-6 * exact);
    };
    for (const std::size_t count : {1, 9345, 300001}) check(count);
    const WithOptions between_hosts([](WorldOptions& o) { o.node_path_bytes = 0; });
    for (const std::size_t count : {1, 1100, 4096, 4097}) check(count);
  }

  TEST_CASE("a thousand short all-reduces in a row do not mix their results") {
    bool right = true;
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t sum = comm().all_reduced(std::int64_t{i + comm().rank()}, ReduceOp::sum, "counter");
      right = right && sum == std::int64_t{i} * comm().size() + comm().size() * (comm().size() - 1) / 2;
    }
    CHECK(right);
  }

  TEST_CASE("short all-reduces complete while a long one is in progress") {
    std::vector<float> large(2'000'003, 1.0f);
    const auto request = comm().start_all_reduce(std::span<float>(large), "large bucket");
    // The last rank waits for the large sum first, the others after the short ones. No rank may wait for the wrong sum.
    for (int i = 0; i < 20; ++i) comm().all_reduced(1.0, ReduceOp::sum, "short");
    while (!request->test()) {
    }
    request->wait();
    CHECK(large.front() == static_cast<float>(comm().size()));
    CHECK(large.back() == static_cast<float>(comm().size()));
  }

  TEST_CASE("a started exchange brings each rank its piece, also while other exchanges run") {
    const auto ranks = to_size(comm().size());
    // Rank r sends rank q a piece of 100000 r + q bytes, each of value r + q.
    const auto piece = [](std::size_t r, std::size_t q) {
      return std::vector<std::byte>(100'000 * r + q, static_cast<std::byte>(r + q));
    };
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::byte> expected;
    std::vector<std::int64_t> sizes;
    for (std::size_t r = 0; r < ranks; ++r) {
      sent.push_back(piece(to_size(comm().rank()), r));
      const std::vector<std::byte> mine = piece(r, to_size(comm().rank()));
      expected.insert(expected.end(), mine.begin(), mine.end());
      sizes.push_back(std::ssize(mine));
    }
    const std::vector<std::span<const std::byte>> pieces(sent.begin(), sent.end());
    std::vector<std::byte> started(expected.size()), between(expected.size());
    const auto request = comm().start_all_to_all(pieces, sizes, started, "started");
    comm().all_to_all_known(pieces, sizes, between, "between");
    request->wait();
    CHECK(started == expected);
    CHECK(between == expected);
  }

  TEST_CASE("a started all-reduce progresses while its ranks make no calls") {
    if (comm().size() == 1) return;
    std::vector<double> large(std::size_t{1} << 20, 1.0);
    comm().barrier("before");
    const auto request = comm().start_all_reduce(std::span<double>(large), "bucket");
    // Without the helper, one test() performs one step of many, and eight are far too few. The time is for a busy
    // machine.
    bool done = false;
    for (int wait_ms = 100; !done && wait_ms <= 12'800; wait_ms *= 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      done = request->test();
    }
    CHECK(done);
    request->wait();
    CHECK(large.back() == static_cast<double>(comm().size()));
  }

  TEST_CASE("texts of any length arrive whole") {
    const int last = comm().size() - 1;
    const std::string text = comm().rank() == last ? std::string(100'000, 'x') + "end" : "not this";
    CHECK(comm().broadcast_text(text, last, "text") == std::string(100'000, 'x') + "end");
    CHECK(comm().broadcast_text("", 0, "empty text").empty());
    const std::vector<std::string> all = comm().all_gather_text(std::string(to_size(comm().rank()), 'r'), "names");
    for (int r = 0; r < comm().size(); ++r) CHECK(all[to_size(r)] == std::string(to_size(r), 'r'));
  }

  TEST_CASE("agree returns true only if all ranks pass true") {
    CHECK(comm().agree(true, "all"));
    CHECK_FALSE(comm().agree(comm().rank() != comm().size() - 1, "all but the last"));
  }

  TEST_CASE("bit_or of floats is rejected before data move") {
    float value = 1;
    CHECK_THROWS_AS(comm().all_reduce(std::span(&value, 1), ReduceOp::bit_or, "floats"), Error);
  }

  TEST_CASE("in debug mode a different count on one rank is an error that names both calls") {
    if (comm().size() == 1) return;
    const WithOptions checked([](WorldOptions& o) { o.check_collectives = true; });
    std::vector<float> values(comm().rank() == 1 ? 6 : 5);
    const std::string message = error_of(
        Fault::internal, [&] { comm().all_reduce(std::span<float>(values), ReduceOp::sum, "gradient of a test"); });
    check_mentions(message, "rank 0 (", "rank 1 (", "all_reduce sum of 5 f32 'gradient of a test'",
                   "all_reduce sum of 6 f32 'gradient of a test'");
  }

  TEST_CASE("debug mode also compares the step") {
    if (comm().size() == 1) return;
    const WithOptions checked([](WorldOptions& o) { o.check_collectives = true; });
    test_world().at("train", comm().rank() == comm().size() - 1 ? 8 : 7);
    const std::string message = error_of(Fault::internal, [] { comm().barrier("step of a test"); });
    test_world().at("test", -1);
    check_mentions(message, "in step 7", "in step 8");
  }
}
