#include "lockstep/models/array_function.hpp"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.hpp"

namespace lockstep {

std::int64_t ArrayFunction::Array::count() const {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

ArrayFunction::ArrayFunction(std::vector<Array> inputs, std::vector<Array> outputs, double values_per_sample) {
  set_arrays(std::move(inputs), std::move(outputs), values_per_sample);
}

void ArrayFunction::set(const std::string& name, std::int64_t value) {
  throw Error(Fault::usage, join("setting '", name, "' = ", value, ": models of this kind have no such setting"));
}

void ArrayFunction::set_arrays(std::vector<Array> inputs, std::vector<Array> outputs, double values_per_sample) {
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
  constexpr double kValues = 4e6;
  block_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(kValues / values_per_sample));
}

void ArrayFunction::predict(std::int64_t n, std::span<const void* const> inputs, std::span<void* const> outputs,
                            Arena& arena) const {
  const auto at = []<class P>(P* data, const Array& array, std::int64_t sample) {
    using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
    return static_cast<P*>(static_cast<Byte*>(data) +
                           static_cast<std::size_t>(sample * array.count()) * size_bytes(array.dtype));
  };
  std::vector<const void*> in(inputs.size());
  std::vector<void*> out(outputs.size());
  for (std::int64_t first = 0; first < n; first += block_) {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = at(inputs[i], inputs_[i], first);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(outputs[i], outputs_[i], first);
    arena.reset();
    run(arena, first, std::min(block_, n - first), in, out);
  }
}

DType dtype_of_arrays(const NamedArrays& file) {
  return std::ranges::any_of(file.arrays, [](const NamedArray& array) { return array.dtype() == std::string("f64"); })
             ? DType::f64
             : DType::f32;
}

}  // namespace lockstep
