#include "lockstep/data/data_memory.hpp"

#include "lockstep/base/memory_limit.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

H5File DataMemory::open(const std::filesystem::path& path) const { return H5File::open(path, copy_); }

std::uint64_t DataMemory::hash(const std::function<std::uint64_t()>& compute) {
  const Tensor one = place(DType::i64, {1},
                           [&](const Tensor& to) { *to.data<std::int64_t>() = static_cast<std::int64_t>(compute()); });
  return static_cast<std::uint64_t>(*one.data<std::int64_t>());
}

void DataMemory::require_memory(DType dtype, const Shape& shape) {
  const bool first = placed_bytes_ == 0;
  placed_bytes_ += static_cast<double>(shape.size()) * static_cast<double>(size_bytes(dtype));
  require_memory_for(placed_bytes_,
                     join("loading the data set: an array ", shape, first ? " needs" : " and those before it need"),
                     "choose a smaller data set");
}

Tensor LocalDataMemory::place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) {
  require_memory(dtype, shape);
  const Tensor array = arrays_.emplace_back(dtype, shape, Device{}, MemoryUse::data);
  fill(array);
  return array;
}

}  // namespace lockstep
