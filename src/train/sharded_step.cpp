#include "lockstep/train/sharded_step.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "train/grad_sync.hpp"
#include "train/sharded_step_impl.hpp"

namespace lockstep {

namespace {

template <class T>
class Engine final : public ShardedStep::Impl {
 public:
  Engine(Communicator& comm, Model& model, const StepOptions& options)
      : comm_(comm),
        model_(model),
        options_(on(model.params().device(), options)),
        parts_(static_cast<std::size_t>(options_.threads)),
        extras_(static_cast<std::size_t>(options_.threads)),
        sync_(comm, model.params(), options.bucket_bytes, options.compression, parts_, part_gradients_, extras_),
        errors_(static_cast<std::size_t>(options_.threads)) {
    buckets = sync_.buckets();
    gradient_bytes = sync_.message().size_bytes();
    for (int t = 0; t < options_.threads; ++t) {
      workers_.push_back(std::make_unique<Worker>(model.params()));
      parts_[static_cast<std::size_t>(t)] = workers_.back()->host_gradient();
      part_gradients_.push_back(&workers_.back()->gradients);
      gradient_bytes += workers_.back()->gradients.flat().size_bytes();
    }
    gradient = sync_.gradient();
    if (workers_[0]->on_gpu())
      gradient =
          (summed_ = OwnedTensor(dtype_of<T>::value, gradient.shape(), model.params().device(), MemoryUse::gradients))
              .view();
    if (options.reproducible) {
      require_usage(options.compression == Compression::none,
                    "option dist.compress: --reproducible adds gradients with all their digits; use none");
      require_usage(std::has_single_bit(static_cast<std::uint64_t>(options.shards)),
                    "option dist.shards = ", options.shards, ": must be a power of two with --reproducible");
      require_usage(options.shards >= comm.size(), "option dist.shards = ", options.shards,
                    ": must be at least the number of ranks, ", comm.size(), ", with --reproducible");
      mine_ = shards_of(options.shards, comm.rank(), comm.size());
      const std::int64_t length = sync_.gradient().size() + kExtras;
      for (std::int64_t i = 0; i < mine_.count(); ++i) {
        const Tensor row = rows_.emplace_back(dtype_of<T>::value, Shape{length}).view();
        local_.push_back(row.span<T>());
        constant_.push_back(row.span<T>());
        gradient_bytes += row.size_bytes();
      }
      shard_extras_.resize(static_cast<std::size_t>(mine_.count()));
    } else {
      const std::int64_t workers = std::int64_t{comm.size()} * options_.threads;
      most_per_thread_ = (options.shards + workers - 1) / workers;
    }
  }

  void start(const GlobalBatch& batch, unsigned flags) override {
    Stopwatch watch;
    failed_.store(false, std::memory_order_relaxed);
    model_.params().refresh(workers_[0]->stream);
    const StepExtras sum =
        options_.reproducible ? run_shards_apart(batch, flags, watch) : run_threads(batch, flags, watch);
    if (summed_.view()) copy(workers_[0]->stream, gradient, sync_.gradient());
    seconds.reduce = watch.restart();
    sums_ = {.loss = sum.loss, .weight = sum.weight, .flags = sum.flags};
  }
  StepSums finish() override { return sums_; }

  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const override {
    std::int64_t first, count;
    micro_range(batch, micro, first, count);
    if (!options_.reproducible) return part_of(batch, first, count, rank, comm_.size());
    const ShardRange shards = shards_of(options_.shards, rank, comm_.size());
    Shard part = part_of(batch, first, count, shards.begin, options_.shards);
    part.count = first + count * shards.end / options_.shards - part.first;
    return part;
  }

  std::string row_choice() const override { return sync_.row_choice(); }
  const char* backend() const override { return comm_.backend(); }
  std::size_t arena_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& worker : workers_) bytes += worker->arena.high_water_bytes();
    return bytes;
  }

 private:
  /// What one thread works with; apart, so that threads do not share cache lines.
  struct Worker {
    explicit Worker(const ParamStore& params)
        : stream(params.device()),
          arena(params.device()),
          gradients(params),
          staged(Buffer::pinned(on_gpu() ? gradients.flat().size_bytes() : 0)) {}
    bool on_gpu() const { return stream.device().is_cuda(); }
    T* host_gradient() const {
      return on_gpu() ? reinterpret_cast<T*>(staged.data()) : gradients.flat().template data<T>();
    }
    /// Brings the gradient to host_gradient().
    void stage() const {
      if (!on_gpu()) return;
      copy_bytes(stream, staged.data(), gradients.flat().raw(), staged.size_bytes());
      stream.synchronize();
    }
    Stream stream;
    Arena arena;
    Gradients gradients;
    Buffer staged;  ///< of a GPU's gradient, on its way to the other ranks
  };

