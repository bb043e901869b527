#include "step/cpu_row_exchange.hpp"

#include <algorithm>

namespace lockstep {

/// Sets ranges_; returns their number of elements.
template <class T>
std::int64_t CpuRowExchange<T>::find_ranges() {
  std::int64_t elements = 0;
  const auto add = [&](std::int64_t begin, std::int64_t count) {
    elements += count;
    if (ranges_.empty() || ranges_.back().end != begin) ranges_.push_back({begin, begin});
    ranges_.back().end += count;
  };
  for (const RowExchange::Part& part : rows_.parts()) {
    if (part.table == nullptr) add(part.begin, part.count);
    for (const std::int32_t row : part.rows) add(part.begin + row * part.width(), part.width());
  }
  return elements;
}

/// ORs the rows of all ranks.
template <class T>
void CpuRowExchange<T>::unite_rows() {
  std::vector<std::span<std::uint64_t>> tables;
  for (const RowExchange::Part& part : rows_.parts())
    if (part.table != nullptr) tables.push_back(nonzero_.rows_of(*part.table));
  bitmaps_.clear();
  for (const auto& rows : tables) bitmaps_.insert(bitmaps_.end(), rows.begin(), rows.end());
  comm_.all_reduce(std::span<std::uint64_t>(bitmaps_), ReduceOp::bit_or, "touched rows");
  auto from = bitmaps_.begin();
  for (const auto& rows : tables) {
    std::copy_n(from, rows.size(), rows.begin());
    from += std::ssize(rows);
  }
  rows_.read(bitmaps_, sizeof(T));
}

template <class T>
std::span<T> CpuRowExchange<T>::pack(std::span<const T> front, const T* gradient) {
  ranges_.clear();
  if (on()) unite_rows();
  if (!on()) {
    if (comm_.size() > 1) nonzero_.add_all(range_);
    return {};
  }
  message_.resize(front.size() + static_cast<std::size_t>(find_ranges()));
  auto to = std::copy(front.begin(), front.end(), message_.begin());
  for (const FlatRange& r : ranges_) to = std::copy(gradient + r.begin, gradient + r.end, to);
  return message_;
}

template <class T>
void CpuRowExchange<T>::unpack(std::span<T> front, T* gradient) {
  if (ranges_.empty()) return;
  const T* from = message_.data();
  std::copy_n(from, front.size(), front.begin());
  from += front.size();
  for (const FlatRange& r : ranges_) {
    std::copy_n(from, r.count(), gradient + r.begin);
    from += r.count();
  }
}

template class CpuRowExchange<float>;
template class CpuRowExchange<double>;

}  // namespace lockstep
