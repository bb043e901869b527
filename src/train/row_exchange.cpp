#include "train/row_exchange.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/base/text.hpp"

namespace lockstep {

template <class T>
RowExchange<T>::RowExchange(Communicator& comm, const ParamStore& params, FlatRange range,
                            const std::vector<Gradients*>& parts)
    : comm_(comm), range_(range), parts_(parts) {
  for (const Param& p : params.all())
    if (p.row_sparse && p.trainable && p.offset >= range.begin && p.offset < range.end) tables_.push_back(&p);
  on_ = comm.size() > 1 && !tables_.empty();
}

/// Leaves the rows that any thread of any rank has touched in bitmap_; returns how many they are.
template <class T>
std::int64_t RowExchange<T>::touched_union(const Param& param) {
  bitmap_.assign(static_cast<std::size_t>((param.shape[0] + 63) / 64), 0);
  for (Gradients* part : parts_) {
    const std::span<const std::uint64_t> words = part->touched(param)->bitmap();
    for (std::size_t w = 0; w < words.size(); ++w) bitmap_[w] |= words[w];
  }
  comm_.all_reduce(std::span<std::uint64_t>(bitmap_), ReduceOp::bit_or, "touched rows");
  std::int64_t rows = 0;
  for (const std::uint64_t word : bitmap_) rows += std::popcount(word);
  return rows;
}

template <class T>
std::span<T> RowExchange<T>::pack(std::span<const T> front, const T* gradient) {
  pieces_.clear();
  if (!on_) return {};
  std::int64_t at = range_.begin, elements = 0, bitmaps = 0;
  const auto piece = [&](std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    elements += count;
    if (!pieces_.empty() && pieces_.back().begin + pieces_.back().count == begin)
      pieces_.back().count += count;
    else
      pieces_.push_back({begin, count});
  };
  std::string measured;
  for (const Param* table : tables_) {
    const Param& p = *table;
    piece(at, p.offset - at);
    const std::int64_t rows = touched_union(p), width = p.shape.size() / p.shape[0];
    for (std::size_t w = 0; w < bitmap_.size(); ++w) {
      for (std::uint64_t word = bitmap_[w]; word != 0; word &= word - 1)
        piece(p.offset + (static_cast<std::int64_t>(w) * 64 + std::countr_zero(word)) * width, width);
    }
    at = p.offset + p.shape.size();
    bitmaps += static_cast<std::int64_t>(bitmap_.size() * sizeof(std::uint64_t));
    const double percent = 100 * static_cast<double>(rows) / static_cast<double>(p.shape[0]);
    measured += join(measured.empty() ? "" : ", ", p.name, " ", std::round(10 * percent) / 10, " % of ", p.shape[0]);
  }
  piece(at, range_.end - at);
  if (choice_.empty()) {
    const std::int64_t whole = range_.count() * static_cast<std::int64_t>(sizeof(T));
    on_ = elements * static_cast<std::int64_t>(sizeof(T)) + bitmaps < whole / 4 * 3;  // packing takes time, too
    choice_ = join(on_ ? "by rows" : "whole", ", rows touched in the first step: ", measured);
    if (!on_) return pieces_.clear(), std::span<T>();
  }
  message_.resize(front.size() + static_cast<std::size_t>(elements));
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
