#include "lockstep/nn/loss.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/ops/cross_entropy.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {

namespace {
void set_scalar(const Tensor& t, double value) {
  visit_float(t.dtype(), [&]<class T>() { *t.data<T>() = static_cast<T>(value); });
}
/// sum(loss, dy) computes the sum and its gradient; the result on the tape is scale times it.
template <class Sum>
Var summed(Tape& t, const char* op, Var y, double scale, const Sum& sum) {
  Var loss = t.output({}, t.wants_grad({y}));
  const Tensor gradient = loss.wants_grad() ? t.keep(y.shape()) : Tensor{};
  sum(loss.value(), gradient);
  if (scale != 1) ops::scale(t.stream(), {loss.value()}, loss.value(), scale);
  t.record(op, loss, {}, [=, &t] { ops::scale_by(t.stream(), t.grad_of(y), gradient, loss.grad(), scale); });
  return loss;
}
}  // namespace

Var regression_loss(Tape& t, Var y, const Tensor& target, Regression kind, double scale) {
  return summed(t, "regression_loss", y, scale, [&](const Tensor& loss, const Tensor& dy) {
    ops::regression_loss(t.stream(), loss, dy, y.value(), target, kind);
  });
}

Var smoothness_loss(Tape& t, Var y, std::span<const double> mean, std::span<const double> std, int order,
                    double scale) {
  const auto kept = [&](std::span<const double> values) {
    auto* to = static_cast<double*>(t.host_arena().allocate(values.size_bytes()));
    std::ranges::copy(values, to);
    return std::span<const double>(to, values.size());
  };
  return summed(t, "smoothness_loss", y, scale, [&](const Tensor& loss, const Tensor& dy) {
    ops::smoothness_loss(t.stream(), loss, dy, y.value(), kept(mean), kept(std), order);
  });
}

Var cross_entropy(Tape& t, Var logits, const Tensor& labels, double smoothing) {
  return summed(t, "cross_entropy", logits, 1, [&](const Tensor& loss, const Tensor& dy) {
    ops::cross_entropy(t.stream(), loss, dy, logits.value(), labels, smoothing);
  });
}

namespace {

template <class T>
T dot(std::int64_t n, const T* a, const T* b) {
  std::array<T, 16> lanes{};
  std::int64_t k = 0;
  for (; k + 16 <= n; k += 16)
    for (std::size_t l = 0; l < 16; ++l)
      lanes[l] += a[k + static_cast<std::int64_t>(l)] * b[k + static_cast<std::int64_t>(l)];
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  for (; k < n; ++k) sum += a[k] * b[k];
  return sum;
}

}  // namespace

Var sampled_cross_entropy(Tape& t, Var f, const Param& table, std::span<const std::int32_t> pos,
                          std::span<const std::int32_t> neg) {
  require(f.rows() == static_cast<std::int64_t>(pos.size()) && pos.size() == neg.size() &&
              table.shape.columns() == f.columns(),
          "sampled_cross_entropy: f is ", f.shape(), ", ", table.name, " ", table.shape, ", there are ", pos.size(),
          " and ", neg.size(), " items");
  Var loss = t.output({}, t.wants_grad({f}, {&table}));
  const Tensor slopes = t.keep({2, f.rows()});  // of the two scores of each token
  visit_float(t.dtype(), [&]<class T>() {
    const std::int64_t c = f.columns();
    double sum = 0;
    for (std::size_t m = 0; m < pos.size(); ++m) {
      const T* x = f.value().data<T>() + static_cast<std::int64_t>(m) * c;
      for (const bool next : {true, false}) {
        T& slope = slopes.data<T>()[next ? m : pos.size() + m];
        slope = 0;
        if (pos[m] == 0) continue;
        const std::int32_t item = next ? pos[m] : neg[m];
        require(item >= 0 && item < table.shape[0], "sampled_cross_entropy: item ", item, " of ", table.shape[0]);
        const T score = dot(c, x, table.value.data<T>() + item * c), z = next ? -score : score;
        const T e = std::exp(-std::abs(z));
        sum += static_cast<double>(std::max(z, T{0}) + std::log1p(e));
        const T p = z > 0 ? 1 / (1 + e) : e / (1 + e);
        slope = next ? -p : p;
      }
    }
    set_scalar(loss.value(), sum);
  });
  t.record("sampled_cross_entropy", loss, {&table}, [=, &t, &table] {
    const Target df = t.grad_of(f), dtable = t.grad_of(table);
    TouchedRows* touched = t.touched_rows(table);
    visit_float(t.dtype(), [&]<class T>() {
      const std::int64_t c = f.columns();
      const T seed = *loss.grad().template data<T>();
      for (std::size_t m = 0; m < pos.size(); ++m) {
        const std::int64_t row = static_cast<std::int64_t>(m) * c;
        T* dx = df ? df.tensor.data<T>() + row : nullptr;
        if (dx != nullptr && !df.accumulate) std::fill_n(dx, c, T{0});
        if (pos[m] == 0) continue;
        for (const bool next : {true, false}) {
          const std::int32_t item = next ? pos[m] : neg[m];
          const T slope = seed * slopes.data<T>()[next ? m : pos.size() + m];
          const T *e = table.value.data<T>() + item * c, *x = f.value().template data<T>() + row;
          if (dx != nullptr)
            for (std::int64_t k = 0; k < c; ++k) dx[k] += slope * e[k];
          if (!dtable) continue;
          if (touched != nullptr) touched->touch(item);
          T* de = dtable.tensor.data<T>() + item * c;
          for (std::int64_t k = 0; k < c; ++k) de[k] += slope * x[k];
        }
      }
    });
  });
  return loss;
}

Var add(Tape& t, Var a, Var b) {
  Var y = t.output(a.shape(), t.wants_grad({a, b}));
  ops::add(t.stream(), y.value(), a.value(), b.value());
  t.record("add", y, {}, [=, &t] {
    ops::scale(t.stream(), t.grad_of(a), y.grad(), 1);
    ops::scale(t.stream(), t.grad_of(b), y.grad(), 1);
  });
  return y;
}

}  // namespace lockstep