  /// One thread is enough to keep a GPU busy, with shards as large as they come.
  static StepOptions on(Device device, StepOptions options) {
    if (device.is_cuda()) {
      options.threads = 1;
      if (!options.reproducible) options.shards = 1;
    }
    return options;
  }
  /// Forward and backward of one shard, adding to the worker's gradient. `tell` gets the shard's loss and weight: before
  /// the backward pass, or on a GPU after it, so that nothing waits in between.
  template <class Tell>
  void shard(Worker& worker, const Shard& shard, double loss_scale, const Tell& tell) {
    worker.arena.reset();
    Tape tape(worker.stream, worker.arena, model_.params().storage(), Tape::Mode::train, &worker.gradients);
    const ShardLoss loss = model_.loss(tape, shard);
    const auto value = [&] {
      return static_cast<double>(*on_host(worker.stream, worker.arena, loss.sum.value()).template data<T>());
    };
    if (!worker.on_gpu()) tell(tape, value(), loss.weight);
    tape.backward(loss.sum, loss_scale);
    if (worker.on_gpu()) tell(tape, value(), loss.weight);
  }

  /// Runs work(thread, threads) on all threads and then, when all have finished, after(thread, threads). What one of
  /// them throws is thrown here.
  template <class Work, class After>
  void on_threads(const Work& work, const After& after) {
#pragma omp parallel num_threads(options_.threads) if (options_.threads > 1)
    {
      const int thread = omp_get_thread_num();
      try {
        work(thread, omp_get_num_threads());
      } catch (...) {
        errors_[static_cast<std::size_t>(thread)] = std::current_exception();
        failed_.store(true, std::memory_order_relaxed);
      }
#pragma omp barrier
      if (!failed_.load(std::memory_order_relaxed)) after(thread, omp_get_num_threads());
    }
    if (!failed_.load(std::memory_order_relaxed)) return;
    for (std::exception_ptr& error : errors_) {
      if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }
  }

  /// Elements of n that one thread adds up: whole cache lines.
  static FlatRange slice(std::int64_t n, int thread, int threads) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t lines = (n + kLine - 1) / kLine;
    return {std::min(n, lines * thread / threads * kLine), std::min(n, lines * (thread + 1) / threads * kLine)};
  }

  /// Default mode: a buffer per thread.
  StepExtras run_threads(const GlobalBatch& batch, unsigned flags, Stopwatch& watch) {
    const bool overlap = comm_.size() > 1 && sync_.in_pieces();
    if (overlap) sync_.begin();
    const auto compute = [&](int thread, int threads) {
      Worker& worker = *workers_[static_cast<std::size_t>(thread)];
      worker.gradients.zero();
      StepExtras& mine = extras_[static_cast<std::size_t>(thread)];
      mine = {.flags = flags};
      const std::int64_t micros = micro_batches(batch);
      for (std::int64_t m = 0; m < micros; ++m) {
        std::int64_t first, count;
        micro_range(batch, m, first, count);
        const Shard own = part_of(batch, first, count, comm_.rank(), comm_.size());
        const Shard thread_part = part_of(batch, own.first, own.count, thread, threads);
        const std::int64_t pieces =
            std::clamp<std::int64_t>(thread_part.count / model_.least_shard(), 1, most_per_thread_);
        for (std::int64_t i = 0; i < pieces; ++i) {
          const Shard piece = part_of(batch, thread_part.first, thread_part.count, i, pieces);
          if (piece.count == 0) continue;
          // In the backward of its very last shard a thread finishes parameters one by one. (When that shard has no
          // samples, ready_all() finishes them together.)
          const bool last = overlap && m + 1 == micros && i + 1 == pieces;
          shard(worker, piece, batch.loss_scale, [&](Tape& tape, double loss, double weight) {
            mine.loss += loss;
            mine.weight += weight;
            if (!last) return;
            tape.on_param_ready([this, thread](const Param& p) { sync_.ready(thread, p); });
            if (sync_.embeddings_first()) tape.parameters_last();
          });
        }
      }
      worker.stage();
      if (overlap) sync_.ready_all(thread);
      if (overlap && thread == 0) sync_.drive(failed_);
    };
    const auto sum_slice = [&](int thread, int threads) {
      if (overlap) return;
      const auto [first, last] = slice(gradient.size(), thread, threads);
      sum_parts<T>(parts_, first, last, sync_.gradient().template data<T>());
    };
    on_threads(compute, sum_slice);
    seconds.compute = watch.restart();
    if (overlap) {
      sync_.finish();
    } else {
      StepExtras sum;
      for (const StepExtras& e : extras_) sum.loss += e.loss, sum.weight += e.weight, sum.flags |= e.flags;
      if (comm_.size() == 1) return sum;
      encode(sum, sync_.message().data());
      comm_.all_reduce(sync_.message(), ReduceOp::sum, "gradient");
    }
    return decode(static_cast<const T*>(sync_.message().data()));
  }

  /// Reproducible mode: a buffer per shard, one tree over all shards.
  StepExtras run_shards_apart(const GlobalBatch& batch, unsigned flags, Stopwatch& watch) {
    std::fill(shard_extras_.begin(), shard_extras_.end(), StepExtras{.flags = flags});
    const bool one_rank = comm_.size() == 1;
    const auto compute = [&](int thread, int threads) {
      Worker& worker = *workers_[static_cast<std::size_t>(thread)];
      const std::int64_t begin = mine_.count() * thread / threads, end = mine_.count() * (thread + 1) / threads;
      const std::int64_t micros = micro_batches(batch);
      for (std::int64_t i = begin; i < end; ++i) {
        StepExtras& extras = shard_extras_[static_cast<std::size_t>(i)];
        worker.gradients.zero();
        for (std::int64_t m = 0; m < micros; ++m) {
          std::int64_t first, count;
          micro_range(batch, m, first, count);
          const Shard piece = part_of(batch, first, count, mine_.begin + i, options_.shards);
          if (piece.count == 0) continue;
          shard(worker, piece, batch.loss_scale,
                [&](Tape&, double loss, double weight) { extras.loss += loss, extras.weight += weight; });
        }
        const std::span<T> row = local_[static_cast<std::size_t>(i)];
        encode(extras, row.data());
        worker.stage();
        std::copy_n(worker.host_gradient(), worker.gradients.flat().size(), row.begin() + kExtras);
      }
    };
    const auto sum_slice = [&](int thread, int threads) {
      if (!one_rank) return;
      const auto [first, last] = slice(static_cast<std::int64_t>(sync_.message().size()), thread, threads);
      tree_sum<T>(std::span<const std::span<const T>>(constant_), first, last, sync_.message());
    };
    on_threads(compute, sum_slice);
    seconds.compute = watch.restart();
    if (!one_rank) tree_all_reduce<T>(comm_, options_.shards, local_, sync_.message(), "gradient");
    return decode(static_cast<const T*>(sync_.message().data()));
  }

  Communicator& comm_;
  Model& model_;
  StepOptions options_;
  std::vector<const T*> parts_;             ///< per thread: its gradient
  std::vector<Gradients*> part_gradients_;  ///< per thread: the object of that gradient
  std::vector<StepExtras> extras_;          ///< per thread
  GradSync<T> sync_;
  std::vector<std::unique_ptr<Worker>> workers_;
  OwnedTensor summed_;  ///< a GPU's copy of the sum over all ranks
  StepSums sums_;       ///< of the last step
  std::vector<std::exception_ptr> errors_;
  std::atomic<bool> failed_{false};
  std::int64_t most_per_thread_ = 1;  ///< default mode: shards of a thread, unless they would be too small

  ShardRange mine_;  ///< reproducible mode
  std::vector<OwnedTensor> rows_;
  std::vector<std::span<T>> local_;
  std::vector<std::span<const T>> constant_;
  std::vector<StepExtras> shard_extras_;
};

}  // namespace

