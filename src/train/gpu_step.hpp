#pragma once
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/device/graph.hpp"
#include "train/gpu_row_exchange.hpp"
#include "train/grad_sync.hpp"
#include "train/micro_batch.hpp"

namespace lockstep {

/// The scalars that a rank sends with its part of a step.
///
/// layout  doubles: sum of weights, flags, bytes per loss; then 8 bytes per micro-batch with its loss as f32 or f64
class StepReport {
 public:
  static constexpr std::size_t kHead = 3 * sizeof(double);
  static std::size_t loss_at(std::int64_t micro) { return kHead + static_cast<std::size_t>(micro) * sizeof(double); }
  static std::size_t size_bytes(std::int64_t micros) { return loss_at(micros); }

  explicit StepReport(std::byte* bytes) : bytes_(bytes) {}
  void set_weight(double weight) const { write(0, weight); }
  void set_flags(unsigned flags) const { write(1, flags); }
  void set_loss_bytes(std::size_t size) const { write(2, static_cast<double>(size)); }
  void add_to(StepSums& sums, std::int64_t micros) const {
    sums.weight += read<double>(0);
    sums.flags |= static_cast<unsigned>(read<double>(sizeof(double)));
    const bool wide = read<double>(2 * sizeof(double)) == sizeof(double);
    for (std::int64_t m = 0; m < micros; ++m)
      sums.loss += wide ? read<double>(loss_at(m)) : static_cast<double>(read<float>(loss_at(m)));
  }

 private:
  void write(std::size_t place, double value) const {
    std::memcpy(bytes_ + place * sizeof(double), &value, sizeof value);
  }
  template <class T>
  T read(std::size_t at) const {
    T value;
    std::memcpy(&value, bytes_ + at, sizeof value);
    return value;
  }
  std::byte* bytes_;
};

/// The step whose gradient stays on the GPU: one rank, or several with NCCL.
///
/// The rank's part of a micro-batch is one shard. The host enqueues a whole step on the stream and waits once, at its
/// end. A bucket of the gradient is reduced in place as soon as the last operation that adds to it is enqueued, so
/// messages overlap the backward pass. While the GPU works, the host draws the next step's samples, writes its batch
/// and captures its work in a graph, which starts with one call. Host-written buffers are double-buffered.
class GpuStep {
 public:
  GpuStep(Communicator& comm, ShardTask& model, const StepOptions& options, std::unique_ptr<GpuReduce> reduce)
      : comm_(comm),
        model_(model),
        use_graphs_(options.graphs),
        stream_(model.params().device()),
        arena_(stream_.device()),
        gradients_(model.params()),
        element_(gradients_.flat().dtype() == DType::f64 ? GpuElement::f64 : GpuElement::f32),
        ranges_(plan_buckets(model.params(), options.bucket_bytes)),
        bucket_of_(model.params().all().size()),
        params_in_(ranges_.size(), 0),
        rows_(comm, model.params(), ranges_, gradients_),
        reduce_(std::move(reduce)) {
    for (const Param& p : model.params().all()) {
      std::size_t bucket = 0;
      while (p.offset < ranges_[bucket].begin || p.offset >= ranges_[bucket].end) ++bucket;
      bucket_of_[static_cast<std::size_t>(p.index)] = bucket;
      if (p.trainable) ++params_in_[bucket];
    }
    for (std::size_t b = 0; b < ranges_.size(); ++b) names_.push_back(join("gradient bucket ", b));
    gradient = gradients_.flat();
    buckets = static_cast<std::int64_t>(ranges_.size());
    reserve(1);
  }

  void start(const GlobalBatch& batch, unsigned flags) {
    watch_.restart();
    const bool as_graph = agree_on_graph(batch);
    captured_.reset();
    prepare_called_ = false;
    if (!as_graph) reserve(micro_batches(batch));
    buffer_ = 1 - buffer_;
    batch_ = batch;
    StepReport(reports_[buffer_].sent.data()).set_flags(flags);
    if (as_graph) {
      const profile::Span span("launch of the graph", profile::Kind::phase);
      graphs_[buffer_].launch(stream_);
      if (!std::exchange(logged_, true)) log::info("steps run on the GPU as graphs");
    } else {
      try {
        const profile::Span span("enqueue the step", profile::Kind::phase);
        arena_.reset();
        enqueue(batch, buffer_);
      } catch (const OutOfMemory& e) {
        throw Error(e.fault(), e.facts() + advice(batch), e.where());
      }
    }
  }

