#include "lockstep/comm/tree_reduce.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "lockstep/base/error.hpp"
#include "lockstep/base/instantiate.hpp"

namespace lockstep {

namespace {
constexpr std::int64_t kBlock = 1024;  // elements added at a time; the blocks of all tree levels fit the L1 cache
constexpr std::size_t kGatherBytes = std::size_t{256} << 10;  // up to this size of all partial sums, one all-gather
constexpr std::int64_t kThreadedElements = 1 << 17;

bool is_power_of_two(std::int64_t n) { return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)); }

/// Sums one block of elements over the tree `range`; the leaves are its known subtrees, in order. What lies between them
/// is left out.
template <class T>
class BlockTree {
 public:
  BlockTree(std::span<const TreeLeaf<T>> leaves, std::int64_t first, std::int64_t count, T* scratch)
      : leaves_(leaves), first_(first), count_(count), scratch_(scratch) {}

  /// Returns the address of the sum: `into`, or the only leaf itself; null if there is none.
  const T* sum(ShardRange range, T* into, int depth = 0) {
    const auto has = [&](std::size_t leaf) { return leaf < leaves_.size() && leaves_[leaf].range.begin < range.end; };
    if (!has(at_)) return nullptr;
    if (!has(at_ + 1)) return leaves_[at_++].values + first_;
    const std::int64_t middle = range.begin + range.count() / 2;
    const T* left = sum({range.begin, middle}, into, depth + 1);
    const T* right = sum({middle, range.end}, left == nullptr ? into : scratch_ + depth * kBlock, depth + 1);
    if (left == nullptr || right == nullptr) return left == nullptr ? right : left;
    for (std::int64_t i = 0; i < count_; ++i) into[i] = left[i] + right[i];
    return into;
  }

 private:
  std::span<const TreeLeaf<T>> leaves_;
  std::int64_t first_, count_;
  T* scratch_;
  std::size_t at_ = 0;
};

/// Sums whole vectors, with threads if that pays. Each thread computes its own elements, so the bits do not change.
template <class T>
void add_tree_threaded(std::span<const TreeLeaf<T>> leaves, ShardRange range, std::int64_t n, T* out) {
  const std::int64_t chunks = (n + kThreadedElements - 1) / kThreadedElements;
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (std::int64_t p = 0; p < chunks; ++p) {
    const std::int64_t first = p * kThreadedElements, last = std::min(n, first + kThreadedElements);
    add_tree<T>(leaves, range, first, last, out + first);
  }
}
}  // namespace

ShardRange shards_of(std::int64_t shards, int rank, int ranks) {
  require(shards > 0 && ranks > 0 && rank >= 0 && rank < ranks, "shards of rank ", rank, " of ", ranks, ": ", shards,
          " shards; all must be positive and the rank one of them");
  return {shards * rank / ranks, shards * (rank + 1) / ranks};
}

std::vector<ShardRange> aligned_subtrees(ShardRange range) {
  std::vector<ShardRange> trees;
  for (std::int64_t at = range.begin; at < range.end;) {
    std::int64_t size = at == 0 ? std::int64_t{1} << 62 : at & -at;  // the largest that is aligned here
    while (size > range.end - at) size /= 2;
    trees.push_back({at, at + size});
    at += size;
  }
  return trees;
}

std::int64_t partial_sums(ShardRange range) {
  std::int64_t most = 0, before = 0;
  for (const ShardRange& tree : aligned_subtrees(range))
    most = std::max<std::int64_t>(most, before++ + std::bit_width(static_cast<std::uint64_t>(tree.count())));
  return most;
}

