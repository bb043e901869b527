#include "lockstep/ops/graph_attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph_attention_kernels.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/gemm.hpp"

namespace lockstep::ops {

namespace {

/// Nodes that a thread projects at a time, and triples that it takes at a time.
constexpr std::int64_t kNodes = 256, kTriples = 8192;
/// Rows of the table that are asked for ahead: they lie anywhere in memory.
constexpr std::int64_t kAhead = 12, kLineBytes = 64;

/// out = tanh(x_rows M + y) when `translation`, else x_rows M, in blocks. Called by all threads of a parallel region.
template <class T>
void project(Stream& stream, Arena& arena, std::span<const std::int32_t> nodes, const Tensor& table,
             const Tensor& matrix, const Tensor& translation, const Tensor& out) {
  const auto count = static_cast<std::int64_t>(nodes.size()), d = table.columns(), k = matrix.columns();
#pragma omp for schedule(dynamic) nowait
  for (std::int64_t first = 0; first < count; first += kNodes) {
    arena.reset();
    const std::int64_t n = std::min(kNodes, count - first);
    const Tensor x = allocate(arena, dtype_of<T>::value, {n, d}), to = out.slice(first, n);
    const auto row = [&](std::int64_t i) {
      return table.data<const T>() + nodes[static_cast<std::size_t>(first + i)] * d;
    };
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + kAhead < n)
        for (std::int64_t c = 0; c < d; c += kLineBytes / static_cast<std::int64_t>(sizeof(T)))
          __builtin_prefetch(row(i + kAhead) + c);
      std::copy_n(row(i), d, x.data<T>() + i * d);
    }
    gemm_nn(stream, {to}, x, matrix);
    if (!translation) continue;
    const T* y = translation.data<const T>();
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < k; ++c) to.data<T>()[i * k + c] += y[c];
    activation_forward(stream, to, {}, to, Activation::tanh);
  }
}

}  // namespace

void attention_logits(Stream& stream, const RelationTriples& triples, const Tensor& table, const Tensor& matrix,
                      const Tensor& translation, const Tensor& projected_heads, const Tensor& projected_tails,
                      const Tensor& logits) {
  const std::int64_t k = matrix.columns(), count = static_cast<std::int64_t>(triples.place.size());
  require(matrix.rows() == table.columns() && translation.size() == k &&
              projected_heads.rows() >= static_cast<std::int64_t>(triples.heads.size()) &&
              projected_tails.rows() >= static_cast<std::int64_t>(triples.tails.size()),
          "attention: table ", table.shape(), ", matrix ", matrix.shape(), ", translation ", translation.shape());
  visit_float(table.dtype(), [&]<class T>() {
    const auto dots = cpu::active_pair_dots_kernel<T>();
#pragma omp parallel
    {
      Arena arena;
      project<T>(stream, arena, triples.heads, table, matrix, translation, projected_heads);
      project<T>(stream, arena, triples.tails, table, matrix, Tensor(), projected_tails);
#pragma omp barrier
#pragma omp for schedule(dynamic)
      for (std::int64_t first = 0; first < count; first += kTriples)
        dots(std::min(kTriples, count - first), k, logits.data<T>(), triples.place.data() + first,
             projected_heads.data<const T>(), triples.head_slot.data() + first, projected_tails.data<const T>(),
             triples.tail_slot.data() + first);
    }
  });
}

void attention_softmax(Stream&, ParallelEdges parallel, std::span<const std::int64_t> row_ptr,
                       std::span<const std::int64_t> edge_ptr, std::int64_t first, std::int64_t last,
                       const Tensor& logits, const Tensor& values) {
  require(logits.size() == edge_ptr.back() && values.size() == row_ptr.back(), "attention: ", logits.size(),
          " logits for ", edge_ptr.back(), " triples, ", values.size(), " values for ", row_ptr.back(), " entries");
  visit_float(values.dtype(), [&]<class T>() {
    const T* v = logits.data<const T>();
    T* a = values.data<T>();
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t begin = row_ptr[static_cast<std::size_t>(r)], end = row_ptr[static_cast<std::size_t>(r) + 1];
      if (begin == end) continue;
      const auto triples_of = [&](std::int64_t e, const auto& visit) {
        for (std::int64_t i = edge_ptr[static_cast<std::size_t>(e)]; i < edge_ptr[static_cast<std::size_t>(e) + 1]; ++i)
          visit(v[i]);
      };
      T most = -std::numeric_limits<T>::infinity();
      if (parallel == ParallelEdges::per_triple) {
        for (std::int64_t e = begin; e < end; ++e) triples_of(e, [&](T logit) { most = std::max(most, logit); });
        for (std::int64_t e = begin; e < end; ++e) {
          a[e] = 0;
          triples_of(e, [&](T logit) { a[e] += std::exp(logit - most); });
        }
      } else {
        for (std::int64_t e = begin; e < end; ++e) {
          a[e] = 0;
          triples_of(e, [&](T logit) { a[e] += logit; });
          most = std::max(most, a[e]);
        }
        for (std::int64_t e = begin; e < end; ++e) a[e] = std::exp(a[e] - most);
      }
      double sum = 0;
      for (std::int64_t e = begin; e < end; ++e) sum += static_cast<double>(a[e]);
      const T scale = static_cast<T>(1 / sum);
      for (std::int64_t e = begin; e < end; ++e) a[e] *= scale;
    }
  });
}

}  // namespace lockstep::ops
