#include "lockstep/ops/causal_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "causal_attention_kernels.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

void check(const char* what, const Tensor& q, const Tensor& kv, const Tensor& y, const CausalAttention& a,
           const TimeBuckets& time) {
  const Shape& shape = y.shape();
  const bool packed = kv.shape().rank() == 0;
  require(shape.rank() == 2 && q.shape() == Shape{shape[0], (packed ? 3 : 1) * shape[1]} &&
              (packed || kv.shape() == Shape{shape[0], 2 * shape[1]}),
          what, ": q is ", q.shape(), ", kv ", kv.shape(), ", y or dy ", shape,
          "; must be (N, C), (N, 2 C) and (N, C), or q (N, 3 C) without kv");
  require(y.rows() == a.rows.rows(), what, ": y is ", shape, ", but the ", a.rows.count(), " sequences have ",
          a.rows.rows(), " rows");
  require(a.heads >= 1 && y.columns() % a.heads == 0, what, ": ", a.heads, " heads do not divide ", y.columns(),
          " channels");
  require(a.first_query.empty() || a.first_query.size() == a.rows.samples.size(), what, ": ", a.first_query.size(),
          " first queries for ", a.rows.count(), " sequences");
  if (!time) return;
  require(time.keys.shape().rank() == 2 && time.values.shape() == time.keys.shape() &&
              time.keys.columns() == y.columns() && time.keys.rows() >= 1,
          what, ": y is ", shape, ", so the time tables must be (R, ", y.columns(), "), not ", time.keys.shape(),
          " and ", time.values.shape());
  require(std::isinf(a.fill), what, ": times require a fill of minus infinity");
  require(std::ssize(time.times) == y.rows(), what, ": ", time.times.size(), " times for ", y.rows(), " rows");
  if (in_gpu_memory(y.device(), time.times.data())) return;
  for (std::size_t b = 0; b < a.rows.samples.size(); ++b) {
    for (std::int64_t i = a.rows.offsets[b] + 1; i < a.rows.offsets[b + 1]; ++i) {
      const std::int64_t before = time.times[i - 1], here = time.times[i];
      require(before <= here, what, ": the times of sequence ", b, " go backwards, from ", before, " to ", here);
    }
  }
}

/// The dropout masks that the calling thread drew last. All blocks of a model, forward and backward, use the same mask
/// of a sample's time tables. A mask depends on its key alone, so a cached mask is always valid.
class MaskCache {
 public:
  /// Bit i: whether element i of n is kept, followed by 64 bits of padding. Valid until the next kMost calls.
  template <class T>
  const std::uint64_t* find(const Dropout& dropout, std::uint64_t sample, std::int64_t n) {
    const cpu::PhiloxKey key(dropout.draws(sample));
    const cpu::DropRate rate(dropout.rate);
    for (const Entry& e : entries_)
      if (e.size == n && e.threshold == rate.threshold && std::ranges::equal(e.key.key, key.key) &&
          std::ranges::equal(e.key.counter, key.counter))
        return e.kept.data();
    Entry& e = entries_[next_];
    next_ = (next_ + 1) % entries_.size();
    e.key = key;
    e.size = n;
    e.threshold = rate.threshold;
    constexpr std::int64_t kGroup = 2 * cpu::kGroupWords;
    e.kept.resize((n + kGroup - 1) / kGroup * 2 + 1);
    cpu::active_causal_attention_kernels<T>().draw_kept(n, e.kept.data(), key, rate);
    return e.kept.data();
  }

 private:
  static constexpr std::size_t kMost = 16;
  struct Entry {
    cpu::PhiloxKey key;
    std::int64_t size = -1;
    std::int32_t threshold = 0;
    std::vector<std::uint64_t> kept;
  };
  std::array<Entry, kMost> entries_;
  std::size_t next_ = 0;
};
MaskCache& mask_cache() {
  thread_local MaskCache cache;
  return cache;
}

