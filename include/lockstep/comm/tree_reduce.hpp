#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Shards [begin, end) of S = 2^k: what one rank holds under --reproducible.
struct ShardRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

/// Contiguous shards of rank r of `ranks`: sizes differ by at most one, and depend on nothing else.
/// errors  Error if `shards` or `ranks` is not positive or the rank is not one of them
ShardRange shards_of(std::int64_t shards, int rank, int ranks);

/// The largest aligned subtrees that cover a range of shards, in order: [3, 8) is {3}, {4..7}. At most 2 log2(S) of
/// them.
std::vector<ShardRange> aligned_subtrees(ShardRange range);

/// Elements [first, last) of the sum of 2^k vectors in one binary tree over their numbers: ((p0+p1)+(p2+p3))+... In
/// this process only; threads that take different elements may call it at the same time. Reads each vector once; blocks
/// stay in the L1 cache.
///
/// shapes  parts[i] (n), not changed;  out (n), may be one of the parts
/// errors  Error if the number of parts is not a power of two or their lengths differ
template <class T>
void tree_sum(std::span<const std::span<const T>> parts, std::int64_t first, std::int64_t last, std::span<T> out);

/// The sum of all shards' vectors in one fixed binary tree over shard numbers: ((s0+s1)+(s2+s3))+..., whatever the
/// number of ranks, so that every rank ends with bits that do not depend on who computed what. Collective.
///
/// Each rank adds up its largest aligned subtrees, sends every other rank the parts of these partial sums that it owns,
/// finishes the tree for its own part and gathers the parts: traffic as of a reduce-scatter and an all-gather when the
/// ranks are a power of two, at most 2 log2(S) times that otherwise. Short vectors (latency, not traffic) travel whole
/// in one all-gather, and every rank finishes the tree itself: the same bits.
///
/// shapes  local[i] (n): the vector of shard mine.begin + i, not changed.  out (n), the same bits on all ranks; not one
///         of local
/// dtypes  float, double
/// errors  Error if `shards` is not a power of two, local is not shards_of() long, or
/// lengths differ
template <class T>
void tree_all_reduce(Communicator& comm, std::int64_t shards, const std::vector<std::span<T>>& local, std::span<T> out,
                     const char* what);

}  // namespace lockstep
