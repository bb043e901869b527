#pragma once
#include <deque>
#include <functional>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Allocates the arrays of a data set: in each process's own memory, or once per node, shared by its ranks.
///
/// Every rank must place the same arrays in the same order. `fill` writes the elements and runs on one process per
/// copy; if it throws, place() throws the same error on every rank that shares the copy.
class Placement {
 public:
  virtual ~Placement() = default;
  /// Allocates an array and fills it before returning. The array is read-only from then on, and lives as long as this
  /// Placement.
  virtual Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) = 0;
};

/// Private memory of this process.
class LocalPlacement final : public Placement {
 public:
  Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) override;

 private:
  std::deque<OwnedTensor> arrays_;
};

}  // namespace lockstep
