#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep {

/// Places a whole dataset of this shape. check(values) runs on the process that fills the memory.
template <class T, class Check>
Tensor place_dataset(DataMemory& data_memory, const DatasetFile& set, const std::string& dataset,
                     const std::vector<std::int64_t>& shape, const Check& check) {
  return data_memory.place(dtype_of<T>::value, Shape(shape), [&](const Tensor& to) {
    set.read_into<T>(dataset, shape, to.span<T>());
    check(to.span<const T>());
  });
}

/// Rows [first, first + count) of a dataset, along its outermost axis.
struct DatasetPiece {
  std::string dataset;
  std::int64_t first = 0, count = 0;
};

/// An array of a RowSource that consists of pieces of a prepared file's datasets, one after another.
struct DatasetRows {
  std::shared_ptr<const OpenSet> open;
  std::vector<DatasetPiece> pieces;
  H5Type type = H5Type::f32;  ///< of the array
  RowColumn column;
};
/// Checks values of a dataset, the first of which has this number. The values before it that are read with it are in
/// memory in front of it. errors  data
template <class T>
using ValueCheck = std::function<void(const std::string& dataset, std::int64_t first, std::span<const T> values)>;
/// An array of T. Datasets of another type are converted.
/// pieces  at least one, of datasets that differ at most in their outermost extent
/// starts  see RowColumn
template <class T>
DatasetRows dataset_rows(const std::shared_ptr<const OpenSet>& open, const std::vector<DatasetPiece>& pieces,
                         const ValueCheck<T>& check, std::span<const std::int64_t> starts = {});
/// Places these arrays in data_memory.rows(). Compares each dataset that is not read as a whole with its checksum.
/// Collective. errors  see RowSource::place(); data: a dataset is damaged
std::vector<RowArray> place_rows(DataMemory& data_memory, const std::vector<DatasetRows>& arrays);

}  // namespace lockstep
