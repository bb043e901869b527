#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/hash.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/data_layout.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

class DataMemory;
class RowSource;

/// The sizes of an array's rows, in units of `unit_bytes`: one each, or, if `starts` is not null, row n has the units
/// [starts[n], starts[n + 1]).
struct RowSizes {
  std::int64_t unit_bytes = 0;
  const std::int64_t* starts = nullptr;
  std::int64_t start(std::int64_t row) const { return starts != nullptr ? starts[row] : row; }
  std::int64_t units(std::int64_t first, std::int64_t count) const { return start(first + count) - start(first); }
  std::int64_t bytes(std::int64_t first, std::int64_t count) const { return units(first, count) * unit_bytes; }
};

/// An array of a data set, one row per sample: all rows in memory, or those that this node holds and those that a
/// RowSource has fetched.
class RowArray {
 public:
  RowArray() = default;
  /// An array of which all rows are in memory.
  RowArray(const Tensor& all);  // NOLINT: a Tensor is such an array
  explicit operator bool() const { return sizes_.unit_bytes > 0; }
  const Shape& shape() const { return shape_; }  ///< of all rows
  std::size_t size_bytes() const { return static_cast<std::size_t>(shape_[0] * sizes_.unit_bytes); }
  /// Whether this process can read all rows at any time. Otherwise it fetches them first.
  bool whole() const;
  /// All rows, if they are in memory.
  const Tensor& all() const { return held_; }
  RowSource* source() const { return source_; }  ///< null: a Tensor
  template <class T>
  const T* row(std::int64_t n) const {
    return reinterpret_cast<const T*>(static_cast<std::uint64_t>(n - first_) < static_cast<std::uint64_t>(count_)
                                          ? static_cast<const std::byte*>(held_.raw()) +
                                                (sizes_.start(n) - start_) * sizes_.unit_bytes
                                          : fetched(n));
  }
  /// Makes rows readable, of this array and those that were placed with it. Collective unless whole().
  void fetch(std::vector<std::int64_t> rows) const;
  /// Calls add(i) for i = 0 .. count-1, each on one rank, which can read row row_of(i). Then adds up `sums` of all
  /// ranks, to which add() adds; the values are such that the order does not matter. If all rows are here, this process
  /// makes all calls. Collective unless whole().
  void sum_over(std::int64_t count, const std::function<std::int64_t(std::int64_t i)>& row_of,
                const std::function<void(std::int64_t i)>& add, std::span<double> sums) const;

 private:
  friend class RowSource;
  const std::byte* fetched(std::int64_t n) const;

  Shape shape_;
  Tensor held_;  ///< rows [first_, first_ + count_)
  RowSizes sizes_;
  std::int64_t first_ = 0, count_ = 0, start_ = 0;  ///< start_: sizes_.start(first_)
  RowSource* source_ = nullptr;
  std::size_t column_ = 0;
};

/// An array to place: its type and shape, and a function that reads and checks rows from `first` as many as `to` holds.
/// It is also called from another thread.
struct RowColumn {
  DType dtype = DType::f32;
  Shape shape;  ///< of all rows
  std::function<void(std::int64_t first, const Tensor& to)> read;
  /// (rows + 1), if rows differ in size: row n has the elements [starts[n], starts[n + 1]) of the outermost axis. Must
  /// outlive the RowSource; the same for all arrays.
  std::span<const std::int64_t> starts = {};
};

/// The rows of a data set that may be larger than a node's memory, in the layout `data.layout`:
///
///   replicate  every node holds all rows
///   divided    node m of N holds the rows [m n / N, (m + 1) n / N), or those with that share of the elements; if it
///              exceeds RowOptions::memory_bytes, the rows stay in the file, and rank r of R reads the rows [r n / R,
///              (r + 1) n / R) for all ranks
///
/// A pass reads rows that this rank has fetched before it. Which rows a pass needs is a function of (seed, epoch,
/// position), so a rank fetches the rows of the next passes while it computes.
class RowSource {
 public:
  /// world  null: this process alone holds all rows
  RowSource(DataMemory& memory, World* world, const RowOptions& options);
  ~RowSource();
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  /// Places the arrays of a data set of n rows, which the file `path` holds. Collective; call it once.
  /// errors  Error (usage): fewer rows than nodes, or the share of a node exceeds its memory; those of the columns
  std::vector<RowArray> place(std::int64_t n, const std::vector<RowColumn>& columns, const std::filesystem::path& path);
  /// Whether this process can read all rows at any time. Otherwise it fetches them first.
  bool whole() const { return holders_.empty(); }
  /// The hash64() of the values of an array's rows [first, first + count), by default of all. Collective.
  std::uint64_t hash(const RowArray& array, std::uint64_t seed, std::int64_t first = 0, std::int64_t count = -1);

