#include "aggregate_kernels.hpp"
#include "philox_simd.hpp"
#include "simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void combine(Aggregator kind, const RowSet& rows, std::int64_t in, T* __restrict__ a, T* __restrict__ b,
             const T* __restrict__ x, const T* __restrict__ s) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const T *xi = x + rows[i] * in, *si = s + rows[i] * in;
    switch (kind) {
      case Aggregator::bi_interaction:
        for (std::int64_t c = 0; c < in; ++c) a[i * in + c] = xi[c] + si[c];
        for (std::int64_t c = 0; c < in; ++c) b[i * in + c] = xi[c] * si[c];
        break;
      case Aggregator::gcn:
        for (std::int64_t c = 0; c < in; ++c) a[i * in + c] = xi[c] + si[c];
        break;
      case Aggregator::graphsage:
        for (std::int64_t c = 0; c < in; ++c) a[2 * i * in + c] = xi[c];
        for (std::int64_t c = 0; c < in; ++c) a[(2 * i + 1) * in + c] = si[c];
        break;
    }
  }
}

void draw(const PhiloxKey& key, std::int64_t groups, std::uint32_t* words) {
  for (std::int64_t g = 0; g < groups; ++g) philox_group(key, static_cast<std::uint64_t>(g), words + g * kGroupWords);
}

template <class T>
LOCKSTEP_INLINE T leaky(T z, T slope) {
  return z > 0 ? z : z * slope;
}

template <class T>
void activate(const RowSet& rows, std::int64_t width, T* __restrict__ out, std::uint8_t* __restrict__ marks,
              const T* __restrict__ z1, const T* __restrict__ bias1, const T* __restrict__ z2,
              const T* __restrict__ bias2, T slope, const std::uint16_t* __restrict__ draws, std::int64_t stride,
              std::int32_t threshold, T scale) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    T* o = out + rows[i] * width;
    const T* p = z1 + i * width;
    for (std::int64_t c = 0; c < width; ++c) o[c] = leaky(p[c] + bias1[c], slope);
    if (z2 != nullptr) {
      const T* q = z2 + i * width;
      for (std::int64_t c = 0; c < width; ++c) o[c] += leaky(q[c] + bias2[c], slope);
    }
    if (draws != nullptr) {
      const std::uint16_t* d = draws + i * stride;
      for (std::int64_t c = 0; c < width; ++c) o[c] = d[c] >= threshold ? o[c] * scale : 0;
    }
    if (marks == nullptr) continue;
    std::uint8_t* m = marks + rows[i] * width;
    for (std::int64_t c = 0; c < width; ++c)
      m[c] = static_cast<std::uint8_t>(p[c] + bias1[c] > 0 ? kKept | kFirst : kKept);
    if (z2 != nullptr) {
      const T* q = z2 + i * width;
      for (std::int64_t c = 0; c < width; ++c)
        m[c] = static_cast<std::uint8_t>(m[c] | (q[c] + bias2[c] > 0 ? kSecond : 0));
    }
    if (draws != nullptr) {
      const std::uint16_t* d = draws + i * stride;
      for (std::int64_t c = 0; c < width; ++c) m[c] = d[c] >= threshold ? m[c] : std::uint8_t{0};
    }
  }
}

template <class T>
void derive(const RowSet& rows, std::int64_t width, T* __restrict__ d1, T* __restrict__ d2, T* __restrict__ dbias1,
            T* __restrict__ dbias2, const T* __restrict__ dout, const std::uint8_t* __restrict__ marks, T slope,
            T scale) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const T* g = dout + rows[i] * width;
    const std::uint8_t* m = marks + rows[i] * width;
    T* p = d1 + i * width;
    for (std::int64_t c = 0; c < width; ++c) {
      const T kept = m[c] & kKept ? g[c] * scale : 0;
      p[c] = m[c] & kFirst ? kept : kept * slope;
      dbias1[c] += p[c];
    }
    if (d2 == nullptr) continue;
    T* q = d2 + i * width;
    for (std::int64_t c = 0; c < width; ++c) {
      const T kept = m[c] & kKept ? g[c] * scale : 0;
      q[c] = m[c] & kSecond ? kept : kept * slope;
      dbias2[c] += q[c];
    }
  }
}

template <class T>
void split(Aggregator kind, const RowSet& rows, std::int64_t in, T* __restrict__ dx, T* __restrict__ ds,
           const T* __restrict__ da, const T* __restrict__ db, const T* __restrict__ x, const T* __restrict__ s) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = rows[i] * in;
    switch (kind) {
      case Aggregator::bi_interaction:
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = da[i * in + c] + db[i * in + c] * x[at + c];
        for (std::int64_t c = 0; c < in; ++c) dx[at + c] = da[i * in + c] + db[i * in + c] * s[at + c];
        break;
      case Aggregator::gcn:
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = dx[at + c] = da[i * in + c];
        break;
      case Aggregator::graphsage:
        for (std::int64_t c = 0; c < in; ++c) dx[at + c] = da[2 * i * in + c];
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = da[(2 * i + 1) * in + c];
        break;
    }
  }
}

}  // namespace

template <class T>
AggregateKernels<T> aggregate_kernels() {
  return {combine<T>, draw, activate<T>, derive<T>, split<T>};
}
template AggregateKernels<float> aggregate_kernels<float>();
template AggregateKernels<double> aggregate_kernels<double>();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