  void prepare(const GlobalBatch& batch) {
    if (std::exchange(prepare_called_, true) || use_graphs_ == Graphs::off) return;
    // All ranks capture or none: NCCL may connect to its peers during a capture.
    const bool able = micro_batches(batch) <= micros_ && is_compact();
    tried_ = reduce_ ? comm_.agree(able, "graphs") : able;
    if (!tried_) return;
    capture(batch);
    rows_.end_capture(batch);
  }

  StepSums finish() {
    {
      const profile::Span span("wait for the GPU", profile::Kind::phase);
      if (reduce_)
        reduce_->wait(stream_, batch_.step);
      else
        stream_.synchronize();
    }
    const std::int64_t micros = micro_batches(batch_);
    StepSums sums;
    for (int rank = 0; rank < comm_.size(); ++rank)
      StepReport(reports_[buffer_].seen.data() + static_cast<std::size_t>(rank) * StepReport::size_bytes(micros))
          .add_to(sums, micros);
    if (!captured_) compact();
    seconds.compute = watch_.seconds();
    return sums;
  }

  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const {
    return part_of(micro_batch(batch, micro), rank, comm_.size());
  }
  std::string row_choice() const { return rows_.choice(); }
  std::string row_decisions() const { return rows_.decisions(); }
  void take_row_decisions(const std::string& decisions) { rows_.take_decisions(decisions); }
  const char* backend() const { return reduce_ ? "nccl" : comm_.backend(); }

  Tensor gradient;
  StepSeconds seconds;
  std::int64_t buckets = 1;

 private:
  /// Pinned memory of one step.
  struct Reports {
    Buffer sent;  ///< of this rank, without the losses
    Buffer seen;  ///< of all ranks
  };

  /// Makes the report buffers large enough for `micros` micro-batches. Call it only while no step runs.
  void reserve(std::int64_t micros) {
    if (micros <= micros_) return;
    micros_ = micros;
    const std::size_t own = StepReport::size_bytes(micros), all = own * static_cast<std::size_t>(comm_.size());
    for (Reports& buffer : reports_) buffer = {Buffer::pinned(own), Buffer::pinned(all)};
    report_ = Buffer(stream_.device(), own);
    if (reduce_) all_reports_ = Buffer(stream_.device(), all);
  }

  /// Whether the arena has not grown since compact(). Its reset() then allocates nothing; an allocation could wait for
  /// a GPU that waits for other ranks.
  bool is_compact() {
    return arena_.high_water_bytes() <= compact_bytes_ && arena_.host().high_water_bytes() <= compact_host_bytes_;
  }
  /// Merges the arena's blocks into one. Call it only while no work uses the arena.
  void compact() {
    compact_host_bytes_ = 0;
    for (int half = 0; half < 2; ++half) {  // the pinned memory is double-buffered
      arena_.reset();
      compact_host_bytes_ = std::max(compact_host_bytes_, arena_.host().high_water_bytes());
    }
    compact_bytes_ = arena_.high_water_bytes();
  }

  void capture(const GlobalBatch& batch) {
    const profile::Span span("capture of the next graph", profile::Kind::phase);
    const std::size_t next = 1 - buffer_;
    arena_.reset();
    outcome_ = kCaptured;
    if (graphs_[next].capture(stream_, [&] { enqueue(batch, next); })) {
      captured_ = batch;
      return;
    }
    // The usual cause is an arena that must grow. It grows when the step runs without a graph.
    outcome_ = rows_.complete() ? kFailed : kUnusable;
    if (reduce_) reduce_->join(stream_);
  }

  /// Whether the step runs as a graph: on all ranks or on none. NCCL requires it, and chooses its algorithm by it. Gives
  /// up graphs after several failures. Collective after an attempted capture.
  bool agree_on_graph(const GlobalBatch& batch) {
    if (!std::exchange(tried_, false)) return false;
    const Graph& graph = graphs_[1 - buffer_];
    std::int64_t worst = outcome_;
    if (worst == kCaptured && (captured_ != batch || !graph.ready())) worst = kUnusable;
    if (reduce_) worst = comm_.all_reduced(worst, ReduceOp::max, "graphs");
    if (worst == kCaptured) failures_ = 0;
    constexpr int kEnough = 8;
    if (worst != kFailed || ++failures_ < kEnough) return worst == kCaptured;
    const std::string why = graph.why().empty() ? "another rank says why" : graph.why();
    require(use_graphs_ != Graphs::on, "option run.graphs = on: a step cannot be captured in a graph: ", why,
            "; use auto");
    log::info("steps run without CUDA graphs: a step cannot be captured: ", why);
    use_graphs_ = Graphs::off;
    return false;
  }

