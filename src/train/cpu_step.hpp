#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/ops/gemm.hpp"
#include "train/grad_sync.hpp"
#include "train/micro_batch.hpp"

namespace lockstep {

/// The step whose gradient is summed in host memory: of the CPU, and of a GPU whose gradient travels by MPI.
///
/// T   type of the weights and the gradient
template <class T>
class CpuStep {
 public:
  CpuStep(Communicator& comm, ShardTask& model, const StepOptions& options)
      : comm_(comm),
        model_(model),
        options_(on(model.params().device(), options)),
        parts_(static_cast<std::size_t>(options_.threads)),
        extras_(static_cast<std::size_t>(options_.threads)),
        sync_(comm, model.params(), options.bucket_bytes, options.compression, parts_, part_gradients_, extras_),
        errors_(static_cast<std::size_t>(options_.threads)) {
    buckets = sync_.buckets();
    for (int t = 0; t < options_.threads; ++t) {
      workers_.push_back(std::make_unique<Worker>(model.params()));
      parts_[static_cast<std::size_t>(t)] = workers_.back()->host_gradient();
      part_gradients_.push_back(&workers_.back()->gradients);
    }
    // The gradient of one thread on one rank needs no sum. Row-sparse parameters need one: a penalty writes to rows of
    // the gradient that Gradients::zero() does not clear.
    const auto& all = model.params().all();
    alone_ = options_.threads == 1 && comm.size() == 1 && !options.reproducible && !workers_[0]->on_gpu() &&
             std::none_of(all.begin(), all.end(), [](const Param& p) { return p.row_sparse; });
    gradient = alone_ ? workers_[0]->gradients.flat() : sync_.gradient();
    if (workers_[0]->on_gpu()) {
      summed_ = OwnedTensor(dtype_of<T>::value, gradient.shape(), model.params().device(), MemoryUse::gradients);
      gradient = summed_.view();
    }
    if (options.reproducible) {
      require_usage(options.compression == Compression::none,
                    "option dist.compress: --reproducible sums gradients in full precision; use none");
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
      }
      shard_extras_.resize(static_cast<std::size_t>(mine_.count()));
    } else {
      const std::int64_t workers = std::int64_t{comm.size()} * options_.threads;
      most_per_thread_ = (options.shards + workers - 1) / workers;
    }
  }

  StepSums run(const GlobalBatch& batch, unsigned flags) {
    seconds = {};
    profile::Phase phase("compute", seconds.compute);
    failed_.store(false, std::memory_order_relaxed);
    model_.params().refresh(workers_[0]->stream);
    const StepExtras sum =
        options_.reproducible ? run_per_shard(batch, flags, phase) : run_per_thread(batch, flags, phase);
    if (summed_.view()) copy(workers_[0]->stream, gradient, sync_.gradient());
    phase.end();
    return {.loss = sum.loss, .weight = sum.weight, .flags = sum.flags};
  }

  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const {
    const Shard samples = micro_batch(batch, micro);
    if (!options_.reproducible) return part_of(samples, rank, comm_.size());
    const ShardRange shards = shards_of(options_.shards, rank, comm_.size());
    return parts_of(samples, shards.begin, shards.end, options_.shards);
  }

  std::string row_choice() const { return sync_.row_choice(); }
  std::string row_decisions() const { return sync_.row_decisions(); }
  void take_row_decisions(const std::string& decisions) { sync_.take_row_decisions(decisions); }
  const char* backend() const { return comm_.backend(); }

  Tensor gradient;
  StepSeconds seconds;
  std::int64_t buckets = 1;

