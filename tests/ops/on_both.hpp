#pragma once
#include <deque>

#include "support/devices.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// The arguments of an op on one device. The numbers are the same on each device.
class Place {
 public:
  Place(DType dtype, Device device) : Place(dtype, device, dtype) {}
  /// Computes in dtype on numbers rounded to `storage`.
  Place(DType dtype, Device device, DType storage) : stream(device), arena(device), dtype_(dtype), storage_(storage) {}
  Stream stream;
  Arena arena;
  DType dtype() const { return dtype_; }
  /// The dtype of statistics, losses and gradients of parameters.
  DType real() const { return real_dtype(dtype_); }

  /// An input drawn from N(0, 1), keyed by its name.
  Tensor in(const std::string& name, Shape shape) {
    return put(converted(random_tensor(storage_, shape, Site(name)), dtype_));
  }
  /// An input of dtype real().
  Tensor real_in(const std::string& name, Shape shape) {
    return put(converted(random_tensor(real_dtype(storage_), shape, Site(name)), real()));
  }
  /// Indices on the device.
  Tensor ints(const std::vector<std::int32_t>& values, Shape shape) { return put(Tensor::of(values.data(), shape)); }
  /// An array that the op writes or adds to. Compared afterwards.
  Tensor out(const std::string& name, Shape shape) { return noted(name, in(name, shape)); }
  Tensor real_out(const std::string& name, Shape shape) { return noted(name, real_in(name, shape)); }
  /// Bytes that the op writes: equal on each device.
  Tensor out_bytes(const std::string& name, Shape shape) { return noted(name, put(OwnedTensor(DType::u8, shape))); }
  /// Sums in f64 that the host has read: equal up to the order of summation.
  void out_sums(const std::vector<double>& values) {
    tensors_.push_back(converted(Tensor::of(values.data(), {static_cast<std::int64_t>(values.size())}), DType::f64));
    outputs_.push_back({"sums", tensors_.back(), 1e-13});
  }
  /// A copy on the device.
  Tensor put(const Tensor& values) {
    tensors_.emplace_back(values.dtype(), values.shape(), stream.device());
    copy(stream, tensors_.back(), values);
    stream.synchronize();
    return tensors_.back();
  }
  /// Host arrays: indices, labels.
  template <class T>
  std::span<const T> host(const std::vector<T>& values) {
    pinned_.push_back(Buffer::pinned(std::max<std::size_t>(1, values.size() * sizeof(T))));
    T* to = reinterpret_cast<T*>(pinned_.back().data());
    std::copy(values.begin(), values.end(), to);
    return {to, values.size()};
  }

  struct Output {
    std::string name;
    Tensor tensor;
    double tolerance = 1;  ///< upper bound on the tolerance of the comparison
  };
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  Tensor noted(const std::string& name, const Tensor& tensor) {
    outputs_.push_back({name, tensor});
    return tensor;
  }
  DType dtype_, storage_;
  std::deque<OwnedTensor> tensors_;
  std::deque<Buffer> pinned_;
  std::vector<Output> outputs_;
};

inline bool gpu_present() { return gpu_count() > 0; }

/// Calls f on the CPU with the dtype `exact` and on the GPU with `dtype`, and compares everything that it writes. A
/// second call on the GPU (on the stand-in in the opposite order of threads) must give the same bits.
inline void agrees(const std::function<void(Place&)>& f, DType exact, DType dtype, double tolerance) {
  const Device gpu{DeviceKind::cuda, 0};
  Place here(exact, {}, dtype), there(dtype, gpu), again(dtype, gpu);
  f(here);
  f(there);
  there.stream.synchronize();
  {
    const LastFirst order;
    f(again);
    again.stream.synchronize();
  }
  for (std::size_t i = 0; i < here.outputs().size(); ++i) {
    CAPTURE(std::string(name(dtype)));
    CAPTURE(here.outputs()[i].name);
    const HostView found(there.outputs()[i].tensor), repeated(again.outputs()[i].tensor);
    const Place::Output& expected = here.outputs()[i];
    if (expected.tensor.dtype() == DType::u8)
      CHECK(same_bits(found, expected.tensor));
    else
      CHECK(difference(found, expected.tensor) < std::min(tolerance, expected.tolerance));
    CHECK(same_bits(found, repeated));
  }
}

/// f32 and f64 agree with the same types on the CPU.
inline void agrees_on_both(const std::function<void(Place&)>& f, double single = 1e-5, double in_double = 1e-12) {
  agrees(f, DType::f32, DType::f32, single);
  agrees(f, DType::f64, DType::f64, in_double);
}

/// bf16 and f16 storage agree with f64 results on the CPU for the same rounded inputs. The tolerances, relative to the
/// largest element, cover the rounding of the results (2^-9 and 2^-12 of each) and of stored intermediate values.
inline void halves_agree(const std::function<void(Place&)>& f, double in_bf16 = 0x1p-6, double in_f16 = 0x1p-9) {
  agrees(f, DType::f64, DType::bf16, in_bf16);
  agrees(f, DType::f64, DType::f16, in_f16);
}

/// Both comparisons.
inline void every_dtype_agrees(const std::function<void(Place&)>& f, double single = 1e-5, double in_double = 1e-12) {
  agrees_on_both(f, single, in_double);
  halves_agree(f);
}

}  // namespace lockstep::test
