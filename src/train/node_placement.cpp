#include "train/node_placement.hpp"

#include <algorithm>

#include "lockstep/train/trainer.hpp"

namespace lockstep {

Tensor NodePlacement::place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) {
  // A rank that fails earlier, such as on a wrong file header, joins this call from load_task().
  world_.together("loading the data set", [] {});
  const std::size_t bytes = static_cast<std::size_t>(shape.size()) * lockstep::size_bytes(dtype);
  memory_.push_back(world_.share_on_node(std::max<std::size_t>(bytes, 1)));
  const Tensor array(memory_.back()->bytes().data(), dtype, shape);
  world_.together("loading the data set", [&] {
    if (world_.node_rank() == 0) fill(array);
  });
  return array;
}

std::unique_ptr<Placement> make_node_placement(World& world) { return std::make_unique<NodePlacement>(world); }

}  // namespace lockstep
