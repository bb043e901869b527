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
  if (used_in_last_ + bytes > blocks_.back().size_bytes()) {
    used_before_last_ += used_in_last_;
    used_in_last_ = 0;
    blocks_.emplace_back(device_, std::max(2 * blocks_.back().size_bytes(), bytes));
  }
  void* memory = blocks_.back().data() + used_in_last_;
  used_in_last_ += bytes;
  high_water_ = std::max(high_water_, used_before_last_ + used_in_last_);
  return memory;
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    blocks_.clear();
    blocks_.emplace_back(device_, high_water_);
  }
  used_in_last_ = used_before_last_ = 0;
}

}  // namespace lockstep
