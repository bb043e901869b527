#include "lockstep/models/kgat/nested_rows.hpp"

#include <bit>

namespace lockstep {

PlacedRows PlacedRows::between(std::int64_t first, std::int64_t last) const {
  const auto place = [&](std::int64_t node) {
    std::int64_t low = 0, high = host.size();
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      host[middle] < node ? low = middle + 1 : high = middle;
    }
    return low;
  };
  const std::int64_t begin = place(first), count = place(last) - begin;
  return {rows.part(begin, count), host.part(begin, count)};
}

void NestedRows::build(const KgGraph& graph, int layers, std::span<const std::int32_t> nodes, double threshold) {
  const auto words = static_cast<std::size_t>((graph.nodes + 63) / 64);
  const auto limit = static_cast<std::int64_t>(threshold * static_cast<double>(graph.nodes));
  sets_.resize(static_cast<std::size_t>(layers) + 1);
  for (int l = layers; l >= 0; --l) {
    Set& set = sets_[l];
    const Set* above = l == layers ? nullptr : &sets_[l + 1];
    set.list.clear();
    set.all = above != nullptr && above->all;
    std::int64_t count = 0;
    if (above == nullptr) {
      set.bits.assign(words, 0);
      for (const std::int32_t n : nodes) set.bits[static_cast<std::size_t>(n) / 64] |= std::uint64_t{1} << (n % 64);
      count = std::ssize(nodes);
    } else if (!set.all) {
      set.bits = above->bits;
      count = std::ssize(above->list);
      for (std::size_t i = 0; i < above->list.size() && count <= limit; ++i) {
        const auto n = static_cast<std::size_t>(above->list[i]);
        for (std::int64_t e = graph.adj_indptr[n]; e < graph.adj_indptr[n + 1]; ++e) {
          const std::int32_t c = graph.col[e];
          std::uint64_t& word = set.bits[static_cast<std::size_t>(c) / 64];
          const std::uint64_t bit = std::uint64_t{1} << (c % 64);
          count += (word & bit) == 0;
          word |= bit;
        }
      }
    }
    // The batch itself stays a list: the loss needs its rows alone.
    if (set.all || (above != nullptr && count > limit)) {
      set.take_all(graph.nodes);
      continue;
    }
    set.list.reserve(count);
    for (std::size_t w = 0; w < words; ++w) {
      for (std::uint64_t left = set.bits[w]; left != 0; left &= left - 1)
        set.list.push_back(static_cast<std::int32_t>(64 * w) + std::countr_zero(left));
    }
    set.rows = ops::RowSet::list(set.list);
    set.placed_bits = set.bits;
  }
}

void NestedRows::build_all(const KgGraph& graph, int layers) {
  sets_.resize(static_cast<std::size_t>(layers) + 1);
  for (Set& set : sets_) set.take_all(graph.nodes);
}

void NestedRows::build_placed(const KgGraph& graph, int layers, std::span<const std::int32_t> list, ops::RowBits bits) {
  build_all(graph, layers);
  Set& last = sets_.back();
  last.rows = ops::RowSet::list(list);
  last.placed_bits = bits;
  last.all = false;
}

void NestedRows::Set::take_all(std::int64_t nodes) {
  rows = ops::RowSet::range(0, nodes);
  placed_bits = {};
  all = true;
}

void NestedRows::place(const Stream& stream, Arena& arena) {
  for (Set& set : sets_) {
    if (set.all) continue;
    const auto [list, bits] = for_kernels(stream, arena, set.list, set.bits);
    set.rows = ops::RowSet::list(list);
    set.placed_bits = bits;
  }
}

}  // namespace lockstep
