#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/optim/flat_gradient.hpp"
#include "lockstep/step/step_extras.hpp"

namespace lockstep {

/// The gradients of a rank's parts (its threads or its shards) in host memory, and their sum. Of row-sparse parameters
/// it accesses only the rows that a part has touched, now or in the previous sum.
///
/// The bits equal a sum of whole vectors in which untouched rows are zero.
///
/// T   type of the gradient
template <class T>
class PartSum {
 public:
  enum class Order : std::uint8_t {
    chain,  ///< parts[0] + parts[1] + ...
    tree,   ///< one binary tree over the indices of the parts (comm/tree_reduce.hpp)
  };
  PartSum(const ParamStore& params, std::int64_t parts, Order order)
      : order_(order),
        message_(dtype_of<T>::value, Shape{kExtras + params.flat_size()}),
        nonzero_(params),
        gradient_(message_->slice(kExtras, params.flat_size()), &nonzero_) {
    for (std::int64_t i = 0; i < parts; ++i) {
      // Allocated separately, so that threads do not share cache lines.
      parts_.push_back(std::make_unique<Gradients>(params, Device{}));
      flat_.push_back(parts_.back()->flat().template data<T>());
    }
    nonzero_.for_each({0, params.flat_size()}, [&](std::int64_t begin, std::int64_t end) {
      dense_.push_back({begin, end});
    });
  }