template <class T>
void add_tree(std::span<const TreeLeaf<T>> leaves, ShardRange tree, std::int64_t first, std::int64_t last, T* out) {
  const std::int64_t levels = std::bit_width(static_cast<std::uint64_t>(tree.count()));
  thread_local std::vector<T> scratch;
  scratch.resize((levels + 1) * kBlock);
  T* block = scratch.data() + levels * kBlock;
  for (std::int64_t at = first; at < last; at += kBlock) {
    const std::int64_t count = std::min(kBlock, last - at);
    // Does not sum into `out`, which may be a leaf that is still needed.
    const T* sum = BlockTree<T>(leaves, at, count, scratch.data()).sum(tree, block);
    std::memmove(out + (at - first), sum, static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <class T>
void tree_sum(std::span<const std::span<const T>> vectors, std::int64_t first, std::int64_t last, std::span<T> out) {
  const auto count = std::ssize(vectors);
  require(is_power_of_two(count), "tree sum of ", count, " vectors: their number must be a power of two");
  std::vector<TreeLeaf<T>> leaves;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::span<const T> vector = vectors[i];
    require(vector.size() == out.size(), "tree sum: vector ", i, " has ", vector.size(), " elements, the sum ",
            out.size());
    leaves.push_back({{i, i + 1}, vector.data()});
  }
  require(first >= 0 && first <= last && last <= std::ssize(out), "tree sum of elements ", first, " to ", last, " of ",
          out.size());
  add_tree<T>(leaves, {0, count}, first, last, out.data() + first);
}

template <class T>
void sparse_tree_sum(std::span<const TreeLeaf<T>> leaves, ShardRange tree, std::span<T> out) {
  add_tree(leaves, tree, 0, std::ssize(out), out.data());
  for (T& value : out) value += T{0};
}

template <class T>
void tree_all_reduce(Communicator& comm, std::int64_t shards, const std::vector<std::span<T>>& local, std::span<T> out,
                     const char* what) {
  const int ranks = comm.size();
  const ShardRange mine = shards_of(shards, comm.rank(), ranks);
  const auto n = std::ssize(out);
  require(std::ssize(local) == mine.count(), "tree_all_reduce '", what, "': rank ", comm.rank(), " of ", ranks,
          " gives ", local.size(), " of ", shards, " shards, must give ", mine.count());
  std::vector<TreeLeaf<T>> own;
  for (std::int64_t i = 0; i < mine.count(); ++i) {
    const std::span<T> shard = local[i];
    require(shard.size() == out.size(), "tree_all_reduce '", what, "': shard ", mine.begin + i, " has ", shard.size(),
            " elements, the sum ", n);
    own.push_back({{mine.begin + i, mine.begin + i + 1}, shard.data()});
  }
  const auto sum_of = [&](ShardRange tree, std::span<T> to) {
    const auto from = static_cast<std::size_t>(tree.begin - mine.begin), count = static_cast<std::size_t>(tree.count());
    add_tree_threaded<T>(std::span<const TreeLeaf<T>>(own).subspan(from, count), tree, n, to.data());
  };
  tree_all_reduce_sums<T>(comm, shards, sum_of, out, what);
}

template <class T>
void tree_all_reduce_sums(Communicator& comm, std::int64_t shards,
                          const std::function<void(ShardRange tree, std::span<T> to)>& sum_of, std::span<T> out,
                          const char* what) {
  const int ranks = comm.size();
  const auto n = std::ssize(out);
  require(is_power_of_two(shards), "tree_all_reduce '", what, "': ", shards, " shards; must be a power of two");
  if (ranks == 1) return sum_of({0, shards}, out);

  std::vector<std::vector<ShardRange>> trees(ranks);
  std::size_t all_trees = 0;
  for (int r = 0; r < ranks; ++r) {
    trees[r] = aligned_subtrees(shards_of(shards, r, ranks));
    all_trees += trees[r].size();
  }
  const std::vector<ShardRange>& my_trees = trees[comm.rank()];
  const auto element = static_cast<std::int64_t>(sizeof(T));

  // The sums of my subtrees, one vector after another.
  thread_local std::vector<T> partial, arrived, sending;
  partial.resize(my_trees.size() * out.size());
  for (std::size_t t = 0; t < my_trees.size(); ++t)
    sum_of(my_trees[t], std::span(partial).subspan(t * out.size(), out.size()));

  // The subtrees of all ranks in order, with their elements [0, length) at `values`.
  const auto leaves_at = [&](const T* values, std::int64_t length) {
    std::vector<TreeLeaf<T>> leaves;
    for (const std::vector<ShardRange>& of_rank : trees)
      for (const ShardRange& tree : of_rank) {
        leaves.push_back({tree, values});
        values += length;
      }
    return leaves;
  };

  // With two ranks both paths move the same bytes, and one message is faster than two.
  if (ranks == 2 || all_trees * out.size_bytes() <= kGatherBytes) {
    std::vector<std::int64_t> sizes;
    for (const auto& of_rank : trees) sizes.push_back(std::ssize(of_rank) * n * element);
    arrived.resize(all_trees * out.size());
    comm.all_gather_known(std::as_bytes(std::span<const T>(partial)), sizes,
                          std::as_writable_bytes(std::span<T>(arrived)), what);
    add_tree_threaded<T>(leaves_at(arrived.data(), n), {0, shards}, n, out.data());
    return;
  }

  const auto cut = [&](int r) { return n * r / ranks; };
  const auto length = [&](int r) { return cut(r + 1) - cut(r); };
  sending.resize(partial.size());
  std::vector<std::span<const std::byte>> to;
  T* at = sending.data();
  for (int r = 0; r < ranks; ++r) {
    const T* begin = at;
    for (std::size_t t = 0; t < my_trees.size(); ++t)
      at = std::copy_n(partial.data() + static_cast<std::int64_t>(t) * n + cut(r), length(r), at);
    to.push_back(std::as_bytes(std::span<const T>(begin, at)));
  }
  const std::int64_t my_length = length(comm.rank());
  std::vector<std::int64_t> from_sizes, chunk_sizes;
  for (int r = 0; r < ranks; ++r) {
    const auto count = std::ssize(trees[r]);
    from_sizes.push_back(count * my_length * element);
    chunk_sizes.push_back(length(r) * element);
  }
  arrived.resize(all_trees * static_cast<std::size_t>(my_length));
  comm.all_to_all_known(to, from_sizes, std::as_writable_bytes(std::span<T>(arrived)), what);
  partial.resize(my_length);
  add_tree_threaded<T>(leaves_at(arrived.data(), my_length), {0, shards}, my_length, partial.data());
  comm.all_gather_known(std::as_bytes(std::span<const T>(partial)), chunk_sizes, std::as_writable_bytes(out), what);
}

LOCKSTEP_EACH_FLOAT(add_tree)
LOCKSTEP_EACH_FLOAT(tree_sum)
LOCKSTEP_EACH_FLOAT(sparse_tree_sum)
LOCKSTEP_EACH_FLOAT(tree_all_reduce)
LOCKSTEP_EACH_FLOAT(tree_all_reduce_sums)

}  // namespace lockstep
