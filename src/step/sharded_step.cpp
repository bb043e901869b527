#include "lockstep/step/sharded_step.hpp"

#include <algorithm>
#include <bit>
#include <string_view>
#include <variant>

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

struct ShardedStep::Impl {
  std::variant<std::unique_ptr<CpuStep<float>>, std::unique_ptr<CpuStep<double>>, std::unique_ptr<GpuStep>> step;
};

ShardedStep::ShardedStep(Communicator& comm, ShardModel& model, const StepOptions& options, const GpuUpdate* update)
    : impl_(std::make_unique<Impl>()) {
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
    impl_->step = std::make_unique<GpuStep>(comm, model, chosen, std::move(reduce), update);
    return;
  }
  require_usage(
      options.graphs != Graphs::on,
      "option run.graphs = on: it needs --device cuda and gradients that do not go through the host; use auto");
  const std::string idle = device.is_cuda() ? "" : idle_threads(options, comm.size());
  if (!idle.empty() && comm.rank() == 0) log::warning(idle);
  visit_float(model.params().dtype(),
              [&]<class T>() { impl_->step = std::make_unique<CpuStep<T>>(comm, model, options); });
}
ShardedStep::~ShardedStep() = default;

StepSums ShardedStep::run(const GlobalBatch& batch, unsigned flags) {
  return std::visit([&](auto& step) { return step->run(batch, flags); }, impl_->step);
}
bool ShardedStep::stays_on_gpu() const { return std::holds_alternative<std::unique_ptr<GpuStep>>(impl_->step); }
void ShardedStep::start(const GlobalBatch& batch, unsigned flags, const StepInput& input) {
  std::get<std::unique_ptr<GpuStep>>(impl_->step)->start(batch, flags, input);
}
std::optional<EndedStep> ShardedStep::take(bool last) {
  return std::get<std::unique_ptr<GpuStep>>(impl_->step)->take(last);
}
Shard ShardedStep::rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const {
  return std::visit([&](auto& step) { return step->rank_part(batch, micro, rank); }, impl_->step);
}
const FlatGradient& ShardedStep::gradient() const {
  return std::visit([](auto& step) -> const FlatGradient& { return step->gradient; }, impl_->step);
}
const StepSeconds& ShardedStep::seconds() const {
  return std::visit([](auto& step) -> const StepSeconds& { return step->seconds; }, impl_->step);
}
std::int64_t ShardedStep::buckets() const {
  return std::visit([](auto& step) { return step->buckets; }, impl_->step);
}
std::string ShardedStep::row_choice() const {
  return std::visit([](auto& step) { return step->row_choice(); }, impl_->step);
}
std::string ShardedStep::row_decisions() const {
  return std::visit([](auto& step) { return step->row_decisions(); }, impl_->step);
}
void ShardedStep::take_row_decisions(const std::string& decisions) {
  std::visit([&](auto& step) { step->take_row_decisions(decisions); }, impl_->step);
}
const char* ShardedStep::backend() const {
  return std::visit([](auto& step) { return step->backend(); }, impl_->step);
}

}  // namespace lockstep
