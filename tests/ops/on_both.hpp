#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/devices.hpp"
#include "support/tolerance.hpp"

namespace lockstep::test {

/// What an operation is called with, on one device: the same numbers on each.
class Place {
 public:
  Place(DType dtype, Device device) : Place(dtype, device, dtype) {}
  /// Computes in dtype on numbers that `storage` holds.
  Place(DType dtype, Device device, DType storage)
      : stream(device), dtype_(dtype), storage_(storage), device_(device) {}
  Stream stream;
  DType dtype() const { return dtype_; }
  /// What statistics, losses and gradients of parameters are of.
  DType real() const { return real_dtype(dtype_); }

  /// An input drawn from N(0, 1) by its name.
  Tensor in(const std::string& name, Shape shape) {
    return put(converted(random_tensor(storage_, shape, Site(name)), dtype_));
  }
  /// An input of real().
  Tensor real_in(const std::string& name, Shape shape) {
    return put(converted(random_tensor(real_dtype(storage_), shape, Site(name)), real()));
  }
  /// Indices on the device.
  Tensor ints(const std::vector<std::int32_t>& values, Shape shape) { return put(Tensor::of(values.data(), shape)); }
  /// Something that the operation writes or adds to; compared afterwards.
  Tensor out(const std::string& name, Shape shape) { return noted(name, in(name, shape)); }
  Tensor real_out(const std::string& name, Shape shape) { return noted(name, real_in(name, shape)); }
  /// Numbers that the host gives: indices, labels.
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
  };
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  Tensor noted(const std::string& name, const Tensor& tensor) {
    outputs_.push_back({name, tensor});
    return tensor;
  }
  Tensor put(const Tensor& values) {
    tensors_.emplace_back(values.dtype(), values.shape(), device_);
    copy(stream, tensors_.back(), values);
    stream.synchronize();
    return tensors_.back();
  }
  DType dtype_, storage_;
  Device device_;
  std::deque<OwnedTensor> tensors_;
  std::deque<Buffer> pinned_;
  std::vector<Output> outputs_;
};

inline bool gpu_present() { return gpu_count() > 0; }

/// Calls f here and on the GPU, in f32 and f64, and compares everything that it writes; and once more on the GPU, on the
/// stand-in in the opposite order, which must give the same bits.
inline void agrees_on_both(const std::function<void(Place&)>& f, double single = 1e-5, double in_double = 1e-12) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Device gpu{DeviceKind::cuda, 0};
    Place here(dtype, {}), there(dtype, gpu), again(dtype, gpu);
    f(here), f(there);
    there.stream.synchronize();
    {
      const LastFirst order;
      f(again);
      again.stream.synchronize();
    }
    for (std::size_t i = 0; i < here.outputs().size(); ++i) {
      CAPTURE(here.outputs()[i].name);
      const HostView found(there.outputs()[i].tensor), repeated(again.outputs()[i].tensor);
      CHECK(difference(found, here.outputs()[i].tensor) < (dtype == DType::f32 ? single : in_double));
      CHECK(same_bits(found, repeated));
    }
  }
}

/// Calls f on the GPU, storing bf16 and then f16, and compares everything that it writes with what f64 gives here for the
/// same rounded inputs; and once more on the GPU, which must give the same bits. The tolerances: what rounding the results
/// (2^-9 and 2^-12 of each) and what is stored on the way may cost, relative to the largest.
inline void halves_agree(const std::function<void(Place&)>& f, double in_bf16 = 0x1p-6, double in_f16 = 0x1p-9) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Device gpu{DeviceKind::cuda, 0};
    Place here(DType::f64, {}, dtype), there(dtype, gpu), again(dtype, gpu);
    f(here), f(there);
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
      CHECK(difference(found, here.outputs()[i].tensor) < (dtype == DType::bf16 ? in_bf16 : in_f16));
      CHECK(same_bits(found, repeated));
    }
  }
}
/// Both of these.
inline void every_dtype_agrees(const std::function<void(Place&)>& f, double single = 1e-5, double in_double = 1e-12) {
  agrees_on_both(f, single, in_double);
  halves_agree(f);
}

}  // namespace lockstep::test
