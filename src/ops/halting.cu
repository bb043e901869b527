#include "lockstep/ops/halting.hpp"

#include <optional>

#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// The arguments of begin_sequences().
struct Sequences {
  std::int64_t cells;
  std::int32_t *inputs, *labels, *identifiers, *steps;
  const std::int32_t* halted;
  const PuzzlePick* picks;
  PuzzleRule rule;
  /// Begins sequence b: writes every `stride`-th cell from `first` on, and with cell 0 the identifier and step count.
  constexpr void begin(std::int64_t b, std::int64_t first, std::int64_t stride) const {
    const PuzzlePick pick = picks[b];
    const PuzzleVariant variant = rule.variants.draw(pick.group, pick.variant);
    for (std::int64_t i = first; i < cells; i += stride) {
      inputs[b * cells + i] = variant.token(pick.inputs, static_cast<int>(i));
      const std::int32_t label = variant.token(pick.labels, static_cast<int>(i));
      labels[b * cells + i] = label == rule.ignored ? -1 : label;
    }
    if (first != 0) return;
    identifiers[b] = pick.identifier;
    steps[b] = 0;
  }
};
/// decay^steps by multiplication, so that every device has the same bits.
constexpr double segment_weight(double decay, std::int64_t steps) {
  double weight = 1;
  for (; steps > 0; --steps) weight *= decay;
  return weight;
}

/// The logits of halting and of continuing.
struct Logits {
  double halt, go_on;
};
/// halting_loss() for one sequence: sets `steps`, `halted`, dq (2) and `metrics`, and returns the loss.
template <class R>
constexpr double count_segment(const HaltingRule& rule, std::int32_t least, const SequenceScore& score, const Logits& q,
                               const std::optional<Logits>& next, std::int32_t& steps, std::int32_t& halted, R* dq,
                               HaltingScore& metrics) {
  const std::int32_t count = ++steps;
  const bool exact = score.exact(), last = count >= rule.most_steps;
  const bool stop = rule.most_steps > 1 ? (last || q.halt > (rule.q_continue ? q.go_on : 0)) && count >= least : last;
  halted = stop;
  const BinaryLoss halt = binary_cross_entropy(q.halt, exact ? 1 : 0);
  BinaryLoss go_on{0, 0};
  if (next)
    go_on = binary_cross_entropy(q.go_on, logistic(last || !(next->halt < next->go_on) ? next->halt : next->go_on));
  const double weight = segment_weight(rule.decay, count - 1);
  dq[0] = static_cast<R>(weight * 0.5 * halt.derivative);
  dq[1] = static_cast<R>(weight * 0.5 * go_on.derivative);
  const bool counts = stop && score.labelled > 0;
  metrics = {.count = counts ? 1.0 : 0.0,
             .accuracy = counts ? static_cast<double>(score.correct) / static_cast<double>(score.labelled) : 0,
             .exact = counts && exact ? 1.0 : 0.0,
             .q_halt_accuracy = counts && (q.halt >= 0) == exact ? 1.0 : 0.0,
             .steps = counts ? static_cast<double>(count) : 0,
             .lm_loss = score.loss,
             .q_halt_loss = halt.loss,
             .q_continue_loss = go_on.loss};
  return weight * (score.loss + 0.5 * (halt.loss + go_on.loss));
}

constexpr int kThreads = 128;

/// One block per sequence, which returns at once if the sequence has not halted. Only the picks and rows that are
/// needed cross the bus. Every thread draws the variant (25 numbers for a Sudoku): that takes no longer than one
/// thread's draw, and needs neither shared memory nor a barrier.
[[maybe_unused]] __global__ void __launch_bounds__(kThreads)
    begin_sequences_kernel(gpu::Earlier earlier, Sequences all) {
  earlier.wait();
  if (all.halted[blockIdx.x] != 0) all.begin(blockIdx.x, threadIdx.x, kThreads);
}

/// Over the elements of x: one read, one write.
template <class T>
struct Decay {
  std::int64_t each;
  T* x;
  const std::int32_t* steps;
  double decay;
  template <int N>
  __device__ void at(std::int64_t i) const {
    x[i] *= static_cast<T>(segment_weight(decay, steps[gpu::quotient(i, each)]));
  }
};

/// One block, so that the sum has one order; a thread takes every kThreads-th sequence. A step has some hundreds of
/// sequences. This takes a few microseconds, mostly for the transfer of the metrics over the bus.
template <class T>
__global__ void __launch_bounds__(kThreads)
    halting_loss_kernel(gpu::Earlier earlier, std::int64_t sequences, real_t<T>* __restrict__ loss,
                        real_t<T>* __restrict__ dq, std::int32_t* __restrict__ steps, std::int32_t* __restrict__ halted,
                        HaltingScore* metrics, const T* __restrict__ q, const T* __restrict__ next_q,
                        const SequenceScore* scores, const std::int32_t* least, HaltingRule rule) {
  earlier.wait();
  double total = 0;
  for (std::int64_t b = threadIdx.x; b < sequences; b += kThreads) {
    const auto pair = [b](const T* logits) {
      return Logits{static_cast<double>(gpu::load(logits + 2 * b)), static_cast<double>(gpu::load(logits + 2 * b + 1))};
    };
    total += count_segment(rule, least[b], scores[b], pair(q), next_q ? std::optional(pair(next_q)) : std::nullopt,
                           steps[b], halted[b], dq + 2 * b, metrics[b]);
  }
  total = gpu::block_reduce(total);
  if (threadIdx.x == 0) *loss = static_cast<real_t<T>>(total);
}

