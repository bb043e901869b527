#include "lockstep/step/sharded_step.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "lockstep/base/log.hpp"
#include "step/cpu_step.hpp"
#include "step/gpu_step.hpp"

namespace lockstep {

std::string idle_threads(const StepOptions& options, std::int64_t ranks) {
  const std::int64_t threads = ranks * options.threads;
  std::int64_t busy = 0;
  for (std::int64_t r = 0; r < ranks; ++r)
    busy += std::min<std::int64_t>(shards_of(options.shards, r, ranks).count(), options.threads);
  if (!options.reproducible || busy == threads) return "";
  return join("run.reproducible: ", options.shards, " shards keep ", busy, " of ", threads,
              " threads busy; set dist.shards = ", std::bit_ceil(static_cast<std::uint64_t>(threads)),
              " before the first start (another number of shards gives other bits), or use fewer threads");
}

std::string ShardedStep::row_choice() const {
  std::string text;
  for (const RowExchange* bucket : row_exchanges_)
    if (!bucket->choice().empty()) text += (text.empty() ? "" : "; ") + bucket->choice();
  return text;
}

/// For each bucket: r by rows, w whole, - no decision. Empty if there are none.
std::string ShardedStep::row_decisions() const {
  std::string text;
  for (const RowExchange* bucket : row_exchanges_) text += bucket->choice().empty() ? '-' : bucket->on() ? 'r' : 'w';
  return text.find_first_not_of('-') == std::string::npos ? "" : text;
}

void ShardedStep::take_row_decisions(const std::string& decisions) {
  if (decisions.size() != row_exchanges_.size()) return;  // of other buckets
  for (std::size_t bucket = 0; bucket < decisions.size(); ++bucket)
    if (const char c = decisions[bucket]; c != '-') row_exchanges_[bucket]->decide_as_before(c == 'r');
}

std::unique_ptr<ShardedStep> make_sharded_step(Communicator& comm, ShardModel& model, const StepOptions& options,
                                               const GpuUpdate* update) {
  require(options.threads >= 1 && options.shards >= 1, "a step needs at least one thread and one shard, not ",
          options.threads, " and ", options.shards);
  const Device device = model.params().device();
  // NCCL neither adds in the fixed tree of the reproducible mode nor compresses: MPI sends these gradients.
  const bool fits_nccl = device.is_cuda() && !options.reproducible && options.compression == Compression::none;
  require_usage(fits_nccl || options.backend != Backend::nccl,
                "option run.backend = nccl: it needs --device cuda, and neither --reproducible nor "
                "dist.compress; use auto or mpi");
  const bool alone = device.is_cuda() && !options.reproducible && comm.size() == 1;
  const bool by_nccl = fits_nccl && !alone && options.backend != Backend::mpi &&
                       (options.backend == Backend::nccl || gpus_are_apart(comm, device));
  if (alone || by_nccl) {
    StepOptions chosen = options;
    if (by_nccl && std::string_view(comm.backend()) == "threads") {
      require_usage(
          options.graphs != Graphs::on,
          "option run.graphs = on: with dist.parallel = dp, graphs of several GPUs in one process may wait for "
          "one another forever (NCCL's guide); use auto, or ddp");
      chosen.graphs = Graphs::off;
    }
    auto reduce = alone ? nullptr : make_gpu_reduce(comm, device, options.timeout_s);
    return std::make_unique<GpuStep>(comm, model, chosen, std::move(reduce), update);
  }
  require_usage(
      options.graphs != Graphs::on,
      "option run.graphs = on: it needs --device cuda and gradients that do not go through the host; use auto");
  const std::string idle = device.is_cuda() ? "" : idle_threads(options, comm.size());
  if (!idle.empty() && comm.rank() == 0) log::warning(idle);
  return visit_float(model.params().dtype(), [&]<class T>() -> std::unique_ptr<ShardedStep> {
    return std::make_unique<CpuStep<T>>(comm, model, options);
  });
}

}  // namespace lockstep
