#include "train/kgat_cost.hpp"

#include <algorithm>

#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

// Per thread, but for the links'.
constexpr double kGatherBytes = 10e9, kStreamBytes = 8e9, kOperations = 50e9;
constexpr double kHostLink = 4e9, kNetworkLink = 1.2e9;  // bytes per second that a rank receives
constexpr double kMessage = 20e-6;                       // seconds until a collective has begun

struct Counts {
  double rows, entries;
};

Counts count(const KgGraph& graph, const ops::RowSet& rows) {
  Counts counts = {static_cast<double>(rows.size()), 0};
  for (std::int64_t i = 0; i < rows.size(); ++i) counts.entries += static_cast<double>(graph.degree(rows[i]));
  return counts;
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
  const Counts all = {static_cast<double>(graph.nodes), static_cast<double>(graph.nnz())};
  NestedRows nested;
  nested.build(graph, layers, nodes);

  KgatCosts costs;
  for (const KgatMode mode :
       {KgatMode::replicate, KgatMode::row_partition, KgatMode::column_switch, KgatMode::nested_rows}) {
    const bool nests = mode == KgatMode::nested_rows, alone = mode == KgatMode::replicate || resources.ranks == 1;
    const auto counts = [&](int l) { return nests ? count(graph, nested.rows(l)) : all; };
    double gathered = 0, operations = 0, received = 0, messages = 0;
    for (int l = 0; l < layers; ++l) {
      const Counts below = counts(l), above = counts(l + 1);
      const auto width = static_cast<double>(arch.width(l));
      // Backward, the indices of all entries of the rows below are read, but only rows above are gathered.
      gathered += above.entries * (8 + 4 * width) + 8 * below.entries + 4 * width * above.entries;
      const double branches = arch.aggregator == ops::Aggregator::gcn ? 1 : 2;
      operations += 6 * branches * above.rows * width * static_cast<double>(arch.width(l + 1));
      const bool columns = mode == KgatMode::column_switch;
      received += columns ? 4 * all.rows * width * 4 * others / ranks : (below.rows + above.rows) * width * 4 * others;
      messages += columns ? 4 : 2;
    }
    const double updated = 28.0 * all.rows * static_cast<double>(arch.embed_dim);
    const double shares = alone ? 1 : ranks;
    KgatCosts::Cost& cost = costs.of[static_cast<std::size_t>(mode)];
    cost.compute = (gathered / kGatherBytes + operations / kOperations + updated / kStreamBytes) / (threads * shares);
    cost.exchange = alone ? 0 : received / link + (messages + 3) * kMessage;
  }
  return costs;
}

}  // namespace lockstep
