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
#include "step/grad_sync.hpp"
#include "step/micro_batch.hpp"
#include "step/row_parts.hpp"

namespace lockstep {

/// The step whose gradient is summed in host memory: of the CPU, and of a GPU whose gradient travels by MPI.
///
/// T   type of the weights and the gradient
template <class T>
class CpuStep final : public ShardedStep {
 public:
  CpuStep(Communicator& comm, ShardModel& model, const StepOptions& options)
      : comm_(comm),
        model_(model),
        options_(on(model.params().device(), options)),
        mine_(shards_of_rank()),
        sum_(model.params(), options_.threads,
             options_.reproducible ? PartSum<T>::Order::tree : PartSum<T>::Order::chain),
        extras_(static_cast<std::size_t>(options_.threads)),
        sync_(comm, model.params(), options.bucket_bytes, options.compression, sum_, extras_),
        errors_(static_cast<std::size_t>(options_.threads)) {
    row_exchanges_ = sync_.row_exchanges();
    for (int t = 0; t < options_.threads; ++t) workers_.push_back(std::make_unique<Worker>(model.params()));
    const bool on_gpu = workers_[0]->on_gpu();
    // The gradient of one thread on one rank needs no sum, unless rows are packed.
    alone_ = options_.threads == 1 && comm.size() == 1 && !options.reproducible && !on_gpu &&
             sum_.nonzero().tables().empty();
    gradient_ = alone_ ? FlatGradient(sum_.part(0).flat()) : sum_.gradient();
    if (on_gpu) {
      summed_ = OwnedTensor(dtype_of<T>::value, gradient_.shape(), model.params().device(), MemoryUse::gradients);
      gradient_ = summed_;
    }
    if (options.reproducible) {
      shard_extras_.resize(mine_.count());
      encoded_.resize(mine_.count() * kExtras);
    } else {
      const std::int64_t workers = std::int64_t{comm.size()} * options_.threads;
      most_per_thread_ = (options.shards + workers - 1) / workers;
    }
  }

  StepSums run(const GlobalBatch& batch, unsigned flags) override {
    seconds_ = {};
    profile::Phase phase("compute", seconds_.compute);
    failed_.store(false, std::memory_order_relaxed);
    model_.params().refresh(workers_[0]->stream);
    const StepExtras sum =
        options_.reproducible ? run_per_shard(batch, flags, phase) : run_per_thread(batch, flags, phase);
    if (summed_.view()) copy(workers_[0]->stream, gradient_, sum_.gradient());
    phase.end();
    return {.loss = sum.loss, .weight = sum.weight, .flags = sum.flags};
  }

  bool stays_on_gpu() const override { return false; }
  void start(const GlobalBatch& /*batch*/, unsigned /*flags*/, const StepInput& /*input*/) override { not_on_gpu(); }
  std::optional<EndedStep> take(bool /*last*/) override { not_on_gpu(); }
  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const override {
    const Shard samples = micro_batch(batch, micro);
    if (!options_.reproducible) {
      RowParts rows;
      rows.count(model_, samples);
      return rows.part_of(samples, rank, comm_.size());
    }
    const ShardRange shards = shards_of(options_.shards, rank, comm_.size());
    return parts_of(samples, shards.begin, shards.end, options_.shards);
  }

  std::int64_t buckets() const override { return sync_.buckets(); }
  const char* backend() const override { return comm_.backend(); }

 private:
  [[noreturn]] static void not_on_gpu() { throw Error(Fault::internal, "the gradient of this step is on the host"); }

  /// The working memory of one thread, allocated separately so that threads do not share cache lines.
  struct Worker {
    explicit Worker(const ParamStore& params) : stream(params.device()), arena(params.device()) {
      if (!on_gpu()) return;
      gradients = Gradients(params);
      staged = Buffer::pinned(gradients.flat().size_bytes());
    }
    bool on_gpu() const { return stream.device().is_cuda(); }
    Stream stream;
    Arena arena;
    Gradients gradients;  ///< GPU only
    Buffer staged;        ///< GPU only: copy of `gradients` in host memory
  };

  /// The shards of this rank in the reproducible mode.
  ShardRange shards_of_rank() const {
    if (!options_.reproducible) return {};
    require_usage(options_.compression == Compression::none,
                  "option dist.compress: --reproducible sums gradients in full precision; use none");
    require_usage(std::has_single_bit(static_cast<std::uint64_t>(options_.shards)),
                  "option dist.shards = ", options_.shards, ": must be a power of two with --reproducible");
    require_usage(options_.shards >= comm_.size(), "option dist.shards = ", options_.shards,
                  ": must be at least the number of ranks, ", comm_.size(), ", with --reproducible");
    return shards_of(options_.shards, comm_.rank(), comm_.size());
  }
  /// The gradients, set to zero, to which a worker adds those of a part of the sum, which is zero.
  Gradients& begin_part(Worker& worker, Gradients& part) {
    if (!worker.on_gpu()) return part;
    worker.gradients.zero();
    return worker.gradients;
  }
  /// Copies the gradients of a part from the GPU.
  void end_part(Worker& worker, Gradients& part) {
    if (!worker.on_gpu()) return;
    copy_bytes(worker.stream, worker.staged.data(), worker.gradients.flat().raw(), worker.staged.size_bytes());
    worker.stream.synchronize();
    sum_.take(part, worker.gradients, reinterpret_cast<const T*>(worker.staged.data()));
  }

