#include "lockstep/device/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {
constexpr std::size_t round_up(std::size_t n, std::size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
}  // namespace

Buffer::Buffer(Device device, std::size_t size_bytes) : device_(device), size_bytes_(size_bytes) {
  require(!device.is_cuda(), "allocating ", human_bytes(size_bytes), " on cuda:", device.index,
          ": this build has no CUDA; use --device cpu");
  if (size_bytes == 0) return;
  const std::size_t rounded = round_up(size_bytes, kAlignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  require(memory != nullptr, "allocating ", human_bytes(size_bytes),
          " of host memory: the system has none left; use a smaller batch or fewer ranks per node");
  std::memset(memory, 0, rounded);
  data_.reset(memory);
}

void Buffer::Free::operator()(std::byte* memory) const { std::free(memory); }

Arena::Arena(Device device, std::size_t first_block_bytes) : device_(device) {
  blocks_.emplace_back(device, std::max(first_block_bytes, Buffer::kAlignment));
}

void* Arena::allocate(std::size_t size_bytes) {
  const std::size_t bytes = round_up(std::max<std::size_t>(size_bytes, 1), Buffer::kAlignment);
  while (used_in_current_ + bytes > blocks_[current_].size_bytes()) {
    used_before_current_ += used_in_current_;
    used_in_current_ = 0;
    if (++current_ == blocks_.size()) blocks_.emplace_back(device_, std::max(2 * blocks_.back().size_bytes(), bytes));
  }
  void* memory = blocks_[current_].data() + used_in_current_;
  used_in_current_ += bytes;
  high_water_ = std::max(high_water_, used_before_current_ + used_in_current_);
  return memory;
}

void Arena::rewind(const Mark& mark) {
  current_ = mark.block;
  used_in_current_ = mark.used_in_block;
  used_before_current_ = mark.used_before;
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    blocks_.clear();
    blocks_.emplace_back(device_, high_water_);
  }
  current_ = used_in_current_ = used_before_current_ = 0;
}

}  // namespace lockstep
