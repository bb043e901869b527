#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/device/event.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "lockstep/ops/product_choices.hpp"
#include "lockstep/optim/dense_step.hpp"
#include "lockstep/optim/gpu_update.hpp"
#include "lockstep/step/graph_replay.hpp"
#include "step/gpu_row_exchange.hpp"
#include "step/grad_sync.hpp"
#include "step/micro_batch.hpp"
#include "step/token_capacity.hpp"

namespace lockstep {

/// The step whose gradient stays on the GPU: one rank, or several with NCCL.
///
/// The rank's part of a micro-batch is one shard. The host draws the samples of a step, writes its GpuStepRecord,
/// enqueues all work including the update, and goes on; it reads the outcome while the GPU works on the next step.
/// Host-written buffers are double-buffered (Half), so the host is at most one step ahead. A bucket of the gradient is
/// reduced in place as soon as the last operation that adds to it is enqueued, so messages overlap the backward pass.
///
/// The step of a dense network is one kernel if the network fits (DenseStep); with several ranks, two kernels and one
/// collective.
///
/// If the model draws its samples apart from its loss, steps are repeated as graphs (GraphReplay).
class GpuStep final : public ShardedStep {
 public:
  GpuStep(Communicator& comm, ShardModel& model, const StepOptions& options, std::unique_ptr<GpuReduce> reduce,
          const GpuUpdate* update)
      : comm_(comm),
        model_(model),
        graphs_on_(options.graphs == Graphs::on),
        ahead_(!reduce || std::string_view(comm.backend()) != "threads"),
        stream_(model.params().device()),
        arena_(stream_.device()),
        gradients_(model.params()),
        element_(gradients_.flat().dtype() == DType::f64 ? GpuElement::f64 : GpuElement::f32),
        ranges_(plan_buckets(model.params(), options.gpu_bucket_bytes)),
        bucket_of_(model.params().all().size()),
        params_in_(ranges_.size(), 0),
        only_sums_(model.params(), nullptr, {}, {}),
        update_(update != nullptr ? *update : only_sums_),
        rows_(comm, model.params(), ranges_, gradients_, options.gpu_row_bytes),
        halves_{Half(stream_.device()), Half(stream_.device())},
        reduce_(std::move(reduce)),
        graphs_(stream_, {.graphs = options.graphs, .wait = [this] { wait_for_all(); }, .agree = agreement()}) {
    for (const Param& p : model.params().all()) {
      std::size_t bucket = 0;
      while (p.offset < ranges_[bucket].begin || p.offset >= ranges_[bucket].end) ++bucket;
      bucket_of_[p.index] = bucket;
      if (p.trainable) ++params_in_[bucket];
    }
    for (std::size_t b = 0; b < ranges_.size(); ++b) names_.push_back(join("gradient bucket ", b));
    choose_kernels();
    row_exchanges_ = rows_.row_exchanges();
    gradient_ = gradients_.flat();
    reserve(1);
  }

  ~GpuStep() override {
    // After an error, collectives may never end: memory may be freed only after NCCL has aborted them, and NCCL may
    // abort only after graphs that contain collectives are destroyed.
    graphs_.destroy();
    try {
      if (!reduce_) wait_for_all();
    } catch (const Error&) {  // of a step whose outcome was not taken
    }
  }

  bool stays_on_gpu() const override { return true; }
  void start(const GlobalBatch& batch, unsigned flags, const StepInput& input) override {
    Half& half = halves_[current_ = 1 - current_];
    assert(!half.open);
    const Half& other = halves_[1 - current_];
    reserve(micro_batches(batch));
    if (!compact_) compact();
    const std::size_t most = half.draws.get().high_water_bytes();
    Work work = draw(batch, half);
    if (const std::size_t now = half.draws.get().high_water_bytes();
        now > most || work.staged_bytes > staged_.size_bytes()) {
      enlarge(now, work.staged_bytes);
      work = draw(batch, half);
    }
    gradient_ = by_one_kernel(work) ? dense_->sums().slice(0, gradients_.flat().size()) : gradients_.flat();
    work.average = input.average;
    auto* record =
        new (half.record) GpuStepRecord{.step = static_cast<std::uint64_t>(batch.step), .samples = batch.count};
    update_.describe(*record, input.lr, input.loss_scale, other.open ? 1 : 0);
    std::memset(half.report(), 0, RankReport::size_bytes(micros_));
    new (half.report()) RankReport{.weight = work.weight, .flags = static_cast<double>(flags)};
    launch(work, half);
    half.end.record(stream_);
    half.open = batch.step;
  }

