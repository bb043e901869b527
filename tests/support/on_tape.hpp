#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/sample_rows.hpp"
#include "support/tolerance.hpp"

/// Makes a test's arrays available to operations on a tape of any device: the array itself on the CPU, else a copy in
/// the tape's arena, which kernels can read.
namespace lockstep::test {

/// Floating-point copies have the tape's real_dtype().
inline Tensor on_tape(Tape& t, const Tensor& elements) {
  if (!t.stream().device().is_cuda() || !elements) return elements;
  if (elements.dtype() == DType::f64 && t.real_dtype() == DType::f32)
    return on_tape(t, converted(elements, DType::f32).view());
  const Tensor there = allocate(t.arena(), elements.dtype(), elements.shape());
  copy(t.stream(), there, elements);
  t.stream().synchronize();
  return there;
}

template <class T>
std::span<const T> on_tape(Tape& t, std::span<const T> numbers) {
  if (!t.stream().device().is_cuda()) return numbers;
  auto* there = static_cast<T*>(t.host_arena().allocate(numbers.size_bytes()));
  std::copy(numbers.begin(), numbers.end(), there);
  return {there, numbers.size()};
}
template <class T>
std::span<const T> on_tape(Tape& t, const std::vector<T>& numbers) {
  return on_tape(t, std::span<const T>(numbers));
}
inline ops::SampleRows on_tape(Tape& t, const ops::SampleRows& rows) {
  return {on_tape(t, rows.offsets), on_tape(t, rows.samples)};
}

}  // namespace lockstep::test
