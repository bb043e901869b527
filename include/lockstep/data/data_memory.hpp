#pragma once
#include <any>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/data/row_source.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

class H5File;

/// Opens the file of a data set and allocates its arrays: in each process's own memory, or once per node, shared by its
/// ranks.
///
/// Every rank must place the same arrays in the same order. `fill` writes the elements and runs on one process per
/// copy; if it throws, place() throws the same error on every rank that shares the copy.
class DataMemory {
 public:
  /// world, options  of rows(); null: this process holds all of them
  explicit DataMemory(World* world = nullptr, const RowOptions& options = {}) : rows_(*this, world, options) {}
  virtual ~DataMemory() = default;
  DataMemory(const DataMemory&) = delete;
  DataMemory& operator=(const DataMemory&) = delete;
  /// Allocates an array and fills it before returning. The array is read-only from then on, and lives as long as this
  /// DataMemory. errors  Error (usage): the arrays exceed the memory of this machine
  virtual Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) = 0;
  /// The data set that read(path, *this) returns; it is read once, for all trainings that share this memory.
  /// errors  Error (internal): this memory holds another data set
  template <class Read>
  auto data_set(const std::filesystem::path& path, const Read& read) {
    if (!has_data_set()) {
      data_set_ = read(path, *this);
      path_ = path;
    }
    require(path == path_, "reading the data set '", path.string(), "': this memory holds '", path_.string(), "'");
    return std::any_cast<decltype(read(path, *this))>(data_set_);
  }
  bool has_data_set() const { return data_set_.has_value(); }
  /// The hash of the data set; one process per copy computes it.
  std::uint64_t hash(const std::function<std::uint64_t()>& compute);
  /// Opens the data set `path`, or its copy if read_from() has named one. errors  as H5File::open()
  H5File open(const std::filesystem::path& path) const;
  /// copy   a file with the same bytes; "": read the data set itself
  void read_from(std::filesystem::path copy) { copy_ = std::move(copy); }
  bool reads_copy() const { return !copy_.empty(); }
  /// The arrays that may be divided over nodes.
  RowSource& rows() { return rows_; }

 protected:
  /// The system promises more memory than it has, and ends the process that uses it.
  void require_memory(DType dtype, const Shape& shape);

 private:
  double placed_bytes_ = 0;
  std::any data_set_;
  std::filesystem::path path_;  ///< of the data set
  std::filesystem::path copy_;
  RowSource rows_;
};

/// Private memory of this process.
class LocalDataMemory final : public DataMemory {
 public:
  Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) override;

 private:
  std::deque<OwnedTensor> arrays_;
};

}  // namespace lockstep