 private:
  /// The working memory of one thread, allocated separately so that threads do not share cache lines.
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
    /// Copies the gradient to host_gradient().
    void stage() const {
      if (!on_gpu()) return;
      copy_bytes(stream, staged.data(), gradients.flat().raw(), staged.size_bytes());
      stream.synchronize();
    }
    Stream stream;
    Arena arena;
    Gradients gradients;
    Buffer staged;  ///< host copy of a GPU's gradient
  };

  /// One thread keeps a GPU busy, and large shards use it best.
  static StepOptions on(Device device, StepOptions options) {
    if (device.is_cuda()) {
      options.threads = 1;
      if (!options.reproducible) options.shards = 1;
    }
    return options;
  }
  /// Forward and backward pass of one shard, in chunks of samples whose activations stay in cache; adds to the worker's
  /// gradient. Calls add_loss(tape, loss, weight, last) for each chunk before its backward pass; `last`: for the last
  /// chunk. On a GPU a shard is one chunk, and add_loss() comes after the pass, because reading the loss waits for the
  /// GPU.
  template <class AddLoss>
  void shard(Worker& worker, const Shard& shard, double loss_scale, const AddLoss& add_loss) {
    const profile::Span span("shard", profile::Kind::phase);
    const std::int64_t most = worker.on_gpu() ? 0 : model_.samples_in_cache();
    const std::int64_t chunks = most > 0 ? (shard.count + most - 1) / most : 1;
    for (std::int64_t i = 0; i < chunks; ++i)
      chunk(worker, part_of(shard, i, chunks), loss_scale, i + 1 == chunks, add_loss);
  }
  template <class AddLoss>
  void chunk(Worker& worker, const Shard& shard, double loss_scale, bool last, const AddLoss& add_loss) {
    worker.arena.reset();
    profile::Span pass("forward", profile::Kind::phase);
    Tape tape(worker.stream, worker.arena, model_.params().storage(), Tape::Mode::train, &worker.gradients);
    const ShardLoss loss = model_.loss(tape, shard);
    const auto value = [&] {
      return static_cast<double>(*on_host(worker.stream, worker.arena, loss.sum.value()).template data<T>());
    };
    if (!worker.on_gpu()) add_loss(tape, value(), loss.weight, last);
    pass.end();
    const profile::Span back("backward", profile::Kind::phase);
    tape.backward(loss.sum, loss_scale);
    if (worker.on_gpu()) add_loss(tape, value(), loss.weight, last);
  }

  /// Runs work(thread, threads) on all threads, then after(thread, threads) once all have finished. Rethrows the first
  /// exception of a thread.
  template <class Work, class After>
  void on_threads(const Work& work, const After& after) {
#pragma omp parallel num_threads(options_.threads) if (options_.threads > 1)
    {
      const int thread = omp_get_thread_num();
      try {
        require(omp_get_num_threads() == options_.threads, "a step of ", options_.threads, " threads: OpenMP starts ",
                omp_get_num_threads(), "; use --threads ", omp_get_num_threads());
        work(thread, omp_get_num_threads());
      } catch (...) {
        errors_[static_cast<std::size_t>(thread)] = std::current_exception();
        failed_.store(true, std::memory_order_relaxed);
      }
      {
        const profile::Span waiting("wait for threads", profile::Kind::phase);
#pragma omp barrier
      }
      if (!failed_.load(std::memory_order_relaxed)) after(thread, omp_get_num_threads());
    }
    if (!failed_.load(std::memory_order_relaxed)) return;
    for (std::exception_ptr& error : errors_) {
      if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }
  }

  /// The range of n elements that one thread sums: whole cache lines.
  static FlatRange slice(std::int64_t n, int thread, int threads) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t lines = (n + kLine - 1) / kLine;
    return {std::min(n, lines * thread / threads * kLine), std::min(n, lines * (thread + 1) / threads * kLine)};
  }

  /// Default mode: one gradient buffer per thread.
  StepExtras run_per_thread(const GlobalBatch& batch, unsigned flags, profile::Phase& phase) {
    const bool overlap = comm_.size() > 1 && sync_.in_buckets();
    if (overlap) sync_.begin();
    const auto compute = [&](int thread, int threads) {
      Worker& worker = *workers_[static_cast<std::size_t>(thread)];
      const ops::PackedWeights packed;
      worker.gradients.zero();
      StepExtras& mine = extras_[static_cast<std::size_t>(thread)];
      mine = {.flags = flags};
      const std::int64_t micros = micro_batches(batch);
      for (std::int64_t m = 0; m < micros; ++m) {
        const Shard of_thread = part_of(rank_part(batch, m, comm_.rank()), thread, threads);
        const std::int64_t shards =
            std::clamp<std::int64_t>(of_thread.count / model_.least_shard(), 1, most_per_thread_);
        for (std::int64_t i = 0; i < shards; ++i) {
          const Shard samples = part_of(of_thread, i, shards);
          if (samples.count == 0) continue;
          // The backward pass of a thread's last shard completes its parameters one by one. If that shard has no
          // samples, ready_all() completes them together.
          const bool last_shard = overlap && m + 1 == micros && i + 1 == shards;
          shard(worker, samples, batch.loss_scale, [&](Tape& tape, double loss, double weight, bool last_chunk) {
            mine.loss += loss;
            mine.weight += weight;
            if (!last_shard || !last_chunk) return;
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
      if (overlap || alone_) return;
      const profile::Span span("sum over threads", profile::Kind::phase);
      const auto [first, last] = slice(gradient.size(), thread, threads);
      sum_parts<T>(parts_, first, last, sync_.gradient().template data<T>());
    };
    on_threads(compute, sum_slice);
    phase.next("reduce", seconds.reduce);
    if (overlap) {
      sync_.finish();
    } else {
      StepExtras sum;
      for (const StepExtras& e : extras_) sum += e;
      if (comm_.size() == 1) return sum;
      encode(sum, sync_.message().data());
      comm_.all_reduce(sync_.message(), ReduceOp::sum, "gradient");
    }
    return decode(static_cast<const T*>(sync_.message().data()));
  }

  /// Reproducible mode: one gradient buffer per shard, summed in one tree over all shards.
  StepExtras run_per_shard(const GlobalBatch& batch, unsigned flags, profile::Phase& phase) {
    std::fill(shard_extras_.begin(), shard_extras_.end(), StepExtras{.flags = flags});
    const bool one_rank = comm_.size() == 1;
    const auto compute = [&](int thread, int threads) {
      Worker& worker = *workers_[static_cast<std::size_t>(thread)];
      const ops::PackedWeights packed;
      const std::int64_t begin = mine_.count() * thread / threads, end = mine_.count() * (thread + 1) / threads;
      const std::int64_t micros = micro_batches(batch);
      for (std::int64_t i = begin; i < end; ++i) {
        StepExtras& extras = shard_extras_[static_cast<std::size_t>(i)];
        worker.gradients.zero();
        for (std::int64_t m = 0; m < micros; ++m) {
          const Shard samples = part_of(micro_batch(batch, m), mine_.begin + i, options_.shards);
          if (samples.count == 0) continue;
          shard(worker, samples, batch.loss_scale,
                [&](Tape&, double loss, double weight, bool) { extras += {.loss = loss, .weight = weight}; });
        }
        const std::span<T> row = local_[static_cast<std::size_t>(i)];
        encode(extras, row.data());
        worker.stage();
        std::copy_n(worker.host_gradient(), worker.gradients.flat().size(), row.begin() + kExtras);
      }
    };
    const auto sum_slice = [&](int thread, int threads) {
      if (!one_rank) return;
      const profile::Span span("sum over threads", profile::Kind::phase);
      const auto [first, last] = slice(static_cast<std::int64_t>(sync_.message().size()), thread, threads);
      tree_sum<T>(std::span<const std::span<const T>>(constant_), first, last, sync_.message());
    };
    on_threads(compute, sum_slice);
    phase.next("reduce", seconds.reduce);
    if (!one_rank) tree_all_reduce<T>(comm_, options_.shards, local_, sync_.message(), "gradient");
    return decode(static_cast<const T*>(sync_.message().data()));
  }

  Communicator& comm_;
  ShardTask& model_;
  StepOptions options_;
  std::vector<const T*> parts_;             ///< per thread: its flat gradient in host memory
  std::vector<Gradients*> part_gradients_;  ///< per thread: the owner of that gradient
  std::vector<StepExtras> extras_;          ///< per thread
  GradSync<T> sync_;
  std::vector<std::unique_ptr<Worker>> workers_;
  OwnedTensor summed_;  ///< device copy of the sum over all ranks; empty on the CPU
  std::vector<std::exception_ptr> errors_;
  std::atomic<bool> failed_{false};
  bool alone_ = false;                ///< the gradient is that of the only thread
  std::int64_t most_per_thread_ = 1;  ///< default mode: largest number of shards of a thread

  ShardRange mine_;  ///< reproducible mode: the shards of this rank
  std::vector<OwnedTensor> rows_;
  std::vector<std::span<T>> local_;
  std::vector<std::span<const T>> constant_;
  std::vector<StepExtras> shard_extras_;
};

}  // namespace lockstep
