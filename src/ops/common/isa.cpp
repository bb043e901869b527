#include "lockstep/ops/isa.hpp"

#include <algorithm>
#include <atomic>

#include "lockstep/base/error.hpp"

namespace lockstep::ops {

std::string record_name(Isa isa) {
#if defined(__aarch64__)
  if (isa == Isa::generic) return "generic of aarch64";
#endif
  return name(isa);
}

namespace {
std::vector<Isa> find_isas() {
  std::vector<Isa> found = {Isa::generic};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    found.push_back(Isa::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
      found.push_back(Isa::avx512);
  }
#elif defined(__aarch64__)
  found.push_back(Isa::asimd);  // every AArch64 processor has it
#endif
  return found;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{available_isas().back()};
  return isa;
}
}  // namespace

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> isas = find_isas();
  return isas;
}

Isa active_isa() { return chosen().load(std::memory_order_relaxed); }

void use_isa(Isa isa) {
  const auto& isas = available_isas();
  require_usage(std::find(isas.begin(), isas.end(), isa) != isas.end(), "instruction set ", name(isa),
                ": this processor does not have it; the best here is ", name(isas.back()));
  chosen().store(isa, std::memory_order_relaxed);
}

}  // namespace lockstep::ops
