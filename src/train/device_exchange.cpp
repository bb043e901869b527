#include "train/device_exchange.hpp"

#include <algorithm>

namespace lockstep {

namespace {

std::span<std::byte> room(Buffer& memory, std::size_t size) {
  if (memory.size_bytes() < size) memory = Buffer::pinned(std::max(size, 2 * memory.size_bytes()));
  return {memory.data(), size};
}

/// An array's pieces of these sizes, one after another.
template <class Byte>
std::vector<std::span<Byte>> cut(std::span<Byte> bytes, std::span<const std::int64_t> sizes) {
  std::vector<std::span<Byte>> pieces;
  std::size_t at = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(bytes.subspan(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  return pieces;
}

}  // namespace

std::span<const std::byte> DeviceExchange::staged(std::span<const std::byte> bytes) {
  if (!on_gpu()) return bytes;
  const std::span<std::byte> copy = room(out_, bytes.size());
  copy_bytes(stream_, copy.data(), bytes.data(), bytes.size());
  stream_.synchronize();
  return copy;
}

std::span<std::byte> DeviceExchange::landing(std::span<std::byte> into) {
  return on_gpu() ? room(in_, into.size()) : into;
}

void DeviceExchange::deliver(std::span<std::byte> into, std::span<const std::byte> landed) const {
  if (!on_gpu()) return;
  copy_bytes(stream_, into.data(), landed.data(), into.size());
  stream_.synchronize();  // the page-locked memory is for the next call
}

void DeviceExchange::all_gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                                std::span<std::byte> into, const char* what) {
  if (nccl_) {
    const std::vector<std::span<const std::byte>> to(sizes.size(), mine);
    nccl_->exchange(stream_, cut(into, sizes), to, what);
    return nccl_->join(stream_);
  }
  const std::span<const std::byte> from = staged(mine);
  const std::span<std::byte> landed = landing(into);
  comm_.all_gather_known(from, sizes, landed, what);
  deliver(into, landed);
}

void DeviceExchange::all_to_all(std::span<const std::byte> to, std::span<const std::int64_t> to_sizes,
                                std::span<const std::int64_t> from_sizes, std::span<std::byte> into, const char* what) {
  if (nccl_) {
    nccl_->exchange(stream_, cut(into, from_sizes), cut(to, to_sizes), what);
    return nccl_->join(stream_);
  }
  const std::span<const std::byte> from = staged(to);
  const std::span<std::byte> landed = landing(into);
  comm_.all_to_all_known(cut(from, to_sizes), from_sizes, landed, what);
  deliver(into, landed);
}

void DeviceExchange::wait(std::int64_t step) const {
  if (nccl_)
    nccl_->wait(stream_, step);
  else
    stream_.synchronize();
}

}  // namespace lockstep
