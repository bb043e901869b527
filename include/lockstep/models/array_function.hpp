#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/models/weights.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// A trained network as a function of arrays, without its data set: from raw inputs to results that a program can use.
/// It is constant; several threads may call predict(), each with its own arena. Each kind makes one from a weight file.
class ArrayFunction {
 public:
  /// An input or output: for a batch of n samples an array (n, extents...), row-major.
  struct Array {
    std::string name;
    DType dtype = DType::f32;  ///< f32 | i64
    std::vector<std::int64_t> extents;
    std::int64_t count() const;  ///< elements of one sample
  };
  virtual ~ArrayFunction() = default;
  const std::vector<Array>& inputs() const { return inputs_; }
  const std::vector<Array>& outputs() const { return outputs_; }
  /// Sets a number that the file does not hold, before threads share the function; extents may depend on it.
  /// errors  usage: the kind has no such setting; a value out of its range
  virtual void set(const std::string& name, std::int64_t value);

  /// Computes the outputs of n samples in the calling thread, in blocks of samples.
  /// errors  usage: an input that has no meaning, naming its sample
  void predict(std::int64_t n, std::span<const void* const> inputs, std::span<void* const> outputs, Arena& arena) const;

 protected:
  /// values_per_sample  estimated number of values that a pass stores per sample
  ArrayFunction(std::vector<Array> inputs, std::vector<Array> outputs, double values_per_sample);
  void set_arrays(std::vector<Array> inputs, std::vector<Array> outputs, double values_per_sample);
  /// Computes samples first .. first + n - 1; the pointers are those of sample `first`.
  virtual void run(Arena& arena, std::int64_t first, std::int64_t n, std::span<const void* const> inputs,
                   std::span<void* const> outputs) const = 0;

 private:
  std::vector<Array> inputs_, outputs_;
  std::int64_t block_ = 1;
};

/// f64 if any array of the file is f64, else f32.
DType dtype_of_arrays(const NamedArrays& file);

}  // namespace lockstep