  /// Options for a device: one thread keeps a GPU busy, and large shards use it best.
  static StepOptions on(Device device, StepOptions options) {
    if (device.is_cuda()) {
      options.threads = 1;
      if (!options.reproducible) options.shards = 1;
    }
    return options;
  }
  /// Forward and backward pass of one shard, in chunks of samples whose activations stay in cache; adds to `to`. Calls
  /// add_loss(tape, loss, weight, last) for each chunk before its backward pass; `last`: for the last chunk. On a GPU a
  /// shard is one chunk, and add_loss() comes after the pass, because reading the loss waits for the GPU.
  template <class AddLoss>
  void shard(Worker& worker, Gradients& to, const Shard& shard, double loss_scale, const AddLoss& add_loss) {
    const profile::Span span("shard", profile::Kind::phase);
    const std::int64_t most = worker.on_gpu() ? 0 : model_.samples_in_cache();
    const std::int64_t chunks = most > 0 ? (shard.count + most - 1) / most : 1;
    for (std::int64_t i = 0; i < chunks; ++i)
      chunk(worker, to, part_of(shard, i, chunks), loss_scale, i + 1 == chunks, add_loss);
  }
  template <class AddLoss>
  void chunk(Worker& worker, Gradients& to, const Shard& shard, double loss_scale, bool last, const AddLoss& add_loss) {
    worker.arena.reset();
    profile::Span pass("forward", profile::Kind::phase);
    Tape tape(worker.stream, worker.arena, model_.params().storage(), Tape::Mode::train, &to);
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
        errors_[thread] = std::current_exception();
        failed_.store(true, std::memory_order_relaxed);
      }
      {
        const profile::Span waiting("wait for threads", profile::Kind::phase);
#pragma omp barrier
      }
      if (!failed_.load(std::memory_order_relaxed)) after(thread, omp_get_num_threads());
    }
    if (!failed_.load(std::memory_order_relaxed)) return;
    for (std::exception_ptr& error : errors_)
      if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  /// Default mode: one gradient buffer per thread.
  StepExtras run_per_thread(const GlobalBatch& batch, unsigned flags, profile::Phase& phase) {
    const bool overlap = comm_.size() > 1 && sync_.in_buckets();
    if (overlap) sync_.begin();
    const std::int64_t micros = micro_batches(batch);
    parts_.clear();
    for (std::int64_t m = 0; m < micros; ++m) {
      const Shard samples = micro_batch(batch, m);
      rows_.count(model_, samples);
      const Shard of_rank = rows_.part_of(samples, comm_.rank(), comm_.size());
      for (int thread = 0; thread < options_.threads; ++thread)
        parts_.push_back(rows_.part_of(of_rank, thread, options_.threads));
    }
    const auto compute = [&](int thread, int threads) {
      Worker& worker = *workers_[thread];
      const ops::PackedWeights packed;
      Gradients& part = sum_.part(thread);
      part.zero();
      Gradients& gradients = begin_part(worker, part);
      StepExtras& mine = extras_[thread];
      mine = {.flags = flags};
      for (std::int64_t m = 0; m < micros; ++m) {
        const Shard& of_thread = parts_[m * threads + thread];
        const std::int64_t shards =
            std::clamp<std::int64_t>(of_thread.count / model_.least_shard(), 1, most_per_thread_);
        for (std::int64_t i = 0; i < shards; ++i) {
          const Shard samples = part_of(of_thread, i, shards);
          if (samples.count == 0) continue;
          // The backward pass of a thread's last shard completes its parameters one by one. If that shard has no
          // samples, ready_all() completes them together.
          const bool last_shard = overlap && m + 1 == micros && i + 1 == shards;
          shard(worker, gradients, samples, batch.loss_scale,
                [&](Tape& tape, double loss, double weight, bool last_chunk) {
                  mine.loss += loss;
                  mine.weight += weight;
                  if (!last_shard || !last_chunk) return;
                  tape.on_param_ready([this, thread](const Param& p) { sync_.ready(thread, p); });
                  if (sync_.embeddings_first()) tape.parameters_last();
                });
        }
      }
      end_part(worker, part);
      if (overlap) sync_.ready_all(thread);
      if (overlap && thread == 0) sync_.drive(failed_);
    };
    const auto sum_slice = [&](int thread, int threads) {
      if (overlap || alone_) return;
      const profile::Span span("sum over threads", profile::Kind::phase);
      sum_.add(whole(), thread, threads);
    };
    on_threads(compute, sum_slice);
    phase.next("reduce", seconds_.reduce);
    if (overlap) {
      sync_.finish();
    } else {
      StepExtras sum;
      for (const StepExtras& e : extras_) sum += e;
      if (comm_.size() == 1) return sum;
      encode(sum, sum_.message().data());
      comm_.all_reduce(sum_.message(), ReduceOp::sum, "gradient");
      sum_.nonzero().add_all(whole());
    }
    return decode(static_cast<const T*>(sum_.message().data()));
  }

