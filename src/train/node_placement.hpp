#pragma once
#include <memory>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"

namespace lockstep {

/// One copy of each array per node, in memory that its ranks share. The first rank of the node fills it.
class NodePlacement final : public Placement {
 public:
  explicit NodePlacement(World& world) : world_(world) {}
  Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) override;

 private:
  World& world_;
  std::vector<std::unique_ptr<NodeMemory>> memory_;
};

}  // namespace lockstep
