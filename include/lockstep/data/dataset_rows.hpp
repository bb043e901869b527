#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/row_source.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep {

/// Rows [first, first + count) of a dataset, along its outermost axis.
struct DatasetPiece {
  std::string dataset;
  std::int64_t first = 0, count = 0;
};

/// An array of a RowSource that consists of pieces of a prepared file's datasets, one after another. T is the type in
/// memory; datasets of another type are converted.
template <class T>
class DatasetRows {
 public:
  /// Checks values of a dataset, the first of which has this number. The values before it that are read with it are in
  /// memory in front of it. errors  data
  using Check = std::function<void(const std::string& dataset, std::int64_t first, std::span<const T> values)>;
  /// pieces  at least one, of datasets that differ at most in their outermost extent
  /// starts  see RowColumn
  DatasetRows(std::shared_ptr<const OpenSet> open, std::vector<DatasetPiece> pieces, Check check,
              std::span<const std::int64_t> starts = {})
      : open_(std::move(open)), pieces_(std::move(pieces)), check_(std::move(check)), starts_(starts) {}
  RowColumn column() const;
  /// Compares with its checksum each dataset that was not read as a whole. array: made of column(). Collective.
  /// errors  data: a dataset is damaged
  void verify(DataMemory& data_memory, const RowArray& array) const;

 private:
  std::shared_ptr<const OpenSet> open_;
  std::vector<DatasetPiece> pieces_;
  Check check_;
  std::span<const std::int64_t> starts_;
};

}  // namespace lockstep
