#include <algorithm>
#include <deque>

#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

/// One copy of each array per node, in memory that its ranks share. The first rank of the node fills it.
class NodeDataMemory final : public DataMemory {
 public:
  NodeDataMemory(World& world, const RowOptions& options) : DataMemory(&world, options), world_(world) {}
  Tensor place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) override {
    // Matches the call of load_task() by a rank that has failed earlier, such as on a wrong file header.
    world_.together("loading the data set", [&] { require_memory(dtype, shape); });
    const std::size_t bytes = static_cast<std::size_t>(shape.size()) * lockstep::size_bytes(dtype);
    Tensor array;
    if (world_.node_size() == 1) {
      array = own_.emplace_back(dtype, shape, Device{}, MemoryUse::data);
    } else {
      memory_.push_back(world_.share_on_node(std::max<std::size_t>(bytes, 1)));
      array = Tensor(memory_.back()->bytes().data(), dtype, shape);
    }
    world_.together("loading the data set", [&] {
      if (world_.node_rank() == 0) fill(array);
    });
    return array;
  }

 private:
  World& world_;
  std::deque<OwnedTensor> own_;  ///< of a single rank
  std::vector<std::shared_ptr<NodeMemory>> memory_;
};

}  // namespace

std::unique_ptr<DataMemory> make_node_data_memory(World& world, const RowOptions& options) {
  return std::make_unique<NodeDataMemory>(world, options);
}

}  // namespace lockstep