/// The time tables and their gradients in the layout of the kernels, split by head.
template <class T>
class HeadTables {
 public:
  HeadTables(const TimeBuckets& time, std::int64_t heads, bool gradients)
      : time_(time), layout_{.rows = time ? time.keys.rows() : 0, .heads = heads, .width = 0} {
    if (!time) return;
    layout_.width = time.keys.columns() / heads;
    width_ = kernels().time_width(layout_.width);
    size_ = heads * layout_.rows * width_;
    memory_ = cpu::thread_scratch<T>(cpu::Scratch::tables, (gradients ? 4 : 2) * size_);
    if (gradients) gradients_ = memory_ + 2 * size_;
    if (time.dropout && time.drop == TimeBuckets::Drop::element) {
      threshold_ = static_cast<std::int32_t>(std::lround(time.dropout.rate * 256));
      layout_.scale = 256.0 / (256 - threshold_);
    }
    if (per_sequence()) {
      layout_.scale = cpu::DropRate(time.dropout.rate).scale;
      return;
    }
    split();
  }
  /// Call before the heads of a sequence, with the times of its rows.
  void begin(std::uint64_t sample, std::span<const std::int64_t> times) {
    sample_ = sample;
    if (!time_ || !per_sequence()) return;
    mark_used(times);
    split();
  }
  /// Call after the heads of a sequence (`last`: of the last one).
  void end(bool last, Target dkeys, Target dvalues) {
    if (!gradients_ || (!per_sequence() && !last)) return;
    for (const int side : {0, 1})
      kernels().add_to_table(layout(side), (side == 0 ? dkeys : dvalues).tensor.template data<T>(),
                             gradients_ + side * size_);
  }
  cpu::TimeHead<T> head(std::int64_t head, const std::int64_t* times) const {
    cpu::TimeHead<T> out;
    if (!time_) return out;
    const std::int64_t at = head * layout_.rows * width_;
    out.keys = memory_ + at;
    out.values = memory_ + size_ + at;
    if (gradients_) {
      out.dkeys = gradients_ + at;
      out.dvalues = gradients_ + size_ + at;
    }
    out.times = times;
    out.last = layout_.rows - 1;
    out.threshold = threshold_;
    Dropout d = time_.dropout;
    d.site.id += static_cast<std::uint32_t>(head);
    out.draws = cpu::PhiloxKey(d.draws(sample_));
    return out;
  }

