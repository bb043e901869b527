#pragma once
#include <memory>

#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// The training program of the exact softmax with dist.items = shard, on CPUs. The catalogue has dist.shards contiguous
/// parts, and each rank owns some of them: it compares the targets of the whole batch with its items, and it alone has
/// the gradient and the optimizer's vectors of its rows. All ranks hold the weights.
///
///   1  each rank computes the features of its samples and sends them to all ranks
///   2  each rank computes the largest score and the sum of exponentials of all targets over each of its parts, and
///      sends them to all ranks
///   3  each rank computes the gradient of its rows, and that of all features through its items; the latter are added
///      over the parts
///   4  each rank computes its samples a second time and runs their backward pass; the gradient of the network is added
///      over the samples' shards, and the gradients of the inputs are sent to the owners of their rows
///   5  each rank updates its rows and the network, and sends the rows to all ranks
///
/// The order of all sums is that of ShardedProgram under --reproducible: the bits are the same, on any number of ranks
/// and threads, with and without --reproducible.
///
/// errors  Error (usage): require_item_shards()
std::unique_ptr<TrainingProgram> make_item_shard_program(World& world, const RunConfig& config, SequenceTask& task,
                                                         int threads);
/// Checks what this program supports.
///
/// errors  Error (usage): a GPU; fewer items or dist.shards than ranks; dist.shards that is no power of two;
///         micro-batches; compression
void require_item_shards(const RunConfig& config, std::int64_t items, int ranks);

}  // namespace lockstep
