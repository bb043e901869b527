#pragma once
#include <algorithm>
#include <cstring>
#include <ranges>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// A host array that a device can read: the array itself on the CPU, one persistent copy on a GPU.
template <class T>
class Resident {
 public:
  Resident() = default;
  /// Refers to the caller's array, which must outlive this object.
  Resident(std::span<const T> values, Device device) : view_(values) {
    if (device.is_cuda()) send(device);
  }
  Resident(std::vector<T>&& values, Device device) : host_(std::move(values)), view_(host_) {
    if (device.is_cuda()) {
      send(device);
      host_ = {};
    }
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

/// Host arrays in pinned memory, and their destination in GPU memory.
struct Staged {
  std::byte *on_gpu = nullptr, *pinned = nullptr;
  std::size_t size_bytes = 0;
  void copy(const Stream& stream) const { copy_bytes(stream, on_gpu, pinned, size_bytes); }
};

template <class Array>
using ViewOf = std::span<const std::ranges::range_value_t<Array>>;

/// Copies host arrays to the pinned memory of a GPU's arena. Returns their addresses in GPU memory, for kernels after
/// staged.copy().
template <class... Array>
std::tuple<ViewOf<Array>...> stage(Staged& staged, Arena& arena, const Array&... arrays) {
  const auto padded = [](std::size_t size) {
    return (size + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
  };
  const std::size_t size = (padded(ViewOf<Array>(arrays).size_bytes()) + ...);
  staged = {.on_gpu = static_cast<std::byte*>(arena.allocate(size)),
            .pinned = static_cast<std::byte*>(arena.host().allocate(size)),
            .size_bytes = size};
  std::size_t at = 0;
  const auto place = [&]<class U>(std::span<const U> array) {
    if (!array.empty()) std::memcpy(staged.pinned + at, array.data(), array.size_bytes());
    const std::span<const U> copy(reinterpret_cast<const U*>(staged.on_gpu + at), array.size());
    at += padded(array.size_bytes());
    return copy;
  };
  return {place(ViewOf<Array>(arrays))...};  // braces evaluate from left to right
}

/// Makes host arrays accessible to the kernels of a step: the arrays themselves on the CPU; on a GPU one asynchronous
/// copy of all arrays into the arena's memory. The host arrays may change as soon as the call returns. The pinned
/// staging memory is free once the stream has passed the copy.
template <class... Array>
std::tuple<ViewOf<Array>...> for_kernels(const Stream& stream, Arena& arena, const Array&... arrays) {
  if (!arena.device().is_cuda()) return {ViewOf<Array>(arrays)...};
  Staged staged;
  std::tuple<ViewOf<Array>...> copies = stage(staged, arena, arrays...);
  staged.copy(stream);
  return copies;
}

}  // namespace lockstep
