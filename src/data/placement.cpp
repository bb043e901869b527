#include "lockstep/data/placement.hpp"

#include "lockstep/io/h5.hpp"

namespace lockstep {

H5File Placement::open(const std::filesystem::path& path) const { return H5File::open(path, copy_); }

Tensor LocalPlacement::place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) {
  const Tensor array = arrays_.emplace_back(dtype, shape);
  fill(array);
  return array;
}

}  // namespace lockstep
