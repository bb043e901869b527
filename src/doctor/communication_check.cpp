#include "lockstep/doctor/communication_check.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/tree_reduce.hpp"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommRank, rank, node, node_rank, host, pid, cpus, compute_s, send_bytes_per_s, slow,
                                   slow_link)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommCheck, name, passed, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommTiming, collective, bytes, repetitions, median_s, p90_s, bytes_per_s,
                                   bus_bytes_per_s, link_share)

namespace {
constexpr double kSlow = 1.5;  // times the median
constexpr int kMinRepetitions = 3, kMaxRepetitions = 300;
constexpr std::size_t kEnoughBytes = std::size_t{1} << 20;

/// The first problem that one check finds on this rank.
class Verdict {
 public:
  /// `where` describes the element; it is formatted only on a mismatch.
  template <class T, class... Where>
  void expect(const T& found, const T& wanted, const Where&... where) {
    if (problem_.empty() && std::memcmp(&found, &wanted, sizeof(T)) != 0)
      problem_ = join(where..., ": found ", found, ", expected ", wanted);
  }
  void fail(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

/// Small integers, so that every order of summation gives the same sum in every type.
std::int64_t value_of(int rank, std::size_t element) {
  return static_cast<std::int64_t>((element * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

template <class T>
void check_all_reduce(Communicator& comm, ReduceOp op, Verdict& verdict) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1023}, std::size_t{70001}, std::size_t{300007}}) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(value_of(comm.rank(), i));
    comm.all_reduce(std::span<T>(values), op, "comm-test all_reduce");
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t wanted = value_of(0, i);
      for (int r = 1; r < comm.size(); ++r) {
        const std::int64_t v = value_of(r, i);
        wanted = op == ReduceOp::sum   ? wanted + v
                 : op == ReduceOp::min ? std::min(wanted, v)
                 : op == ReduceOp::max ? std::max(wanted, v)
                                       : (wanted | v);
      }
      verdict.expect(values[i], static_cast<T>(wanted), "element ", i, " of ", count);
    }
  }
}

void check_overlapped(Communicator& comm, Verdict& verdict) {
  std::vector<std::vector<float>> buckets;
  std::vector<std::unique_ptr<Request>> requests;
  for (const std::size_t count : {std::size_t{1000}, std::size_t{0}, std::size_t{100003}, std::size_t{17}}) {
    std::vector<float>& bucket = buckets.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) bucket[i] = static_cast<float>(value_of(comm.rank(), i));
  }
  for (std::vector<float>& bucket : buckets) requests.push_back(comm.start_all_reduce(bucket, "comm-test bucket"));
  comm.barrier("comm-test between buckets");
  for (std::size_t b = buckets.size(); b-- > 0;) requests[b]->wait();
  for (const std::vector<float>& bucket : buckets)
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      std::int64_t wanted = 0;
      for (int r = 0; r < comm.size(); ++r) wanted += value_of(r, i);
      verdict.expect(bucket[i], static_cast<float>(wanted), "element ", i, " of ", bucket.size());
    }
}

std::byte byte_of(int from, int to, std::size_t at) {
  return static_cast<std::byte>((static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 17 + at) % 251);
}

void expect_piece(std::span<const std::byte> piece, int from, int to, std::size_t size, Verdict& verdict) {
  if (piece.size() != size)
    return verdict.fail(join("from rank ", from, ": ", piece.size(), " bytes, expected ", size));
  for (std::size_t i = 0; i < size; ++i)
    verdict.expect(static_cast<int>(piece[i]), static_cast<int>(byte_of(from, to, i)), "byte ", i, " from rank ", from);
}

std::vector<std::byte> piece_of(int from, int to, std::size_t size) {
  std::vector<std::byte> piece(size);
  for (std::size_t i = 0; i < size; ++i) piece[i] = byte_of(from, to, i);
  return piece;
}

void check_broadcast(Communicator& comm, Verdict& verdict) {
  for (int root = 0; root < comm.size(); root += std::max(1, comm.size() - 1))
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000003}}) {
      std::vector<std::byte> bytes = comm.rank() == root ? piece_of(root, 0, size) : std::vector<std::byte>(size);
      comm.broadcast(bytes, root, "comm-test broadcast");
      expect_piece(bytes, root, 0, size, verdict);
    }
}

