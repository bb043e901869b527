#pragma once
#include <array>
#include <string>

#include "lockstep/models/kgat.hpp"

namespace lockstep {

/// "row-partition", ...
const char* name(KgatMode mode);

/// What decides how long a step takes.
struct KgatResources {
  int ranks = 1, threads = 1;  ///< threads of a rank
  std::int64_t segments = 16;  ///< dist.shards: whole ones are dealt out to the ranks
  bool one_host = true;
};

/// Predicted seconds of one step that ranks items, for every mode.
struct KgatCosts {
  struct Cost {
    double compute = 0, exchange = 0;
    double seconds() const { return compute + exchange; }
  };
  std::array<Cost, 4> of;  ///< by KgatMode
  KgatMode cheapest() const;
  /// "nested-rows 12.1 ms (exchange 0.8), ...": what each mode is expected to take.
  std::string text() const;
};

/// Counts rows, entries, operations and bytes of a step on a batch of these nodes (ascending), and divides by rates that
/// processors and networks of these years reach: good enough to tell the modes apart, no promise of a time. The rank that
/// has most to do counts: a batch's neighbourhood is not spread as evenly as the graph is.
///
///   products      8 + 4 w bytes per entry, forward and backward, of layers w columns wide; faster where the table fits a
///                 cache; by columns every rank reads all entries
///   dense parts   6 operations per row and weight, forward and backward
///   update        28 bytes per element of the embeddings
///   exchange      rows: x_l before each product and ds_l before its transpose, (R - 1) / R of the rows that are needed;
///                 columns: four all-to-alls per layer, each (R - 1) / R^2 of all rows
KgatCosts kgat_costs(const KgatArch& arch, const KgGraph& graph, std::span<const std::int32_t> nodes,
                     const KgatResources& resources);

}  // namespace lockstep
