#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/models/hrm/hrm_weights.hpp"

namespace lockstep {
namespace {

double values_per_sample(const HrmArch& arch) {
  const std::int64_t l_calls = arch.last_cycle_gradient ? arch.l_cycles : 1,
                     blocks = arch.l_layers * l_calls + (arch.one_network ? arch.l_layers : arch.h_layers);
  return static_cast<double>(arch.length()) * static_cast<double>(blocks) *
             static_cast<double>(12 * arch.hidden + 3 * arch.inter()) +
         (arch.mlp_t ? static_cast<double>(blocks * 2 * arch.mixing_inter() * arch.hidden) : 0) +
         static_cast<double>(arch.seq_len * arch.vocab);
}

class HrmFunction : public ArrayFunction {
 public:
  HrmFunction(const HrmArch& arch, const NamedArrays& file, const std::string& what)
      : ArrayFunction(
            {{"tokens", DType::i64, {arch.seq_len}}, {"identifiers", DType::i64, {}}},
            {{"answers", DType::i64, {arch.seq_len}}, {"q_halt", DType::f32, {}}, {"q_continue", DType::f32, {}}},
            values_per_sample(arch)),
        network_(arch, dtype_of_arrays(file), 0) {
    load_arrays(network_.params(), file, {}, what);
    if (!file.metadata.contains(kSegmentsEntry)) return;
    TextFields fields(&file.metadata, what);
    fields(kSegmentsEntry, segments_);
    require_data(segments_ >= 1, what, ": its metadata entry ", kSegmentsEntry, " = ", segments_, ", must be >= 1");
  }

  void set(const std::string& name, std::int64_t value) override {
    if (name != "segments") ArrayFunction::set(name, value);
    require_usage(value >= 1, "setting 'segments' = ", value, ": must be >= 1");
    segments_ = value;
  }

 private:
  void run(Arena& arena, std::int64_t first, std::int64_t n, std::span<const void* const> inputs,
           std::span<void* const> outputs) const override {
    const HrmArch& arch = network_.arch();
    require_usage(segments_ >= 1, "the file does not say how many segments an evaluation has; set 'segments' first");
    const auto checked = [&](std::size_t input, const char* called, std::int64_t each, std::int64_t end) {
      const auto* from = static_cast<const std::int64_t*>(inputs[input]);
      const Tensor to = allocate(arena, DType::i32, {n * each});
      for (std::int64_t i = 0; i < n * each; ++i) {
        require_usage(from[i] >= 0 && from[i] < end, "sample ", first + i / each, ", place ", i % each, ": ", called,
                      " ", from[i], ", must be 0 to ", end - 1);
        to.data<std::int32_t>()[i] = static_cast<std::int32_t>(from[i]);
      }
      return to;
    };
    const Tensor tokens = checked(0, "token", arch.seq_len, arch.vocab).reshaped({n, arch.seq_len}),
                 identifiers = checked(1, "identifier", 1, arch.identifiers);
    Stream stream;
    Tape tape(stream, arena, network_.params().dtype(), Tape::Mode::forward);
    const Hrm::Output out = network_.segments(tape, tokens, {identifiers, {}}, segments_);
    visit_float(tape.dtype(), [&]<class T>() {
      const T *logits = out.logits.value().data<T>(), *q = out.q.value().data<T>();
      for (std::int64_t i = 0; i < n * arch.seq_len; ++i, logits += arch.vocab)
        static_cast<std::int64_t*>(outputs[0])[i] = std::max_element(logits, logits + arch.vocab) - logits;
      for (std::int64_t b = 0; b < n; ++b) {
        static_cast<float*>(outputs[1])[b] = static_cast<float>(q[2 * b]);
        static_cast<float*>(outputs[2])[b] = static_cast<float>(q[2 * b + 1]);
      }
    });
  }

  Hrm network_;
  std::int64_t segments_ = 0;
};

}  // namespace

std::unique_ptr<ArrayFunction> hrm_function(const NamedArrays& file, const std::string& what) {
  const HrmArch arch = parse_hrm(file.metadata, what);
  require_values(file, arch.parameters(), what);
  return std::make_unique<HrmFunction>(arch, file, what);
}

}  // namespace lockstep
