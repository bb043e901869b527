#pragma once
#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8 };

// clang-format off
template <class T>
struct dtype_of;
template <> struct dtype_of<float> { static constexpr DType value = DType::f32; };
template <> struct dtype_of<double> { static constexpr DType value = DType::f64; };
template <> struct dtype_of<bf16> { static constexpr DType value = DType::bf16; };
template <> struct dtype_of<f16> { static constexpr DType value = DType::f16; };
template <> struct dtype_of<std::int32_t> { static constexpr DType value = DType::i32; };
template <> struct dtype_of<std::int64_t> { static constexpr DType value = DType::i64; };
template <> struct dtype_of<std::uint8_t> { static constexpr DType value = DType::u8; };
// clang-format on

std::size_t size_bytes(DType dtype);
const char* name(DType dtype);
/// The dtype of computation, statistics, losses and parameter gradients for values stored as `storage` (f32 | f64 |
/// bf16 | f16).
constexpr DType real_dtype(DType storage) { return storage == DType::f64 ? DType::f64 : DType::f32; }
constexpr bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
std::ostream& operator<<(std::ostream& out, DType dtype);

/// Extents of a row-major array, outermost first, with 0 (a scalar) to kMaxRank axes.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents);
  int rank() const { return rank_; }
  /// Extent of an axis. Negative axes count from the end: -1 is the last.
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)]; }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (int axis = 0; axis < rank_; ++axis) n *= (*this)[axis];
    return n;
  }
  /// columns() is the last extent (1 for a scalar), rows() the product of the others: the array as row-wise ops see it.
  std::int64_t columns() const { return rank_ == 0 ? 1 : (*this)[-1]; }
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (int axis = 0; axis + 1 < rank_; ++axis) n *= (*this)[axis];
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> extents_{};
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// A view of a contiguous, row-major array: dtype, shape, device and address. Does not own the memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape, Device device = {})
      : data_(data), shape_(shape), dtype_(dtype), device_(device) {}
  /// A view of the caller's host memory.
  template <class T>
  static Tensor of(T* data, Shape shape) {
    using Value = std::remove_const_t<T>;
    return {const_cast<Value*>(data), dtype_of<Value>::value, shape};
  }

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return shape_.size(); }
  std::int64_t rows() const { return shape_.rows(); }
  std::int64_t columns() const { return shape_.columns(); }
  std::size_t size_bytes() const { return static_cast<std::size_t>(size()) * lockstep::size_bytes(dtype_); }
  void* raw() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

  /// The first element; null if the tensor is empty.
  template <class T>
  T* data() const {
    assert(!data_ || dtype_of<std::remove_const_t<T>>::value == dtype_);
    return static_cast<T*>(data_);
  }
  // clang-format off
  /// The same for an argument of pointer type.
  template <class T>
    requires requires { dtype_of<std::remove_const_t<T>>::value; }
  operator T*() const { return data<T>(); }  // NOLINT: implicit on purpose
  template <class T>
  std::span<T> span() const { return {data<T>(), static_cast<std::size_t>(size())}; }
  // clang-format on
  /// The same elements in another shape of the same size. errors  Error if the sizes differ
  Tensor reshaped(Shape shape) const;
  /// Rows [first, first + count) of the outermost axis. errors  Error if they are out of range
  Tensor slice(std::int64_t first, std::int64_t count) const;

 private:
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_;
};

/// Allocates uninitialised elements from an arena, valid until its reset().
Tensor allocate(Arena& arena, DType dtype, Shape shape);
void fill_zero(const Stream& stream, const Tensor& t);
/// Copies elements within or between host and GPU. See copy_bytes() in device.hpp for the time of completion.
/// errors   Error if the sizes or dtypes differ
void copy(const Stream& stream, const Tensor& to, const Tensor& from);
/// Makes a tensor readable by the host: t itself on the CPU, on a GPU a copy in the arena's pinned memory, complete on
/// return.
Tensor on_host(const Stream& stream, Arena& arena, const Tensor& t);

/// A tensor that owns its memory, initially zero.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(DType dtype, Shape shape, Device device = {}, MemoryUse use = MemoryUse::other)
      : buffer_(device, static_cast<std::size_t>(shape.size()) * size_bytes(dtype), use),
        view_(buffer_.data(), dtype, shape, device) {}
  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: implicit on purpose
  const Tensor* operator->() const { return &view_; }

 private:
  Buffer buffer_;
  Tensor view_;
};

/// A view of a tensor in host memory: the tensor itself on the CPU, a copy on a GPU. The constructor waits for the main
/// stream of the GPU. With Access::write, the destructor copies the elements back. Slow: for files, messages and
/// comparisons.
class HostView {
 public:
  enum class Access : std::uint8_t { read, write };
  explicit HostView(const Tensor& t, Access access = Access::read);
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  ~HostView() noexcept(false);
  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: implicit on purpose
  const Tensor* operator->() const { return &view_; }

 private:
  Tensor target_;  ///< destination of the copy back, or empty
  OwnedTensor copy_;
  Tensor view_;
};

/// The destination of a gradient. The first writer stores; later writers accumulate.
struct Target {
  Tensor tensor;
  bool accumulate = false;
  explicit operator bool() const { return static_cast<bool>(tensor); }
};

/// Calls f.template operator()<float>() or <double>(). errors  Error for any other dtype
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  require(dtype == DType::f32 || dtype == DType::f64, "this operation computes in f32 or f64, not in ", name(dtype));
  return dtype == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

/// Like visit_float(), with <bf16> and <f16> as well, for GPU storage types. errors  Error for any other dtype
template <class F>
decltype(auto) visit_storage(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f.template operator()<bf16>();
  if (dtype == DType::f16) return f.template operator()<f16>();
  return visit_float(dtype, std::forward<F>(f));
}

}  // namespace lockstep
