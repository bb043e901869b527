#include "item_softmax_kernels.hpp"
#include "ops/common/vecmath.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Calls f(offset, get, put, mask(v)) for each vector of a row. mask() replaces lanes past the end by the least value.
template <class T, class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t n, T least, const F& f) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t j = 0;
  for (; j + kL <= n; j += kL)
    f([j](const T* p) { return load(p + j); }, [j](T* p, Vec<T> v) { store(p + j, v); }, [](Vec<T> v) { return v; });
  if (j == n) return;
  const Lanes<T> lanes(n - j);
  const Vec<IntOf<T>> inside = lanes_set<T>((1u << (n - j)) - 1u);
  f([j, lanes](const T* p) { return load(p + j, lanes); }, [j, lanes](T* p, Vec<T> v) { store(p + j, v, lanes); },
    [inside, least](Vec<T> v) { return inside ? v : splat(least); });
}

/// Calls f(column) for each column of the tile that is item `next`.
template <class T, class F>
LOCKSTEP_INLINE void for_columns_of(const ScoreTile<T>& tile, std::int32_t next, const F& f) {
  if (tile.ids == nullptr) {
    const std::int64_t column = next - 1 - tile.first;
    if (column >= 0 && column < tile.candidates) f(column);
    return;
  }
  for (std::int64_t j = 0; j < tile.candidates; ++j)
    if (tile.ids[j] == next) f(j);
}

template <class T>
void update(const ScoreTile<T>& tile, T* scores, T* largest, T* sum) {
  const T least = -static_cast<T>(__builtin_inf());
  for (std::int64_t m = 0; m < tile.tokens; ++m, scores += tile.candidates) {
    if (tile.pos[m] == 0) continue;
    T* row = scores;
    for_columns_of(tile, tile.pos[m], [&](std::int64_t j) { row[j] = least; });
    const T before = largest[m];
    Vec<T> most = splat(before);
    for_vectors<T>(tile.candidates, least, [&](const auto& get, const auto& put, const auto& mask) {
      Vec<T> z = get(row);
      if (tile.bias != nullptr) {
        z += get(tile.bias);
        put(row, z);
      }
      most = max(most, mask(z));
    });
    const T now = largest_lane<T>(most);
    Vec<T> total_of{};
    for_vectors<T>(tile.candidates, least, [&](const auto& get, const auto&, const auto& mask) {
      total_of += exp<Vec<T>>(mask(get(row)) - splat(now));
    });
    sum[m] = sum[m] * exp<Vec<T>>(splat(before - now))[0] + total<T>(total_of);
    largest[m] = now;
  }
}

template <class T>
void probabilities(const ScoreTile<T>& tile, T* scores, const T* lse, T scale) {
  for (std::int64_t m = 0; m < tile.tokens; ++m, scores += tile.candidates) {
    T* row = scores;
    const Vec<T> factor = splat(tile.pos[m] == 0 ? T{0} : scale), shift = splat(lse[m]);
    for_vectors<T>(tile.candidates, T{0}, [&](const auto& get, const auto& put, const auto&) {
      const Vec<T> z = tile.bias != nullptr ? get(row) + get(tile.bias) : get(row);
      put(row, factor * exp<Vec<T>>(z - shift));
    });
    for_columns_of(tile, tile.pos[m], [&](std::int64_t j) { row[j] = 0; });
  }
}

template <class T>
void merge(std::int64_t n, const std::int32_t* pos, T* largest, T* sum, const T* part_largest, const T* part_sum) {
  for (std::int64_t m = 0; m < n; ++m) {
    if (pos[m] == 0) continue;
    const T most = part_largest[m] > largest[m] ? part_largest[m] : largest[m];
    sum[m] =
        sum[m] * exp<Vec<T>>(splat(largest[m] - most))[0] + part_sum[m] * exp<Vec<T>>(splat(part_largest[m] - most))[0];
    largest[m] = most;
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(ItemSoftmaxKernels, item_softmax_kernels, update<T>, probabilities<T>, merge<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