  /// Starts to fetch rows for this rank, in any order; a row may be named several times. Collective; nothing else uses
  /// the source until finish().
  void start(std::vector<std::int64_t> rows);
  /// Waits for these rows. The rows of the previous fetch are gone. Collective.
  /// errors  Error (data): the file has changed since it was opened
  void finish();
  /// Call it between steps: the helper thread that drives the messages of a fetch rests once they have arrived.
  void poll() {
    if (request_) request_->test();
  }
  void fetch(std::vector<std::int64_t> rows) {
    start(std::move(rows));
    finish();
  }
  /// The number of the last fetch; a caller that finds another one than its own fetches its rows again.
  std::int64_t fetches() const { return fetches_; }
  /// The rows of all ranks that one fetch should take: large enough that its latency does not count; of a file, as many
  /// as this memory holds.
  std::int64_t fetch_rows() const { return fetch_rows_; }

 private:
  friend class RowArray;
  struct Column {
    RowColumn of;  ///< of rows in the file; else empty, so that the file is closed
    RowSizes sizes;
    const std::byte* held = nullptr;  ///< rows [first_, first_ + count_)
  };
  struct Slot {
    std::int64_t row = -1, at = 0;  ///< at: byte in fetched_
  };
  /// Of this rank, since the start.
  struct Traffic {
    double waited_s = 0;    ///< for rows that were not yet there
    double received = 0;    ///< bytes of rows from other ranks
    double read = 0;        ///< bytes of rows from the file, also of those that lie between wanted ones
    std::int64_t rows = 0;  ///< fetched
  };
  void choose_layout();
  /// The first row of a holder, or of the one after the last.
  std::int64_t begin_of(std::size_t holder) const;
  /// The values of a column in a record of fetched_.
  const std::byte* fetched(std::int64_t row, std::size_t column) const;
  /// A record has the rows of all columns, each from a multiple of 8 bytes on. The first byte of a column's, or of the
  /// next record.
  std::int64_t offset(std::int64_t row, std::size_t column) const;
  std::int64_t record_bytes(std::span<const std::byte> row_numbers) const;
  /// Fills served_ with the records of asked_, from the memory of this node or from the file.
  void serve_from_memory();
  void serve_from_file();
  /// The parts of served_, by the rank that gets them.
  std::vector<std::span<const std::byte>> replies() const;
  /// Adds the rows [begin, end) of a holder to a hash. Of a file, also measures how much a read may pass over.
  void add_rows(const Column& column, std::int64_t begin, std::int64_t end, Hash64& hash);

  DataMemory& memory_;
  World* world_;
  RowOptions options_;
  std::int64_t rows_ = 0, fetch_rows_ = 0, fetches_ = 0;
  std::int64_t mean_record_ = 0;           ///< bytes
  std::int64_t first_ = 0, count_ = 0;     ///< rows that this node holds
  std::vector<std::vector<int>> holders_;  ///< ranks that serve the rows of each node, or of each rank
  bool in_file_ = false;
  std::vector<Column> columns_;
  std::int64_t gap_bytes_ = 1 << 12;  ///< a read passes over unwanted bytes up to this many
  struct Stamp;
  std::unique_ptr<Stamp> stamp_;  ///< of the file, if the rows stay there

  // The fetch in progress.
  std::vector<std::int64_t> wanted_;  ///< ascending, without repetition
  Gathered asked_;                    ///< rows that ranks want of this one
  std::vector<std::byte> served_, incoming_;
  std::vector<std::int64_t> sizes_;  ///< bytes from each rank
  std::vector<std::span<const std::byte>> pieces_;
  std::unique_ptr<Request> request_;
  std::exception_ptr failure_;
  // The rows of the last one.
  std::vector<std::byte> fetched_;
  std::vector<Slot> slots_;
  Traffic traffic_;
  std::jthread reader_;
};

}  // namespace lockstep