  Gradients& part(std::int64_t i) { return *parts_[static_cast<std::size_t>(i)]; }
  /// Copies a gradient to a part. flat  its elements in host memory, without packed rows
  void take(std::int64_t part, const Gradients& from, const T* flat) {
    Gradients& to = this->part(part);
    to.zero();
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
      if (order_ == Order::chain) {
        sum_parts(flat_, first, last, gradient_.data<T>());
        continue;
      }
      std::vector<std::span<const T>> vectors;
      for (const T* flat : flat_) vectors.emplace_back(flat, static_cast<std::size_t>(gradient_.size()));
      tree_sum<T>(vectors, first, last, gradient_.template span<T>());
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

  /// Adds the parts' encoded extras in a tree. shapes  extras (parts, kExtras)
  void add_extras(std::span<const T> extras) { add_extras({0, std::ssize(parts_)}, extras, message().first(kExtras)); }
  /// Sums extras and gradients over the parts of all ranks in one tree; each part is a shard. Collective.
  void all_reduce(Communicator& comm, std::int64_t shards, std::span<const T> extras) {
    unite_rows(comm);
    const std::int64_t first = shards_of(shards, comm.rank(), comm.size()).begin;
    const auto sum_of = [&](ShardRange tree, std::span<T> to) {
      pack({tree.begin - first, tree.end - first}, extras, to);
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
  /// Prefetch distance in rows: the rows of the sum are scattered over memory.
  static constexpr std::size_t kRowsAhead = 6;

  /// The slice of a range that one thread adds: whole cache lines.
  static FlatRange slice_of(FlatRange range, int slice, int slices) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t n = range.count(), lines = (n + kLine - 1) / kLine;
    return {range.begin + std::min(n, lines * slice / slices * kLine),
            range.begin + std::min(n, lines * (slice + 1) / slices * kLine)};
  }

  /// out[i] = parts[0][i] + parts[1][i] + ..., in this order, for i in [first, last).
  static void sum_parts(std::span<const T* const> parts, std::int64_t first, std::int64_t last, T* out) {
    if (parts.size() == 2) {
      const T* a = parts[0];
      const T* b = parts[1];
      for (std::int64_t i = first; i < last; ++i) out[i] = a[i] + b[i];
      return;
    }
    std::copy(parts[0] + first, parts[0] + last, out + first);
    for (std::size_t k = 1; k < parts.size(); ++k) {
      const T* part = parts[k];
      for (std::int64_t i = first; i < last; ++i) out[i] += part[i];
    }
  }

  /// Calls f(table) for the tables in a range.
  template <class Tables, class F>
  static void for_tables(Tables& tables, FlatRange range, const F& f) {
    for (auto& table : tables)
      if (table.range.begin >= range.begin && table.range.begin < range.end) f(table);
  }
  const T* row_of(std::size_t part, const Table& table, std::int64_t row) const {
    const TouchedRows& touched = *parts_[part]->touched(*table.param);
    if (((touched.bitmap()[static_cast<std::size_t>(row / 64)] >> (row % 64)) & 1) == 0) return nullptr;
    return flat_[part] + table.range.begin + touched.place(row) * table.columns;
  }
  std::uint64_t touched(const Table& table, std::size_t word) const {
    std::uint64_t rows = 0;
    for (const std::unique_ptr<Gradients>& part : parts_) rows |= part->touched(*table.param)->bitmap()[word];
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
    thread_local std::vector<TreeLeaf<T>> leaves;
    leaves.clear();
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (const T* values = row_of(i, table, row)) leaves.push_back({static_cast<std::int64_t>(i), values});
    if (order_ == Order::tree)
      return sparse_tree_sum<T>(leaves, std::ssize(parts_), std::span(out, static_cast<std::size_t>(n)));
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
    for (Table& table : nonzero_.tables()) {
      for (std::size_t w = 0; w < table.rows.size(); ++w, ++rows) {
        set_rows(table, w, *rows);
        for_each_bit(w, *rows, [&](std::int64_t row) {
          rows_.push_back({&table, row, at});
          at += table.columns;
        });
      }
    }
    packed_.resize(static_cast<std::size_t>(at));
  }

  void add_extras(ShardRange parts, std::span<const T> extras, std::span<T> to) const {
    std::vector<std::span<const T>> vectors;
    for (std::int64_t i = parts.begin; i < parts.end; ++i)
      vectors.push_back(extras.subspan(static_cast<std::size_t>(i * kExtras), kExtras));
    tree_sum<T>(vectors, 0, kExtras, to);
  }
  /// Packs the sum over some parts: extras, elements of dense parameters, rows_.
  void pack(ShardRange parts, std::span<const T> extras, std::span<T> to) const {
    constexpr std::int64_t kChunk = std::int64_t{1} << 17, kRows = 1024;
    const auto count = static_cast<std::size_t>(parts.count()), begin = static_cast<std::size_t>(parts.begin);
    add_extras(parts, extras, to.first(kExtras));
    std::int64_t at = kExtras;
    for (const FlatRange& run : dense_) {
      const std::int64_t chunks = (run.count() + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
      for (std::int64_t c = 0; c < chunks; ++c) {
        const std::int64_t first = c * kChunk;
        const auto n = static_cast<std::size_t>(std::min(kChunk, run.count() - first));
        std::vector<std::span<const T>> vectors;
        for (std::size_t i = begin; i < begin + count; ++i) vectors.emplace_back(flat_[i] + run.begin + first, n);
        tree_sum<T>(vectors, 0, static_cast<std::int64_t>(n), to.subspan(static_cast<std::size_t>(at + first), n));
      }
      at += run.count();
    }
    const std::int64_t rows = std::ssize(rows_);
#pragma omp parallel for schedule(static) if (rows >= kRows)
    for (std::int64_t r = 0; r < rows; ++r) {
      const Row& row = rows_[static_cast<std::size_t>(r)];
      const std::span<T> out =
          to.subspan(static_cast<std::size_t>(row.at), static_cast<std::size_t>(row.table->columns));
      thread_local std::vector<TreeLeaf<T>> leaves;
      leaves.clear();
      for (std::size_t i = 0; i < count; ++i)
        if (const T* values = row_of(begin + i, *row.table, row.row))
          leaves.push_back({static_cast<std::int64_t>(i), values});
      if (leaves.empty())
        std::ranges::fill(out, T{0});
      else
        sparse_tree_sum<T>(leaves, parts.count(), out);
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
  std::vector<std::unique_ptr<Gradients>> parts_;
  std::vector<const T*> flat_;  ///< elements of each part
  OwnedTensor message_;
  NonzeroElements nonzero_;
  FlatGradient gradient_;
  std::vector<FlatRange> dense_;  ///< elements of all parameters that are not row-sparse
  std::vector<std::uint64_t> bitmaps_;
  std::vector<Row> rows_;
  std::vector<T> packed_;
};

}  // namespace lockstep
