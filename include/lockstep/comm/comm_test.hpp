#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"

namespace lockstep {

struct CommTestOptions {
  std::size_t max_bytes = std::size_t{16} << 20;  ///< longest message of the timing
  double budget_s = 10;                           ///< wall time for all of it; two sizes are timed in any case
};

/// One collective, checked against the sums that every rank can work out itself.
struct CommCheck {
  std::string name;
  bool passed = false;
  std::string problem;  ///< first wrong value, the rank that saw it, and what was expected; "" when passed
};

/// Time of one message size, over repetitions of the slowest rank. The collective `link` is the raw link: every rank sends the message
/// to the next one, all at once. Units: seconds, bytes per second.
struct CommTiming {
  std::string collective;
  std::size_t bytes = 0;
  int repetitions = 0;
  double median_s = 0, p90_s = 0;
  double bytes_per_s = 0;  ///< message bytes / median
  /// Bytes that must leave a rank at least / median: 2 (p - 1) / p n for an all-reduce, n for a broadcast and a link, (p - 1) / p n
  /// where n is the whole result.
  double bus_bytes_per_s = 0;
  double link_share =
      0;  ///< of the bus rate of `link` at this size; above 1 where a host's shared memory is quicker than MPI
};

struct CommRank {
  int rank = 0, node = 0, node_rank = 0;
  std::int64_t pid = 0;
  std::string host;
  int cpus = 0;                 ///< processors that it may run on
  double compute_s = 0;         ///< time of a fixed piece of arithmetic, best of three
  double send_bytes_per_s = 0;  ///< to the next rank of the ring while all send; 0 when alone
  bool slow = false;            ///< its arithmetic takes 1.5 x the median of the ranks or more
  bool slow_link = false;  ///< its link to the next rank is 1.5 x slower than the upper quartile of such links, or more
};

struct CommReport {
  std::string mpi;
  std::vector<CommRank> ranks;
  std::vector<CommCheck> checks;
  std::vector<CommTiming> timings;
  std::size_t bucket_bytes =
      0;  ///< smallest message that reaches 80 % of the best bandwidth of start_all_reduce; 0: not known
  bool passed() const;
};

/// Is this allocation fit for training? Correctness of each collective, times per message size, who is slow.
/// Collective; the same report on every rank.
CommReport comm_test(World& world, const CommTestOptions& options);
/// For people: tables and one sentence of advice.
std::string comm_test_text(const CommReport& report);
/// The same, as one JSON object.
std::string comm_test_json(const CommReport& report);

}  // namespace lockstep