void check_all_gather(Communicator& comm, Verdict& verdict) {
  const auto size_of = [](int r) { return static_cast<std::size_t>(r % 3) * 5003; };  // rank 0 contributes nothing
  const Gathered all = comm.all_gather(piece_of(comm.rank(), 0, size_of(comm.rank())), "comm-test all_gather");
  for (int r = 0; r < comm.size(); ++r) expect_piece(all.of(r), r, 0, size_of(r), verdict);
}

void check_all_to_all(Communicator& comm, Verdict& verdict) {
  const auto size_of = [](int from, int to) { return static_cast<std::size_t>((from + 2 * to) % 4) * 3001; };
  std::vector<std::vector<std::byte>> pieces;
  for (int r = 0; r < comm.size(); ++r) pieces.push_back(piece_of(comm.rank(), r, size_of(comm.rank(), r)));
  const std::vector<std::span<const std::byte>> to(pieces.begin(), pieces.end());
  const Gathered all = comm.all_to_all(to, "comm-test all_to_all");
  for (int r = 0; r < comm.size(); ++r) expect_piece(all.of(r), r, comm.rank(), size_of(r, comm.rank()), verdict);
}

void check_tree(Communicator& comm, Verdict& verdict) {
  constexpr std::int64_t kShards = 16;
  for (const std::int64_t n : {std::int64_t{1001}, std::int64_t{50021}}) {
    const auto element = [](std::int64_t shard, std::int64_t i) {
      return 1.0f / static_cast<float>(1 + (i * 37 + shard * 101) % 1009);
    };
    std::vector<std::vector<float>> shards;
    for (std::int64_t s = 0; s < kShards; ++s) {
      std::vector<float>& shard = shards.emplace_back(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) shard[i] = element(s, i);
    }
    const ShardRange mine = shards_of(kShards, comm.rank(), comm.size());
    const std::vector<std::span<float>> local(shards.begin() + mine.begin, shards.begin() + mine.end);
    std::vector<float> sum(n);
    tree_all_reduce(comm, kShards, local, std::span<float>(sum), "comm-test tree");
    for (std::int64_t width = 1; width < kShards; width *= 2)
      for (std::int64_t s = 0; s < kShards; s += 2 * width)
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) shards[s][i] += shards[s + width][i];
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
      verdict.expect(sum[i], shards[0][i], "element ", i, " of ", n);
  }
}

void check_node_memory(World& world, Verdict& verdict) {
  const auto memory = world.share_on_node(sizeof(std::int64_t) * static_cast<std::size_t>(world.node_size()));
  auto* slots = reinterpret_cast<std::int64_t*>(memory->bytes().data());
  slots[world.node_rank()] = 1000 + world.node_rank();
  world.node_communicator().barrier("comm-test node memory");
  for (int r = 0; r < world.node_size(); ++r)
    verdict.expect(slots[r], std::int64_t{1000 + r}, "slot of rank ", r, " of the node");
  world.node_communicator().barrier("comm-test node memory read");
}

/// Runs a check on every rank and reports the problem of the lowest failing rank.
CommCheck check(World& world, const char* name, auto body) {
  Verdict verdict;
  body(verdict);
  CommCheck result{name, true, {}};
  const std::vector<std::string> problems =
      world.communicator().all_gather_text(verdict.problem(), "comm-test verdict");
  for (std::size_t r = 0; r < problems.size() && result.passed; ++r) {
    if (problems[r].empty()) continue;
    result.passed = false;
    result.problem = join("rank ", r, ": ", problems[r]);
  }
  return result;
}

double median_of(std::vector<double> values, double quantile = 0.5) {
  const auto at = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[at];
}

/// Times collectives, each for about `each_s`. The time of a repetition is that of its slowest rank.
class Timer {
 public:
  Timer(Communicator& comm, double each_s) : comm_(comm), each_s_(each_s) {}

