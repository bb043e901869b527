#include "graph_attention_kernels.hpp"
#include "ops/common/simd.hpp"
#include "ops/common/vecmath.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
LOCKSTEP_INLINE Vec<T> products(std::int64_t k, const T* a, const T* b) {
  Vec<T> sum[2] = {};
  std::int64_t c = 0;
  for (; c + 2 * kLanes<T> <= k; c += 2 * kLanes<T>) {
    sum[0] = fma(load(a + c), load(b + c), sum[0]);
    sum[1] = fma(load(a + c + kLanes<T>), load(b + c + kLanes<T>), sum[1]);
  }
  for (; c + kLanes<T> <= k; c += kLanes<T>) sum[0] = fma(load(a + c), load(b + c), sum[0]);
  if (c < k) {
    const Lanes<T> lanes(k - c);
    sum[1] = fma(load(a + c, lanes), load(b + c, lanes), sum[1]);
  }
  return sum[0] + sum[1];
}

/// Computes as many triples at a time as a vector has lanes: one transposition then sums the lanes of all of them.
/// kVectors > 0: a row is that many vectors, and a head stays in registers for all of its triples, which are
/// neighbours.
template <class T, int kVectors>
void pair_dots_of(std::int64_t n, std::int64_t columns, T* logits, const std::int64_t* place, const T* heads,
                  const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot) {
  constexpr int kL = kLanes<T>;
  constexpr std::int64_t kPrefetch = 16;
  const std::int64_t k = kVectors > 0 ? kVectors * kL : columns;
  Vec<T> head[kVectors + 1] = {};
  std::int32_t held = -1;
  for (std::int64_t i = 0; i < n; i += kL) {
    const std::int64_t count = n - i < kL ? n - i : kL;
    Vec<T> sums[kL];
    for (std::int64_t j = count; j < kL; ++j) sums[j] = Vec<T>{};
    for (std::int64_t j = 0; j < count; ++j) {
      if (i + j + kPrefetch < n) {
        const char* p = reinterpret_cast<const char*>(tails + tail_slot[i + j + kPrefetch] * k);
        for (std::int64_t b = 0; b < k * static_cast<std::int64_t>(sizeof(T)); b += 64) __builtin_prefetch(p + b);
      }
      const T *of_head = heads + head_slot[i + j] * k, *of_tail = tails + tail_slot[i + j] * k;
      if constexpr (kVectors == 0) {
        sums[j] = products(k, of_head, of_tail);
        continue;
      }
      if (head_slot[i + j] != held)
        for (int v = 0; v < kVectors; ++v) head[v] = load(of_head + v * kL);
      held = head_slot[i + j];
      Vec<T> sum[2] = {};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[v % 2] = fma(head[v], load(of_tail + v * kL), sum[v % 2]);
      sums[j] = sum[0] + sum[1];
    }
    T dots[kL];
    store(dots, sum_of<kL, T>(sums));
    for (std::int64_t j = 0; j < count; ++j) {
      std::int64_t to = place[i + j];
      asm("" : "+r"(to));  // keeps the compiler from a scatter instruction, which is slower on AMD processors
      logits[to] = dots[j];
    }
  }
}

template <class T>
void pair_dots(std::int64_t n, std::int64_t k, T* logits, const std::int64_t* place, const T* heads,
               const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot) {
  const auto dots = k == 4 * kLanes<T> ? pair_dots_of<T, 4> : pair_dots_of<T, 0>;
  dots(n, k, logits, place, heads, head_slot, tails, tail_slot);
}

/// to_i = exp(x_i - max x), and their sum.
template <class T>
double exponentials(std::int64_t n, T* to, const T* x) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> high = splat(x[0]);
  for (std::int64_t i = 0; i + kL <= n; i += kL) high = max(load(x + i), high);
  T most = largest_lane<T>(high);
  for (std::int64_t i = n / kL * kL; i < n; ++i) most = x[i] > most ? x[i] : most;
  double sum = 0;
  std::int64_t i = 0;
  for (; i + 2 * kL <= n; i += 2 * kL) {
    const Vec<T> a = exp(load(x + i) - most), b = exp(load(x + i + kL) - most);
    store(to + i, a);
    store(to + i + kL, b);
    sum += static_cast<double>(total<T>(a + b));
  }
  for (; i < n; i += kL) {
    const std::int64_t count = n - i < kL ? n - i : kL;
    const Lanes<T> lanes(count);
    store(to + i, exp(load(x + i, lanes) - most), lanes);
    for (std::int64_t c = 0; c < count; ++c) sum += static_cast<double>(to[i + c]);
  }
  return sum;
}

template <class T>
void softmax_row(std::int64_t entries, const std::int64_t* edge_ptr, const T* logits, T* values, bool per_triple) {
  const std::int64_t first = edge_ptr[0], triples = edge_ptr[entries] - first;
  const auto sum_edges = [&](const T* x) {
    for (std::int64_t e = 0; e < entries; ++e) {
      T sum{};
      for (std::int64_t i = edge_ptr[e] - first; i < edge_ptr[e + 1] - first; ++i) sum += x[i];
      values[e] = sum;
    }
  };
  double sum;
  if (triples == entries) {
    sum = exponentials(entries, values, logits + first);
  } else if (per_triple) {
    T* parts = static_cast<T*>(thread_scratch(Scratch::partial, static_cast<std::size_t>(triples) * sizeof(T)));
    sum = exponentials(triples, parts, logits + first);
    sum_edges(parts);
  } else {
    sum_edges(logits + first);
    sum = exponentials(entries, values, values);
  }
  const T scale = static_cast<T>(1 / sum);
  for (std::int64_t e = 0; e < entries; ++e) values[e] *= scale;
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(GraphAttentionKernels, graph_attention_kernels, pair_dots<T>, softmax_row<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