  std::optional<EndedStep> take(bool last) override {
    Half& now = halves_[current_];
    Half& before = halves_[1 - current_];
    if (!before.open && !last && ahead_) return {};
    if (last) graphs_.memory_may_have_moved();
    Half& half = before.open ? before : now;
    if (!half.open) return {};
    wait_for(half);
    EndedStep ended{.step = *std::exchange(half.open, {}), .outcome = {}};
    std::memcpy(&ended.outcome, half.outcome.data(), sizeof ended.outcome);
    update_.count(ended.outcome);
    return ended;
  }

  StepSums run(const GlobalBatch& batch, unsigned flags) override {
    const Stopwatch watch;
    start(batch, flags, {});
    const GpuOutcome outcome = take(true)->outcome;
    seconds_.compute = watch.seconds();
    return {.loss = outcome.loss, .weight = outcome.weight, .flags = static_cast<unsigned>(outcome.flags)};
  }

  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const override {
    return part_of(micro_batch(batch, micro), rank, comm_.size());
  }
  std::int64_t buckets() const override { return std::ssize(ranges_); }
  const char* backend() const override { return reduce_ ? "nccl" : comm_.backend(); }

 private:
  /// Memory that the host writes and the GPU reads in one step. The previous and next steps use the other half.
  struct Half {
    explicit Half(Device device) : draws(device), end(device) {}
    Buffer outcome = Buffer::pinned(sizeof(GpuOutcome));
    PinnedArena draws;                 ///< GpuStepRecord and RankReport, and the samples
    std::byte* record = nullptr;       ///< start of the memory of `draws`
    Event end;                         ///< end of its last step
    std::optional<std::int64_t> open;  ///< the step, until the host takes its outcome
    std::byte* report() const { return record + sizeof(GpuStepRecord); }
  };

  /// A step with its samples.
  struct Work {
    GlobalBatch batch;
    std::vector<Shard> parts;            ///< of this rank, per micro-batch
    const ops::RowDraw* rows = nullptr;  ///< DrawnShard::rows of the last part
    double weight = 0;                   ///< sum over the parts if ShardModel::draws(); else loss() sets it
    std::size_t staged_bytes = 0;        ///< size of the record, plus the samples if kernels read a copy
    GraphReplay::Key key;
    Ema* average = nullptr;
  };

  /// Decides whether steps are one kernel, the same on all ranks.
  void choose_kernels() {
    std::string why;
    std::optional<DenseNetwork> network = model_.dense_network();
    const bool dense = network.has_value();
    if (dense)
      dense_ =
          DenseStep::make(*std::move(network), model_.params(), update_, comm_.rank(), reduce_ ? comm_.size() : 1, why);
    if (reduce_ && !comm_.agree(dense_ != nullptr, "kernels")) {
      if (dense_) why = "another rank cannot";
      dense_.reset();
    }
    if (dense_)
      log::info("the GPU takes each step as ", reduce_ ? "two kernels" : "one kernel");
    else if (dense)
      log::info("the GPU takes each step as separate kernels: one kernel cannot train this network: ", why);
  }
  /// Steps of several micro-batches use separate kernels.
  bool by_one_kernel(const Work& work) const { return dense_ && work.parts.size() == 1; }

  /// Makes the buffers of records large enough for `micros` micro-batches.
  void reserve(std::int64_t micros) {
    if (micros <= micros_) return;
    graphs_.memory_moved();
    micros_ = micros;
    if (reduce_)
      all_reports_ = Buffer(stream_.device(), RankReport::size_bytes(micros) * static_cast<std::size_t>(comm_.size()));
  }

  void wait_for(const Half& half) {
    const profile::Span span("wait for the GPU", profile::Kind::phase);
    if (reduce_)
      reduce_->wait(half.end, *half.open);
    else
      half.end.wait();
  }
  void wait_for_all() {
    for (const std::size_t half : {1 - current_, current_})
      if (halves_[half].open) wait_for(halves_[half]);
  }