  /// `bus_bytes` is the minimum number of bytes that leave each rank.
  void operator()(const char* name, std::size_t bytes, std::size_t bus_bytes, auto body) {
    body();
    Stopwatch watch;
    body();
    comm_.barrier("comm-test start");  // as before each repetition: the root of a broadcast finishes early
    const double once = comm_.all_reduced(watch.seconds(), ReduceOp::max, "comm-test time");
    const int repetitions =
        std::clamp(static_cast<int>(each_s_ / std::max(once, 1e-7)), kMinRepetitions, kMaxRepetitions);
    least_s_ += (kMinRepetitions + 2) * once;
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      comm_.barrier("comm-test start");
      watch.restart();
      body();
      times.push_back(watch.seconds());
    }
    comm_.all_reduce(std::span<double>(times), ReduceOp::max, "comm-test times");
    CommTiming t{name, bytes, repetitions, median_of(times), median_of(times, 0.9)};
    t.bytes_per_s = static_cast<double>(bytes) / t.median_s;
    t.bus_bytes_per_s = static_cast<double>(bus_bytes) / t.median_s;
    timings_.push_back(t);
  }
  /// Ends one message size: the fastest of its timings is what the links can do at that size. That need not be the
  /// ring, where every rank sends and receives at once.
  void end_size() {
    double fastest = 0;
    for (std::size_t t = begin_; t < timings_.size(); ++t) fastest = std::max(fastest, timings_[t].bus_bytes_per_s);
    for (; begin_ < timings_.size(); ++begin_)
      timings_[begin_].link_share = fastest > 0 ? timings_[begin_].bus_bytes_per_s / fastest : 0;
  }
  std::vector<CommTiming> take() { return std::move(timings_); }
  /// Estimated time of all calls since the last least_s() with the minimum number of repetitions.
  double least_s() { return std::exchange(least_s_, 0); }

 private:
  Communicator& comm_;
  double each_s_;
  double least_s_ = 0;
  std::size_t begin_ = 0;  ///< first timing of the current size
  std::vector<CommTiming> timings_;
};

/// Sends a fixed number of bytes from every rank to its next rank.
class Ring {
 public:
  Ring(Communicator& comm, std::size_t bytes)
      : comm_(comm),
        mine_(bytes),
        theirs_(bytes),
        to_(static_cast<std::size_t>(comm.size())),
        from_(static_cast<std::size_t>(comm.size())) {
    to_[(comm.rank() + 1) % comm.size()] = mine_;
    from_[(comm.rank() + comm.size() - 1) % comm.size()] = static_cast<std::int64_t>(bytes);
  }
  void send() { comm_.all_to_all_known(to_, from_, theirs_, "comm-test ring"); }

 private:
  Communicator& comm_;
  std::vector<std::byte> mine_, theirs_;
  std::vector<std::span<const std::byte>> to_;
  std::vector<std::int64_t> from_;
};

/// Message sizes, most informative first: the shortest, one that shows the bandwidth, then the others in ascending
/// order.
std::vector<std::size_t> sizes_to_time(std::size_t max_bytes) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 8; bytes < max_bytes; bytes *= 8) sizes.push_back(bytes);
  sizes.push_back(std::max<std::size_t>(max_bytes / 8 * 8, 8));
  const auto enough = std::lower_bound(sizes.begin(), sizes.end(), kEnoughBytes);
  const auto second = enough == sizes.end() ? sizes.end() - 1 : enough;
  if (second > sizes.begin()) std::rotate(sizes.begin() + 1, second, second + 1);
  return sizes;
}

