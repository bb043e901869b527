#include "lockstep/data/dataset_rows.hpp"

#include <algorithm>
#include <set>

namespace lockstep {

template <class T>
DatasetRows dataset_rows(const std::shared_ptr<const OpenSet>& open, const std::vector<DatasetPiece>& pieces,
                         const ValueCheck<T>& check, std::span<const std::int64_t> starts) {
  std::vector<std::int64_t> extents = open->file.info(pieces.front().dataset).shape;
  extents[0] = 0;
  for (const DatasetPiece& piece : pieces) extents[0] += piece.count;
  const auto read = [=](std::int64_t row, const Tensor& to) {
    const std::int64_t begin = starts.empty() ? row : starts[row], end = begin + to.shape()[0];
    std::int64_t at = 0;
    for (const DatasetPiece& piece : pieces) {
      const std::int64_t from = std::max(begin, at), after = std::min(end, at + piece.count);
      const auto check_values = [&](std::int64_t value, std::span<const T> values) {
        check(piece.dataset, value, values);
      };
      if (from < after)
        open->set.read_rows<T>(piece.dataset, piece.first + from - at, after - from,
                               to.slice(from - begin, after - from).span<T>(), check_values);
      at += piece.count;
    }
  };
  return {open, pieces, h5_type_of<T>::value, {dtype_of<T>::value, Shape(extents), read, starts}};
}

std::vector<RowArray> place_rows(DataMemory& data_memory, const std::vector<DatasetRows>& arrays) {
  std::vector<RowColumn> columns;
  for (const DatasetRows& array : arrays) columns.push_back(array.column);
  const RowColumn& column = columns.front();
  const OpenSet& open = *arrays.front().open;
  const std::int64_t rows = column.starts.empty() ? column.shape[0] : std::ssize(column.starts) - 1;
  RowSource& source = data_memory.rows();
  std::vector<RowArray> placed = source.place(rows, columns, open.file.path());
  std::set<std::string> again;  // datasets whose values no hash of rows covers
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    std::int64_t at = 0;
    for (const auto& [dataset, first, count] : arrays[i].pieces) {
      const H5Info info = open.file.info(dataset);
      const bool all = count == info.shape[0], same = info.type == arrays[i].type;
      if (!all || (!source.whole() && !same))
        again.insert(dataset);
      else if (!source.whole())
        open.set.require_sum(dataset,
                             column.starts.empty() ? source.hash(placed[i], 0, at, count) : source.hash(placed[i], 0));
      at += count;
    }
  }
  if (!again.empty())
    data_memory.hash([&] {
      for (const std::string& dataset : again) open.set.require_sum(dataset);
      return std::uint64_t{0};
    });
  return placed;
}

#define INSTANTIATE(T)                                                                                       \
  template DatasetRows dataset_rows(const std::shared_ptr<const OpenSet>&, const std::vector<DatasetPiece>&, \
                                    const ValueCheck<T>&, std::span<const std::int64_t>);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(std::uint8_t)
INSTANTIATE(std::int32_t)
INSTANTIATE(std::int64_t)
#undef INSTANTIATE

}  // namespace lockstep
