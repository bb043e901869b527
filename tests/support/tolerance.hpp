#pragma once
#include <string>

#include "lockstep/base/philox.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::test {

/// The difference of two arrays relative to the largest element of the reference.
struct Difference {
  double relative = 0;      ///< max |a - b| / max |b|; infinite if a value is not finite or the sizes differ
  std::int64_t index = -1;  ///< of the worst element
  double value = 0, reference = 0;
};
/// dtypes  f32 | f64 | bf16 | f16, possibly different ones
Difference difference(const Tensor& value, const Tensor& reference);
std::string to_string(const Difference& d);
std::ostream& operator<<(std::ostream& out, const Difference& d);
inline bool operator<(const Difference& d, double tolerance) { return d.relative < tolerance; }
inline bool operator<=(const Difference& d, double tolerance) { return d.relative <= tolerance; }

/// Whether every bit is equal.
bool same_bits(const Tensor& a, const Tensor& b);

/// Draws from N(0, 1) by (seed, name): the same values in every dtype, rounded from f64. dtypes  f32 | f64 | bf16 | f16
OwnedTensor random_tensor(DType dtype, Shape shape, Site name, std::uint64_t seed = 1);
/// The values in another dtype, rounded to nearest, on the CPU. dtypes  f32 | f64 | bf16 | f16
OwnedTensor converted(const Tensor& t, DType dtype);

}  // namespace lockstep::test
