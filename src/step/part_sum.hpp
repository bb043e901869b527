#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/optim/flat_gradient.hpp"
#include "lockstep/step/step_extras.hpp"

namespace lockstep {

/// The gradients of a rank's threads in host memory, and their sum. A part is the gradient of a thread or, in a tree,
/// the sum over one of the largest aligned subtrees of its shards. Of row-sparse parameters it accesses only the rows
/// that a part has touched, now or in the previous sum.
///
/// The bits equal a sum of whole vectors in which untouched rows are zero; in a tree, no element of a row is -0.
///
/// T   type of the gradient
template <class T>
class PartSum {
 public:
  enum class Order : std::uint8_t {
    chain,  ///< of threads: parts[0] + parts[1] + ...
    tree,   ///< one binary tree over shard numbers (comm/tree_reduce.hpp)
  };
  PartSum(const ParamStore& params, std::int64_t threads, Order order)
      : order_(order),
        params_(&params),
        message_(dtype_of<T>::value, Shape{kExtras + params.flat_size()}),
        nonzero_(params),
        gradient_(message_->slice(kExtras, params.flat_size()), &nonzero_) {
    for (std::int64_t i = 0; i < threads; ++i) {
      stacks_.push_back(std::make_unique<Stack>());  // separately, so that threads do not share cache lines
      if (order == Order::chain) add_part(*stacks_.back(), {i, i + 1}, 0);
    }
    nonzero_.for_each({0, params.flat_size()}, [&](std::int64_t begin, std::int64_t end) {
      dense_.push_back({begin, end});
    });
  }

  /// Chain: the gradient of a thread.
  Gradients& part(std::int64_t thread) { return *parts_[thread].sum; }
  /// Tree: the next sum is that of these shards of each thread, in order.
  void begin(std::span<const ShardRange> of_threads) {
    parts_.clear();
    for (std::size_t t = 0; t < stacks_.size(); ++t) {
      stacks_[t]->trees.clear();
      std::size_t depth = 0;
      for (const ShardRange& tree : aligned_subtrees(of_threads[t])) add_part(*stacks_[t], tree, depth++);
    }
  }
  /// Tree: the gradient of the thread's next shard, set to zero.
  Gradients& begin_shard(int thread, std::int64_t shard) {
    Stack& stack = *stacks_[thread];
    stack.trees.push_back({shard, shard + 1});
    Sum& sum = sum_of(stack, stack.trees.size() - 1);
    if (!std::exchange(sum.is_zero, false)) sum.values.zero();
    return sum.values;
  }
  /// Tree: that gradient is complete. Adds siblings.
  void end_shard(int thread) {
    Stack& stack = *stacks_[thread];
    for (std::size_t last = stack.trees.size() - 1; last > 0; --last) {
      ShardRange &left = stack.trees[last - 1], &right = stack.trees[last];
      if (left.count() != right.count() || left.begin % (2 * left.count()) != 0) return;
      move_to(stack.sums[last - 1].values, stack.sums[last].values);
      stack.sums[last].is_zero = true;
      left.end = right.end;
      stack.trees.pop_back();
    }
  }
  /// Copies a gradient to a part that is zero. flat  its elements in host memory, without packed rows
  void take(Gradients& to, const Gradients& from, const T* flat) {
    T* const out = to.flat().template data<T>();
    for (const FlatRange& run : dense_) std::copy(flat + run.begin, flat + run.end, out + run.begin);
    for (const Table& table : nonzero_.tables()) {
      TouchedRows& touched = *to.touched(*table.param);
      for (const std::int64_t row : from.touched(*table.param)->rows())
        std::copy_n(flat + table.range.begin + row * table.columns, table.columns,
                    out + table.range.begin + touched.touch(row) * table.columns);
    }
  }

