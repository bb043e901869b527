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
};

/// Contiguous shards of rank r of `ranks`: sizes differ by at most one, and depend on nothing else.
ShardRange shards_of(std::int64_t shards, int rank, int ranks);

/// The sum of all shards' vectors in one fixed binary tree over shard numbers: ((s0+s1)+(s2+s3))+..., whatever the number of
/// ranks, so that every rank ends with bits that do not depend on who computed what. Collective.
///
/// Each rank adds up its largest aligned subtrees, sends every other rank the parts of these partial sums that it owns, finishes the
/// tree for its own part and gathers the parts: traffic as of a reduce-scatter and an all-gather when the ranks are a
/// power of two, at most 2 log2(S) times that otherwise.
///
/// shapes  local[i] (n): the vector of shard mine.begin + i; clobbered.  out (n), the same bits on all ranks
/// errors  Error if `shards` is not a power of two or the ranges of the ranks are not shards_of()
template <class T>
void tree_all_reduce(Communicator& comm, std::int64_t shards, const std::vector<std::span<T>>& local, std::span<T> out, const char* what);

}  // namespace lockstep
