#pragma once
#include <memory>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"

namespace lockstep {

/// One copy of each array per node, in memory that its ranks share; filled by the node's first rank.
class NodePlacement final : public Placement {
 public:
  explicit NodePlacement(World& world) : world_(world) {}
  Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) override;
  /// Bytes of all arrays so far.
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  World& world_;
  std::vector<std::unique_ptr<NodeMemory>> memory_;
  std::size_t size_bytes_ = 0;
};

}  // namespace lockstep
