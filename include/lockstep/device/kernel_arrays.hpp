#pragma once
#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// An array of the host's where kernels of a device read it: the array itself on the CPU, a copy in a GPU's memory, made
/// once and kept.
template <class T>
class Resident {
 public:
  Resident() = default;
  /// The array is somebody else's, who keeps it as long as this lives.
  Resident(std::span<const T> values, Device device) : view_(values) {
    if (device.is_cuda()) send(device);
  }
  Resident(std::vector<T>&& values, Device device) : host_(std::move(values)), view_(host_) {
    if (device.is_cuda()) send(device), host_ = {};
  }
  std::span<const T> span() const { return view_; }

 private:
  void send(Device device) {
    copy_ = Buffer(device, view_.size_bytes(), MemoryUse::data);
    const Stream stream(device);
    copy_bytes(stream, copy_.data(), view_.data(), view_.size_bytes());
    stream.synchronize();
    view_ = {reinterpret_cast<const T*>(copy_.data()), view_.size()};
  }

  std::vector<T> host_;
  Buffer copy_;
  std::span<const T> view_;
};

/// Arrays of the host where the kernels of a step read them: themselves on the CPU; of a GPU one copy of all in the
/// arena's memory, on its way by the stream. The host's may change at once, the arena's pinned memory when the stream has
/// gone past the copy.
template <class... T>
std::tuple<std::span<const T>...> for_kernels(const Stream& stream, Arena& arena, std::span<const T>... arrays) {
  if (!arena.device().is_cuda()) return {arrays...};
  const auto room = [](std::size_t size) {
    return (size + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
  };
  const std::size_t size = (room(arrays.size_bytes()) + ...);
  auto *staged = static_cast<std::byte*>(arena.host().allocate(size)),
       *there = static_cast<std::byte*>(arena.allocate(size));
  std::size_t at = 0;
  const auto place = [&]<class U>(std::span<const U> array) {
    if (!array.empty()) std::memcpy(staged + at, array.data(), array.size_bytes());
    const std::span<const U> copy(reinterpret_cast<const U*>(there + at), array.size());
    at += room(array.size_bytes());
    return copy;
  };
  std::tuple<std::span<const T>...> copies{place(arrays)...};  // braces: from left to right
  copy_bytes(stream, there, staged, size);
  return copies;
}

}  // namespace lockstep