  /// The batch size that would fit, found by halving the shard. The interrupted step is lost.
  std::string advice(const GlobalBatch& batch) {
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

  /// Enqueues all work of a step on the stream, or on the graph that captures the stream.
  void enqueue(const GlobalBatch& batch, std::size_t buffer) {
    const std::int64_t micros = micro_batches(batch);
    const std::size_t size = StepReport::size_bytes(micros);
    const StepReport head(reports_[buffer].sent.data());
    double weight = 0;
    const auto report = [&] {
      head.set_weight(weight);
      copy_bytes(stream_, report_.data(), reports_[buffer].sent.data(), StepReport::kHead);
      if (reduce_) reduce_->all_gather(stream_, all_reports_.data(), report_.data(), size, "loss and weight");
    };
    model_.params().refresh(stream_);
    gradients_.zero();
    rows_.begin(batch, buffer == buffer_ ? GpuRowExchange::Mode::launch : GpuRowExchange::Mode::capture);
    zero_bytes(stream_, report_.data(), size);
    missing_ = params_in_;
    started_ = 0;
    const Arena::Mark begin = arena_.mark();
    for (std::int64_t m = 0; m < micros; ++m) {
      const bool last = m + 1 == micros;
      const Shard part = rank_part(batch, m, comm_.rank());
      if (part.count == 0) {
        if (last) report();
        continue;
      }
      arena_.rewind(begin);
      Tape tape(stream_, arena_, model_.params().storage(), Tape::Mode::train, &gradients_);
      const ShardLoss loss = model_.loss(tape, part);
      const Tensor& sum = loss.sum.value();
      weight += loss.weight;
      head.set_loss_bytes(sum.size_bytes());
      copy_bytes(stream_, report_.data() + StepReport::loss_at(m), sum.raw(), sum.size_bytes());
      if (last) {
        report();
        if (reduce_) tape.on_param_ready([this](const Param& p) { ready(p); });
        if (reduce_ && embeddings_first(ranges_)) tape.parameters_last();
      }
      tape.backward(loss.sum, batch.loss_scale);
    }
    if (reduce_) {
      while (started_ < ranges_.size()) reduce_next();
      reduce_->join(stream_);
      rows_.unpack(stream_);
    }
    copy_bytes(stream_, reports_[buffer].seen.data(), reduce_ ? all_reports_.data() : report_.data(),
               size * static_cast<std::size_t>(comm_.size()));
  }

  void ready(const Param& p) {
    --missing_[bucket_of_[static_cast<std::size_t>(p.index)]];
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
  ShardTask& model_;
  Graphs use_graphs_;
  Stream stream_;
  Arena arena_;
  Gradients gradients_;
  GpuElement element_;
  std::vector<FlatRange> ranges_;  ///< buckets, in the order in which the backward pass completes them
  std::vector<std::string> names_;
  std::vector<std::size_t> bucket_of_;   ///< by Param::index
  std::vector<std::int64_t> params_in_;  ///< trainable parameters of each bucket
  std::vector<std::int64_t> missing_;    ///< per bucket: parameters that the current step has not completed
  std::size_t started_ = 0;              ///< buckets whose reduction is enqueued
  std::size_t compact_bytes_ = 0, compact_host_bytes_ = 0;
  std::int64_t micros_ = 0;      ///< capacity of the report buffers, in micro-batches
  Buffer report_, all_reports_;  ///< on the GPU
  std::array<Reports, 2> reports_;
  std::size_t buffer_ = 0;  ///< buffer index of the current step
  GlobalBatch batch_;       ///< of the current step
  std::optional<GlobalBatch> captured_;
  /// Of the last attempted capture. unusable: for a reason that passes.
  enum Outcome : std::int64_t { kCaptured, kUnusable, kFailed };
  std::int64_t outcome_ = kUnusable;
  bool tried_ = false;           ///< all ranks have attempted to capture the next step
  bool prepare_called_ = false;  ///< since start()
  Stopwatch watch_;
  bool logged_ = false;
  int failures_ = 0;
  GpuRowExchange rows_;
  std::unique_ptr<GpuReduce> reduce_;
  std::array<Graph, 2> graphs_;  ///< last: destroyed before the memory that they use
};

}  // namespace lockstep
