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

/// One named array of weights: its master values and where its gradient lies in a flat gradient vector.
struct Param {
  std::string name;  ///< a path, the same in code, logs and HDF5: "blocks.0.attn.q.weight"
  Shape shape;
  std::int64_t offset = 0;  ///< of the first element in the flat vectors
  std::int64_t index = 0;   ///< in registration order
  bool trainable = true;    ///< false: frozen, no gradient, no optimizer state, not reduced
  bool row_sparse = false;  ///< a step touches few of its rows (embeddings): Gradients remember which
  double l2 = 0;            ///< the loss of every step has l2 * (sum of squares of its elements) besides
  Tensor value;             ///< a view of ParamStore::values()
  Tensor stored;            ///< the value as operations read it: `value`, or its copy in ParamStore::storage()
};

/// The rows of a row-sparse parameter that a backward pass has added to, each once, in order of first touch.
class TouchedRows {
 public:
  explicit TouchedRows(std::int64_t rows) : bitmap_(static_cast<std::size_t>((rows + 63) / 64), 0) {}
  void touch(std::int64_t row) {
    std::uint64_t& word = bitmap_[static_cast<std::size_t>(row / 64)];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    if (!(word & bit)) word |= bit, rows_.push_back(row);
  }
  std::span<const std::int64_t> rows() const { return rows_; }
  /// One bit per row, lowest first.
  std::span<const std::uint64_t> bitmap() const { return bitmap_; }
  void clear();

 private:
  std::vector<std::int64_t> rows_;
  std::vector<std::uint64_t> bitmap_;
};

/// A flat gradient vector laid out like a ParamStore's values; one per worker thread or per shard. The store outlives
/// it.
class Gradients {
 public:
  Gradients() = default;
  /// On the device of the parameters, of real_dtype() of their storage.
  explicit Gradients(const class ParamStore& params);
  Tensor of(const Param& param) const;
  Tensor flat() const { return storage_; }
  /// The parameter's touched rows, or null when it is dense. Rows that were not touched are zero.
  TouchedRows* touched(const Param& param);
  /// Of a row-sparse parameter only the touched rows are written: the cost is that of the step, not of the table.
  void zero();
  const class ParamStore& params() const { return *params_; }

 private:
  const class ParamStore* params_ = nullptr;
  OwnedTensor storage_;
  std::vector<std::unique_ptr<TouchedRows>> touched_;  ///< by Param::index, null for dense ones
};

/// All parameters of a model in one flat vector, in registration order; each begins at a multiple of 64 bytes and the
/// gaps stay zero.
///
/// A model registers its parameters in its constructor and then calls allocate(), which draws the initial values: each
/// from Philox(seed, 0, "init." + name, 0)(element), so that weights depend on neither ranks nor threads nor on other
/// parameters.
class ParamStore {
 public:
  using Init = std::function<double(const Philox&, std::uint64_t element)>;
  explicit ParamStore(DType dtype = DType::f32) : dtype_(dtype), storage_(dtype) {}
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  /// The reference stays valid for the store's life. errors  Error if the name is taken or allocate() was called
  Param& add(std::string name, Shape shape, Init init);
  void allocate(std::uint64_t seed);
  /// Takes the values to another device. Views of them and Gradients made before are of the old ones.
  void move_to(Device device);
  /// Has operations read and store bf16 | f16 while the values stay the masters that are trained, or dtype() again.
  /// Gradients are of real_dtype(storage) from then on: f32 for halves. Values of f64 are for checks.
  void store_as(DType storage);
  /// Rounds the values for operations again, after a change of the masters: one pass. Nothing to do unless storage() is a
  /// half.
  void refresh(Stream& stream) const;

  DType dtype() const { return dtype_; }
  /// What tapes that read these parameters are made for.
  DType storage() const { return storage_; }
  std::deque<Param>& all() { return params_; }
  const std::deque<Param>& all() const { return params_; }
  Param& at(const std::string& name);
  Device device() const { return values_->device(); }
  Tensor values() const { return values_; }
  std::int64_t flat_size() const { return flat_size_; }  ///< elements, gaps included
  std::int64_t count() const;                            ///< elements, gaps left out
  /// XXH3 of all values: equal on all ranks, or the replicas have drifted apart.
  std::uint64_t hash() const;

 private:
  void set_views();
  DType dtype_, storage_;
  std::deque<Param> params_;
  std::vector<Init> inits_;
  std::int64_t flat_size_ = 0;
  OwnedTensor values_;
  OwnedTensor stored_;  ///< the values in storage(), unless that is dtype()
};

/// Initial values (the element index selects the draw).
namespace init {
ParamStore::Init zeros();
ParamStore::Init ones();
/// N(0, std^2)
ParamStore::Init normal(double std);
/// A normal distribution cut off at two of its own deviations, scaled so that what is left has this deviation.
/// source  JAX's truncated_normal initialiser
ParamStore::Init truncated_normal(double std);
/// U(-bound, bound)
ParamStore::Init uniform(double bound);
/// N(0, 2 / (fan_in + fan_out)). source  Glorot, Bengio 2010, eq. 12, normal form
ParamStore::Init xavier_normal(std::int64_t fan_in, std::int64_t fan_out);
}  // namespace init

}  // namespace lockstep
