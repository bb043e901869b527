#include "lockstep/ops/aggregate.hpp"

#include "aggregate_kernels.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/dropout/dropout_kernels.hpp"

namespace lockstep::ops {

namespace {

struct Extents {
  std::int64_t in, out, mixed;  ///< mixed: columns of the first product's operand
  bool two;                     ///< whether the layer has two branches
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

/// Operands (a, b; in the backward d1, d2) and results (z1, z2) of the products, one row for each row of the block. b,
/// z2 and d2 exist only if the layer has two branches.
struct Operands {
  Tensor a, b, z1, z2;
  Operands(Arena& scratch, DType dtype, std::int64_t rows, const Extents& e)
      : a(allocate(scratch, dtype, {rows, e.mixed})),
        b(e.two ? allocate(scratch, dtype, {rows, e.in}) : Tensor()),
        z1(allocate(scratch, dtype, {rows, e.out})),
        z2(e.two ? allocate(scratch, dtype, {rows, e.out}) : Tensor()) {}
};

/// T: the operand type of the products.
template <class T>
void forward_on_gpu(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                    const RowSet& block, const Extents& e) {
  using R = real_t<T>;
  const Operands o(scratch, dtype_of<T>::value, block.size(), e);
  cuda::combine<T>(stream, layer.kind, block, e.in, o.a, o.b, rows.x, rows.s);
  gemm_nt(stream, {o.z1}, o.a, layer.weight1);
  if (e.two) gemm_nt(stream, {o.z2}, o.b, layer.weight2);
  cuda::activate<T>(stream, block, e.out, rows.out, rows.marks,
                    {o.z1, layer.bias1, o.z2, e.two ? layer.bias2.data<R>() : nullptr, static_cast<R>(layer.slope)},
                    layer);
}

/// dweight += d' a / kGradientScale<T>.
template <class T>
void add_product(Stream& stream, Arena& scratch, const Tensor& dweight, const Tensor& d, const Tensor& a) {
  constexpr auto kScale = static_cast<double>(cuda::kGradientScale<T>);
  if constexpr (kScale == 1) {
    gemm_tn(stream, {dweight, true}, d, a);
  } else {
    const Tensor product = allocate(scratch, dweight.dtype(), dweight.shape());
    gemm_tn(stream, {product}, d, a);
    scale(stream, {dweight, true}, product, 1 / kScale);
  }
}

template <class T>
void backward_on_gpu(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                     const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                     const AggregateLayer& gradient, const Extents& e) {
  using R = real_t<T>;
  const Operands o(scratch, dtype_of<T>::value, block.size(), e);
  const R *x = rows.x.data<const R>(), *s = rows.s.data<const R>();
  cuda::derive<T>(stream, block, e.out, o.z1, o.z2, gradient.bias1, e.two ? gradient.bias2.data<R>() : nullptr, dout,
                  rows.marks, static_cast<R>(layer.slope), static_cast<R>(cpu::DropRate(layer.dropout).scale));
  cuda::combine<T>(stream, layer.kind, block, e.in, o.a, o.b, x, s);
  add_product<T>(stream, scratch, gradient.weight1, o.z1, o.a);
  if (e.two) add_product<T>(stream, scratch, gradient.weight2, o.z2, o.b);
  gemm_nn(stream, {o.a}, o.z1, layer.weight1);
  if (e.two) gemm_nn(stream, {o.b}, o.z2, layer.weight2);
  cuda::split<T>(stream, layer.kind, block, e.in, dx, ds, o.a, o.b, x, s);
}

}  // namespace

void aggregate_forward(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                       const RowSet& block) {
  const Extents e(layer, rows);
  const std::int64_t m = block.size();
  on_gpu(layer.weight1, [&]<class T>() { forward_on_gpu<T>(stream, scratch, layer, rows, block, e); });
  on_cpu(rows.x, [&]<class T>() {
    const auto kernels = cpu::active_aggregate_kernels<T>();
    const Operands o(scratch, dtype_of<T>::value, m, e);
    kernels.combine(layer.kind, block, e.in, o.a, o.b, rows.x, rows.s);
    gemm_nt(stream, {o.z1}, o.a, layer.weight1);
    if (e.two) gemm_nt(stream, {o.z2}, o.b, layer.weight2);
    // A row starts with a new group of Philox words.
    const std::int64_t groups = (e.out + 2 * cpu::kGroupWords - 1) / (2 * cpu::kGroupWords);
    std::uint32_t* words = nullptr;
    if (layer.dropout > 0) {
      words = scratch.array<std::uint32_t>(m * groups * cpu::kGroupWords).data();
      for (std::int64_t i = 0; i < m; ++i) {
        const Philox draws(layer.seed, layer.step, layer.site, static_cast<std::uint64_t>(block[i]));
        kernels.draw(cpu::PhiloxKey(draws), groups, words + i * groups * cpu::kGroupWords);
      }
    }
    const cpu::DropRate rate(layer.dropout);
    kernels.activate(block, e.out, rows.out, rows.marks, o.z1, layer.bias1, o.z2,
                     e.two ? layer.bias2.data<T>() : nullptr, static_cast<T>(layer.slope),
                     reinterpret_cast<const std::uint16_t*>(words), 2 * groups * cpu::kGroupWords, rate.threshold,
                     static_cast<T>(rate.scale));
  });
}

void aggregate_backward(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                        const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                        const AggregateLayer& gradient) {
  const Extents e(layer, rows);
  on_gpu(layer.weight1,
         [&]<class T>() { backward_on_gpu<T>(stream, scratch, layer, rows, block, dout, ds, dx, gradient, e); });
  on_cpu(rows.x, [&]<class T>() {
    const auto kernels = cpu::active_aggregate_kernels<T>();
    const Operands o(scratch, dtype_of<T>::value, block.size(), e);
    const T *x = rows.x.data<const T>(), *s = rows.s.data<const T>();
    kernels.derive(block, e.out, o.z1, o.z2, gradient.bias1, e.two ? gradient.bias2.data<T>() : nullptr, dout,
                   rows.marks, static_cast<T>(layer.slope), static_cast<T>(cpu::DropRate(layer.dropout).scale));
    kernels.combine(layer.kind, block, e.in, o.a, o.b, x, s);
    gemm_tn(stream, {gradient.weight1, true}, o.z1, o.a);
    if (e.two) gemm_tn(stream, {gradient.weight2, true}, o.z2, o.b);
    gemm_nn(stream, {o.a}, o.z1, layer.weight1);
    if (e.two) gemm_nn(stream, {o.b}, o.z2, layer.weight2);
    kernels.split(layer.kind, block, e.in, dx, ds, o.a, o.b, x, s);
  });
}

}  // namespace lockstep::ops
