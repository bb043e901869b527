#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"

namespace lockstep {

struct CommTestOptions {
  std::size_t max_bytes = std::size_t{16} << 20;  ///< longest message to time
  double budget_s = 10;                           ///< wall time of the whole test; two sizes are timed in any case
};

/// The check of one collective against results that every rank computes itself.
struct CommCheck {
  std::string name;
  bool passed = false;
  std::string problem;  ///< first wrong value, the rank that saw it and the expected value; "" if passed
};

/// The time of one message size; a repetition takes as long as its slowest rank. The collective `link` measures the raw
/// link: every rank sends the message to its next rank at the same time. Units: seconds, bytes per second.
struct CommTiming {
  std::string collective;
  std::size_t bytes = 0;
  int repetitions = 0;
  double median_s = 0, p90_s = 0;
  double bytes_per_s = 0;  ///< message bytes / median
  /// Minimum bytes that leave a rank / median: 2 (p - 1) / p n for an all-reduce, n for a broadcast and a link, (p - 1)
  /// / p n otherwise, where n is the size of the whole result.
  double bus_bytes_per_s = 0;
  double link_share = 0;  ///< fraction of the highest bus rate at this size, at most 1; 0 if nothing is sent
};

struct CommRank {
  int rank = 0, node = 0, node_rank = 0;
  std::int64_t pid = 0;
  std::string host;
  int cpus = 0;                 ///< CPUs in the rank's affinity mask
  double compute_s = 0;         ///< time of a fixed computation, best of three
  double send_bytes_per_s = 0;  ///< to the next rank of the ring while all ranks send; 0 for a single rank
  bool slow = false;            ///< its arithmetic takes at least 1.5 x the median over ranks
  bool slow_link = false;  ///< its link to the next rank is at least 1.5 x slower than the upper quartile of such links
};

struct CommReport {
  std::string mpi;
  std::vector<CommRank> ranks;
  std::vector<CommCheck> checks;
  std::vector<CommTiming> timings;  ///< empty on one rank
  std::size_t bucket_bytes = 0;     ///< smallest message with 80 % of the best start_all_reduce bandwidth; 0: unknown
  bool passed() const;
  bool slow() const;  ///< whether a rank or a link is
};

/// Tests whether an allocation is fit for training: correctness of each collective, times per message size, slow ranks.
/// Collective; every rank receives the same report.
CommReport comm_test(World& world, const CommTestOptions& options);
/// The report as one line, for ranks that passed and are not slow.
std::string comm_test_line(const CommReport& report);
/// The report as tables with one sentence of advice.
std::string comm_test_text(const CommReport& report);
/// The report as one JSON object.
std::string comm_test_json(const CommReport& report);

}  // namespace lockstep
