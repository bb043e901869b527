#pragma once
#include <concepts>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.hpp"
#include "support/tolerance.hpp"

/// The table of ops: an op's test is a row, which states how to call it and its definition in plain loops.
/// faults() checks what every op must keep to. See docs/adding-an-op.md.
namespace lockstep::test {

using Int = std::int64_t;
using Sizes = std::vector<Int>;

/// The arrays of one call of an op, by name. Their numbers depend on the name alone: they are the same on each device.
class Place {
 public:
  /// rows and output: the first axis is that of the op's rows; shared and sum: of all rows together.
  enum class Role : std::uint8_t { rows, shared, output, sum };
  struct Array {
    std::string name;
    Tensor tensor;
    OwnedTensor before;  ///< the values at the start; empty on a GPU
    Role role;
    bool adds = false;     ///< the op adds to it
    double tolerance = 1;  ///< upper bound on the tolerance of comparisons
    bool written() const { return role == Role::output || role == Role::sum; }
  };
  using Given = std::map<std::string, OwnedTensor>;

  /// Computes in dtype on numbers rounded to `storage`; `given` arrays replace drawn ones.
  Place(DType dtype, Device device, DType storage, bool adds = false, const Given* given = nullptr)
      : stream(device), arena(device), dtype_(dtype), storage_(storage), adds_(adds), given_(given) {}
  Place(DType dtype, Device device) : Place(dtype, device, dtype) {}
  Stream stream;
  Arena arena;
  Int shift = 0;  ///< the arrays begin so many elements after an aligned address
  DType dtype() const { return dtype_; }
  /// The dtype of statistics, losses and gradients of parameters.
  DType real() const { return real_dtype(dtype_); }

  /// Inputs of dtype() and real(), drawn from N(0, size^2). The first axis is that of the op's rows.
  Tensor in(const std::string& name, Shape shape, double size = 1) {
    return drawn(name, shape, dtype_, storage_, size, Role::rows);
  }
  Tensor real_in(const std::string& name, Shape shape, double size = 1) {
    return drawn(name, shape, real(), real_dtype(storage_), size, Role::rows);
  }
  /// The same for an array that all rows share.
  Tensor weight(const std::string& name, Shape shape, double size = 1) {
    return drawn(name, shape, dtype_, storage_, size, Role::shared);
  }
  Tensor real_weight(const std::string& name, Shape shape, double size = 1) {
    return drawn(name, shape, real(), real_dtype(storage_), size, Role::shared);
  }
  /// Integers, some for each row, on the device and in host memory that kernels read.
  Tensor ints(const std::string& name, const std::vector<std::int32_t>& values, Shape shape) {
    return noted(name, Tensor::of(values.data(), shape), Role::rows);
  }
  std::span<const std::int32_t> list(const std::string& name, const std::vector<std::int32_t>& values);

  /// Arrays that the op writes, of dtype() or real(), with drawn numbers in them. One whose name ends in " again" has
  /// the bits that the one without has.
  Tensor out(const std::string& name, Shape shape) { return drawn(name, shape, dtype_, storage_, 1, Role::output); }
  Tensor real_out(const std::string& name, Shape shape) {
    return drawn(name, shape, real(), real_dtype(storage_), 1, Role::output);
  }
  /// A result of all rows together: a loss, a gradient of a parameter.
  Tensor sum(const std::string& name, Shape shape) {
    return drawn(name, shape, real(), real_dtype(storage_), 1, Role::sum);
  }
  /// Marks the array that was made last: the op always adds to it.
  const Tensor& added(const Tensor& t) { return arrays_.back().adds = true, t; }
  /// Destinations of gradients, which store or add.
  Target to(const std::string& name, Shape shape) { return adding(out(name, shape), adds_); }
  Target to_sum(const std::string& name, Shape shape) { return adding(sum(name, shape), adds_); }
  bool adds() const { return adds_; }
  /// An array that starts as a copy of another one: for calls in place.
  Tensor over(const std::string& name, const Tensor& start);
  /// Bytes or integers that the op writes: equal on each device.
  Tensor exact_out(const std::string& name, const Tensor& before) { return noted(name, before, Role::output); }
  /// Numbers that the host has read: equal up to `tolerance`.
  void out_values(const std::string& name, const std::vector<double>& values, double tolerance = 1e-12);

  /// A copy on the device, which no check sees.
  Tensor put(const Tensor& values);
  /// Host arrays that kernels read.
  template <class T>
  std::span<const T> host(const std::vector<T>& values) {
    pinned_.push_back(Buffer::pinned(std::max<std::size_t>(1, values.size() * sizeof(T))));
    T* to = reinterpret_cast<T*>(pinned_.back().data());
    std::copy(values.begin(), values.end(), to);
    return {to, values.size()};
  }
  const std::deque<Array>& arrays() const { return arrays_; }
  /// The first array of this name, or null.
  const Array* find(const std::string& name) const;

