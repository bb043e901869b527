#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Shards [begin, end) of S = 2^k: the shards of one rank under --reproducible.
struct ShardRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

/// The contiguous shards of rank r of `ranks`. Sizes differ by at most one.
///
/// errors   Error if `shards` or `ranks` is not positive, or if `rank` is not in [0, ranks)
ShardRange shards_of(std::int64_t shards, int rank, int ranks);

/// Gathers an array on every rank: rank r contributes the elements of part(r), a ShardRange. The ranges are in rank
/// order and cover the array.
template <class T, class Part>
void all_gather_parts(Communicator& comm, std::span<T> all, const Part& part, const char* what) {
  std::vector<std::int64_t> sizes;
  for (int r = 0; r < comm.size(); ++r) sizes.push_back(part(r).count() * static_cast<std::int64_t>(sizeof(T)));
  const ShardRange own = part(comm.rank());
  const std::vector<T> mine(all.begin() + own.begin, all.begin() + own.end);
  comm.all_gather_known(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(all), what);
}

/// The largest aligned subtrees that cover a range of shards, in order: [3, 8) is {3}, {4..7}. At most 2 log2(S)
/// subtrees.
std::vector<ShardRange> aligned_subtrees(ShardRange range);

/// The largest number of partial sums at a time if one thread adds the vectors of these shards in order, siblings as
/// soon as both are there: log2(n) + 1 for an aligned subtree of n shards.
std::int64_t partial_sums(ShardRange range);

/// Sums elements [first, last) of 2^k vectors in one binary tree over their numbers: ((v0+v1)+(v2+v3))+... Local to the
/// process. Threads may call it concurrently for disjoint elements. Reads each vector once; blocks stay in the L1
/// cache.
///
/// shapes   vectors[i] (n), unchanged;  out (n), may be one of the vectors
/// errors   Error if the number of vectors is not a power of two or their lengths differ
template <class T>
void tree_sum(std::span<const std::span<const T>> vectors, std::int64_t first, std::int64_t last, std::span<T> out);

/// A subtree with a known sum.
template <class T>
struct TreeLeaf {
  ShardRange range;
  const T* values;
};
/// Writes elements [first, last) of the sum over the aligned subtree `tree`, which the leaves cover in order, to
/// out[0, last - first); `out` may be one of the leaves.
template <class T>
void add_tree(std::span<const TreeLeaf<T>> leaves, ShardRange tree, std::int64_t first, std::int64_t last, T* out);
/// Computes the bits of 0 + tree_sum() where all leaves that are not given are zero: no element of the sum is -0.
///
/// shapes   leaves in order, at least one, their values (n);  out (n), none of them
template <class T>
void sparse_tree_sum(std::span<const TreeLeaf<T>> leaves, ShardRange tree, std::span<T> out);

/// Sums the vectors of all shards in one fixed binary tree over shard numbers: ((s0+s1)+(s2+s3))+... The result does
/// not depend on the number of ranks, and every rank receives the same bits. Collective.
///
/// Each rank sums its largest aligned subtrees and divides these partial sums into one chunk per rank. It sends every
/// other rank that rank's chunk, completes the tree for its own chunk, and gathers the chunks. If the number of ranks
/// is a power of two, the traffic is that of a reduce-scatter plus an all-gather; otherwise it is at most 2 log2(S)
/// times that. Short vectors, limited by latency, travel whole in one all-gather, and every rank completes the tree
/// itself, with the same bits.
///
/// shapes   local[i] (n): the vector of shard mine.begin + i, unchanged;  out (n), none of local
/// dtypes   f32, f64
/// errors   Error if `shards` is not a power of two, if local does not hold shards_of() vectors, or if lengths differ
template <class T>
void tree_all_reduce(Communicator& comm, std::int64_t shards, const std::vector<std::span<T>>& local, std::span<T> out,
                     const char* what);
/// tree_all_reduce() of vectors that are not stored: sum_of(tree, to) writes to `to` the tree_sum() of the shards in
/// `tree`, an aligned subtree of the rank's shards.
template <class T>
void tree_all_reduce_sums(Communicator& comm, std::int64_t shards,
                          const std::function<void(ShardRange tree, std::span<T> to)>& sum_of, std::span<T> out,
                          const char* what);

}  // namespace lockstep
