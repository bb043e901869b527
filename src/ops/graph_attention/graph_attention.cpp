#include "lockstep/ops/graph_attention.hpp"

#include <algorithm>
#include <cassert>

#include "graph_attention_kernels.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

/// Chunk sizes of a thread: nodes to project, and triples.
constexpr std::int64_t kNodes = 256, kTriples = 8192;
/// Prefetch distance in rows of the table, which are scattered over memory.
constexpr std::int64_t kPrefetch = 12, kLineBytes = 64;

/// out = tanh(x_rows M + y), or x_rows M if `translation` is empty, in chunks. All threads of a parallel region call
/// it.
template <class T>
void project(Stream& stream, std::span<const std::int32_t> nodes, const Tensor& table, const Tensor& matrix,
             const Tensor& translation, const Tensor& out) {
  const auto count = std::ssize(nodes), d = table.columns(), k = matrix.columns();
  T* const rows = cpu::thread_scratch<T>(cpu::Scratch::tables, kNodes * d);
#pragma omp for schedule(dynamic) nowait
  for (std::int64_t first = 0; first < count; first += kNodes) {
    const std::int64_t n = std::min(kNodes, count - first);
    const Tensor x = Tensor::of(rows, {n, d}), to = out.slice(first, n);
    const auto row = [&](std::int64_t i) { return table.data<const T>() + nodes[first + i] * d; };
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + kPrefetch < n)
        for (std::int64_t c = 0; c < d; c += kLineBytes / static_cast<std::int64_t>(sizeof(T)))
          __builtin_prefetch(row(i + kPrefetch) + c);
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

/// Projects all nodes at once on a GPU.
void project_on_gpu(Stream& stream, Arena& scratch, std::span<const std::int32_t> nodes, const Tensor& table,
                    const Tensor& matrix, const Tensor& out) {
  const ArenaScope scope(scratch);
  const Tensor x = allocate(scratch, table.dtype(), {out.rows(), table.columns()});
  gather_node_rows(stream, x, 0, table, nodes, RowScale::none);
  gemm_nn(stream, {out}, x, matrix);
}

}  // namespace

void attention_logits(Stream& stream, Arena& scratch, const RelationTriples& triples, const Tensor& table,
                      const Tensor& matrix, const Tensor& translation, const Tensor& logits) {
  const std::int64_t k = matrix.columns(), count = std::ssize(triples.place);
  require(matrix.rows() == table.columns() && translation.size() == k, "attention: table ", table.shape(), ", matrix ",
          matrix.shape(), ", translation ", translation.shape());
  const ArenaScope scope(scratch);
  const Tensor heads = allocate(scratch, table.dtype(), {std::ssize(triples.heads), k}),
               tails = allocate(scratch, table.dtype(), {std::ssize(triples.tails), k});
  on_gpu(table, [&]<class T>() {
    project_on_gpu(stream, scratch, triples.heads, table, matrix, heads);
    project_on_gpu(stream, scratch, triples.tails, table, matrix, tails);
    cuda::shift_tanh<T>(stream, heads.rows(), k, heads, translation);
    cuda::pair_dots<T>(stream, k, logits, heads, tails, triples);
  });
  on_cpu(table, [&]<class T>() {
    const auto dots = cpu::active_graph_attention_kernels<T>().pair_dots;
#pragma omp parallel
    {
      project<T>(stream, triples.heads, table, matrix, translation, heads);
      project<T>(stream, triples.tails, table, matrix, Tensor(), tails);
#pragma omp barrier
#pragma omp for schedule(dynamic)
      for (std::int64_t first = 0; first < count; first += kTriples)
        dots(std::min(kTriples, count - first), k, logits, triples.place.data() + first, heads,
             triples.head_slot.data() + first, tails, triples.tail_slot.data() + first);
    }
  });
}

void attention_softmax(Stream& stream, ParallelEdges parallel, std::span<const std::int64_t> row_ptr,
                       std::span<const std::int64_t> edge_ptr, std::int64_t first, std::int64_t last,
                       const Tensor& logits, const Tensor& values) {
  require(edge_ptr.size() == static_cast<std::size_t>(values.size()) + 1 && logits.dtype() == values.dtype() &&
              last < std::ssize(row_ptr),
          "attention: ", values.size(), " values, ", edge_ptr.size(), " offsets of their triples, rows up to ", last,
          " of ", row_ptr.size(), " offsets");
  on_gpu_in_floats(values, [&]<class T>() {
    cuda::attention_softmax<T>(stream, parallel, row_ptr.data(), edge_ptr.data(), first, last, logits, values);
  });
  on_cpu(values, [&]<class T>() {
    const T* v = logits.data<const T>();
    T* a = values.data<T>();
    assert(logits.size() == edge_ptr.back() && values.size() == row_ptr.back());
    const auto softmax = cpu::active_graph_attention_kernels<T>().softmax_row;
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t begin = row_ptr[r], end = row_ptr[r + 1];
      if (begin < end)
        softmax(end - begin, edge_ptr.data() + begin, v, a + begin, parallel == ParallelEdges::per_triple);
    }
  });
}

}  // namespace lockstep::ops