 private:
  static const cpu::CausalAttentionKernels<T>& kernels() { return cpu::active_causal_attention_kernels<T>(); }
  bool per_sequence() const { return time_.dropout && time_.drop == TimeBuckets::Drop::table; }
  /// The layout with this sample's mask, if masks are per sample. Keys (side 0) and values (1) have different sites.
  cpu::TimeLayout layout(int side) const {
    cpu::TimeLayout layout = layout_;
    if (!per_sequence()) return layout;
    Dropout d = time_.dropout;
    d.site.id += static_cast<std::uint32_t>(side);
    layout.kept = mask_cache().find<T>(d, sample_, layout.rows * layout.heads * layout.width);
    return layout;
  }
  /// Marks the buckets that the sequence uses, typically half of them or fewer, and the last one, which kernels always
  /// read.
  void mark_used(std::span<const std::int64_t> times) {
    thread_local std::vector<std::uint8_t> used;
    thread_local std::vector<std::int64_t> distinct;
    used.assign(layout_.rows, 0);
    used.back() = 1;
    distinct.assign(times.begin(), times.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (std::size_t i = 0; i < distinct.size(); ++i)
      for (std::size_t j = i + 1; j-- > 0 && distinct[i] - distinct[j] < layout_.rows;)
        used[distinct[i] - distinct[j]] = 1;
    layout_.used = used.data();
  }
  void split() {
    for (const int side : {0, 1})
      kernels().split_table(layout(side), memory_ + side * size_, gradients_ ? gradients_ + side * size_ : nullptr,
                            (side == 0 ? time_.keys : time_.values).template data<T>());
  }

  const TimeBuckets& time_;
  cpu::TimeLayout layout_;
  std::int64_t width_ = 0, size_ = 0;
  T *memory_ = nullptr, *gradients_ = nullptr;
  std::int32_t threshold_ = 0;
  std::uint64_t sample_ = 0;
};

/// The times of sequence b; none without time terms.
std::span<const std::int64_t> times_of(const CausalAttention& a, std::size_t b, const TimeBuckets& time) {
  if (!time) return {};
  return time.times.subspan(a.rows.offsets[b], a.rows.offsets[b + 1] - a.rows.offsets[b]);
}

/// The arguments of a head except its pointers.
template <class T>
cpu::CausalHead<T> head_of(const CausalAttention& a, std::size_t b, std::int64_t head, std::int64_t columns,
                           const CausalRows<const T>& x) {
  const std::int64_t row = a.rows.offsets[b], column = head * (columns / a.heads);
  cpu::CausalHead<T> h{};
  h.q = x.q + row * x.stride + column;
  h.k = x.k + row * x.kv_stride + column;
  h.v = x.v + row * x.kv_stride + column;
  h.length = a.rows.offsets[b + 1] - a.rows.offsets[b];
  h.width = columns / a.heads;
  h.stride = x.stride;
  h.kv_stride = x.kv_stride;
  h.y_stride = columns;
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

template <class T>
T* at(const Tensor& t, std::int64_t row, std::int64_t column) {
  return t ? t.data<T>() + row * t.columns() + column : nullptr;
}

/// The arrays of q, k and v, or of their gradients; null if empty. packed: all three are in q.
template <class T>
CausalRows<T> rows_of(bool packed, std::int64_t columns, const Tensor& q, const Tensor& kv) {
  using Element = std::remove_const_t<T>;
  const std::int64_t stride = packed ? 3 * columns : columns;
  T* k = packed ? at<Element>(q, 0, columns) : kv.data<Element>();
  return {q.data<Element>(), k, k ? k + columns : nullptr, stride, packed ? stride : 2 * columns};
}

}  // namespace

void causal_attention_forward(Stream& stream, const Tensor& y, const Tensor& logsum, const Tensor& q, const Tensor& kv,
                              const CausalAttention& a, const TimeBuckets& time) {
  check("causal_attention", q, kv, y, a, time);
  require(!logsum || logsum.shape() == Shape{y.rows(), a.heads}, "causal_attention: y is ", y.shape(),
          ", so logsum must be (", y.rows(), ", ", a.heads, "), not ", logsum.shape());
  const std::int64_t columns = y.columns();
  const bool packed = !kv;
  on_gpu(q, [&]<class T>() {
    cuda::causal_attention_forward<T>(stream, y, logsum, rows_of<const T>(packed, columns, q, kv), columns, a, time);
  });
  on_cpu(q, [&]<class T>() {
    const auto x = rows_of<const T>(packed, columns, q, kv);
    HeadTables<T> tables(time, a.heads, false);
    for (std::size_t b = 0; b < a.rows.samples.size(); ++b) {
      const std::int64_t row = a.rows.offsets[b];
      tables.begin(a.rows.samples[b], times_of(a, b, time));
      for (std::int64_t head = 0; head < a.heads; ++head) {
        cpu::CausalHead<T> h = head_of<T>(a, b, head, columns, x);
        h.y = at<T>(y, row, head * h.width);
        h.logsum = at<T>(logsum, row, head);
        h.time = tables.head(head, time ? time.times.data() + row : nullptr);
        cpu::active_causal_attention_kernels<T>().forward(h);
      }
    }
    std::fill(y.data<T>() + a.rows.used() * columns, y.data<T>() + y.size(), T{});
  });
}

std::int64_t prepared_times_size(const CausalAttention& a, const TimeBuckets& time) {
  if constexpr (kHasCuda) return cuda::prepared_times_size(time.keys.columns(), a, time);
  return 0;
}

void prepare_times(Stream& stream, const Tensor& prepared, const CausalAttention& a, const TimeBuckets& time) {
  require(prepared.size() == prepared_times_size(a, time), "preparing time tables: there are ", prepared.size(),
          " elements, must be ", prepared_times_size(a, time));
  const bool done =
      on_gpu(time.keys, [&]<class T>() { cuda::prepare_times<T>(stream, prepared, time.keys.columns(), a, time); });
  require(done, "preparing time tables: they are not on a GPU");
}

void causal_attention_backward(Stream& stream, Target dq, Target dkv, Target dkeys, Target dvalues, const Tensor& dy,
                               const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& logsum,
                               const CausalAttention& a, const TimeBuckets& time) {
  check("causal_attention backward", q, kv, dy, a, time);
  require(y.shape() == dy.shape(), "causal_attention backward: dy is ", dy.shape(), ", so y must be too, not ",
          y.shape());
  for (const auto& [d, x] : {std::pair{&dq, &q}, {&dkv, &kv}, {&dkeys, &time.keys}, {&dvalues, &time.values}})
    require(d->tensor.shape() == x->shape(), "causal_attention backward: q is ", q.shape(), ", kv ", kv.shape(),
            ", tables of times ", time.keys.shape(), ", so their gradients must be too, not ", d->tensor.shape());
  for (const Target* t : {&dkeys, &dvalues})
    if (*t && !t->accumulate) fill_zero(stream, t->tensor);
  const std::int64_t columns = y.columns();
  const bool packed = !kv;
  on_gpu(q, [&]<class T>() {
    cuda::causal_attention_backward<T>(stream, rows_of<T>(packed, columns, dq.tensor, dkv.tensor), dq.accumulate,
                                       (packed ? dq : dkv).accumulate, dkeys.tensor, dvalues.tensor, dy, y,
                                       rows_of<const T>(packed, columns, q, kv), logsum, columns, a, time);
  });
  on_cpu(q, [&]<class T>() {
    for (const Target* t : {&dq, &dkv})
      if (*t && !t->accumulate) fill_zero(stream, t->tensor);
    const auto x = rows_of<const T>(packed, columns, q, kv);
    const auto dx = rows_of<T>(packed, columns, dq.tensor, dkv.tensor);
    HeadTables<T> tables(time, a.heads, true);
    for (std::size_t b = 0; b < a.rows.samples.size(); ++b) {
      const std::int64_t row = a.rows.offsets[b];
      tables.begin(a.rows.samples[b], times_of(a, b, time));
      for (std::int64_t head = 0; head < a.heads; ++head) {
        cpu::CausalHead<T> h = head_of<T>(a, b, head, columns, x);
        const std::int64_t column = head * h.width;
        h.dy = at<T>(dy, row, column);
        h.logsum = at<T>(logsum, row, head);
        h.dq = dx.q + row * dx.stride + column;
        h.dk = dx.k + row * dx.kv_stride + column;
        h.dv = dx.v + row * dx.kv_stride + column;
        h.time = tables.head(head, time ? time.times.data() + row : nullptr);
        cpu::active_causal_attention_kernels<T>().backward(h);
      }
      tables.end(b + 1 == a.rows.samples.size(), dkeys, dvalues);
    }
  });
}

}  // namespace lockstep::ops
