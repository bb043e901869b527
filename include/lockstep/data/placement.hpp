#pragma once
#include <deque>
#include <functional>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Where the arrays of a data set lie. The local one gives each process its own memory; the trainer's gives the ranks
/// of a node one common copy.
///
/// Every rank asks for the same arrays in the same order; `fill` writes the elements, and runs on one process per copy.
/// What it throws is thrown by place() on every rank that shares the copy.
class Placement {
 public:
  virtual ~Placement() = default;
  /// Memory for an array, filled by `fill` before this returns, read-only from then on; it lives as long as this
  /// Placement.
  virtual Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) = 0;
};

/// Plain memory of this process.
class LocalPlacement final : public Placement {
 public:
  Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) override;

 private:
  std::deque<OwnedTensor> arrays_;
};

}  // namespace lockstep
