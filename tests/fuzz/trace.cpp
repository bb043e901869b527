/// Tells libFuzzer which code runs: GCC calls this function in every basic block (-fsanitize-coverage=trace-pc).
/// libFuzzer has one of that name, for an interface that it no longer serves; the linker renames ours (--wrap).
#include <cstdint>

extern const char __executable_start;

namespace {
constexpr int kBits = 18;
__attribute__((section("__libfuzzer_extra_counters"))) std::uint8_t counters[1 << kBits];
}  // namespace

extern "C" void __wrap___sanitizer_cov_trace_pc() {
  const auto at = static_cast<const char*>(__builtin_return_address(0)) - &__executable_start;
  std::uint8_t& counter = counters[static_cast<std::uint32_t>(at) * 0x9e3779b1U >> (32 - kBits)];
  if (counter != 255) ++counter;
}
// Comparisons of reals, which libFuzzer does not use.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
