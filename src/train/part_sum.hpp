#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/optim/flat_gradient.hpp"
#include "lockstep/train/step_extras.hpp"

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
  PartSum(const ParamStore& params, std::int64_t parts, Order order);

  Gradients& part(std::int64_t i) { return *parts_[static_cast<std::size_t>(i)]; }
  /// Copies a gradient to a part. flat  its elements in host memory, without packed rows
  void take(std::int64_t part, const Gradients& from, const T* flat);

  /// Adds the parts' elements in a range that starts and ends between parameters: slice `slice` of `slices`. Threads
  /// may add different slices at the same time.
  void add(FlatRange range, int slice = 0, int slices = 1);
  /// Adds the parts' encoded extras in a tree. shapes  extras (parts, kExtras)
  void add_extras(std::span<const T> extras);
  /// Sums extras and gradients over the parts of all ranks in one tree; each part is a shard. Collective.
  void all_reduce(Communicator& comm, std::int64_t shards, std::span<const T> extras);

  /// shapes  (kExtras + flat_size): the encoded scalars, then the gradient
  std::span<T> message() { return message_.view().template span<T>(); }
  /// The sum. shapes  (flat_size)
  const FlatGradient& gradient() const { return gradient_; }
  NonzeroElements& nonzero() { return nonzero_; }

 private:
  using Table = NonzeroElements::Table;
  const T* row_of(std::size_t part, const Table& table, std::int64_t row) const;
  std::uint64_t touched(const Table& table, std::size_t word) const;
  /// Makes `rows` the nonzero rows of a word of a table, and clears the other rows.
  void set_rows(Table& table, std::size_t word, std::uint64_t rows);
  void prefetch_row(const Table& table, std::int64_t row) const;
  void add_row(const Table& table, std::int64_t row);
  /// Sets rows_ to the rows that any rank has touched.
  void unite_rows(Communicator& comm);
  void add_extras(ShardRange parts, std::span<const T> extras, std::span<T> to) const;
  /// Packs the sum over some parts: extras, elements of dense parameters, rows_.
  void pack(ShardRange parts, std::span<const T> extras, std::span<T> to) const;
  void unpack(std::span<const T> from);

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
