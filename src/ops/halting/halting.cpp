#include "lockstep/ops/halting.hpp"

#include "halting_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {
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
  const cuda::Sequences all = {.cells = to.inputs.columns(),
                               .inputs = to.inputs,
                               .labels = to.labels,
                               .identifiers = to.identifiers,
                               .steps = steps,
                               .halted = halted,
                               .picks = picks.data(),
                               .rule = rule};
  if (on_gpu(steps.device(), [&] { cuda::begin_sequences(stream, sequences, all); })) return;
  for (std::int64_t b = 0; b < sequences; ++b)
    if (all.halted[b] != 0) all.begin(b, 0, 1);
}

void decay_sequences(Stream& stream, const Tensor& x, const Tensor& steps, double decay) {
  const std::int64_t sequences = steps.size();
  require(x.shape().rank() > 0 && x.shape()[0] == sequences, "decay_sequences: x is ", x.shape(), " for ", sequences,
          " sequences");
  const std::int64_t each = sequences > 0 ? x.size() / sequences : 0;
  on_gpu_in_floats(x, [&]<class T>() { cuda::decay_sequences<T>(stream, x.size(), each, x, steps, decay); });
  on_cpu(x, [&]<class T>() {
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto weight = static_cast<T>(cuda::segment_weight(decay, steps.data<std::int32_t>()[b]));
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
    cuda::halting_loss<T>(stream, sequences, loss, dq, steps, halted, metrics.data(), s.q, s.next_q, s.scores.data(),
                          s.least.data(), rule);
  });
  on_cpu(s.q, [&]<class T>() {
    double total = 0;
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto pair = [&](const Tensor& logits) {
        const T* at = logits.data<T>() + 2 * b;
        return cuda::Logits{static_cast<double>(at[0]), static_cast<double>(at[1])};
      };
      total += cuda::count_segment(
          rule, s.least[b], s.scores[b], pair(s.q), s.next_q ? std::optional(pair(s.next_q)) : std::nullopt,
          steps.data<std::int32_t>()[b], halted.data<std::int32_t>()[b], dq.data<T>() + 2 * b, metrics[b]);
    }
    *loss.data<T>() = static_cast<T>(total);
  });
}

}  // namespace lockstep::ops