  /// Adds the parts' elements in a range that starts and ends between parameters: slice `slice` of `slices`. Threads
  /// may add different slices at the same time.
  void add(FlatRange range, int slice = 0, int slices = 1) {
    for (const FlatRange& run : dense_) {
      const FlatRange within = {std::max(run.begin, range.begin), std::min(run.end, range.end)};
      if (within.count() <= 0) continue;
      const auto [first, last] = slice_of(within, slice, slices);
      if (order_ == Order::chain)
        sum_parts(first, last, gradient_.data<T>());
      else
        add_tree<T>(leaves_of(all_parts()), all_parts(), first, last, gradient_.data<T>() + first);
    }
    for_tables(nonzero_.tables(), range, [&](Table& table) {
      const auto words = static_cast<std::int64_t>(table.rows.size());
      const std::int64_t first = words * slice / slices, last = words * (slice + 1) / slices;
      for (std::int64_t w = first; w < last; ++w)
        set_rows(table, static_cast<std::size_t>(w), touched(table, static_cast<std::size_t>(w)));
      thread_local std::vector<std::int64_t> rows;
      rows.clear();
      for_each_bit(table.rows, 64 * first, std::min(64 * last, table.param->shape[0]),
                   [&](std::int64_t row) { rows.push_back(row); });
      for (std::size_t r = 0; r < rows.size(); ++r) {
        if (r + kRowsAhead < rows.size()) prefetch_row(table, rows[r + kRowsAhead]);
        add_row(table, rows[r]);
      }
    });
  }

  /// Adds the shards' encoded extras in a tree. shapes  extras (shards, kExtras)
  void add_extras(std::span<const T> extras) {
    add_extras({0, std::ssize(extras) / kExtras}, extras, message().first(kExtras));
  }
  /// Sums extras and gradients over the shards of all ranks in one tree. Collective.
  ///
  /// shapes  extras (shards of this rank, kExtras)
  void all_reduce(Communicator& comm, std::int64_t shards, std::span<const T> extras) {
    unite_rows(comm);
    const std::int64_t first = shards_of(shards, comm.rank(), comm.size()).begin;
    const auto sum_of = [&](ShardRange tree, std::span<T> to) {
      add_extras({tree.begin - first, tree.end - first}, extras, to.first(kExtras));
      pack(tree, to);
    };
    tree_all_reduce_sums<T>(comm, shards, sum_of, packed_, "gradient");
    unpack(packed_);
  }

  /// shapes  (kExtras + flat_size): the encoded scalars, then the gradient
  std::span<T> message() { return message_.view().template span<T>(); }
  /// The sum. shapes  (flat_size)
  const FlatGradient& gradient() const { return gradient_; }
  NonzeroElements& nonzero() { return nonzero_; }

 private:
  using Table = NonzeroElements::Table;
  struct Part {
    ShardRange shards;  ///< chain: the number of the thread
    Gradients* sum;
    const T* flat;  ///< its elements
  };
  struct Sum {
    Gradients values;
    bool is_zero = true;
  };
  /// The sums that a thread has begun.
  struct Stack {
    std::vector<ShardRange> trees;
    std::deque<Sum> sums;  ///< the first ones belong to `trees`
  };
  /// Prefetch distance in rows: the rows of the sum are scattered over memory.
  static constexpr std::size_t kRowsAhead = 6;

  /// The slice of a range that one thread adds: whole cache lines.
  static FlatRange slice_of(FlatRange range, int slice, int slices) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t n = range.count(), lines = (n + kLine - 1) / kLine;
    return {range.begin + std::min(n, lines * slice / slices * kLine),
            range.begin + std::min(n, lines * (slice + 1) / slices * kLine)};
  }

