#include "step/row_exchange.hpp"

#include <cmath>

#include "lockstep/base/bitmap.hpp"

namespace lockstep {

RowExchange::RowExchange(const ParamStore& params, FlatRange range, int ranks, std::int64_t least) {
  std::int64_t at = range.begin, tables = 0;
  const auto elements_until = [&](std::int64_t end) {
    if (end > at) parts_.push_back({.table = nullptr, .begin = at, .count = end - at, .rows = {}});
    at = end;
  };
  for (const Param& p : params.all()) {
    if (!p.row_sparse || !p.trainable || p.offset < range.begin || p.offset >= range.end) continue;
    elements_until(p.offset);
    parts_.push_back({.table = &p, .begin = at, .count = p.shape.size(), .rows = {}});
    at += p.shape.size();
    tables += p.shape.size();
    words_ += bitmap_words(p.shape[0]);
  }
  elements_until(range.end);
  on_ = ranks > 1 && words_ > 0 && tables >= least;
}

void RowExchange::note(std::span<std::uint64_t> bitmaps, Gradients& gradients) const {
  auto to = bitmaps.begin();
  for (const Part& part : parts_) {
    if (part.table == nullptr) continue;
    for (const std::uint64_t word : gradients.touched(*part.table)->bitmap()) *to++ |= word;
  }
}

void RowExchange::read(std::span<const std::uint64_t> bitmaps, std::size_t element_bytes) {
  for (Part& part : parts_) {
    if (part.table == nullptr) continue;
    part.rows.clear();
    const std::int64_t rows = part.table->shape[0];
    for_each_bit(bitmaps, 0, rows, [&](std::int64_t row) { part.rows.push_back(static_cast<std::int32_t>(row)); });
    bitmaps = bitmaps.subspan(bitmap_words(rows));
  }
  if (choice_.empty()) decide(element_bytes);
}

void RowExchange::decide_as_before(bool by_rows) {
  if (!on_) return;
  on_ = by_rows;
  choice_ = join(by_rows ? "by rows" : "whole", ", as before the resume");
}

void RowExchange::decide(std::size_t element_bytes) {
  std::int64_t whole = 0, chosen = 0;  // elements
  std::string measured;
  for (const Part& part : parts_) {
    whole += part.count;
    if (part.table == nullptr) {
      chosen += part.count;
      continue;
    }
    const auto rows = static_cast<std::int64_t>(part.rows.size()), all = part.table->shape[0];
    chosen += rows * part.width();
    const double percent = 100 * static_cast<double>(rows) / static_cast<double>(all);
    measured += join(measured.empty() ? "" : ", ", part.table->name, " ", std::round(10 * percent) / 10, " % of ", all);
  }
  const auto bytes = [&](std::int64_t elements) { return elements * static_cast<std::int64_t>(element_bytes); };
  const auto bitmaps = static_cast<std::int64_t>(words_ * sizeof(std::uint64_t));
  on_ = bytes(chosen) + bitmaps < bytes(whole) / 4 * 3;  // packing takes time as well
  choice_ = join(on_ ? "by rows" : "whole", ", rows touched in the first step: ", measured);
}

}  // namespace lockstep
