#include "lockstep/ops/aggregate.hpp"

#include "aggregate_kernels.hpp"
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
    kernels.combine(layer.kind, block, e.in, a.data<T>(), e.two ? b.data<T>() : nullptr, rows.x.data<T>(),
                    rows.s.data<T>());
    gemm_nt(stream, {z1}, a, layer.weight1);
    if (e.two) gemm_nt(stream, {z2}, b, layer.weight2);
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
    const auto kernels = cpu::active_aggregate_kernels<T>();
    constexpr DType kType = dtype_of<T>::value;
    const Tensor a = allocate(scratch, kType, {m, e.mixed}), d1 = allocate(scratch, kType, {m, e.out});
    const Tensor b = e.two ? allocate(scratch, kType, {m, e.in}) : Tensor();
    const Tensor d2 = e.two ? allocate(scratch, kType, {m, e.out}) : Tensor();
    kernels.derive(block, e.out, d1.data<T>(), e.two ? d2.data<T>() : nullptr, gradient.bias1.data<T>(),
                   e.two ? gradient.bias2.data<T>() : nullptr, dout.data<T>(), rows.marks.data<std::uint8_t>(),
                   static_cast<T>(layer.slope), static_cast<T>(Rate(layer.dropout).scale));
    kernels.combine(layer.kind, block, e.in, a.data<T>(), e.two ? b.data<T>() : nullptr, rows.x.data<T>(),
                    rows.s.data<T>());
    gemm_tn(stream, {gradient.weight1, true}, d1, a);
    if (e.two) gemm_tn(stream, {gradient.weight2, true}, d2, b);
    gemm_nn(stream, {a}, d1, layer.weight1);
    if (e.two) gemm_nn(stream, {b}, d2, layer.weight2);
    kernels.split(layer.kind, block, e.in, dx.data<T>(), ds.data<T>(), a.data<T>(), e.two ? b.data<T>() : nullptr,
                  rows.x.data<T>(), rows.s.data<T>());
  });
}

}  // namespace lockstep::ops