/// `since` is the start of the time budget. A single rank sends nothing and has no timings.
std::vector<CommTiming> time_all(Communicator& comm, const CommTestOptions& options, const Stopwatch& since) {
  if (comm.size() == 1) return {};
  const std::vector<std::size_t> sizes = sizes_to_time(options.max_bytes);
  // All ranks use the same clock, so that they time the same sizes.
  const auto now = [&] { return comm.all_reduced(since.seconds(), ReduceOp::max, "comm-test budget"); };
  double begin = now(), shortest = 0, per_byte = 0;
  Timer time(comm, std::max(0.0, options.budget_s - begin) / static_cast<double>(6 * sizes.size() + 1));
  time("barrier", 0, 0, [&] { comm.barrier("comm-test barrier"); });
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (const std::size_t bytes : sizes) {
    // At least two sizes, for latency and bandwidth. Skips sizes that exceed the remaining time.
    const double expected = std::max(shortest, per_byte * static_cast<double>(bytes));
    if (bytes != sizes[0] && bytes != sizes[1] && begin + expected > options.budget_s) continue;
    Ring ring(comm, bytes);
    time("link", bytes, bytes, [&] { ring.send(); });
    const std::size_t reduced = 2 * bytes * (ranks - 1) / ranks;
    std::vector<float> values(bytes / sizeof(float));
    time("all_reduce", bytes, reduced,
         [&] { comm.all_reduce(std::span<float>(values), ReduceOp::sum, "comm-test all_reduce"); });
    time("start_all_reduce", bytes, reduced,
         [&] { comm.start_all_reduce(std::span<float>(values), "comm-test bucket")->wait(); });
    time("broadcast", bytes, bytes,
         [&] { comm.broadcast(std::as_writable_bytes(std::span<float>(values)), 0, "comm-test broadcast"); });
    // The size is that of the whole result, so memory does not grow with the number of ranks.
    const std::size_t piece = bytes / ranks;
    std::vector<std::byte> mine(piece), whole(piece * ranks);
    const std::vector<std::int64_t> piece_sizes(ranks, static_cast<std::int64_t>(piece));
    time("all_gather", piece * ranks, piece * (ranks - 1),
         [&] { comm.all_gather_known(mine, piece_sizes, whole, "comm-test all_gather"); });
    const std::vector<std::span<const std::byte>> to(ranks, std::span<const std::byte>(mine));
    time("all_to_all", piece * ranks, piece * (ranks - 1),
         [&] { comm.all_to_all_known(to, piece_sizes, whole, "comm-test all_to_all"); });
    time.end_size();
    begin = now();
    const double least = time.least_s();
    if (bytes == sizes[0]) shortest = least;
    if (bytes >= kEnoughBytes) per_byte = least / static_cast<double>(bytes);
  }
  std::vector<CommTiming> timings = time.take();
  std::vector<std::size_t> growing = sizes;
  std::sort(growing.begin(), growing.end());
  const auto place = [&](std::size_t bytes) {  // equal contributions may add up to slightly less
    return std::lower_bound(growing.begin(), growing.end(), bytes) - growing.begin();
  };
  std::stable_sort(timings.begin(), timings.end(),
                   [&](const CommTiming& a, const CommTiming& b) { return place(a.bytes) < place(b.bytes); });
  return timings;
}

/// Seconds for a fixed computation (a few milliseconds), best of three.
double time_arithmetic() {
  double best = 1e30;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Stopwatch watch;
    volatile double sink = 0;
    double a = 1.0, b = 1.0, c = 1.0, d = 1.0;
    for (int i = 0; i < 1'000'000; ++i) {
      a = a * 0.999999 + 0.5;
      b = b * 0.999998 + 0.25;
      c = c * 0.999997 + 0.125;
      d = d * 0.999996 + 0.0625;
    }
    sink = a + b + c + d;
    static_cast<void>(sink);
    best = std::min(best, watch.seconds());
  }
  return best;
}

/// Seconds for sending to the next rank and receiving from the previous one while all ranks do so, best of five.
double time_ring(Communicator& comm, std::size_t bytes) {
  if (comm.size() == 1) return 0;
  Ring ring(comm, bytes);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    comm.barrier("comm-test ring");
    const Stopwatch watch;
    ring.send();
    best = std::min(best, watch.seconds());
  }
  return best;
}

