#pragma once
#include "support/devices.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// f32 and f64 agree with the same types on the CPU, stored and added.
inline void agrees_on_both(const std::function<void(Place&)>& f, double single = 1e-5, double in_double = 1e-12) {
  CHECK(device_faults(f, {single, in_double, 0, 0}) == "");
}

/// bf16 and f16 storage agree with f64 results on the CPU for the same rounded inputs.
inline void halves_agree(const std::function<void(Place&)>& f, double in_bf16 = 0x1p-6, double in_f16 = 0x1p-9) {
  CHECK(device_faults(f, {0, 0, in_bf16, in_f16}) == "");
}

/// Both comparisons.
inline void every_dtype_agrees(const std::function<void(Place&)>& f, double single = 1e-5, double in_double = 1e-12) {
  agrees_on_both(f, single, in_double);
  halves_agree(f);
}

}  // namespace lockstep::test
