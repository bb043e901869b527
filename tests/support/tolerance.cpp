#include "support/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <ostream>
#include <utility>
#include <vector>

namespace lockstep::test {

namespace {
double as_double(float x) { return static_cast<double>(x); }
double as_double(double x) { return x; }
double as_double(bf16 x) { return static_cast<double>(from_bf16(x.bits)); }
double as_double(f16 x) { return static_cast<double>(from_f16(x.bits)); }
template <class T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, bf16>)
    return {to_bf16(static_cast<float>(x))};
  else if constexpr (std::is_same_v<T, f16>)
    return {to_f16(static_cast<float>(x))};
  else
    return static_cast<T>(x);
}

/// The first `count` draws of a site. They are kept, because a comparison of two devices draws each input six times.
const std::vector<double>& normal_draws(Site name, std::uint64_t seed, std::size_t count) {
  constexpr std::size_t kMostKept = 1 << 23;
  thread_local std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<double>> kept;
  thread_local std::size_t sum = 0;
  if (sum > kMostKept) kept.clear(), sum = 0;
  std::vector<double>& draws = kept[{name.id, seed}];
  const Philox philox(seed, 0, name);
  for (; draws.size() < count; ++sum) draws.push_back(philox.normal(draws.size()));
  return draws;
}

std::vector<double> doubles(const Tensor& t) {
  std::vector<double> values;
  visit_storage(t.dtype(), [&]<class T>() {
    for (const T x : t.span<T>()) values.push_back(as_double(x));
  });
  return values;
}
}  // namespace

Difference difference(const Tensor& value, const Tensor& reference) {
  Difference d;
  if (value.size() != reference.size()) {
    d.relative = std::numeric_limits<double>::infinity();
    return d;
  }
  const std::vector<double> a = doubles(value), b = doubles(reference);
  double largest = 0, worst = -1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    double distance = std::abs(a[i] - b[i]);
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) distance = std::numeric_limits<double>::infinity();
    if (distance > worst) worst = distance, d.index = static_cast<std::int64_t>(i), d.value = a[i], d.reference = b[i];
  }
  if (worst > 0) d.relative = largest > 0 ? worst / largest : std::numeric_limits<double>::infinity();
  return d;
}

std::string to_string(const Difference& d) {
  return join(d.relative, " of the largest, worst at element ", d.index, ": ", d.value, " instead of ", d.reference);
}
std::ostream& operator<<(std::ostream& out, const Difference& d) { return out << to_string(d); }

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.size() == b.size() &&
         (a.size() == 0 || std::memcmp(a.raw(), b.raw(), a.size_bytes()) == 0);
}

OwnedTensor random_tensor(DType dtype, Shape shape, Site name, std::uint64_t seed) {
  OwnedTensor t(dtype, shape);
  const std::vector<double>& draws = normal_draws(name, seed, static_cast<std::size_t>(t->size()));
  visit_storage(dtype,
                [&]<class T>() { std::transform(draws.begin(), draws.begin() + t->size(), t->data<T>(), rounded<T>); });
  return t;
}

OwnedTensor converted(const Tensor& t, DType dtype) {
  OwnedTensor out(dtype, t.shape());
  const std::vector<double> values = doubles(t);
  visit_storage(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) out->data<T>()[i] = rounded<T>(values[i]);
  });
  return out;
}

}  // namespace lockstep::test
