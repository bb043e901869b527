#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace lockstep {

/// 64-bit words that hold a bit for each of n numbers.
constexpr std::size_t bitmap_words(std::int64_t n) { return static_cast<std::size_t>((n + 63) / 64); }

/// Calls f(number) for each set bit of a word that holds the numbers from 64 w on, ascending.
template <class F>
void for_each_bit(std::size_t w, std::uint64_t word, const F& f) {
  for (; word != 0; word &= word - 1) f(static_cast<std::int64_t>(w) * 64 + std::countr_zero(word));
}

/// Calls f(number) for each number in [first, last) whose bit is set, ascending. Bits lie lowest first.
template <class F>
void for_each_bit(std::span<const std::uint64_t> bitmap, std::int64_t first, std::int64_t last, const F& f) {
  for (std::int64_t at = first; at < last;) {
    const std::int64_t end = std::min(last, (at / 64 + 1) * 64);
    const std::uint64_t from = ~std::uint64_t{0} << (at % 64), to = ~std::uint64_t{0} >> (63 - (end - 1) % 64);
    const auto w = static_cast<std::size_t>(at / 64);
    for_each_bit(w, bitmap[w] & from & to, f);
    at = end;
  }
}

}  // namespace lockstep