  /// Enlarges the memory of the samples to one block of this size in each half.
  void enlarge(std::size_t size_bytes, std::size_t staged_bytes) {
    graphs_.memory_moved();
    for (Half& half : halves_) half.draws = PinnedArena(stream_.device(), size_bytes);
    if (staged_bytes > staged_.size_bytes()) staged_ = Buffer(stream_.device(), staged_bytes);
  }

  /// Merges the arena's blocks into one. Then its reset() allocates nothing; an allocation could wait for a GPU that
  /// waits for other ranks.
  void compact() {
    graphs_.memory_moved();
    host_bytes_ = 0;
    for (int half = 0; half < 2; ++half) {  // the pinned memory is double-buffered
      arena_.reset();
      host_bytes_ = std::max(host_bytes_, arena_.host().high_water_bytes());
    }
    device_bytes_ = arena_.high_water_bytes();
    compact_ = true;
  }

  Work draw(const GlobalBatch& batch, Half& half) {
    const profile::Span span("draw the next samples", profile::Kind::phase);
    Arena& host = half.draws.get();
    host.reset();
    const std::size_t head = sizeof(GpuStepRecord) + RankReport::size_bytes(micros_);
    half.record = static_cast<std::byte*>(host.allocate(head));
    Work work{.batch = batch, .parts = {}, .key = {}};
    std::int64_t most = 0;  // rows of the largest part of any rank
    for (std::int64_t m = 0; m < micro_batches(batch); ++m)
      for (int rank = 0; rank < comm_.size(); ++rank) {
        Shard part = rank_part(batch, m, rank);
        if (model_.draws()) part.counts = model_.count_rows(part, {});
        most = std::max(most, part.counts.rows);
        if (rank == comm_.rank()) work.parts.push_back(part);
      }
    // Without the whole batch, two batches could have equal keys on a rank that has few samples, but not on others.
    work.key = {batch.count, batch.micro, token_capacity(most)};
    bool staged = false;
    for (Shard& part : work.parts) {
      // With a row exchange the host must know the rows that it sends: no graphs, and samples drawn by the host.
      part.step_on_gpu = rows_.on() ? nullptr : &record()->step;
      part.token_capacity = token_capacity(most);
      work.key.push_back(part.count);
      if (part.count > 0 && model_.draws()) {
        const DrawnShard& drawn = model_.draw(host, part);
        part.drawn = &drawn;
        work.rows = drawn.rows;
        staged = staged || drawn.staged;
        work.weight += drawn.weight;
        work.key.insert(work.key.end(), drawn.shape.begin(), drawn.shape.end());
      }
    }
    work.staged_bytes = staged ? host.mark().used_before + host.mark().used_in_block : head;
    return work;
  }

  /// Whether all ranks say so, if they agree on their graphs.
  std::function<bool(bool)> agreement() {
    if (!reduce_) return {};
    return [this](bool mine) { return comm_.agree(mine, "graphs"); };
  }

