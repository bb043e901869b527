#include "elements.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/io/weights.hpp"

namespace lockstep {

NamedArrays h5_arrays(const H5File& file, const std::string& group) {
  std::vector<NamedArray> arrays;
  for (const std::string& dataset : file.datasets_under(group)) {
    const H5Info info = file.info(dataset);
    if (info.type == H5Type::text) continue;
    NamedArray& array = arrays.emplace_back();
    array.name = dataset.substr(group == "/" ? 1 : group.size() + 1);
    array.shape = info.shape;
    if (info.type == H5Type::f32)
      array.values = file.read<float>(dataset);
    else if (info.type == H5Type::f64)
      array.values = file.read<double>(dataset);
    else
      array.values = file.read<std::int64_t>(dataset);
    array.stored = array.dtype();
  }
  return weights::sorted(std::move(arrays), "reading '" + file.path().string() + "'");
}

}  // namespace lockstep
