#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/device/graph.hpp"
#include "train/gpu_rows.hpp"
#include "train/grad_sync.hpp"
#include "train/sharded_step_impl.hpp"

namespace lockstep {

namespace {

/// What a rank tells the others of its part of a step, a row of doubles: the sum of weights, flags, the size of a loss, and
/// the losses of its micro-batches as the model left them, f32 or f64, in eight bytes each.
class Report {
 public:
  static constexpr std::size_t kHead = 3 * sizeof(double);
  static std::size_t loss_at(std::int64_t micro) { return kHead + static_cast<std::size_t>(micro) * sizeof(double); }
  static std::size_t size_bytes(std::int64_t micros) { return loss_at(micros); }

  explicit Report(std::byte* bytes) : bytes_(bytes) {}
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

/// A rank's part of each micro-batch is one shard. The host gives a step's work to the GPU's stream and waits once, at its
/// end; a bucket of the gradient is summed over the ranks, in place, from the moment when the last operation that adds to it
/// has run, while the backward pass goes on. Meanwhile the host draws the next step's samples, writes its batches and puts
/// all of its work into a graph, which starts with one call when this step has ended.
///
/// Of what the host writes and kernels read there are two of each, which take turns.
class GpuStep final : public ShardedStep::Impl {
 public:
  GpuStep(Communicator& comm, Model& model, const StepOptions& options, std::unique_ptr<GpuReduce> reduce)
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
    gradient_bytes = gradient.size_bytes();
    make_room(1);
  }

  void start(const GlobalBatch& batch, unsigned flags) override {
    watch_.restart();
    const bool as_graph = prepared_ == batch && graphs_[1 - turn_].ready();
    prepared_.reset();
    prepares_ = false;
    if (!as_graph) make_room(micro_batches(batch));
    turn_ = 1 - turn_;
    batch_ = batch;
    Report(reports_[turn_].sent.data()).set_flags(flags);
    if (as_graph) {
      graphs_[turn_].launch(stream_);
      if (!std::exchange(told_, true)) log::info("steps are given to the GPU as graphs");
    } else {
      try {
        arena_.reset();
        give(batch, turn_);
      } catch (const OutOfMemory& e) {
        throw Error(e.fault(), e.facts() + advice(batch), e.where());
      }
    }
  }

  void prepare(const GlobalBatch& batch) override {
    if (std::exchange(prepares_, true)) return;
    if (use_graphs_ != Graphs::off && micro_batches(batch) <= micros_ && settled()) put_into_graph(batch);
    rows_.end_ahead(batch, use_graphs_ == Graphs::off);
  }

  StepSums finish() override {
    if (reduce_)
      reduce_->wait(stream_, batch_.step);
    else
      stream_.synchronize();
    const std::int64_t micros = micro_batches(batch_);
    StepSums sums;
    for (int rank = 0; rank < comm_.size(); ++rank)
      Report(reports_[turn_].seen.data() + static_cast<std::size_t>(rank) * Report::size_bytes(micros))
          .add_to(sums, micros);
    if (!prepared_) settle();
    seconds.compute = watch_.seconds();
    return sums;
  }

  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const override {
    std::int64_t first, count;
    micro_range(batch, micro, first, count);
    return part_of(batch, first, count, rank, comm_.size());
  }
  std::string row_choice() const override { return rows_.choice(); }
  const char* backend() const override { return reduce_ ? "nccl" : comm_.backend(); }
  std::size_t arena_bytes() const override { return arena_.high_water_bytes(); }

 private:
  /// Pinned memory of one turn.
  struct Reports {
    Buffer sent;  ///< this rank's, but for the losses
    Buffer seen;  ///< of all ranks
  };

  /// For steps of so many micro-batches, while none is under way.
  void make_room(std::int64_t micros) {
    if (micros <= micros_) return;
    micros_ = micros;
    const std::size_t own = Report::size_bytes(micros), all = own * static_cast<std::size_t>(comm_.size());
    for (Reports& turn : reports_) turn = {Buffer::pinned(own), Buffer::pinned(all)};
    report_ = Buffer(stream_.device(), own);
    if (reduce_) all_reports_ = Buffer(stream_.device(), all);
  }

  /// Whether the arena is as large as it was when it last was in one piece: its reset then allocates nothing, which might
  /// wait for a GPU that waits for other ranks.
  bool settled() {
    return arena_.high_water_bytes() <= settled_bytes_ && arena_.host().high_water_bytes() <= settled_host_bytes_;
  }
  /// Brings the arena into one piece, while nothing of it is in use.
  void settle() {
    settled_host_bytes_ = 0;
    for (int part = 0; part < 2; ++part) {  // of the pinned memory
      arena_.reset();
      settled_host_bytes_ = std::max(settled_host_bytes_, arena_.host().high_water_bytes());
    }
    settled_bytes_ = arena_.high_water_bytes();
  }

