#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"
#include "lockstep/ops/gemm.hpp"

namespace lockstep {
namespace {

std::vector<ArrayFunction::Array> inputs_of(const SasRecArch& arch) {
  std::vector<ArrayFunction::Array> inputs = {{"items", DType::i64, {arch.slots}}};
  if (arch.timed) inputs.push_back({"times", DType::i64, {arch.slots}});
  return inputs;
}

double values_per_sample(const SasRecArch& arch) {
  const std::int64_t streams = arch.mhc == SasRecArch::Mhc::streams ? arch.streams : 1;
  return static_cast<double>(arch.slots * arch.blocks * 12 * arch.hidden * streams + 2 * arch.items);
}

class SasRecFunction : public ArrayFunction {
 public:
  SasRecFunction(const SasRecArch& arch, const NamedArrays& file, const std::string& what)
      : ArrayFunction(inputs_of(arch), {{"scores", DType::f32, {arch.items}}}, values_per_sample(arch)),
        network_(arch, dtype_of_arrays(file)) {
    load_arrays(network_.params(), file, {}, what);
  }

 private:
  /// The first slot of a history that holds an item.
  std::int64_t begin_of(const std::int64_t* items, const std::int64_t* times, std::int64_t sample) const {
    const SasRecArch& arch = network_.arch();
    const std::int64_t begin = std::find_if(items, items + arch.slots, [](auto i) { return i != 0; }) - items;
    require_usage(begin < arch.slots, "history ", sample, " has no items");
    for (std::int64_t t = begin; t < arch.slots; ++t) {
      require_usage(items[t] >= 1 && items[t] <= arch.items, "history ", sample, ", slot ", t, ": item ", items[t],
                    ", must be 1 to ", arch.items, ", or 0 before the first item");
      if (!arch.timed) continue;
      require_usage(times[t] >= 1 && (t == begin || times[t] >= times[t - 1]), "history ", sample, ", slot ", t,
                    ": time ", times[t], ", must be >= 1 and not less than the preceding time");
    }
    return begin;
  }

  void run(Arena& arena, std::int64_t first, std::int64_t n, std::span<const void* const> inputs,
           std::span<void* const> outputs) const override {
    const SasRecArch& arch = network_.arch();
    const auto* items = static_cast<const std::int64_t*>(inputs[0]);
    const auto* times = arch.timed ? static_cast<const std::int64_t*>(inputs[1]) : nullptr;
    const auto history = [&](const std::int64_t* of, std::int64_t b) { return of ? of + b * arch.slots : of; };

    const SequenceBatch batch =
        allocate_batch(arena, arch.slots, arch.timed, n, [&](std::int64_t b, std::int64_t& user) {
          user = b;
          const std::int64_t start = begin_of(history(items, b), history(times, b), first + b);
          return arch.slots - (arch.padded() ? 0 : start);
        });
    const auto* begin = batch.begin.data<std::int64_t>();
    for (std::int64_t b = 0, m = 0; b < n; ++b)
      for (std::int64_t t = arch.slots - (begin[b + 1] - begin[b]); t < arch.slots; ++t, ++m) {
        batch.item.data<std::int32_t>()[m] = static_cast<std::int32_t>(history(items, b)[t]);
        batch.slot.data<std::int32_t>()[m] = static_cast<std::int32_t>(t);
        if (arch.timed) batch.time.data<std::int64_t>()[m] = history(items, b)[t] ? history(times, b)[t] : 0;
      }

    Stream stream;
    Tape tape(stream, arena, network_.params().dtype(), Tape::Mode::forward);
    const Tensor scores = tape.keep({n, arch.items + 1});
    ops::gemm_nt(stream, {scores}, network_.newest(tape, batch), tape.value(network_.item_table()));
    auto* out = static_cast<float*>(outputs[0]);
    visit_float(tape.dtype(), [&]<class T>() {
      for (std::int64_t b = 0; b < n; ++b) {
        const T* row = scores.data<T>() + b * (arch.items + 1) + 1;
        out = std::transform(row, row + arch.items, out, [](T score) { return static_cast<float>(score); });
      }
    });
  }

  SasRec network_;
};

}  // namespace

std::unique_ptr<ArrayFunction> sasrec_function(const NamedArrays& file, const std::string& what) {
  const SasRecArch arch = parse_sasrec(file.metadata, what);
  require_values(file, arch.parameters(), what);
  return std::make_unique<SasRecFunction>(arch, file, what);
}

}  // namespace lockstep
