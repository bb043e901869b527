#include "lockstep/train/rank_memory.hpp"

#include <algorithm>

#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/comm/world.hpp"

namespace lockstep {

namespace {

constexpr double kProductScratch = 32 << 20;  // as in ops/gemm

/// The largest number of samples that a thread takes through forward and backward at a time, as CpuStep and GpuStep cut
/// a batch.
double samples_at_once(const RunConfig& c, const PlannedRanks& r, const TaskNeeds& needs, std::int64_t batch) {
  const std::int64_t shards = c.shards(batch, needs.least_tree_shard);
  const auto share = [](std::int64_t samples, std::int64_t parts) { return (samples + parts - 1) / parts; };
  if (c.run.device == "cuda") {
    const double count = static_cast<double>(share(batch, c.run.reproducible ? shards : r.ranks));
    return needs.rows_vary ? 1.0625 * count : count;  // GpuStep rounds up to one of eight sizes between powers of two
  }
  std::int64_t count = share(batch, shards);
  if (!c.run.reproducible) {
    const std::int64_t threads = r.ranks * r.threads, each = share(batch, threads);
    count = share(each, std::clamp<std::int64_t>(each / needs.least_shard, 1, share(shards, threads)));
  }
  return static_cast<double>(needs.samples_in_cache > 0 ? share(count, share(count, needs.samples_in_cache)) : count);
}

/// The partial sums of all threads of a rank with `shards` shards.
std::int64_t partial_sums_of(std::int64_t shards, std::int64_t threads) {
  const std::int64_t busy = std::min(threads, shards);
  std::int64_t sums = 0;
  for (std::int64_t t = 0; t < busy; ++t) sums += partial_sums({shards * t / busy, shards * (t + 1) / busy});
  return sums;
}

}  // namespace

TaskNeeds needs_of(const RunConfig& c, int ranks, std::int64_t batch) {
  const auto with = [&](std::int64_t shards) {
    return c.task->needs(c.data.path, c.model_kind == "kgat" ? c.dtype() : c.storage(),
                         {.samples = batch * c.batch.accumulate,
                          .scale = c.over_devices(1, ranks) * c.batch.accumulate,
                          .ranks = ranks,
                          .shards = shards,
                          .reproducible = c.run.reproducible,
                          .on_gpu = c.run.device == "cuda"});
  };
  const TaskNeeds needs = with(c.shards());
  const std::int64_t shards = c.shards(batch, needs.least_tree_shard);
  return shards == c.shards() ? needs : with(shards);
}

void require_memory(World& world, const RunConfig& c) {
  if (c.run.device == "cuda") return;
  world.together("comparing the memory of the run and the machine", [&] {
    if (world.rank() != 0) return;
    RankMemory m;
    try {
      const std::int64_t batch = c.global_batch(world.size());
      const PlannedRanks ranks = {.ranks = world.size(), .threads = std::max<std::int64_t>(1, c.run.threads)};
      m = rank_memory(c, ranks, needs_of(c, world.size(), batch), batch);
    } catch (const Error&) {
      return;  // the training refuses these options with a message
    }
    const double each = m.weights + m.gradients + m.own_gradient + m.state + m.average;
    const MemoryLimit limit = memory_limit();
    require_usage(each * world.node_size() <= limit.bytes, "preparing the training: each rank needs ",
                  human_bytes(m.weights), " for weights, ", human_bytes(m.gradients + m.own_gradient),
                  " for gradients and ", human_bytes(m.state + m.average), " for the optimizer, but ", limit.source,
                  " ", human_bytes(limit.bytes), " for ", world.node_size(),
                  world.node_size() == 1 ? " rank" : " ranks",
                  "; lower the sizes of the network, the threads or dist.shards, or use more nodes");
  });
}

RankMemory rank_memory(const RunConfig& c, const PlannedRanks& r, const TaskNeeds& needs, std::int64_t batch) {
  const auto element = static_cast<double>(size_bytes(c.dtype()));
  const auto parameters = static_cast<double>(needs.parameters);
  const double trained = parameters - static_cast<double>(needs.fixed_parameters);
  const bool on_gpu = c.run.device == "cuda";
  const double owned = static_cast<double>(needs.owned_parameters), shared = trained - owned;
  const auto of_threads = static_cast<double>(r.threads), of_ranks = static_cast<double>(r.ranks);
  // One buffer for the sum, and one per part: a thread, or a partial sum of its shards.
  const std::int64_t shards = c.shards(batch, needs.least_tree_shard), of_rank = (shards + r.ranks - 1) / r.ranks;
  const std::int64_t parts = !c.run.reproducible ? r.threads
                             : needs.row_sparse  ? of_rank + r.threads
                                                 : partial_sums_of(of_rank, r.threads);
  const bool tables = needs.row_sparse || needs.table_rows > 0;
  const double buffers = needs.gradient_buffers ? *needs.gradient_buffers
                         : on_gpu               ? (c.run.reproducible || c.run.backend == "mpi" ? 2 : 1)
                         : !tables && !c.run.reproducible && r.threads == 1 && r.ranks == 1
                             ? 1  // CpuStep sums in place
                             : static_cast<double>(parts + 1);
  // A part holds the table rows that it touches and an index for every row; the sum holds the whole table.
  const double table = on_gpu ? 0 : static_cast<double>(needs.table_rows * needs.table_columns);
  // The partial sums of a thread together have held its samples at most twice: all, a half, a quarter, ...
  const double per_part = static_cast<double>((c.run.reproducible ? 2 : 1) * batch * c.batch.accumulate) /
                          static_cast<double>(std::max<std::int64_t>(1, r.ranks * parts));
  const double touched = static_cast<double>(needs.table_columns) *
                         std::min(static_cast<double>(needs.table_rows), needs.touched_rows_per_sample * per_part);
  const double packed =
      on_gpu ? 0 : static_cast<double>(parts) * (touched * element + 4 * static_cast<double>(needs.table_rows));
  const double state = static_cast<double>(Optimizer::state_bytes(c.optim, c.dtype()));
  // LazyAdam: the last step of every row.
  const bool deferred = !on_gpu && c.optim.name == "adam" && !c.optim.lazy && c.optim.ema == 0;
  const double steps_of_rows = deferred ? 8 * static_cast<double>(needs.table_rows) : 0;
  const double weights = parameters * element, twice = static_cast<double>(needs.parameters_with_two_states),
               average = c.optim.ema > 0 ? weights : 0, all_state = state * (trained + twice),
               carried = needs.carried_bytes_per_sample * static_cast<double>(batch * c.batch.accumulate);
  const bool copied = r.ranks > 1 && c.checkpoint.partner_steps != 0 && (on_gpu || needs.state_divided);
  return {.weights = weights,
          .rounded = is_half(c.storage()) ? parameters * static_cast<double>(size_bytes(c.storage())) : 0,
          .gradients = (buffers * (shared - table) + table) * element + packed,
          .own_gradient = owned / of_ranks * element,
          .state = state * (shared + twice + owned / of_ranks) + steps_of_rows,
          .average = average,
          .carried = carried,
          .activations = needs.activation_bytes_per_sample * of_threads * samples_at_once(c, r, needs, batch),
          .scratch = needs.scratch_bytes * of_threads + needs.gathered_bytes,
          .arrays = needs.rank_bytes,
          .evaluation = needs.evaluation_bytes * of_threads,
          .data = on_gpu ? needs.gpu_data_bytes : 0,
          .products = on_gpu && needs.activation_bytes_per_sample > 0 ? kProductScratch : 0,
          .on_gpu = on_gpu,
          .gradient_buffers = buffers,
          .all_state = all_state,
          .whole_copy = copied ? weights + all_state + average + carried : 0};
}

}  // namespace lockstep