  /// Enqueues the step: as a graph, or call by call.
  void launch(Work& work, Half& half) {
    require_usage(model_.draws() || !graphs_on_,
                  "option run.graphs = on: steps of this model differ in shape and cannot be "
                  "repeated as graphs; use auto");
    if (!model_.draws()) return call_by_call(work, half, false);
    work.key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(work.average)));
    work.key.push_back(std::bit_cast<std::int64_t>(work.batch.loss_scale));
    graphs_.run(current_, work.key,
                {.call_by_call = [&](bool known) { call_by_call(work, half, known); },
                 .enqueue =
                     [&](Arena* host) {
                       arena_.rewind({});
                       enqueue(work, half, host);
                     },
                 .host_bytes = std::max<std::size_t>(host_bytes_, 1),  // a capture that needs more fails
                 .repeats = !rows_.on()});
  }

  /// known  whether a step of these shapes has run
  void call_by_call(const Work& work, Half& half, bool known) {
    const profile::Span span("enqueue the step", profile::Kind::phase);
    if (reduce_) reduce_->join(stream_);  // what a capture that failed has left
    // The timing of products waits for the stream without a deadline, so no collective may be under way on it.
    if (!known && ops::products_are_tuned()) wait_for_all();
    try {
      arena_.reset();
      enqueue(work, half);
    } catch (const OutOfMemory& e) {
      throw Error(e.fault(), e.facts() + advice(work.batch), e.where());
    }
    compact_ = arena_.high_water_bytes() <= device_bytes_ && arena_.host().high_water_bytes() <= host_bytes_;
  }

  /// The batch size that would fit, found by halving the shard. The interrupted step is lost.
  std::string advice(const GlobalBatch& batch) {
    wait_for_all();
    const Shard all = rank_part(batch, 0, comm_.rank());
    for (Shard part = all; part.count > 1;) {
      part.count /= 2;
      try {
        arena_ = Arena(stream_.device());
        Tape tape(stream_, arena_, model_.params().storage(), Tape::Mode::train, &gradients_);
        tape.backward(model_.loss(tape, part).sum);
        stream_.synchronize();
      } catch (const OutOfMemory&) {
        continue;
      }
      const auto each = static_cast<double>(arena_.high_water_bytes()) / static_cast<double>(part.count);
      arena_ = Arena(stream_.device());
      constexpr double kUsable = 0.95;  // of the free memory: a step holds more than activations
      const auto usable = kUsable * static_cast<double>(gpu_memory(stream_.device().index).free);
      const std::int64_t fit = std::max<std::int64_t>(static_cast<std::int64_t>(usable / each), part.count);
      std::int64_t micros = micro_batches(batch);
      while (micros < batch.count && (batch.count % micros != 0 || batch.count / micros > fit * comm_.size())) ++micros;
      return join("; the activations of ", all.count, " samples at once would take about ",
                  human_bytes(each * static_cast<double>(all.count)), " (", human_bytes(each), " each), and ", fit,
                  " samples fit: batch.size = ", batch.count / micros,
                  " over all ranks with batch.accumulate = ", micros, " is the same training",
                  model_.params().storage() == DType::f32 ? "; run.precision = bf16 stores half the bytes" : "");
    }
    return "; not even one sample fits: a smaller network is needed, or another GPU";
  }

  const GpuStepRecord* record() const { return reinterpret_cast<const GpuStepRecord*>(staged_.data()); }

  /// Enqueues all work of a step on the stream, or on the graph that captures the stream.
  void enqueue(const Work& work, const Half& half, Arena* host = nullptr) {
    if (by_one_kernel(work)) return enqueue_dense(work, half);
    const std::int64_t micros = std::ssize(work.parts);
    const std::size_t own = RankReport::size_bytes(micros);
    std::byte* const report = staged_.data() + sizeof(GpuStepRecord);
    double weight = 0;
    const auto send_report = [&] {
      if (!model_.draws()) {
        reinterpret_cast<RankReport*>(half.report())->weight = weight;
        copy_bytes(stream_, report, half.report(), sizeof(RankReport));
      }
      if (!reduce_) return;
      reduce_->all_gather(stream_, all_reports_.data(), report, own, "loss and weight");
      if (update_.rows()) share_rows(work.batch, update_.rows()->ids, "samples' identifiers");
    };
    copy_bytes(stream_, staged_.data(), half.record, work.staged_bytes);
    const StagedCopy staged(half.record, staged_.data(), work.staged_bytes);
    model_.params().refresh(stream_);
    gradients_.zero();
    if (update_.scaled()) update_.open(stream_, record());
    rows_.begin();
    missing_ = params_in_;
    started_ = 0;
    const Arena::Mark begin = arena_.mark();
    for (std::int64_t m = 0; m < micros; ++m) {
      const bool last = m + 1 == micros;
      const Shard& part = work.parts[m];
      if (part.count == 0) {
        if (last) send_report();
        continue;
      }
      arena_.rewind(begin);
      Tape tape(stream_, arena_, model_.params().storage(), Tape::Mode::train, &gradients_, host);
      const ShardLoss loss = model_.loss(tape, part);
      const Tensor& sum = loss.sum.value();
      assert(sum.dtype() == gradient_.dtype());
      weight += loss.weight;
      copy_bytes(stream_, report + RankReport::loss_at(m), sum.raw(), sum.size_bytes());
      if (last) {
        send_report();
        if (reduce_) tape.on_param_ready([this](const Param& p) { ready(p); });
        if (reduce_ && embeddings_first(ranges_)) tape.parameters_last();
      }
      if (update_.scaled() || work.batch.loss_scale == 1)
        tape.backward(loss.sum, update_.seed().reshaped(sum.shape()));
      else
        tape.backward(loss.sum, work.batch.loss_scale);
    }
    if (reduce_) {
      while (started_ < ranges_.size()) reduce_next();
      if (update_.rows()) share_rows(work.batch, update_.rows()->gradients, "samples' gradients");
      reduce_->join(stream_);
      rows_.unpack(stream_);
    }
    const RankReports reports = {
        .bytes = reduce_ ? all_reports_.data() : report, .ranks = comm_.size(), .micros = micros};
    update_.close(stream_, gradient_, reports, record(), reinterpret_cast<GpuOutcome*>(half.outcome.data()),
                  work.average);
  }

  void enqueue_dense(const Work& work, const Half& half) {
    const DenseStep::Step step = {.draw = work.rows,
                                  .count = work.parts.front().count,
                                  .h_record = half.record,
                                  .record = staged_.data(),
                                  .outcome = reinterpret_cast<GpuOutcome*>(half.outcome.data()),
                                  .average = work.average};
    dense_->compute(stream_, step);
    if (!reduce_) return;
    const Tensor& sums = dense_->sums();
    reduce_->all_reduce(stream_, sums.raw(), sums.raw(), sums.size(), element_, "gradient and loss");
    reduce_->join(stream_);
    dense_->update(stream_, step);
  }

  /// Gathers the rows of all samples of the step (the outermost axis), each from the rank that computes it.
  void share_rows(const GlobalBatch& batch, const Tensor& rows, const char* what) {
    for (std::int64_t m = 0; m < micro_batches(batch); ++m) {
      std::vector<std::span<std::byte>> from;
      for (int rank = 0; rank < comm_.size(); ++rank) {
        const Shard part = rank_part(batch, m, rank);
        const Tensor own = rows.slice(part.first - batch.first, part.count);
        from.emplace_back(static_cast<std::byte*>(own.raw()), own.size_bytes());
      }
      const std::span<const std::byte> mine = std::exchange(from[comm_.rank()], {});
      std::vector<std::span<const std::byte>> to(from.size(), mine);
      to[comm_.rank()] = {};  // already in place
      reduce_->exchange(stream_, from, to, what);
    }
  }

  void ready(const Param& p) {
    --missing_[bucket_of_[p.index]];
    rows_.ready(p);
    while (started_ < ranges_.size() && missing_[started_] == 0 && rows_.may_pack(started_)) reduce_next();
  }

  /// Buckets are reduced in the order of the backward pass, the same on all ranks.
  void reduce_next() {
    const profile::Span span("reduce", profile::Kind::phase, names_[started_].c_str());
    const Tensor part = rows_.pack(stream_, arena_, started_);
    reduce_->all_reduce(stream_, part.raw(), part.raw(), part.size(), element_, names_[started_].c_str());
    ++started_;
  }

  Communicator& comm_;
  ShardModel& model_;
  bool graphs_on_;  ///< run.graphs = on
  bool ahead_;      ///< false: threads of one process are ranks, and memory calls of one may wait for the work of all
  Stream stream_;
  Arena arena_;
  Gradients gradients_;
  GpuElement element_;
  std::vector<FlatRange> ranges_;  ///< buckets, in the order in which the backward pass completes them
  std::vector<std::string> names_;
  std::vector<std::size_t> bucket_of_;             ///< by Param::index
  std::vector<std::int64_t> params_in_;            ///< trainable parameters of each bucket
  std::vector<std::int64_t> missing_;              ///< per bucket: parameters that the current step has not completed
  std::size_t started_ = 0;                        ///< buckets whose reduction is enqueued
  bool compact_ = true;                            ///< the arena has not grown since compact()
  std::size_t device_bytes_ = 0, host_bytes_ = 0;  ///< memory that the arena needs
  std::int64_t micros_ = 0;                        ///< capacity of the records, in micro-batches
  Buffer all_reports_;                             ///< on the GPU, with NCCL
  Buffer staged_;                                  ///< on the GPU: a copy of the record and report, and of the samples
  std::size_t current_ = 0;                        ///< half of the last step
  GpuUpdate only_sums_;
  const GpuUpdate& update_;
  std::unique_ptr<DenseStep> dense_;  ///< null: separate kernels
  GpuRowExchange rows_;
  std::array<Half, 2> halves_;
  std::unique_ptr<GpuReduce> reduce_;  ///< destroyed before memory is freed
  GraphReplay graphs_;
};

}  // namespace lockstep
