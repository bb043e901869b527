#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace lockstep {

/// first, first + 1, ...
template <class T>
std::vector<T> consecutive(std::int64_t count, T first = 0) {
  std::vector<T> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// The indices 0 .. count-1 in the order of key(index); those of equal keys by index.
template <class T, class Order = std::less<>>
std::vector<T> indices_by(std::int64_t count, const auto& key, Order comes_before = {}) {
  std::vector<T> indices = consecutive<T>(count);
  std::ranges::stable_sort(indices, comes_before, key);
  return indices;
}

}  // namespace lockstep
