#pragma once
#include <cstdint>

namespace lockstep {

/// Where the rows of a data set are (data.layout): all on every node, or divided over the nodes. automatic: replicate
/// while they fit into RowOptions::memory_bytes.
enum class DataLayout : std::uint8_t { automatic, replicate, divided };

struct RowOptions {
  DataLayout layout = DataLayout::replicate;
  double memory_bytes = 0;  ///< of a node for rows (data.memory); 0: half of what the node has
};

enum class RowPlace : std::uint8_t { replicated, divided, in_file };
/// Where rows of so many bytes are. The result is `replicated` for one node whose memory they fit, whatever the layout.
inline RowPlace place_of_rows(DataLayout layout, double bytes, std::int64_t nodes, double memory_bytes) {
  const bool fits = bytes <= memory_bytes;
  if (layout == DataLayout::replicate || (fits && (nodes == 1 || layout == DataLayout::automatic)))
    return RowPlace::replicated;
  return bytes <= memory_bytes * static_cast<double>(nodes) ? RowPlace::divided : RowPlace::in_file;
}

}  // namespace lockstep
