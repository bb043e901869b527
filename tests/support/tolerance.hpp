#pragma once
#include <string>

#include "lockstep/base/philox.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::test {

/// How far two arrays are apart, relative to the largest element of the reference.
struct Difference {
  double relative = 0;      ///< max |a - b| / max |b|; infinite when a value is not finite or the sizes differ
  std::int64_t index = -1;  ///< of the worst element
  double value = 0, reference = 0;
};
/// f32 | f64 | bf16 | f16, each its own.
Difference difference(const Tensor& value, const Tensor& reference);
std::string to_string(const Difference& d);
std::ostream& operator<<(std::ostream& out, const Difference& d);
inline bool operator<(const Difference& d, double tolerance) { return d.relative < tolerance; }
inline bool operator<=(const Difference& d, double tolerance) { return d.relative <= tolerance; }

/// Whether every bit is equal.
bool same_bits(const Tensor& a, const Tensor& b);

/// N(0, 1) by (seed, name); f32 | f64 | bf16 | f16. The values are the f64 ones, rounded.
OwnedTensor random_tensor(DType dtype, Shape shape, Site name, std::uint64_t seed = 1);
/// The same values in another dtype, rounded to nearest if need be. f32 | f64 | bf16 | f16, on the CPU.
OwnedTensor converted(const Tensor& t, DType dtype);

}  // namespace lockstep::test