std::vector<CommRank> look_at_ranks(World& world, const CommTestOptions& options) {
  Communicator& comm = world.communicator();
  struct Record {
    std::int64_t pid;
    int node, node_rank, cpus, unused;
    double compute_s, ring_s;
    std::array<char, 64> host;
  } own{};
  cpu_set_t allowed;
  own.pid = getpid();
  own.node = world.node();
  own.node_rank = world.node_rank();
  own.cpus = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  comm.barrier("comm-test arithmetic");
  own.compute_s = time_arithmetic();
  const std::size_t ring_bytes = std::min<std::size_t>(options.max_bytes, std::size_t{4} << 20);
  own.ring_s = time_ring(comm, ring_bytes);
  std::snprintf(own.host.data(), own.host.size(), "%s", world.host().c_str());
  const auto records = values_of<Record>(comm.all_gather(std::as_bytes(std::span(&own, 1)), "comm-test ranks").bytes);
  std::vector<CommRank> ranks;
  std::vector<double> compute;
  std::vector<double> speeds[2];  // links within a node, links between nodes
  for (std::size_t r = 0; r < records.size(); ++r) {
    const Record& c = records[r];
    const Record& next = records[(r + 1) % records.size()];
    CommRank rank{.rank = static_cast<int>(r),
                  .node = c.node,
                  .node_rank = c.node_rank,
                  .pid = c.pid,
                  .host = c.host.data(),
                  .cpus = c.cpus,
                  .compute_s = c.compute_s};
    // A slow link delays both of its ends, so a link is as fast as its faster end.
    if (records.size() > 1) rank.send_bytes_per_s = static_cast<double>(ring_bytes) / std::min(c.ring_s, next.ring_s);
    compute.push_back(c.compute_s);
    speeds[c.node == next.node ? 0 : 1].push_back(rank.send_bytes_per_s);
    ranks.push_back(rank);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    // One node with a slow link affects two links of the ring, which is half of four: hence the upper quartile.
    const std::vector<double>& like = speeds[records[r].node == records[(r + 1) % records.size()].node ? 0 : 1];
    ranks[r].slow = ranks[r].compute_s > kSlow * median_of(compute);
    ranks[r].slow_link = ranks[r].send_bytes_per_s < median_of(like, 0.75) / kSlow;
  }
  return ranks;
}

std::size_t bucket_for(const std::vector<CommTiming>& timings) {
  double best = 0;
  std::size_t longest = 0;
  for (const CommTiming& t : timings) longest = std::max(longest, t.bytes);
  if (longest < kEnoughBytes) return 0;  // too short to show the bandwidth
  for (const CommTiming& t : timings)
    if (t.collective == "start_all_reduce") best = std::max(best, t.bytes_per_s);
  for (const CommTiming& t : timings)
    if (t.collective == "start_all_reduce" && t.bytes_per_s >= 0.8 * best) return t.bytes;
  return 0;
}
}  // namespace

bool CommReport::passed() const {
  return std::all_of(checks.begin(), checks.end(), [](const CommCheck& c) { return c.passed; });
}

bool CommReport::slow() const {
  return std::ranges::any_of(ranks, [](const CommRank& r) { return r.slow || r.slow_link; });
}

CommReport comm_test(World& world, const CommTestOptions& options) {
  require_usage(options.max_bytes >= 8, "longest message of ", options.max_bytes, " bytes: must be at least 8");
  const Stopwatch since;
  Communicator& comm = world.communicator();
  CommReport report;
  report.mpi = world.mpi_description();
  world.at("correctness", -1);
  const auto add = [&](const char* name, auto body) { report.checks.push_back(check(world, name, body)); };
  add("all_reduce sum f32", [&](Verdict& v) { check_all_reduce<float>(comm, ReduceOp::sum, v); });
  add("all_reduce sum f64", [&](Verdict& v) { check_all_reduce<double>(comm, ReduceOp::sum, v); });
  add("all_reduce sum i64", [&](Verdict& v) { check_all_reduce<std::int64_t>(comm, ReduceOp::sum, v); });
  add("all_reduce min f64", [&](Verdict& v) { check_all_reduce<double>(comm, ReduceOp::min, v); });
  add("all_reduce max u64", [&](Verdict& v) { check_all_reduce<std::uint64_t>(comm, ReduceOp::max, v); });
  add("all_reduce bit_or u64", [&](Verdict& v) { check_all_reduce<std::uint64_t>(comm, ReduceOp::bit_or, v); });
  add("start_all_reduce, several in progress", [&](Verdict& v) { check_overlapped(comm, v); });
  add("broadcast", [&](Verdict& v) { check_broadcast(comm, v); });
  add("all_gather, uneven", [&](Verdict& v) { check_all_gather(comm, v); });
  add("all_to_all, uneven", [&](Verdict& v) { check_all_to_all(comm, v); });
  add("tree_all_reduce, bit for bit", [&](Verdict& v) { check_tree(comm, v); });
  add("memory shared on the node", [&](Verdict& v) { check_node_memory(world, v); });
  world.at("ranks", -1);
  report.ranks = look_at_ranks(world, options);
  world.at("timing", -1);
  report.timings = time_all(comm, options, since);
  report.bucket_bytes = bucket_for(report.timings);
  return report;
}

