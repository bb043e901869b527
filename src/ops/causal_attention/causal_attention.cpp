#include "lockstep/ops/causal_attention.hpp"

#include <algorithm>
#include <cmath>

#include "causal_attention_kernels.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

void check(const char* what, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
           const CausalAttention& a, const TimeBuckets& time) {
  require(q.shape().rank() == 2 && k.shape() == q.shape() && v.shape() == q.shape() && y.shape() == q.shape(), what,
          ": q is ", q.shape(), ", k ", k.shape(), ", v ", v.shape(), ", y or dy ", y.shape(),
          "; all must be equal (N, C)");
  require(q.rows() == a.rows.rows(), what, ": q is ", q.shape(), ", but the ", a.rows.count(), " sequences have ",
          a.rows.rows(), " rows");
  require(a.heads >= 1 && q.columns() % a.heads == 0, what, ": ", a.heads, " heads do not divide ", q.columns(),
          " channels");
  require(a.first_query.empty() || a.first_query.size() == a.rows.samples.size(), what, ": ", a.first_query.size(),
          " first queries for ", a.rows.count(), " sequences");
  if (!time) return;
  require(time.keys.shape().rank() == 2 && time.values.shape() == time.keys.shape() &&
              time.keys.columns() == q.columns() && time.keys.rows() >= 1,
          what, ": q is ", q.shape(), ", so the time tables must be (R, ", q.columns(), "), not ", time.keys.shape(),
          " and ", time.values.shape());
  require(std::isinf(a.fill), what, ": times require a fill of minus infinity");
  require(static_cast<std::int64_t>(time.times.size()) == q.rows(), what, ": ", time.times.size(), " times for ",
          q.rows(), " rows");
  for (std::size_t b = 0; b < a.rows.samples.size(); ++b) {
    for (std::int64_t i = a.rows.offsets[b] + 1; i < a.rows.offsets[b + 1]; ++i) {
      const std::int64_t before = time.times[static_cast<std::size_t>(i - 1)],
                         here = time.times[static_cast<std::size_t>(i)];
      require(before <= here, what, ": the times of sequence ", b, " go backwards, from ", before, " to ", here);
    }
  }
}

/// The time tables and their gradients in the layout of the kernels, split by head.
template <class T>
class HeadTables {
 public:
  HeadTables(const TimeBuckets& time, std::int64_t heads, bool gradients)
      : time_(time), heads_(heads), rows_(time ? time.keys.rows() : 0), columns_(time ? time.keys.columns() : 0) {
    if (!time) return;
    width_ = cpu::active_causal_attention_kernels<T>().time_width(columns_ / heads);
    size_ = heads * rows_ * width_;
    const std::int64_t all = (gradients ? 4 : 2) * size_ + rows_ * columns_;
    memory_ = static_cast<T*>(cpu::thread_scratch(cpu::Scratch::tables, static_cast<std::size_t>(all) * sizeof(T)));
    if (gradients) gradients_ = memory_ + 2 * size_;
    flat_ = memory_ + (gradients ? 4 : 2) * size_;
    if (time.dropout && time.drop == TimeBuckets::Drop::element) {
      threshold_ = static_cast<std::int32_t>(time.dropout.rate * 256 + 0.5);
      scale_ = static_cast<T>(256.0 / (256 - threshold_));
    }
    if (!per_sequence()) {
      cut(time.keys.data<T>(), memory_);
      cut(time.values.data<T>(), memory_ + size_);
      if (gradients_) std::fill_n(gradients_, 2 * size_, T{});
    }
  }
  /// Call before the heads of a sequence.
  void begin(std::uint64_t sample) {
    sample_ = sample;
    if (!time_ || !per_sequence()) return;
    for (const int side : {0, 1}) {
      drop(side, flat_, (side == 0 ? time_.keys : time_.values).template data<T>(), false);
      cut(flat_, memory_ + side * size_);
    }
    if (gradients_) std::fill_n(gradients_, 2 * size_, T{});
  }
  /// Call after the heads of a sequence (`last`: of the last one).
  void end(bool last, Target dkeys, Target dvalues) {
    if (!gradients_ || (!per_sequence() && !last)) return;
    for (const int side : {0, 1}) {
      const Target& target = side == 0 ? dkeys : dvalues;
      if (!target) continue;
      T* out = target.tensor.template data<T>();
      join(gradients_ + side * size_, flat_);
      if (per_sequence())
        drop(side, out, flat_, true);
      else
        for (std::int64_t i = 0; i < rows_ * columns_; ++i) out[i] += flat_[i];
    }
  }
  cpu::TimeHead<T> head(std::int64_t head, const std::int64_t* times) const {
    cpu::TimeHead<T> out;
    if (!time_) return out;
    const std::int64_t at = head * rows_ * width_;
    out.keys = memory_ + at;
    out.values = memory_ + size_ + at;
    if (gradients_) {
      out.dkeys = gradients_ + at;
      out.dvalues = gradients_ + size_ + at;
    }
    out.times = times;
    out.last = rows_ - 1;
    out.threshold = threshold_;
    Dropout d = time_.dropout;
    d.site.id += static_cast<std::uint32_t>(head);
    out.draws = cpu::PhiloxKey(d.draws(sample_));
    return out;
  }

