#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace lockstep {

/// Number of 64-bit words in a bitmap of n bits. Bit i is bit i % 64 of word i / 64.
constexpr std::size_t bitmap_words(std::int64_t n) { return static_cast<std::size_t>((n + 63) / 64); }

/// Calls f(64 w + bit) for each set bit of `word`, word w of a bitmap, in ascending order.
template <class F>
void for_each_bit(std::size_t w, std::uint64_t word, const F& f) {
  for (; word != 0; word &= word - 1) f(static_cast<std::int64_t>(w) * 64 + std::countr_zero(word));
}

/// Calls f(i) for each set bit i in [first, last), in ascending order.
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
