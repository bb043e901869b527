#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/philox.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

struct Param;

/// The updates of a row-sparse parameter that its optimizer defers until an operation reads the rows.
class DeferredRows {
 public:
  /// Applies the deferred updates of these rows, which may repeat. Threads may call it at the same time.
  virtual void apply(const Param& table, std::span<const std::int32_t> rows) = 0;

 protected:
  ~DeferredRows() = default;
};

/// One named array of weights: its master values and its range in the flat vectors.
struct Param {
  std::string name;  ///< path, identical in code, logs and HDF5: "blocks.0.attn.q.weight"
  Shape shape;
  std::int64_t offset = 0;  ///< of the first element in the flat vectors
  std::int64_t index = 0;   ///< in registration order
  bool trainable = true;    ///< false: frozen, without gradient, optimizer state and reduction
  bool adjoins = false;     ///< begins directly after the previous parameter
  bool row_sparse = false;  ///< a step touches few of its rows (embeddings); Gradients record which
  double l2 = 0;            ///< each step adds l2 * (sum of squares of the elements) to the loss
  Tensor value;             ///< a view of ParamStore::values()
  Tensor stored;            ///< the value that operations read: `value`, or its copy in ParamStore::storage()
  /// Null: the values of all rows are up to date.
  DeferredRows* deferred = nullptr;
};

/// The rows of a row-sparse parameter that a backward pass has added to, without duplicates, in order of first touch.
///
/// If packed, the gradients of touched rows lie one after another at the start of the parameter's gradient, in order of
/// first touch, and use memory and caches for touched rows only. Otherwise each row's gradient lies at the row's index.
/// The place of a row is the index of its gradient.
class TouchedRows {
 public:
  TouchedRows(std::int64_t rows, bool packed);
  /// Adds a row, unless it has been touched before. Returns its place.
  std::int32_t touch(std::int64_t row) {
    std::uint64_t& word = bitmap_[row / 64];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    if ((word & bit) == 0) {
      word |= bit;
      if (packed()) place_of_[row] = static_cast<std::int32_t>(rows_.size());
      rows_.push_back(row);
    }
    return place(row);
  }
  bool packed() const { return place_of_ != nullptr; }
  /// The place of a touched row.
  std::int32_t place(std::int64_t row) const { return packed() ? place_of_[row] : static_cast<std::int32_t>(row); }
  std::span<const std::int64_t> rows() const { return rows_; }
  /// One bit per row, lowest first.
  std::span<const std::uint64_t> bitmap() const { return bitmap_; }
  void clear();

 private:
  std::vector<std::int64_t> rows_;
  std::vector<std::uint64_t> bitmap_;
  OwnedTensor places_;
  std::int32_t* place_of_ = nullptr;  ///< by row; null if not packed
};

/// A flat gradient vector in the layout of a ParamStore's values; one per worker thread or per shard. The store must
/// outlive it. On the CPU, rows of row-sparse parameters are packed.
class Gradients {
 public:
  Gradients() = default;
  /// Allocates the vector on the device of the parameters, in real_dtype() of their storage.
  /// errors   Error if the parameters are not allocated
  explicit Gradients(const class ParamStore& params);
  Gradients(const class ParamStore& params, Device device);
  /// The gradient of a parameter in its shape. If its rows are packed, the rows after the touched ones are zero.
  Tensor of(const Param& param) const;
  Tensor flat() const { return storage_; }
  /// The touched rows of a row-sparse parameter, or null for a dense one. All other rows are zero.
  TouchedRows* touched(const Param& param) const;
  /// Sets the vector to zero. On the CPU it writes only the touched rows of row-sparse parameters.
  void zero();
  const class ParamStore& params() const { return *params_; }

 private:
  const class ParamStore* params_ = nullptr;
  OwnedTensor storage_;
  std::vector<std::unique_ptr<TouchedRows>> touched_;  ///< by Param::index, null for dense ones
};

/// All parameters of a model in one flat vector, in registration order. Each parameter begins at a multiple of 64
/// bytes, or directly after the previous one (add_adjoining()); gaps stay zero.
///
/// A model registers its parameters in its constructor and then calls allocate(), which draws each initial value from
/// Philox(seed, 0, "init." + name, 0)(element). Weights therefore depend on neither ranks, threads nor other
/// parameters.
class ParamStore {
 public:
  using Init = std::function<double(const Philox&, std::uint64_t element)>;
  explicit ParamStore(DType dtype = DType::f32) : dtype_(dtype), storage_(dtype) {}
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  /// Registers a parameter. The reference stays valid for the life of the store.
  /// errors   Error if the name is taken or after allocate()
  Param& add(std::string name, Shape shape, Init init);
  /// The same without a gap after the previous parameter: operations can use both as one array.
  Param& add_adjoining(std::string name, Shape shape, Init init);
  /// Sets the initial values. It belongs to the start of a program, which a request to stop ends here.
  /// errors   as allocate(); kStopRequested (base/stop_request.hpp)
  void allocate(std::uint64_t seed);
  /// Sets all values to zero, for a copy of another network. A running training may call it.
  /// errors   Error if called twice; Error (usage) if memory is short
  void allocate();
  /// Moves the values to another device. Earlier views and Gradients become invalid.
  void move_to(Device device);
  /// Selects the dtype in which operations read and store values: bf16, f16 or dtype(). The master values that training
  /// updates keep dtype(). Gradients created later have real_dtype(storage): f32 for bf16 and f16. Master values in f64
  /// are for checks.
  /// errors   Error for any other dtype
  void store_as(DType storage);
  /// Rounds the master values to storage() again, after they have changed. Does nothing unless storage() is bf16 or
  /// f16.
  void refresh(Stream& stream) const;

  DType dtype() const { return dtype_; }
  /// The dtype of tapes that read these parameters.
  DType storage() const { return storage_; }
  std::deque<Param>& all() { return params_; }
  const std::deque<Param>& all() const { return params_; }
  Param& at(const std::string& name);
  Device device() const { return values_->device(); }
  Tensor values() const { return values_; }
  std::int64_t flat_size() const { return flat_size_; }  ///< elements with gaps
  std::int64_t count() const;                            ///< elements without gaps
  /// XXH3 of all values. It is equal on all ranks unless the replicas have diverged.
  std::uint64_t hash() const;

 private:
  void set_views();
  DType dtype_, storage_;
  std::deque<Param> params_;
  std::vector<Init> inits_;
  std::int64_t flat_size_ = 0;
  OwnedTensor values_;
  OwnedTensor stored_;  ///< the values in storage(); empty if that is dtype()
};

/// Initial values (the element index selects the draw).
namespace init {
ParamStore::Init zeros();
ParamStore::Init ones();
/// N(0, std^2)
ParamStore::Init normal(double std);
/// A normal distribution cut off at two of its own standard deviations and rescaled to standard deviation `std`.
/// source   truncated_normal initialiser of JAX
ParamStore::Init truncated_normal(double std);
/// U(-bound, bound)
ParamStore::Init uniform(double bound);
/// N(0, 2 / (fan_in + fan_out)).
/// source   Glorot, Bengio 2010, eq. 12, normal form
ParamStore::Init xavier_normal(std::int64_t fan_in, std::int64_t fan_out);
}  // namespace init

}  // namespace lockstep
