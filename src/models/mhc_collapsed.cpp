#include "models/mhc_collapsed.hpp"

#include <cmath>
#include <span>

namespace lockstep {
namespace {

constexpr double kEps = 1e-12;

/// One row at a time, in the type of the arrays.
template <class T>
struct Mixer {
  Mixer(const Tensor& x_, const Tensor& f_, const Param& alpha_, const Linear& phi)
      : x(x_.data<T>()),
        f(f_.data<T>()),
        w(phi.weight->value.data<T>()),
        b(phi.bias->value.data<T>()),
        alpha(*alpha_.value.data<T>()),
        rows(x_.rows()),
        c(x_.columns()),
        n(phi.bias->shape[0]) {}

  T rms(const T* row) const {
    T squares = 0;
    for (std::int64_t k = 0; k < c; ++k) squares += row[k] * row[k];
    return std::sqrt(squares / static_cast<T>(c));
  }
  /// W_m r + b_m, r = n copies of row / scale.
  T mix(std::int64_t m, const T* row, T scale) const {
    T sum = 0;
    for (std::int64_t s = 0; s < n; ++s) {
      for (std::int64_t k = 0; k < c; ++k) sum += w[(m * n + s) * c + k] * row[k];
    }
    return sum / scale + b[m];
  }
  T sigmoid(T a) const { return 1 / (1 + std::exp(-alpha * a)); }

  const T *x, *f, *w, *b;
  T alpha;
  std::int64_t rows, c, n;
};

template <class T>
void forward(const Mixer<T>& s, T* y, T* post) {
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const T* x = s.x + i * s.c;
    const T scale = s.rms(x) + static_cast<T>(kEps);
    T g = 0;
    for (std::int64_t m = 0; m < s.n; ++m) {
      const T h = 2 * s.sigmoid(s.mix(m, x, scale));
      if (post != nullptr) post[i * s.n + m] = h;
      g += h;
    }
    for (std::int64_t k = 0; k < s.c; ++k) y[i * s.c + k] = static_cast<T>(s.n) * x[k] + g * s.f[i * s.c + k];
  }
}

template <class T>
struct Slopes {
  T *alpha, *w, *b;
};

/// `slope` (C) is scratch: the derivative by x / scale. Null targets are not computed.
template <class T>
void backward(const Mixer<T>& s, const T* dy, Target dx, Target df, const Slopes<T>& d, T* slope) {
  const auto n = static_cast<T>(s.n);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const T *x = s.x + i * s.c, *f = s.f + i * s.c, *dyi = dy + i * s.c;
    const T rms = s.rms(x), scale = rms + static_cast<T>(kEps);
    T dg = 0, g = 0;
    for (std::int64_t k = 0; k < s.c; ++k) dg += dyi[k] * f[k], slope[k] = 0;
    for (std::int64_t m = 0; m < s.n; ++m) {
      const T a = s.mix(m, x, scale), p = s.sigmoid(a);
      g += 2 * p;
      const T dz = dg * 2 * p * (1 - p), da = s.alpha * dz;
      if (d.alpha != nullptr) *d.alpha += dz * a;
      if (d.b != nullptr) d.b[m] += da;
      for (std::int64_t at = 0; at < s.n * s.c; ++at) {
        const std::int64_t k = at % s.c;
        slope[k] += da * s.w[m * s.n * s.c + at];
        if (d.w != nullptr) d.w[m * s.n * s.c + at] += da * (x[k] / scale);
      }
    }
    T along = 0;
    for (std::int64_t k = 0; k < s.c; ++k) along += slope[k] * x[k];
    // The norm has derivative 0 at x = 0.
    const T bend = rms > 0 ? along / (scale * scale * rms * static_cast<T>(s.c)) : T{0};
    const auto put = [&](const Target& to, std::int64_t k, T value) {
      T& at = to.tensor.template data<T>()[i * s.c + k];
      at = value + (to.accumulate ? at : T{0});
    };
    for (std::int64_t k = 0; k < s.c; ++k) {
      if (dx) put(dx, k, n * dyi[k] + slope[k] / scale - bend * x[k]);
      if (df) put(df, k, g * dyi[k]);
    }
  }
}

}  // namespace

Var mhc_collapsed(Tape& t, Var x, Var f, const Param& alpha, const Linear& phi, Tensor post) {
  const Param *w = phi.weight, *b = phi.bias;
  require(f.shape() == x.shape() && w->shape == Shape{b->shape[0], b->shape[0] * x.columns()}, "mhc_collapsed: x is ",
          x.shape(), ", f ", f.shape(), ", ", w->name, " ", w->shape, ", its bias ", b->shape);
  Var y = t.output(x.shape(), t.wants_grad({x, f}, {&alpha, w, b}));
  visit_float(t.dtype(), [&]<class T>() {
    forward(Mixer<T>(x.value(), f.value(), alpha, phi), y.value().template data<T>(),
            post ? post.template data<T>() : nullptr);
  });
  t.record("mhc_collapsed", y, {&alpha, w, b}, [=, &t, &alpha] {
    visit_float(t.dtype(), [&]<class T>() {
      const auto slope_of = [&](const Param& p) {
        const Target target = t.grad_of(p);
        return target ? target.tensor.data<T>() : nullptr;
      };
      backward(Mixer<T>(x.value(), f.value(), alpha, phi), y.grad().template data<T>(), t.grad_of(x), t.grad_of(f),
               Slopes<T>{slope_of(alpha), slope_of(*w), slope_of(*b)}, t.keep({x.columns()}).template data<T>());
    });
  });
  return y;
}

}  // namespace lockstep
