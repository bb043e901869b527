#include "lockstep/data/dataset_rows.hpp"

#include <algorithm>
#include <set>

namespace lockstep {

template <class T>
RowColumn DatasetRows<T>::column() const {
  std::vector<std::int64_t> extents = open_->file.info(pieces_.front().dataset).shape;
  extents[0] = 0;
  for (const DatasetPiece& piece : pieces_) extents[0] += piece.count;
  const auto read = [own = *this](std::int64_t row, const Tensor& to) {
    const std::int64_t begin = own.starts_.empty() ? row : own.starts_[static_cast<std::size_t>(row)],
                       end = begin + to.shape()[0];
    std::int64_t at = 0;
    for (const auto& [dataset, first, count] : own.pieces_) {
      const std::int64_t from = std::max(begin, at), after = std::min(end, at + count);
      if (from < after)
        own.open_->set.template read_rows<T>(
            dataset, first + from - at, after - from, to.slice(from - begin, after - from).template span<T>(),
            [&](std::int64_t value, std::span<const T> values) { own.check_(dataset, value, values); });
      at += count;
    }
  };
  return {.dtype = dtype_of<T>::value, .shape = Shape(extents), .read = read, .starts = starts_};
}

template <class T>
void DatasetRows<T>::verify(DataMemory& data_memory, const RowArray& array) const {
  const DatasetFile& set = open_->set;
  const bool whole = array.whole();
  std::set<std::string> again;  // datasets of which no hash of rows is that of the values
  std::int64_t at = 0;
  for (const auto& [dataset, first, count] : pieces_) {
    const H5Info info = open_->file.info(dataset);
    const bool all = count == info.shape[0], same = info.type == h5_type_of<T>::value;
    if (!all || (!whole && !same))
      again.insert(dataset);
    else if (!whole)
      set.require_sum(
          dataset, starts_.empty() ? data_memory.rows().hash(array, 0, at, count) : data_memory.rows().hash(array, 0));
    at += count;
  }
  if (!again.empty())
    data_memory.hash([&] {
      for (const std::string& dataset : again) set.require_sum(dataset);
      return std::uint64_t{0};
    });
}

template class DatasetRows<float>;
template class DatasetRows<double>;
template class DatasetRows<std::uint8_t>;
template class DatasetRows<std::int32_t>;
template class DatasetRows<std::int64_t>;

}  // namespace lockstep
