#pragma once
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep::test {

/// An array in GPU memory, for tests of kernels: uninitialised, or copied from the host. read() copies it back.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count, int device = 0)
      : stream_({DeviceKind::cuda, device}), count_(count), buffer_({DeviceKind::cuda, device}, count * sizeof(T)) {}
  explicit DeviceArray(const std::vector<T>& values, int device = 0) : DeviceArray(values.size(), device) {
    copy_bytes(stream_, buffer_.data(), values.data(), count_ * sizeof(T));
    stream_.synchronize();
  }
  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    copy_bytes(stream_, values.data(), buffer_.data(), count_ * sizeof(T));
    stream_.synchronize();
    return values;
  }

 private:
  Stream stream_;
  std::size_t count_;
  Buffer buffer_;
};

}  // namespace lockstep::test