 private:
  Tensor drawn(const std::string& name, Shape shape, DType dtype, DType rounded, double size, Role role);
  Tensor noted(const std::string& name, const Tensor& before, Role role);
  Target adding(const Tensor& t, bool adds) {
    arrays_.back().adds = adds;
    return {t, adds};
  }
  DType dtype_, storage_;
  bool adds_;
  const Given* given_;
  std::deque<OwnedTensor> tensors_;
  std::deque<Buffer> pinned_;
  std::deque<Array> arrays_;
};

/// The arrays of a call in f64, for a definition in plain loops.
class Plain {
 public:
  struct Array {
    double* data = nullptr;
    Shape shape;
    /// The element at these indices.
    double& operator()(std::integral auto... at) const {
      std::int64_t index = 0, axis = 0;
      ((index = index * shape[static_cast<int>(axis++)] + at), ...);
      return data[index];
    }
    explicit operator bool() const { return data != nullptr; }
  };
  explicit Plain(const Place& call) : call_(call) {}
  /// The values at the start of the call; null if it has no such array.
  Array in(const std::string& name);
  std::vector<std::int32_t> list(const std::string& name) const;
  /// A result, zero at first, which the op's is compared with.
  Array out(const std::string& name);
  const std::map<std::string, OwnedTensor>& results() const { return results_; }

 private:
  const Place& call_;
  std::deque<OwnedTensor> inputs_;
  std::map<std::string, OwnedTensor> results_;
};

/// A function of a call and as many sizes as it names.
template <class Call>
class Sized {
 public:
  Sized() = default;
  template <class F>
  Sized(F f) : call_(of<F, 0>(std::move(f))) {}  // NOLINT: implicit on purpose
  void operator()(Call& call, const Sizes& sizes) const { call_(call, sizes); }
  explicit operator bool() const { return static_cast<bool>(call_); }

 private:
  template <class F, std::size_t n>
  static std::function<void(Call&, const Sizes&)> of(F f) {
    return [&]<std::size_t... i>(std::index_sequence<i...>)->std::function<void(Call&, const Sizes&)> {
      if constexpr (std::invocable<F, Call&, decltype(static_cast<void>(i), Int{})...>)
        return [f](Call& call, const Sizes& sizes) { f(call, sizes.at(i)...); };
      else
        return of<F, n + 1>(f);
    }
    (std::make_index_sequence<n>());
  }
  std::function<void(Call&, const Sizes&)> call_;
};

/// A call with one array of another shape, which is an error.
struct Refused {
  Sizes sizes;
  std::string array;
  Shape shape;
  std::string message;
};

/// Tolerances relative to the largest element of each array; 0: not compared.
struct OnGpu {
  double f32 = 1e-5, f64 = 1e-12;      ///< against the same dtype on the CPU
  double bf16 = 0x1p-6, f16 = 0x1p-9;  ///< against f64 on the same rounded numbers
};

/// One op. The first size is the number of its rows, which do not depend on one another.
struct OpRow {
  std::vector<Sizes> sizes = {};
  Sized<Place> run = {};
  Sized<Plain> definition = {};
  double f32 = 1e-6, f64 = 1e-14;  ///< against the definition
  double f32_rest = 1e-5;          ///< results in f32 that the definition leaves out, against f64 on the same numbers
  double gradient = 1e-7;          ///< against finite differences, relative to the largest, at least 1; 0: has kinks
  OnGpu gpu = {};
  bool rows = true;  ///< has rows: results of one have the same bits alone, and no NaN of another
  std::vector<Refused> refused = {};
  std::vector<Sizes> cpu_sizes = {}, gpu_sizes = {};  ///< more sizes for one of the devices
};

/// What is wrong with an op, one line for each fault; empty if nothing is.
///
/// On the CPU, for each size, instruction set, and f32 and f64 (the stand-in for a GPU leaves this part out):
/// - results agree with the definition, others in f32 with f64
/// - in f64 an output dx of an input x agrees with 4th-order differences of sum_y dy y, over the outputs y that have an
///   array dy, and a `loss`, whose weight is 1
/// - a target is stored, or added to its old values
/// - bits depend neither on threads, nor on a parallel region around the call, nor on how many rows one call has
/// - a row of NaN in the first input makes NaN in its results, and changes no other row
/// - a refused call throws its message
/// On a GPU: results agree with the CPU's in each dtype, stored or added, and the order of blocks changes no bit.
std::string faults(const OpRow& row);
/// The same with these fields.
std::string faults(Sized<Place> run, Sized<Plain> definition, std::vector<Sizes> sizes, OpRow row = {});

/// The comparison with a GPU alone.
std::string device_faults(const std::function<void(Place&)>& run, const OnGpu& tolerances, bool adds = false);

}  // namespace lockstep::test