 private:
  bool per_sequence() const { return time_.dropout && time_.drop == TimeBuckets::Drop::table; }
  /// Applies this sample's mask to a table. Keys and values have sites of their own.
  void drop(int side, T* out, const T* in, bool accumulate) const {
    Dropout d = time_.dropout;
    d.site.id += static_cast<std::uint32_t>(side);
    cpu::active_dropout_kernel<T>()(rows_ * columns_, out, accumulate ? out : nullptr, in,
                                    cpu::PhiloxKey(d.draws(sample_)), 0, cpu::DropRate(d.rate));
  }
  /// Converts (R, C) to (heads, R, width), and back.
  void cut(const T* from, T* to) const {
    const std::int64_t e = columns_ / heads_;
    for (std::int64_t h = 0; h < heads_; ++h)
      for (std::int64_t r = 0; r < rows_; ++r, to += width_) {
        const T* row = from + r * columns_ + h * e;
        for (std::int64_t c = 0; c < e; ++c) to[c] = scale_ * row[c];
        std::fill(to + e, to + width_, T{});
      }
  }
  void join(const T* from, T* to) const {
    const std::int64_t e = columns_ / heads_;
    for (std::int64_t h = 0; h < heads_; ++h)
      for (std::int64_t r = 0; r < rows_; ++r, from += width_)
        for (std::int64_t c = 0; c < e; ++c) to[r * columns_ + h * e + c] = scale_ * from[c];
  }

  const TimeBuckets& time_;
  std::int64_t heads_, rows_, columns_, width_ = 0, size_ = 0;
  T *memory_ = nullptr, *gradients_ = nullptr, *flat_ = nullptr;
  std::int32_t threshold_ = 0;
  T scale_ = 1;
  std::uint64_t sample_ = 0;
};

/// The arguments of a head except its pointers.
template <class T>
cpu::CausalHead<T> head_of(const CausalAttention& a, std::size_t b, std::int64_t head, std::int64_t columns) {
  cpu::CausalHead<T> h{};
  h.length = a.rows.offsets[b + 1] - a.rows.offsets[b];
  h.width = columns / a.heads;
  h.stride = columns;
  h.first_query = a.first_query.empty() ? 0 : a.first_query[b];
  h.logsum_stride = a.heads;
  h.filled = std::isfinite(a.fill);
  h.fill = h.filled ? static_cast<T>(a.fill) : T{};
  h.drop = static_cast<bool>(a.dropout);
  h.rate = cpu::DropRate(a.dropout.rate);
  Dropout d = a.dropout;
  d.site.id += static_cast<std::uint32_t>(head);
  h.draws = cpu::PhiloxKey(d.draws(a.rows.samples[b]));
  return h;
}

/// The data of t, or null if t is empty.
template <class T>
T* pointer(const Tensor& t) {
  return t ? t.data<T>() : nullptr;
}
template <class T>
T* at(const Tensor& t, std::int64_t row, std::int64_t column) {
  return t ? t.data<T>() + row * t.columns() + column : nullptr;
}

}  // namespace

