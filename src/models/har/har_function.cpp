#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/models/har/har_weights.hpp"

namespace lockstep {
namespace {

class HarFunction : public ArrayFunction {
 public:
  HarFunction(const HarArch& arch, HarMetadata data, const NamedArrays& file, const std::string& what)
      : ArrayFunction({{"x", DType::f32, {arch.channels, arch.length}}}, {{"scores", DType::f32, {arch.classes}}},
                      static_cast<double>(arch.channels * arch.tokens() * arch.layers) *
                          static_cast<double>(10 * arch.dim + 2 * arch.mlp)),
        network_(arch, dtype_of_arrays(file), 0),
        data_(std::move(data)) {
    load_arrays(network_.params(), file, {}, what);
  }

 private:
  void run(Arena& arena, std::int64_t, std::int64_t n, std::span<const void* const> inputs,
           std::span<void* const> outputs) const override {
    const HarArch& arch = network_.arch();
    Stream stream;
    Tape tape(stream, arena, network_.params().dtype(), Tape::Mode::forward);
    const auto* x = static_cast<const float*>(inputs[0]);
    auto* scores = static_cast<float*>(outputs[0]);
    visit_float(tape.dtype(), [&]<class T>() {
      const Tensor logits = network_.classify(tape, patches<T>(tape, x, n), nullptr).value();
      const std::int64_t per_window = logits.rows() / n;
      const auto to_float = [](auto score) { return static_cast<float>(score); };
      if (per_window == 1) {
        std::ranges::transform(logits.span<const T>(), scores, to_float);
      } else {
        std::vector<double> means(n * arch.classes);
        window_log_probabilities(logits, arch.classes, per_window, means);
        std::ranges::transform(means, scores, to_float);
      }
    });
  }

  /// Normalised signals in patches. shapes  x (n, C, L) -> (n S, T, P), S channels that the mode reads
  template <class T>
  Tensor patches(Tape& tape, const float* x, std::int64_t n) const {
    const HarArch& arch = network_.arch();
    const std::int64_t channels = arch.mode == HarArch::Mode::first ? 1 : arch.channels;
    const Tensor out = tape.keep({n * channels, arch.tokens(), arch.patch});
    T* to = out.data<T>();
    for (std::int64_t i = 0; i < n * channels; ++i) {
      const std::int64_t c = i % channels;
      const float* from = x + (i / channels * arch.channels + c) * arch.length;
      const double mean = data_.channel_mean[c], scale = 1 / data_.channel_std[c];
      for (std::int64_t t = 0; t < arch.length; ++t)
        *to++ = static_cast<T>((static_cast<double>(from[t]) - mean) * scale);
      to = std::fill_n(to, arch.tokens() * arch.patch - arch.length, T{0});
    }
    return out;
  }

  Har network_;
  HarMetadata data_;
};

}  // namespace

std::unique_ptr<ArrayFunction> har_function(const NamedArrays& file, const std::string& what) {
  HarArch arch;
  HarMetadata data;
  parse(file.metadata, what, arch, data);
  require_usage(arch.input == HarArch::Input::signal, what,
                ": model.input = image: pictures are drawn outside of the network; train with model.input = signal");
  require_values(file, arch.parameters(), what);
  return std::make_unique<HarFunction>(arch, std::move(data), file, what);
}

}  // namespace lockstep
