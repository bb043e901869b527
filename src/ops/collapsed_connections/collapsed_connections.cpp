#include "lockstep/ops/collapsed_connections.hpp"

#include <cmath>

#include "collapsed_connections_kernels.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {
namespace {

constexpr double kEps = 1e-12;

void check(const char* what, const Tensor& x, const Tensor& f, const Tensor& y, const CollapsedConnection& s) {
  const std::int64_t n = s.bias.size();
  require(f.shape() == x.shape() && y.shape() == x.shape() && s.weight.shape() == Shape{n, n * x.columns()}, what,
          ": x is ", x.shape(), ", f ", f.shape(), ", y or dy ", y.shape(), ", the weight ", s.weight.shape(),
          ", its bias ", s.bias.shape());
}

template <class T>
cuda::Collapsed<T> collapsed(const Tensor& x, const Tensor& f, const CollapsedConnection& s) {
  return {x.rows(), x.columns(), s.bias.size(), x, f, s.alpha, s.weight, s.bias};
}

/// Computes one row at a time, in the type of the arrays.
template <class T>
struct Mixer : cuda::Collapsed<T> {
  explicit Mixer(const cuda::Collapsed<T>& site) : cuda::Collapsed<T>(site) {}

  T rms(const T* row) const {
    T squares = 0;
    for (std::int64_t k = 0; k < this->columns; ++k) squares += row[k] * row[k];
    return std::sqrt(squares / static_cast<T>(this->columns));
  }
  /// W_m r + b_m, where r is n copies of row / scale.
  T mix(std::int64_t m, const T* row, T scale) const {
    T sum = 0;
    for (std::int64_t s = 0; s < this->n; ++s) {
      for (std::int64_t k = 0; k < this->columns; ++k)
        sum += this->weight[(m * this->n + s) * this->columns + k] * row[k];
    }
    return sum / scale + this->bias[m];
  }
  T sigmoid(T a) const { return 1 / (1 + std::exp(-*this->alpha * a)); }
};

template <class T>
void forward(const Mixer<T>& s, T* y) {
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const T* x = s.x + i * s.columns;
    const T scale = s.rms(x) + static_cast<T>(kEps);
    T g = 0;
    for (std::int64_t m = 0; m < s.n; ++m) g += 2 * s.sigmoid(s.mix(m, x, scale));
    for (std::int64_t k = 0; k < s.columns; ++k)
      y[i * s.columns + k] = static_cast<T>(s.n) * x[k] + g * s.f[i * s.columns + k];
  }
}

template <class T>
void backward(const Mixer<T>& s, const T* dy, const cuda::CollapsedGradients<T>& to, bool accumulate_dx,
              bool accumulate_df) {
  const auto n = static_cast<T>(s.n);
  const std::int64_t columns = s.columns;
  // The derivative with respect to x / scale.
  T* const slope = cpu::thread_scratch<T>(cpu::Scratch::tables, columns);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const T *x = s.x + i * columns, *f = s.f + i * columns, *dyi = dy + i * columns;
    const T rms = s.rms(x), scale = rms + static_cast<T>(kEps);
    T dg = 0, g = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      dg += dyi[k] * f[k];
      slope[k] = 0;
    }
    for (std::int64_t m = 0; m < s.n; ++m) {
      const T a = s.mix(m, x, scale), p = s.sigmoid(a);
      g += 2 * p;
      const T dz = dg * 2 * p * (1 - p), da = *s.alpha * dz;
      if (to.alpha != nullptr) *to.alpha += dz * a;
      if (to.bias != nullptr) to.bias[m] += da;
      for (std::int64_t at = 0; at < s.n * columns; ++at) {
        const std::int64_t k = at % columns;
        slope[k] += da * s.weight[m * s.n * columns + at];
        if (to.weight != nullptr) to.weight[m * s.n * columns + at] += da * (x[k] / scale);
      }
    }
    T along = 0;
    for (std::int64_t k = 0; k < columns; ++k) along += slope[k] * x[k];
    const T bend = rms > 0 ? along / (scale * scale * rms * static_cast<T>(columns)) : T{0};
    const auto put = [&](T* row, bool accumulate, std::int64_t k, T value) {
      if (row != nullptr) row[i * columns + k] = value + (accumulate ? row[i * columns + k] : T{0});
    };
    for (std::int64_t k = 0; k < columns; ++k) {
      put(to.dx, accumulate_dx, k, n * dyi[k] + slope[k] / scale - bend * x[k]);
      put(to.df, accumulate_df, k, g * dyi[k]);
    }
  }
}

}  // namespace

void collapsed_connection_forward(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& f,
                                  const CollapsedConnection& site) {
  check("collapsed_connection", x, f, y, site);
  on_gpu(x, [&]<class T>() { cuda::collapsed_connection_forward<T>(stream, y, collapsed<T>(x, f, site)); });
  on_cpu(x, [&]<class T>() { forward(Mixer<T>(collapsed<T>(x, f, site)), y.data<T>()); });
}

void collapsed_connection_backward(Stream& stream, Target dx, Target df, const CollapsedConnection& gradients,
                                   const Tensor& dy, const Tensor& x, const Tensor& f,
                                   const CollapsedConnection& site) {
  check("collapsed_connection backward", x, f, dy, site);
  const auto targets = [&]<class T>() {
    return cuda::CollapsedGradients<T>{dx.tensor, df.tensor, gradients.alpha, gradients.weight, gradients.bias};
  };
  on_gpu(x, [&]<class T>() {
    cuda::collapsed_connection_backward<T>(stream, targets.template operator()<T>(), dx.accumulate, df.accumulate, dy,
                                           collapsed<T>(x, f, site));
  });
  on_cpu(x, [&]<class T>() {
    backward(Mixer<T>(collapsed<T>(x, f, site)), dy.data<T>(), targets.template operator()<T>(), dx.accumulate,
             df.accumulate);
  });
}

}  // namespace lockstep::ops