void causal_attention_forward(Stream& stream, const Tensor& y, const Tensor& logsum, const Tensor& q, const Tensor& k,
                              const Tensor& v, const CausalAttention& a, const TimeBuckets& time) {
  check("causal_attention", q, k, v, y, a, time);
  require(!logsum || logsum.shape() == Shape{q.rows(), a.heads}, "causal_attention: q is ", q.shape(),
          ", so logsum must be (", q.rows(), ", ", a.heads, "), not ", logsum.shape());
  if (on_gpu(q, [&]<class T>() {
        cuda::causal_attention_forward<T>(stream, y.data<T>(), pointer<real_t<T>>(logsum), q.data<T>(), k.data<T>(),
                                          v.data<T>(), q.columns(), a, time);
      }))
    return;
  visit_float(q.dtype(), [&]<class T>() {
    HeadTables<T> tables(time, a.heads, false);
    for (std::size_t b = 0; b < a.rows.samples.size(); ++b) {
      const std::int64_t row = a.rows.offsets[b];
      tables.begin(a.rows.samples[b]);
      for (std::int64_t head = 0; head < a.heads; ++head) {
        cpu::CausalHead<T> h = head_of<T>(a, b, head, q.columns());
        const std::int64_t column = head * h.width;
        h.q = at<T>(q, row, column);
        h.k = at<T>(k, row, column);
        h.v = at<T>(v, row, column);
        h.y = at<T>(y, row, column);
        h.logsum = at<T>(logsum, row, head);
        h.time = tables.head(head, time ? time.times.data() + row : nullptr);
        cpu::active_causal_attention_kernels<T>().forward(h);
      }
    }
    std::fill(y.data<T>() + a.rows.used() * y.columns(), y.data<T>() + y.size(), T{});
  });
}

void causal_attention_backward(Stream& stream, Target dq, Target dk, Target dv, Target dkeys, Target dvalues,
                               const Tensor& dy, const Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& logsum, const CausalAttention& a, const TimeBuckets& time) {
  check("causal_attention backward", q, k, v, dy, a, time);
  require(y.shape() == q.shape(), "causal_attention backward: q is ", q.shape(), ", so y must be too, not ", y.shape());
  for (const Target* t : {&dq, &dk, &dv}) {
    require(!*t || t->tensor.shape() == q.shape(), "causal_attention backward: q is ", q.shape(),
            ", so dq, dk and dv must be too, not ", t->tensor.shape());
  }
  for (const Target* t : {&dkeys, &dvalues})
    if (*t && !t->accumulate) fill_zero(stream, t->tensor);
  if (on_gpu(q, [&]<class T>() {
        using R = real_t<T>;
        const bool add[] = {dq.accumulate, dk.accumulate, dv.accumulate};
        cuda::causal_attention_backward<T>(stream, pointer<T>(dq.tensor), pointer<T>(dk.tensor), pointer<T>(dv.tensor),
                                           add, pointer<R>(dkeys.tensor), pointer<R>(dvalues.tensor), dy.data<T>(),
                                           y.data<T>(), q.data<T>(), k.data<T>(), v.data<T>(), logsum.data<R>(),
                                           q.columns(), a, time);
      }))
    return;
  for (const Target* t : {&dq, &dk, &dv})
    if (*t && !t->accumulate) fill_zero(stream, t->tensor);
  visit_float(q.dtype(), [&]<class T>() {
    HeadTables<T> tables(time, a.heads, dkeys || dvalues);
    for (std::size_t b = 0; b < a.rows.samples.size(); ++b) {
      const std::int64_t row = a.rows.offsets[b];
      tables.begin(a.rows.samples[b]);
      for (std::int64_t head = 0; head < a.heads; ++head) {
        cpu::CausalHead<T> h = head_of<T>(a, b, head, q.columns());
        const std::int64_t column = head * h.width;
        h.q = at<T>(q, row, column);
        h.k = at<T>(k, row, column);
        h.v = at<T>(v, row, column);
        h.dy = at<T>(dy, row, column);
        h.logsum = at<T>(logsum, row, head);
        h.dq = at<T>(dq.tensor, row, column);
        h.dk = at<T>(dk.tensor, row, column);
        h.dv = at<T>(dv.tensor, row, column);
        h.time = tables.head(head, time ? time.times.data() + row : nullptr);
        cpu::active_causal_attention_kernels<T>().backward(h);
      }
      tables.end(b + 1 == a.rows.samples.size(), dkeys, dvalues);
    }
  });
}

}  // namespace lockstep::ops