  Sum& sum_of(Stack& stack, std::size_t depth) const {
    while (stack.sums.size() <= depth) stack.sums.push_back({Gradients(*params_, Device{})});
    return stack.sums[depth];
  }
  void add_part(Stack& stack, ShardRange shards, std::size_t depth) {
    Gradients& sum = sum_of(stack, depth).values;
    parts_.push_back({shards, &sum, sum.flat().template data<T>()});
  }
  /// to += from, from = 0 in one pass: the next shard starts with `from`.
  void move_to(Gradients& to, Gradients& from) const {
    const auto move = [](std::int64_t n, T* out, T* values) {
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] += values[i];
        values[i] = 0;
      }
    };
    T* const out = to.flat().template data<T>();
    T* const values = from.flat().template data<T>();
    for (const FlatRange& run : dense_) move(run.count(), out + run.begin, values + run.begin);
    for (const Table& table : nonzero_.tables()) {
      TouchedRows& touched = *to.touched(*table.param);
      TouchedRows& added = *from.touched(*table.param);
      T* const out_rows = out + table.range.begin;
      T* const rows = values + table.range.begin;
      for (const std::int64_t row : added.rows())
        move(table.columns, out_rows + touched.touch(row) * table.columns, rows + added.place(row) * table.columns);
      added.clear();
    }
  }
  ShardRange all_parts() const { return {parts_.front().shards.begin, parts_.back().shards.end}; }
  /// The parts that cover an aligned subtree.
  std::vector<TreeLeaf<T>> leaves_of(ShardRange tree) const {
    std::vector<TreeLeaf<T>> leaves;
    for (const Part& part : parts_)
      if (part.shards.begin >= tree.begin && part.shards.end <= tree.end) leaves.push_back({part.shards, part.flat});
    return leaves;
  }

  /// out[i] = parts[0][i] + parts[1][i] + ..., in this order, for i in [first, last).
  void sum_parts(std::int64_t first, std::int64_t last, T* out) const {
    if (parts_.size() == 2) {
      const T* a = parts_[0].flat;
      const T* b = parts_[1].flat;
      for (std::int64_t i = first; i < last; ++i) out[i] = a[i] + b[i];
      return;
    }
    std::copy(parts_[0].flat + first, parts_[0].flat + last, out + first);
    for (std::size_t k = 1; k < parts_.size(); ++k) {
      const T* part = parts_[k].flat;
      for (std::int64_t i = first; i < last; ++i) out[i] += part[i];
    }
  }

  /// Calls f(table) for the tables in a range.
  template <class Tables, class F>
  static void for_tables(Tables& tables, FlatRange range, const F& f) {
    for (auto& table : tables)
      if (table.range.begin >= range.begin && table.range.begin < range.end) f(table);
  }
  /// The parts within `tree` that have touched a row.
  std::span<const TreeLeaf<T>> leaves_of(ShardRange tree, const Table& table, std::int64_t row) const {
    thread_local std::vector<TreeLeaf<T>> leaves;
    leaves.clear();
    for (const Part& part : parts_) {
      const TouchedRows& touched = *part.sum->touched(*table.param);
      if (part.shards.begin < tree.begin || part.shards.end > tree.end) continue;
      if (((touched.bitmap()[row / 64] >> (row % 64)) & 1) == 0) continue;
      leaves.push_back({part.shards, part.flat + table.range.begin + touched.place(row) * table.columns});
    }
    return leaves;
  }
  std::uint64_t touched(const Table& table, std::size_t word) const {
    std::uint64_t rows = 0;
    for (const Part& part : parts_) rows |= part.sum->touched(*table.param)->bitmap()[word];
    return rows;
  }
  /// Makes `rows` the nonzero rows of a word of a table, and clears the other rows.
  void set_rows(Table& table, std::size_t word, std::uint64_t rows) {
    for_each_bit(word, table.rows[word] & ~rows, [&](std::int64_t row) {
      std::fill_n(gradient_.data<T>() + table.range.begin + row * table.columns, table.columns, T{0});
    });
    table.rows[word] = rows;
  }
  void prefetch_row(const Table& table, std::int64_t row) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    const T* const out = gradient_.data<T>() + table.range.begin + row * table.columns;
    for (std::int64_t i = 0; i < table.columns; i += kLine) __builtin_prefetch(out + i, 1);
  }
  void add_row(const Table& table, std::int64_t row) {
    const std::int64_t n = table.columns;
    T* const out = gradient_.data<T>() + table.range.begin + row * n;
    const std::span<const TreeLeaf<T>> leaves = leaves_of(all_parts(), table, row);
    if (order_ == Order::tree)
      return sparse_tree_sum<T>(leaves, all_parts(), std::span(out, static_cast<std::size_t>(n)));
    std::copy_n(leaves[0].values, n, out);
    for (std::size_t k = 1; k < leaves.size(); ++k)
      for (std::int64_t i = 0; i < n; ++i) out[i] += leaves[k].values[i];
    if (leaves.size() < parts_.size())  // a zero in the sum turns -0 into 0
      for (std::int64_t i = 0; i < n; ++i) out[i] += T{0};
  }

  /// Sets rows_ to the rows that any rank has touched.
  void unite_rows(Communicator& comm) {
    bitmaps_.clear();
    for (const Table& table : nonzero_.tables())
      for (std::size_t w = 0; w < table.rows.size(); ++w) bitmaps_.push_back(touched(table, w));
    if (!bitmaps_.empty()) comm.all_reduce(std::span<std::uint64_t>(bitmaps_), ReduceOp::bit_or, "touched rows");
    rows_.clear();
    std::int64_t at = kExtras;
    for (const FlatRange& run : dense_) at += run.count();
    auto rows = bitmaps_.begin();
    for (Table& table : nonzero_.tables())
      for (std::size_t w = 0; w < table.rows.size(); ++w, ++rows) {
        set_rows(table, w, *rows);
        for_each_bit(w, *rows, [&](std::int64_t row) {
          rows_.push_back({&table, row, at});
          at += table.columns;
        });
      }
    packed_.resize(at);
  }

  void add_extras(ShardRange parts, std::span<const T> extras, std::span<T> to) const {
    std::vector<std::span<const T>> vectors;
    for (std::int64_t i = parts.begin; i < parts.end; ++i) vectors.push_back(extras.subspan(i * kExtras, kExtras));
    tree_sum<T>(vectors, 0, kExtras, to);
  }
  /// Packs the sum over an aligned subtree after the place of its extras: elements of dense parameters, rows_.
  void pack(ShardRange tree, std::span<T> to) const {
    constexpr std::int64_t kChunk = std::int64_t{1} << 17, kRows = 1024;
    const std::vector<TreeLeaf<T>> leaves = leaves_of(tree);
    std::int64_t at = kExtras;
    for (const FlatRange& run : dense_) {
      const std::int64_t chunks = (run.count() + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
      for (std::int64_t c = 0; c < chunks; ++c) {
        const std::int64_t first = c * kChunk, last = std::min(run.count(), first + kChunk);
        add_tree<T>(leaves, tree, run.begin + first, run.begin + last, to.data() + at + first);
      }
      at += run.count();
    }
    const std::int64_t rows = std::ssize(rows_);
#pragma omp parallel for schedule(static) if (rows >= kRows)
    for (std::int64_t r = 0; r < rows; ++r) {
      const Row& row = rows_[r];
      const std::span<T> out = to.subspan(row.at, row.table->columns);
      const std::span<const TreeLeaf<T>> touched = leaves_of(tree, *row.table, row.row);
      if (touched.empty())
        std::ranges::fill(out, T{0});
      else
        sparse_tree_sum<T>(touched, tree, out);
    }
  }

  void unpack(std::span<const T> from) {
    std::copy_n(from.data(), kExtras, message().data());
    T* const out = gradient_.data<T>();
    const T* at = from.data() + kExtras;
    for (const FlatRange& run : dense_) {
      std::copy_n(at, run.count(), out + run.begin);
      at += run.count();
    }
    for (const Row& row : rows_)
      std::copy_n(from.data() + row.at, row.table->columns,
                  out + row.table->range.begin + row.row * row.table->columns);
  }

  struct Row {
    const Table* table;
    std::int64_t row;
    std::int64_t at;  ///< offset in the packed vector
  };

  Order order_;
  const ParamStore* params_;
  std::vector<std::unique_ptr<Stack>> stacks_;  ///< of the threads
  std::vector<Part> parts_;
  OwnedTensor message_;
  NonzeroElements nonzero_;
  FlatGradient gradient_;
  std::vector<FlatRange> dense_;  ///< elements of all parameters that are not row-sparse
  std::vector<std::uint64_t> bitmaps_;
  std::vector<Row> rows_;
  std::vector<T> packed_;
};

}  // namespace lockstep