ShardedStep::ShardedStep(Communicator& comm, Model& model, const StepOptions& options) {
  require(options.threads >= 1 && options.shards >= 1, "a step needs at least one thread and one shard, not ",
          options.threads, " and ", options.shards);
  const Device device = model.params().device();
  // NCCL's order of additions is not the fixed tree of the reproducible mode, and it knows no compression: those go
  // through the host.
  const bool fits_nccl = device.is_cuda() && !options.reproducible && options.compression == Compression::none;
  require_usage(fits_nccl || options.backend != Backend::nccl,
                "option run.backend = nccl: it needs --device cuda, and neither --reproducible nor "
                "dist.compress; use auto or mpi");
  if (device.is_cuda() && !options.reproducible && comm.size() == 1) {
    impl_ = make_gpu_step(comm, model, options, nullptr);  // nothing to send
  } else if (fits_nccl && options.backend != Backend::mpi &&
             (options.backend == Backend::nccl || gpus_are_apart(comm, device))) {
    impl_ = make_gpu_step(comm, model, options, make_gpu_reduce(comm, device, options.timeout_s));
  } else {
    require_usage(
        options.graphs != Graphs::on,
        "option run.graphs = on: it needs --device cuda and gradients that do not go through the host; use auto");
    visit_float(model.params().dtype(), [&]<class T>() { impl_ = std::make_unique<Engine<T>>(comm, model, options); });
  }
}
ShardedStep::~ShardedStep() = default;

StepSums ShardedStep::run(const GlobalBatch& batch, unsigned flags) {
  start(batch, flags);
  return finish();
}
void ShardedStep::start(const GlobalBatch& batch, unsigned flags) { impl_->start(batch, flags); }
StepSums ShardedStep::finish() { return impl_->finish(); }
void ShardedStep::prepare(const GlobalBatch& next) { impl_->prepare(next); }
Shard ShardedStep::rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const {
  return impl_->rank_part(batch, micro, rank);
}
const Tensor& ShardedStep::gradient() const { return impl_->gradient; }
const StepSeconds& ShardedStep::seconds() const { return impl_->seconds; }
std::int64_t ShardedStep::buckets() const { return impl_->buckets; }
std::size_t ShardedStep::gradient_bytes() const { return impl_->gradient_bytes; }
std::string ShardedStep::row_choice() const { return impl_->row_choice(); }
const char* ShardedStep::backend() const { return impl_->backend(); }
std::size_t ShardedStep::arena_bytes() const { return impl_->arena_bytes(); }

}  // namespace lockstep