  /// The reproducible mode's shards of each thread: about equal numbers of rows if samples differ in rows, otherwise of
  /// shards.
  void divide_shards(const GlobalBatch& batch) {
    const Shard samples = micro_batch(batch, 0), of_rank = parts_of(samples, mine_.begin, mine_.end, options_.shards);
    if (options_.threads > 1) rows_.count(model_, samples);
    const auto before = [&](int thread) {
      if (!rows_.vary() || thread == 0 || thread == options_.threads)
        return mine_.begin + mine_.count() * thread / options_.threads;
      const std::int64_t sample = rows_.part_of(of_rank, thread, options_.threads).first - samples.first;
      return std::clamp((2 * sample * options_.shards + samples.count) / (2 * samples.count), mine_.begin, mine_.end);
    };
    of_threads_.clear();
    for (int thread = 0; thread < options_.threads; ++thread)
      of_threads_.push_back({before(thread), before(thread + 1)});
    sum_.begin(of_threads_);
  }

  /// Reproducible mode: the gradients of the shards, summed in one tree over all shards.
  StepExtras run_per_shard(const GlobalBatch& batch, unsigned flags, profile::Phase& phase) {
    std::fill(shard_extras_.begin(), shard_extras_.end(), StepExtras{.flags = flags});
    const bool one_rank = comm_.size() == 1;
    divide_shards(batch);
    const auto compute = [&](int thread, int) {
      Worker& worker = *workers_[thread];
      const ops::PackedWeights packed;
      const ShardRange shards = of_threads_[thread];
      const std::int64_t micros = micro_batches(batch);
      for (std::int64_t i = shards.begin; i < shards.end; ++i) {
        StepExtras& extras = shard_extras_[i - mine_.begin];
        Gradients& part = sum_.begin_shard(thread, i);
        Gradients& gradients = begin_part(worker, part);
        for (std::int64_t m = 0; m < micros; ++m) {
          const Shard samples = part_of(micro_batch(batch, m), i, options_.shards);
          if (samples.count == 0) continue;
          shard(worker, gradients, samples, batch.loss_scale,
                [&](Tape&, double loss, double weight, bool) { extras += {.loss = loss, .weight = weight}; });
        }
        encode(extras, encoded_.data() + (i - mine_.begin) * kExtras);
        end_part(worker, part);
        sum_.end_shard(thread);
      }
    };
    const auto sum_slice = [&](int thread, int threads) {
      if (!one_rank) return;
      const profile::Span span("sum over threads", profile::Kind::phase);
      sum_.add(whole(), thread, threads);
    };
    on_threads(compute, sum_slice);
    phase.next("reduce", seconds_.reduce);
    if (one_rank)
      sum_.add_extras(encoded_);
    else
      sum_.all_reduce(comm_, options_.shards, encoded_);
    return decode(static_cast<const T*>(sum_.message().data()));
  }

  FlatRange whole() const { return {0, gradient_.size()}; }

  Communicator& comm_;
  ShardModel& model_;
  StepOptions options_;
  ShardRange mine_;                 ///< reproducible mode: the shards of this rank
  PartSum<T> sum_;                  ///< over the threads; in the reproducible mode, over their shards
  std::vector<StepExtras> extras_;  ///< per thread
  GradSync<T> sync_;
  std::vector<std::unique_ptr<Worker>> workers_;
  OwnedTensor summed_;  ///< device copy of the sum over all ranks; empty on the CPU
  std::vector<std::exception_ptr> errors_;
  std::atomic<bool> failed_{false};
  bool alone_ = false;                ///< the gradient is that of the only thread
  std::int64_t most_per_thread_ = 1;  ///< default mode: largest number of shards of a thread
  RowParts rows_;
  std::vector<Shard> parts_;  ///< default mode: the samples of each thread, one micro-batch after another

  std::vector<ShardRange> of_threads_;    ///< reproducible mode
  std::vector<StepExtras> shard_extras_;  ///< reproducible mode
  std::vector<T> encoded_;                ///< (shards of this rank, kExtras)
};

}  // namespace lockstep
