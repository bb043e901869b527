#include "lockstep/tasks/weight_exchange.hpp"

namespace lockstep {

void add_size(OptionValues& values, const std::string& key, std::int64_t value) {
  if (value > 0) values.emplace_back(key, std::to_string(value));
}

std::int64_t count_arrays(const NamedArrays& arrays, const std::string& pattern) {
  const std::size_t at = pattern.find('#');
  std::int64_t count = 0;
  while (arrays.find(pattern.substr(0, at) + std::to_string(count) + pattern.substr(at + 1)) != nullptr) ++count;
  return count;
}

std::int64_t extent(const NamedArrays& arrays, const std::string& name, int axis) {
  const NamedArray* array = arrays.find(name);
  if (array == nullptr || array->count() == 0) return 0;  // an empty array may claim any extent
  const int rank = static_cast<int>(array->shape.size()), place = axis < 0 ? axis + rank : axis;
  return place < 0 || place >= rank ? 0 : array->shape[place];
}

}  // namespace lockstep