std::string comm_test_line(const CommReport& report) {
  std::string times;
  const CommTiming* last = nullptr;
  for (const CommTiming& t : report.timings) {
    if (t.collective != "all_reduce") continue;
    if (last == nullptr)
      times += join("; all-reduce of ", human_bytes(static_cast<double>(t.bytes)), " in ", human_seconds(t.median_s));
    last = &t;
  }
  if (last != nullptr)
    times += join(", of ", human_bytes(static_cast<double>(last->bytes)), " in ", human_seconds(last->median_s));
  const std::size_t ranks = report.ranks.size();
  return join("communication of ", ranks, ranks == 1 ? " rank" : " ranks",
              ": all collectives are correct, no rank or link is slow", times, " (--log-level detail shows all)\n");
}

std::string comm_test_text(const CommReport& report) {
  std::string text =
      join("MPI: ", report.mpi, "\n\n  rank  node  host                   pid  cpus  arithmetic  to next rank\n");
  bool slow = false, slow_link = false;
  for (const CommRank& r : report.ranks) {
    slow = slow || r.slow;
    slow_link = slow_link || r.slow_link;
    const std::string speed = r.send_bytes_per_s > 0 ? human_bytes(r.send_bytes_per_s) + "/s" : std::string("-");
    text += printed("%6d %5d  %-16s %9lld %5d  %10s  %12s%s%s\n", r.rank, r.node, r.host.c_str(),
                    static_cast<long long>(r.pid), r.cpus, human_seconds(r.compute_s).c_str(), speed.c_str(),
                    r.slow_link ? "  SLOW LINK" : "", r.slow ? "  SLOW PROCESSOR" : "");
  }
  text += "\n";
  for (const CommCheck& c : report.checks)
    text += join(c.passed ? "  ok      " : "  FAILED  ", c.name, c.passed ? "" : ": ", c.problem, "\n");
  text += report.timings.empty()
              ? "\nOne rank sends nothing: there is nothing to time. Start several ranks with mpirun or srun.\n"
              : "\n  collective              bytes  repetitions      median         p90     bandwidth           bus  "
                "of the link\n";
  for (const CommTiming& t : report.timings) {
    const std::string speed = t.bytes > 0 ? human_bytes(t.bytes_per_s) + "/s" : std::string("-");
    const std::string bus = t.bus_bytes_per_s > 0 ? human_bytes(t.bus_bytes_per_s) + "/s" : std::string("-");
    text += printed("  %-18s %10zu  %11d  %10s  %10s  %12s  %12s", t.collective.c_str(), t.bytes, t.repetitions,
                    human_seconds(t.median_s).c_str(), human_seconds(t.p90_s).c_str(), speed.c_str(), bus.c_str());
    const bool shared = t.bus_bytes_per_s > 0 && t.link_share > 0;
    text += shared ? printed("  %9.0f %%\n", 100 * t.link_share) : "            -\n";
  }
  text += "\n";
  if (report.ranks.size() > 1) {
    text +=
        report.bucket_bytes > 0
            ? join("dist.bucket_bytes = ", report.bucket_bytes,
                   " is the smallest size that reaches 80 % of the best bandwidth of started all-reduces here.\n")
            : std::string("No bucket size proposed: no message of 1 MiB was timed; raise --max-bytes or --budget.\n");
  }
  if (slow)
    text +=
        "SLOW PROCESSOR: at least 1.5 times the median; every step waits for this rank. Check the load of its host.\n";
  if (slow_link) text += "SLOW LINK: the link to the next rank. A rank between two slow links has the slow network.\n";
  text += report.passed() ? "All collectives are correct.\n" : "SOME COLLECTIVES GIVE WRONG RESULTS.\n";
  return text;
}

std::string comm_test_json(const CommReport& report) {
  nlohmann::json json;
  json["passed"] = report.passed();
  json["mpi"] = report.mpi;
  json["bucket_bytes"] = report.bucket_bytes;
  json["ranks"] = report.ranks;
  json["checks"] = report.checks;
  json["timings"] = report.timings;
  return json_text(json, 2);
}

}  // namespace lockstep
