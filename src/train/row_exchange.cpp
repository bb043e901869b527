#include "train/row_exchange.hpp"

#include <algorithm>

namespace lockstep {

/// Returns how many elements they are.
template <class T>
std::int64_t RowExchange<T>::find_pieces() {
  std::int64_t elements = 0;
  const auto piece = [&](std::int64_t begin, std::int64_t count) {
    elements += count;
    if (!pieces_.empty() && pieces_.back().begin + pieces_.back().count == begin)
      pieces_.back().count += count;
    else
      pieces_.push_back({begin, count});
  };
  for (const RowUnion::Part& part : rows_.parts()) {
    if (part.table == nullptr) piece(part.begin, part.count);
    for (const std::int32_t row : part.rows) piece(part.begin + row * part.width(), part.width());
  }
  return elements;
}

template <class T>
std::span<T> RowExchange<T>::pack(std::span<const T> front, const T* gradient) {
  pieces_.clear();
  if (!on()) return {};
  bitmaps_.assign(rows_.words(), 0);
  for (Gradients* part : parts_) rows_.note(bitmaps_, *part);
  comm_.all_reduce(std::span<std::uint64_t>(bitmaps_), ReduceOp::bit_or, "touched rows");
  rows_.read(bitmaps_, sizeof(T));
  if (!on()) return {};
  message_.resize(front.size() + static_cast<std::size_t>(find_pieces()));
  auto to = std::copy(front.begin(), front.end(), message_.begin());
  for (const Piece& p : pieces_) to = std::copy_n(gradient + p.begin, p.count, to);
  return message_;
}

template <class T>
void RowExchange<T>::unpack(std::span<T> front, T* gradient) {
  if (pieces_.empty()) return;
  const T* from = message_.data();
  std::copy_n(from, front.size(), front.begin());
  from += front.size();
  for (const Piece& p : pieces_) {
    std::copy_n(from, p.count, gradient + p.begin);
    from += p.count;
  }
}

template class RowExchange<float>;
template class RowExchange<double>;

}  // namespace lockstep
