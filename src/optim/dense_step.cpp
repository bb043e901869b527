#include "lockstep/optim/dense_step.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/device/has_cuda.hpp"
#include "lockstep/ops/gemm.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/dense_step_kernels.hpp"

namespace lockstep {

namespace {

using optim_kernels::DenseLayer;
using optim_kernels::DenseOperands;
using optim_kernels::kFewRows;
using optim_kernels::kManyRows;
using optim_kernels::kRankSums;

constexpr std::int64_t kMostParts = DenseStep::kMostParts;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The rows of a block at a time, and the layout of its shared memory.
template <class T>
struct Layout {
  int rows = 0;
  int blocks = 0;  ///< that fit on the GPU at once
  DenseOperands<T> operands;
};

template <class T>
class DenseStepOf final : public DenseStep {
 public:
  DenseStepOf(DenseNetwork network, ParamStore& params, const GpuUpdate::Operands& end, int rank, int ranks)
      : network_(std::move(network)),
        params_(params),
        end_(end),
        few_(layout(kFewRows)),
        many_(layout(kManyRows)),
        sums_(params.dtype(), {params.values().size() + kRankSums * ranks}, params.device(), MemoryUse::gradients),
        loss_partials_(params.device(), kMostParts * sizeof(double)),
        before_(params.device(), sizeof(optim_kernels::UpdateState)) {
    if (!fits()) return;
    const std::int64_t size = few_.operands.size;
    partials_ = OwnedTensor(params.dtype(), {kMostParts * size}, params.device(), MemoryUse::workspace);
    squares_ = Buffer(params.device(), static_cast<std::size_t>((size + 31) / 32) * sizeof(double));
    std::array<Tensor, 2> moments;
    if (end_.optimizer != nullptr) moments = end_.optimizer->adam_moments();
    for (Layout<T>* layout : {&few_, &many_}) {
      DenseOperands<T>& s = layout->operands;
      s.values = params.values().data<T>();
      s.partials = partials_.view().template data<T>();
      s.loss_partials = reinterpret_cast<double*>(loss_partials_.data());
      s.sums = sums_.view().template data<T>();
      s.squares = reinterpret_cast<double*>(squares_.data());
      s.flat = params.values().size();
      s.rank = rank;
      s.ranks = ranks;
      s.record_words = static_cast<std::int64_t>((sizeof(GpuStepRecord) + RankReport::size_bytes(1)) / 8);
      require(s.record_words <= optim_kernels::kDenseThreads, "a step record of ", s.record_words,
              " words: a thread of a block copies one");
      s.state = reinterpret_cast<optim_kernels::UpdateState*>(end_.state);
      s.before = reinterpret_cast<optim_kernels::UpdateState*>(before_.data());
      s.updates = end_.optimizer != nullptr ? 1 : 0;
      s.clip_norm = end_.clip_norm;
      if (end_.optimizer == nullptr) continue;
      s.norm_size = end_.norm_ranges.front().end;
      s.norm_parts = kHasCuda ? optim_kernels::cuda::partial_sums(s.norm_size) : 0;
      s.m = moments[0].data<T>();
      s.v = moments[1].data<T>();
    }
  }

  bool fits() const { return few_.blocks > 0; }
  std::size_t shared_bytes() const { return static_cast<std::size_t>(few_.operands.sm_size) * sizeof(T); }

  void compute(const Stream& stream, const Step& step) override {
    // Few samples are spread over many blocks; with many, a block takes more rows at a time.
    const bool spread = step.count <= kMostParts * kFewRows || many_.blocks == 0;
    Layout<T> now = spread ? few_ : many_;
    DenseOperands<T>& s = now.operands;
    s.part_rows = std::max<std::int64_t>(kFewRows, round_up((step.count + kMostParts - 1) / kMostParts, now.rows));
    s.parts = (step.count + s.part_rows - 1) / s.part_rows;
    if (s.part_rows == now.rows && s.sm_sum >= 0) s.sm_size = std::exchange(s.sm_sum, -1);  // nothing to add up
    set(s, step);
    if constexpr (kHasCuda) optim_kernels::cuda::dense_step(stream, blocks(now), now.rows, s);
  }

  void update(const Stream& stream, const Step& step) override {
    Layout<T> now = few_;
    set(now.operands, step);
    if constexpr (kHasCuda) optim_kernels::cuda::dense_update(stream, blocks(now), now.operands);
  }

  const Tensor& sums() const override { return sums_.view(); }

 private:
  static void set(DenseOperands<T>& s, const Step& step) {
    s.draw = step.draw;
    s.count = step.count;
    s.h_record = reinterpret_cast<const std::uint64_t*>(step.h_record);
    s.record = reinterpret_cast<std::uint64_t*>(step.record);
    s.outcome = step.outcome;
    s.average = step.average != nullptr ? step.average->flat().template data<T>() : nullptr;
    s.decay = step.average != nullptr ? static_cast<T>(step.average->decay()) : T{0};
  }