void check(const char* what, const Tensor& steps, const Tensor& halted) {
  require(steps.shape().rank() == 1 && halted.shape() == steps.shape(), what, ": steps are ", steps.shape(),
          ", halted ", halted.shape(), "; both must be one per sequence");
}
}  // namespace

HaltingScore& HaltingScore::operator+=(const HaltingScore& o) {
  count += o.count;
  accuracy += o.accuracy;
  exact += o.exact;
  q_halt_accuracy += o.q_halt_accuracy;
  steps += o.steps;
  lm_loss += o.lm_loss;
  q_halt_loss += o.q_halt_loss;
  q_continue_loss += o.q_continue_loss;
  return *this;
}

void begin_sequences(Stream& stream, const SequenceData& to, const Tensor& steps, const Tensor& halted,
                     std::span<const PuzzlePick> picks, const PuzzleRule& rule) {
  check("begin_sequences", steps, halted);
  const std::int64_t sequences = steps.size();
  require(
      to.inputs.shape().rank() == 2 && to.inputs.shape()[0] == sequences && to.labels.shape() == to.inputs.shape() &&
          to.identifiers.shape() == steps.shape() && std::ssize(picks) == sequences,
      "begin_sequences: of ", sequences, " sequences inputs are ", to.inputs.shape(), ", labels ", to.labels.shape(),
      ", identifiers ", to.identifiers.shape(), ", picks ", picks.size(), "; these do not fit together");
  const Sequences all = {.cells = to.inputs.columns(),
                         .inputs = to.inputs,
                         .labels = to.labels,
                         .identifiers = to.identifiers,
                         .steps = steps,
                         .halted = halted,
                         .picks = picks.data(),
                         .rule = rule};
  const bool gpu = on_gpu(stream, [&](const auto& of_gpu) {
    gpu::launch(of_gpu, {.grid = sequences, .block = kThreads}, begin_sequences_kernel, all);
  });
  if (gpu) return;
  for (std::int64_t b = 0; b < sequences; ++b)
    if (all.halted[b] != 0) all.begin(b, 0, 1);
}

void decay_sequences(Stream& stream, const Tensor& x, const Tensor& steps, double decay) {
  const std::int64_t sequences = steps.size();
  require(x.shape().rank() > 0 && x.shape()[0] == sequences, "decay_sequences: x is ", x.shape(), " for ", sequences,
          " sequences");
  const std::int64_t each = sequences > 0 ? x.size() / sequences : 0;
  on_gpu_in_floats(x, [&]<class T>() { gpu::map<T>(stream, x.size(), false, Decay<T>{each, x, steps, decay}); });
  on_cpu(x, [&]<class T>() {
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto weight = static_cast<T>(segment_weight(decay, steps.data<std::int32_t>()[b]));
      for (std::int64_t i = b * each; i < (b + 1) * each; ++i) x.data<T>()[i] *= weight;
    }
  });
}

void halting_loss(Stream& stream, const Tensor& loss, const Tensor& dq, const Tensor& steps, const Tensor& halted,
                  std::span<HaltingScore> metrics, const Segments& s, const HaltingRule& rule) {
  check("halting_loss", steps, halted);
  const std::int64_t sequences = steps.size();
  const auto one_each = [&](std::size_t count) { return static_cast<std::int64_t>(count) == sequences; };
  const Shape pairs{sequences, 2};
  require(loss.size() == 1 && s.q.shape() == pairs && dq.shape() == pairs && (!s.next_q || s.next_q.shape() == pairs) &&
              one_each(metrics.size()) && one_each(s.scores.size()) && one_each(s.least.size()),
          "halting_loss: of ", sequences, " sequences q is ", s.q.shape(), ", dq ", dq.shape(), ", next_q ",
          s.next_q.shape(), ", loss ", loss.shape(), ", metrics ", metrics.size(), ", scores ", s.scores.size(),
          ", least ", s.least.size(), "; these do not fit together");
  on_gpu(s.q, [&]<class T>() {
    using R = real_t<T>;
    gpu::launch(stream, {.grid = 1, .block = kThreads}, halting_loss_kernel<T>, sequences, loss.data<R>(), dq.data<R>(),
                steps.data<std::int32_t>(), halted.data<std::int32_t>(), metrics.data(), s.q.data<T>(),
                s.next_q.data<T>(), s.scores.data(), s.least.data(), rule);
  });
  on_cpu(s.q, [&]<class T>() {
    double total = 0;
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto pair = [&](const Tensor& logits) {
        const T* at = logits.data<T>() + 2 * b;
        return Logits{static_cast<double>(at[0]), static_cast<double>(at[1])};
      };
      total += count_segment(rule, s.least[b], s.scores[b], pair(s.q),
                             s.next_q ? std::optional(pair(s.next_q)) : std::nullopt, steps.data<std::int32_t>()[b],
                             halted.data<std::int32_t>()[b], dq.data<T>() + 2 * b, metrics[b]);
    }
    *loss.data<T>() = static_cast<T>(total);
  });
}

}  // namespace lockstep::ops
