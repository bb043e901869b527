#include "train/kgat_cost.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/base/text.hpp"
#include "train/graph_exchange.hpp"

namespace lockstep {

namespace {

// Per thread, but for the links'. A product whose table fits the last-level cache is several times as fast.
constexpr double kGatherBytes = 12e9, kCachedGatherBytes = 50e9, kStreamBytes = 8e9, kOperations = 50e9;
constexpr double kCacheBytes = 16e6;
constexpr double kHostLink = 2e9, kNetworkLink = 1.2e9;  // bytes per second that a rank receives
constexpr double kMessage = 20e-6;                       // seconds until a collective has begun

struct Counts {
  double rows = 0, entries = 0;
};

/// Of the rows that each rank owns.
std::vector<Counts> count(const KgGraph& graph, const PlacedRows& rows, const NodeCut& cut) {
  std::vector<Counts> counts(static_cast<std::size_t>(cut.ranks()));
  for (int r = 0; r < cut.ranks(); ++r) {
    const ops::RowSet own = rows.between(cut.first(r), cut.last(r)).host;
    Counts& c = counts[static_cast<std::size_t>(r)];
    c.rows = static_cast<double>(own.size());
    for (std::int64_t i = 0; i < own.size(); ++i) c.entries += static_cast<double>(graph.degree(own[i]));
  }
  return counts;
}

double all_rows(const std::vector<Counts>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0.0, [](double sum, const Counts& c) { return sum + c.rows; });
}

}  // namespace

const char* name(KgatMode mode) {
  constexpr const char* kNames[] = {"replicate", "row-partition", "column-switch", "nested-rows"};
  return kNames[static_cast<std::size_t>(mode)];
}

KgatMode KgatCosts::cheapest() const {
  const auto less = [](const Cost& a, const Cost& b) { return a.seconds() < b.seconds(); };
  return static_cast<KgatMode>(std::min_element(of.begin(), of.end(), less) - of.begin());
}

std::string KgatCosts::text() const {
  std::string text;
  for (std::size_t m = 0; m < of.size(); ++m) {
    text += join(m > 0 ? ", " : "", name(static_cast<KgatMode>(m)), " ", human_seconds(of[m].seconds()));
    if (of[m].exchange > 0) text += join(" (exchange ", human_seconds(of[m].exchange), ")");
  }
  return text;
}

KgatCosts kgat_costs(const KgatArch& arch, const KgGraph& graph, std::span<const std::int32_t> nodes,
                     const KgatResources& resources) {
  const double ranks = resources.ranks, threads = resources.threads, others = (ranks - 1) / ranks;
  const double link = resources.one_host ? kHostLink : kNetworkLink;
  const int layers = arch.layers();
  const PlacedRows all = ops::RowSet::range(0, graph.nodes);
  NestedRows nested;
  nested.build(graph, layers, nodes);

  KgatCosts costs;
  for (const KgatMode mode :
       {KgatMode::replicate, KgatMode::row_partition, KgatMode::column_switch, KgatMode::nested_rows}) {
    const bool nests = mode == KgatMode::nested_rows, alone = mode == KgatMode::replicate || resources.ranks == 1;
    const bool columns = mode == KgatMode::column_switch && !alone;
    const NodeCut cut(graph.adj_indptr, resources.segments, alone ? 1 : resources.ranks);
    const auto counts = [&](int l) { return count(graph, nests ? nested.rows(l) : all, cut); };
    std::vector<double> seconds(static_cast<std::size_t>(cut.ranks()), 0);
    double received = 0, messages = 0;
    for (int l = 0; l < layers; ++l) {
      const std::vector<Counts> below = counts(l), above = counts(l + 1);
      const auto width = static_cast<double>(arch.width(l));
      const double read = columns ? width / ranks : width;  // columns of a row that a product reads
      const double rate = all_rows(below) * read * 4 <= kCacheBytes ? kCachedGatherBytes : kGatherBytes;
      const double branches = arch.aggregator == ops::Aggregator::gcn ? 1 : 2;
      for (std::size_t r = 0; r < seconds.size(); ++r) {
        // Backward, the indices of all entries of the rows below are read, but only rows above are gathered.
        const double forward = columns ? static_cast<double>(graph.nnz()) : above[r].entries,
                     backward = columns ? static_cast<double>(graph.nnz()) : below[r].entries;
        seconds[r] += (forward * (8 + 4 * read) + 8 * backward + 4 * read * forward) / rate;
        seconds[r] += 6 * branches * above[r].rows * width * static_cast<double>(arch.width(l + 1)) / kOperations;
      }
      received += columns ? 4 * all_rows(above) * width * 4 * others / ranks
                          : (all_rows(below) + all_rows(above)) * width * 4 * others;
      messages += columns ? 4 : 2;
    }
    for (int r = 0; r < cut.ranks(); ++r)
      seconds[static_cast<std::size_t>(r)] +=
          28.0 * static_cast<double>((cut.last(r) - cut.first(r)) * arch.embed_dim) / kStreamBytes;
    KgatCosts::Cost& cost = costs.of[static_cast<std::size_t>(mode)];
    cost.compute = *std::max_element(seconds.begin(), seconds.end()) / threads;
    cost.exchange = alone ? 0 : received / link + (messages + 3) * kMessage;
  }
  return costs;
}

}  // namespace lockstep