  void put_into_graph(const GlobalBatch& batch) {
    const std::size_t next = 1 - turn_;
    arena_.reset();
    if (graphs_[next].capture(stream_, [&] { give(batch, next); })) {
      prepared_ = batch;
      failures_ = 0;
      return;
    }
    // As a rule the arena has to grow, which it does when the step runs without a graph.
    if (reduce_) reduce_->join(stream_);
    constexpr int kEnough = 8;
    if (!rows_.found() || ++failures_ < kEnough) return;
    require(use_graphs_ != Graphs::on,
            "option run.graphs = on: a step cannot be put into a graph: ", graphs_[next].why(), "; use auto");
    log::info("steps are given to the GPU call by call: no graph can hold them: ", graphs_[next].why());
    use_graphs_ = Graphs::off;
  }

  /// What batch would fit, found out with smaller and smaller ones; the step is given up.
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
      constexpr double kSome = 0.95;  // of what is free: a step has more than activations
      const auto room = kSome * static_cast<double>(gpu_memory(stream_.device().index).free);
      const std::int64_t fit = std::max<std::int64_t>(static_cast<std::int64_t>(room / each), part.count);
      std::int64_t pieces = micro_batches(batch);
      while (pieces < batch.count && (batch.count % pieces != 0 || batch.count / pieces > fit * comm_.size())) ++pieces;
      return join("; the activations of ", all.count, " samples at once would take about ",
                  human_bytes(each * static_cast<double>(all.count)), " (", human_bytes(each), " each), and ", fit,
                  " samples fit: batch.size = ", batch.count / pieces,
                  " over all ranks with batch.accumulate = ", pieces, " is the same training",
                  model_.params().storage() == DType::f32 ? "; run.precision = bf16 stores half the bytes" : "");
    }
    return "; not even one sample fits: a smaller network is needed, or another GPU";
  }

  /// Gives all of a step's work to the stream, or to the graph that captures it.
  void give(const GlobalBatch& batch, std::size_t turn) {
    const std::int64_t micros = micro_batches(batch);
    const std::size_t size = Report::size_bytes(micros);
    const Report head(reports_[turn].sent.data());
    double weight = 0;
    const auto report = [&] {
      head.set_weight(weight);
      copy_bytes(stream_, report_.data(), reports_[turn].sent.data(), Report::kHead);
      if (reduce_) reduce_->all_gather(stream_, all_reports_.data(), report_.data(), size, "loss and weight");
    };
    model_.params().refresh(stream_);
    gradients_.zero();
    rows_.begin(batch, turn == turn_ ? GpuRows::Given::now : GpuRows::Given::ahead);
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
      arena_.rewind_device(begin);
      Tape tape(stream_, arena_, model_.params().storage(), Tape::Mode::train, &gradients_);
      const ShardLoss loss = model_.loss(tape, part);
      const Tensor& sum = loss.sum.value();
      weight += loss.weight;
      head.set_loss_bytes(sum.size_bytes());
      copy_bytes(stream_, report_.data() + Report::loss_at(m), sum.raw(), sum.size_bytes());
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
    copy_bytes(stream_, reports_[turn].seen.data(), reduce_ ? all_reports_.data() : report_.data(),
               size * static_cast<std::size_t>(comm_.size()));
  }

  void ready(const Param& p) {
    --missing_[bucket_of_[static_cast<std::size_t>(p.index)]];
    rows_.ready(p);
    while (started_ < ranges_.size() && missing_[started_] == 0 && rows_.may_pack(started_)) reduce_next();
  }

  /// Buckets go in one order on all ranks, which is that of the backward pass.
  void reduce_next() {
    const Tensor part = rows_.pack(stream_, arena_, started_);
    reduce_->all_reduce(stream_, part.raw(), part.raw(), part.size(), element_, names_[started_].c_str());
    ++started_;
  }

  Communicator& comm_;
  Model& model_;
  Graphs use_graphs_;
  Stream stream_;
  Arena arena_;
  Gradients gradients_;
  GpuElement element_;
  std::vector<FlatRange> ranges_;  ///< buckets, in the order in which the backward pass finishes them
  std::vector<std::string> names_;
  std::vector<std::size_t> bucket_of_;   ///< by Param::index
  std::vector<std::int64_t> params_in_;  ///< trainable parameters of each bucket
  std::vector<std::int64_t> missing_;    ///< those that the step under way may still add to
  std::size_t started_ = 0;              ///< buckets
  std::size_t settled_bytes_ = 0, settled_host_bytes_ = 0;
  std::int64_t micros_ = 0;      ///< that there is room for
  Buffer report_, all_reports_;  ///< on the GPU
  std::array<Reports, 2> reports_;
  std::size_t turn_ = 0;  ///< of the step under way
  GlobalBatch batch_;     ///< of that step
  std::optional<GlobalBatch> prepared_;
  bool prepares_ = false;  ///< prepare() has been called for the next step
  Stopwatch watch_;
  bool told_ = false;
  int failures_ = 0;
  GpuRows rows_;
  std::unique_ptr<GpuReduce> reduce_;
  std::array<Graph, 2> graphs_;  ///< end before what their work uses
};

}  // namespace

std::unique_ptr<ShardedStep::Impl> make_gpu_step(Communicator& comm, Model& model, const StepOptions& options,
                                                 std::unique_ptr<GpuReduce> reduce) {
  return std::make_unique<GpuStep>(comm, model, options, std::move(reduce));
}

}  // namespace lockstep