  /// At least one block for each part of the samples; more if each then adds kAddedElements elements of the gradient.
  static int blocks(const Layout<T>& now) {
    constexpr std::int64_t kElements = optim_kernels::kAddedElements;
    const std::int64_t wanted = std::max(now.operands.parts, (now.operands.size + kElements - 1) / kElements);
    return static_cast<int>(std::min<std::int64_t>(wanted, now.blocks));
  }

  /// The layout for `rows` samples at a time; `blocks` is 0 if it does not fit. The gradient of a part is summed in
  /// shared memory if that fits, too.
  Layout<T> layout(int rows) const {
    Layout<T> to{.rows = rows, .blocks = 0, .operands = {}};
    DenseOperands<T>& s = to.operands;
    s.table = ops::cuda::TableView<T>(network_.table);
    s.layers = std::ssize(network_.weights);
    s.activation = static_cast<std::int64_t>(network_.activation);
    s.loss = static_cast<std::int64_t>(network_.loss);
    s.loss_scale = static_cast<T>(network_.loss_scale);
    std::int64_t at = 0;  // of the shared memory, which later holds the sums of warps
    const auto take = [&](std::int64_t elements) { return std::exchange(at, at + round_up(elements, 4)); };
    for (std::int64_t k = 0; k < s.layers; ++k) {
      const Param &w = *network_.weights[k], &b = *network_.biases[k];
      DenseLayer& l = s.layer[k];
      l.in = w.shape[1];
      l.out = w.shape[0];
      l.weight = w.offset;
      l.bias = b.offset;
      l.stride = round_up(l.in, 4) / 4 % 2 == 0 ? round_up(l.in, 4) + 4 : round_up(l.in, 4);
      l.dy_stride = round_up(l.out, 4);
      l.sm_weight = take(l.out * l.stride);
      l.sm_bias = take(l.out);
      l.sm_x = take(rows * l.stride);
      l.sm_dy = take(rows * l.dy_stride);
      s.size = std::max(s.size, round_up(b.offset + l.out, 4));
    }
    at = std::max<std::int64_t>(at, optim_kernels::kAddedSums * sizeof(double) / sizeof(T));
    s.sm_size = at;
    s.sm_sum = -1;
    if constexpr (kHasCuda) {
      const Stream stream(params_.device());
      to.blocks = optim_kernels::cuda::dense_blocks<T>(stream, rows, at);
      if (const int both = optim_kernels::cuda::dense_blocks<T>(stream, rows, at + s.size); both > 0) {
        to.blocks = both;
        s.sm_sum = take(s.size);
        s.sm_size = at;
      }
    }
    return to;
  }

  DenseNetwork network_;
  ParamStore& params_;
  GpuUpdate::Operands end_;
  Layout<T> few_, many_;
  OwnedTensor sums_, partials_;  // the elements of gaps between parameters stay 0
  Buffer loss_partials_, before_, squares_;
};

/// Why no GPU can do the steps of a network in one kernel; "" if a GPU may.
std::string obstacle(const DenseNetwork& network, const ParamStore& params, const GpuUpdate::Operands& end) {
  if (network.weights.size() > optim_kernels::kMostDenseLayers)
    return join("it has ", network.weights.size(), " layers, more than ", optim_kernels::kMostDenseLayers);
  if (params.storage() != params.dtype()) return "its values are in half precision";
  if (params.dtype() == DType::f32 && ops::tf32_allowed()) return "its products are in TF32";
  if (!std::ranges::all_of(params.all(), [](const Param& p) { return p.trainable && p.l2 == 0; }))
    return "it has frozen or penalised parameters";
  if (end.optimizer == nullptr) return "";
  if (!end.optimizer->adam_moments()[0]) return join("the optimizer is ", end.optimizer->name());
  if (end.norm_ranges.size() != 1 || end.norm_ranges.front().begin != 0)
    return "its gradient norm covers several ranges";
  return "";
}

}  // namespace

std::unique_ptr<DenseStep> DenseStep::make(DenseNetwork network, ParamStore& params, const GpuUpdate& update, int rank,
                                           int ranks, std::string& why) {
  const GpuUpdate::Operands end = update.operands();
  why = obstacle(network, params, end);
  if (!why.empty()) return nullptr;
  return visit_float(params.dtype(), [&]<class T>() -> std::unique_ptr<DenseStep> {
    auto step = std::make_unique<DenseStepOf<T>>(std::move(network), params, end, rank, ranks);
    if (step->fits()) return step;
    why = join("its weights and the values of ", kFewRows, " samples take ", step->shared_bytes(),
               " bytes of the shared memory of a block of this GPU, or it cannot run blocks that wait for one another");
    return nullptr;
  });
}

}  // namespace lockstep
