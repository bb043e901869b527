#include "lockstep/ops/aggregate.hpp"

#include "aggregate_cuda.hpp"
#include "aggregate_kernels.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "lockstep/ops/gemm.hpp"

namespace lockstep::ops {

namespace {

/// A dropout rate as a multiple of 1/65536.
struct Rate {
  std::int32_t threshold;
  double scale;
  explicit Rate(double p)
      : threshold(static_cast<std::int32_t>(p * 65536 + 0.5)), scale(65536.0 / (65536 - threshold)) {}
};

struct Extents {
  std::int64_t in, out, mixed;  ///< mixed: columns of the first product's operand
  bool two;                     ///< two branches
  Extents(const AggregateLayer& layer, const AggregateRows& rows)
      : in(rows.x.columns()),
        out(rows.out.columns()),
        mixed(layer.kind == Aggregator::graphsage ? 2 * in : in),
        two(layer.kind == Aggregator::bi_interaction) {
    const bool fits = layer.weight1.shape() == Shape{out, mixed} && layer.bias1.size() == out &&
                      rows.s.shape() == rows.x.shape() && rows.out.rows() == rows.x.rows() &&
                      (!two || (layer.weight2.shape() == Shape{out, in} && layer.bias2.size() == out));
    if (!fits)
      throw Error(Fault::internal,
                  join("aggregate: x ", rows.x.shape(), ", s ", rows.s.shape(), ", weights ", layer.weight1.shape(),
                       " and ", layer.weight2.shape(), ", out ", rows.out.shape(), " do not fit"));
  }
};

template <class T>
T* data_of(const Tensor& t) {
  return t ? t.data<T>() : nullptr;
}

template <class T>
void combine(Stream& stream, Aggregator kind, const RowSet& block, const Tensor& a, const Tensor& b,
             const AggregateRows& rows) {
  const auto run = [&](const auto& kernel, auto&&... first) {
    kernel(first..., kind, block, rows.x.columns(), a.data<T>(), data_of<T>(b), rows.x.data<const T>(),
           rows.s.data<const T>());
  };
  if constexpr (kHasCuda) {
    if (rows.x.device().is_cuda()) return run(cuda::combine<T>, stream);
  }
  run(cpu::active_aggregate_kernels<T>().combine);
}

template <class T>
void derive(Stream& stream, const RowSet& block, const Tensor& d1, const Tensor& d2, const AggregateLayer& gradient,
            const AggregateRows& rows, const Tensor& dout, const AggregateLayer& layer) {
  const auto run = [&](const auto& kernel, auto&&... first) {
    kernel(first..., block, d1.columns(), d1.data<T>(), data_of<T>(d2), gradient.bias1.data<T>(),
           d2 ? gradient.bias2.data<T>() : nullptr, dout.data<const T>(), rows.marks.data<const std::uint8_t>(),
           static_cast<T>(layer.slope), static_cast<T>(Rate(layer.dropout).scale));
  };
  if constexpr (kHasCuda) {
    if (rows.x.device().is_cuda()) return run(cuda::derive<T>, stream);
  }
  run(cpu::active_aggregate_kernels<T>().derive);
}

template <class T>
void split(Stream& stream, Aggregator kind, const RowSet& block, const Tensor& dx, const Tensor& ds, const Tensor& da,
           const Tensor& db, const AggregateRows& rows) {
  const auto run = [&](const auto& kernel, auto&&... first) {
    kernel(first..., kind, block, rows.x.columns(), dx.data<T>(), ds.data<T>(), da.data<const T>(), data_of<T>(db),
           rows.x.data<const T>(), rows.s.data<const T>());
  };
  if constexpr (kHasCuda) {
    if (rows.x.device().is_cuda()) return run(cuda::split<T>, stream);
  }
  run(cpu::active_aggregate_kernels<T>().split);
}

}  // namespace

void aggregate_forward(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                       const RowSet& block) {
  const Extents e(layer, rows);
  const std::int64_t m = block.size();
  visit_float(rows.x.dtype(), [&]<class T>() {
    const auto kernels = cpu::active_aggregate_kernels<T>();
    constexpr DType kType = dtype_of<T>::value;
    const Tensor a = allocate(scratch, kType, {m, e.mixed}), z1 = allocate(scratch, kType, {m, e.out});
    const Tensor b = e.two ? allocate(scratch, kType, {m, e.in}) : Tensor();
    const Tensor z2 = e.two ? allocate(scratch, kType, {m, e.out}) : Tensor();
    combine<T>(stream, layer.kind, block, a, b, rows);
    gemm_nt(stream, {z1}, a, layer.weight1);
    if (e.two) gemm_nt(stream, {z2}, b, layer.weight2);
    if constexpr (kHasCuda) {
      if (rows.x.device().is_cuda())
        return cuda::activate<T>(stream, block, e.out, rows.out.data<T>(),
                                 rows.marks ? rows.marks.data<std::uint8_t>() : nullptr,
                                 {z1.data<T>(), layer.bias1.data<T>(), e.two ? z2.data<T>() : nullptr,
                                  e.two ? layer.bias2.data<T>() : nullptr, static_cast<T>(layer.slope)},
                                 layer);
    }
    // Whole groups of Philox's words for each row.
    const std::int64_t groups = (e.out + 2 * cpu::kGroupWords - 1) / (2 * cpu::kGroupWords);
    std::uint32_t* words = nullptr;
    if (layer.dropout > 0) {
      words = static_cast<std::uint32_t*>(
          scratch.allocate(static_cast<std::size_t>(m * groups * cpu::kGroupWords) * sizeof(std::uint32_t)));
      for (std::int64_t i = 0; i < m; ++i) {
        const Philox draws(layer.seed, layer.step, layer.site, static_cast<std::uint64_t>(block[i]));
        kernels.draw(cpu::PhiloxKey(draws), groups, words + i * groups * cpu::kGroupWords);
      }
    }
    const Rate rate(layer.dropout);
    kernels.activate(block, e.out, rows.out.data<T>(), rows.marks ? rows.marks.data<std::uint8_t>() : nullptr,
                     z1.data<T>(), layer.bias1.data<T>(), e.two ? z2.data<T>() : nullptr,
                     e.two ? layer.bias2.data<T>() : nullptr, static_cast<T>(layer.slope),
                     reinterpret_cast<const std::uint16_t*>(words), 2 * groups * cpu::kGroupWords, rate.threshold,
                     static_cast<T>(rate.scale));
  });
}

void aggregate_backward(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                        const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                        const AggregateLayer& gradient) {
  const Extents e(layer, rows);
  const std::int64_t m = block.size();
  visit_float(rows.x.dtype(), [&]<class T>() {
    constexpr DType kType = dtype_of<T>::value;
    const Tensor a = allocate(scratch, kType, {m, e.mixed}), d1 = allocate(scratch, kType, {m, e.out});
    const Tensor b = e.two ? allocate(scratch, kType, {m, e.in}) : Tensor();
    const Tensor d2 = e.two ? allocate(scratch, kType, {m, e.out}) : Tensor();
    derive<T>(stream, block, d1, d2, gradient, rows, dout, layer);
    combine<T>(stream, layer.kind, block, a, b, rows);
    gemm_tn(stream, {gradient.weight1, true}, d1, a);
    if (e.two) gemm_tn(stream, {gradient.weight2, true}, d2, b);
    gemm_nn(stream, {a}, d1, layer.weight1);
    if (e.two) gemm_nn(stream, {b}, d2, layer.weight2);
    split<T>(stream, layer.kind, block, dx, ds, a, b, rows);
  });
}

}  // namespace lockstep::ops
