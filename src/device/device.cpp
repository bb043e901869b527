#include "lockstep/device/device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "cuda_device.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "lockstep/device/host_memory.hpp"

namespace lockstep {

namespace {
constexpr std::size_t round_up(std::size_t n, std::size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Allocations of at least this size are zero pages of the system, which use no memory until they are written.
constexpr std::size_t kPagesFrom = std::size_t{4} << 20;

std::byte* allocate_host(std::size_t size_bytes, MemoryUse use) {
  const bool pages = size_bytes >= kPagesFrom;
  void* memory = pages ? ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                       : std::aligned_alloc(Buffer::kAlignment, size_bytes);
  if (memory == nullptr || memory == MAP_FAILED)
    throw out_of_memory(join("allocating ", human_bytes(static_cast<double>(size_bytes)), " of host memory for ",
                             use == MemoryUse::data    ? "the data set"
                             : use == MemoryUse::other ? "the program"
                                                       : name(use)),
                        use == MemoryUse::data ? "choose a smaller data set"
                        : use == MemoryUse::activations
                            ? "use a smaller batch or fewer ranks per node"
                            : "lower the sizes of the network, or use fewer ranks per node");
  // Table rows are read in random order: with small pages, address translation costs more than the row itself.
  if (pages) ::madvise(memory, size_bytes, MADV_HUGEPAGE);  // a hint that the system may ignore
  if (!pages) std::memset(memory, 0, size_bytes);
  return static_cast<std::byte*>(memory);
}

void free_host(std::byte* memory, std::size_t size_bytes) {
  if (size_bytes >= kPagesFrom) {
    ::munmap(memory, size_bytes);
  } else {
    std::free(memory);
  }
}

/// Bytes that Buffers hold on each GPU, and in host memory (the last row), by use.
constexpr int kMostGpus = 64;
std::atomic<std::size_t> bytes_of[kMostGpus + 1][kMemoryUses];
std::atomic<std::size_t>& bytes_for(int gpu, MemoryUse use) {
  return bytes_of[gpu % kMostGpus][static_cast<std::size_t>(use)];
}
std::atomic<std::size_t>& host_bytes_for(MemoryUse use) { return bytes_of[kMostGpus][static_cast<std::size_t>(use)]; }
}  // namespace

std::string name(Device device) { return device.is_cuda() ? join("cuda:", device.index) : "cpu"; }

bool built_with_cuda() { return kHasCuda; }

const char* name(MemoryUse use) {
  constexpr const char* kNames[kMemoryUses] = {"parameters", "gradients", "optimizer", "activations",
                                               "data",       "workspace", "other"};
  return kNames[static_cast<std::size_t>(use)];
}

std::size_t GpuMemory::all_used() const { return std::accumulate(used.begin(), used.end(), std::size_t{0}); }

GpuMemory gpu_memory(int index) {
  GpuMemory memory;
  if constexpr (kHasCuda) {
    gpu::free_and_total(index, memory.free, memory.total);
    for (std::size_t use = 0; use < kMemoryUses; ++use)
      memory.used[use] = bytes_for(index, static_cast<MemoryUse>(use)).load();
  }
  return memory;
}

std::array<std::size_t, kMemoryUses> host_memory() {
  std::array<std::size_t, kMemoryUses> bytes{};
  for (std::size_t use = 0; use < kMemoryUses; ++use) bytes[use] = host_bytes_for(static_cast<MemoryUse>(use)).load();
  return bytes;
}

std::string describe(const GpuMemory& memory) {
  std::string text;
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    if (memory.used[use] == 0) continue;
    text += join(text.empty() ? "" : ", ", name(static_cast<MemoryUse>(use)), " ", human_bytes(memory.used[use]));
  }
  return text;
}

Stream::Stream(Device device) : device_(device) {
  if (!device.is_cuda()) return;
  require(kHasCuda, "using ", name(device), ": this build has no CUDA; use --device cpu");
  if constexpr (kHasCuda) native_ = gpu::main_stream(device.index);
}

void Stream::synchronize() const {
  if constexpr (kHasCuda)
    if (device_.is_cuda()) gpu::synchronize(native());
}

void copy_bytes(const Stream& stream, void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  if constexpr (kHasCuda)
    if (stream.device().is_cuda()) return gpu::copy(stream.native(), to, from, size_bytes);
  std::memcpy(to, from, size_bytes);
}

void zero_bytes(const Stream& stream, void* memory, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  if constexpr (kHasCuda)
    if (stream.device().is_cuda()) return gpu::zero(stream.native(), memory, size_bytes);
  std::memset(memory, 0, size_bytes);
}

void discard(void* memory, std::size_t size_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const begin = static_cast<std::byte*>(memory);
  const std::size_t head = std::min(size_bytes, -reinterpret_cast<std::uintptr_t>(begin) % page);
  const std::size_t whole = (size_bytes - head) / page * page;
  std::memset(begin, 0, head);
  std::memset(begin + head + whole, 0, size_bytes - head - whole);
  if (whole > 0 && ::madvise(begin + head, whole, MADV_DONTNEED) != 0) std::memset(begin + head, 0, whole);
}

Buffer::Buffer(Device device, std::size_t size_bytes, MemoryUse use)
    : Buffer(device, size_bytes, use, device.is_cuda() ? Memory::gpu : Memory::host) {}

Buffer Buffer::pinned(std::size_t size_bytes) {
  return {{}, size_bytes, MemoryUse::other, kHasCuda ? Memory::pinned : Memory::host};
}

Buffer::Buffer(Device device, std::size_t size_bytes, MemoryUse use, Memory memory)
    : device_(device), size_bytes_(size_bytes) {
  require(kHasCuda || memory == Memory::host, "allocating ", human_bytes(size_bytes), " on ", name(device),
          ": this build has no CUDA; use --device cpu");
  if (size_bytes == 0) return;
  const std::size_t rounded = round_up(size_bytes, kAlignment);
  std::byte* data = nullptr;
  if (memory == Memory::host) {
    data = allocate_host(rounded, use);
  } else if constexpr (kHasCuda) {
    data = memory == Memory::gpu ? gpu::allocate(device.index, rounded, use) : gpu::allocate_pinned(rounded);
  }
  if (memory == Memory::gpu) bytes_for(device.index, use) += rounded;
  if (memory == Memory::host) host_bytes_for(use) += rounded;
  data_ = {data, Free(memory, use, device.index, rounded)};
}

void Buffer::Free::operator()(std::byte* data) const {
  if (memory == Memory::host) {
    host_bytes_for(use) -= size_bytes;
    return free_host(data, size_bytes);
  }
  if (memory == Memory::gpu) bytes_for(gpu, use) -= size_bytes;
  if constexpr (kHasCuda) memory == Memory::gpu ? gpu::free(data) : gpu::free_pinned(data);
}

namespace {
/// Upper limit of speculative growth: in its first step an arena must not request much more than the step needs.
constexpr std::size_t kMostGrowth = std::size_t{256} << 20;
}  // namespace

Buffer Arena::block(std::size_t size_bytes) const {
  return pinned_ ? Buffer::pinned(size_bytes) : Buffer(device_, size_bytes, MemoryUse::activations);
}

Arena::Arena(Device device, std::size_t first_block_bytes) : device_(device) {
  if (device.is_cuda()) {
    host_.reset(new Arena(Pinned{}, first_block_bytes));
    other_host_.reset(new Arena(Pinned{}, first_block_bytes));
  }
  blocks_.push_back(block(std::max(first_block_bytes, Buffer::kAlignment)));
}

Arena::Arena(Pinned, std::size_t first_block_bytes) : pinned_(true) {
  blocks_.push_back(block(std::max(first_block_bytes, Buffer::kAlignment)));
}

void* Arena::allocate(std::size_t size_bytes) {
  const std::size_t bytes = round_up(std::max<std::size_t>(size_bytes, 1), Buffer::kAlignment);
  while (used_in_current_ + bytes > blocks_[current_].size_bytes()) {
    used_before_current_ += used_in_current_;
    used_in_current_ = 0;
    if (++current_ < blocks_.size()) continue;
    const std::size_t generous = std::max(std::min(2 * blocks_.back().size_bytes(), kMostGrowth), bytes);
    try {
      blocks_.push_back(block(generous));
    } catch (const OutOfMemory&) {
      if (generous == bytes) throw;
      blocks_.push_back(block(bytes));
    }
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
  if (host_) {
    std::swap(host_, other_host_);
    host_->reset_own(other_host_->high_water_);  // the other one may have seen larger steps
  }
  reset_own(0);
}

void Arena::reset_own(std::size_t least_bytes) {
  const std::size_t wanted = std::max(high_water_, least_bytes);
  if (blocks_.size() > 1 || blocks_[0].size_bytes() < wanted) {
    blocks_.clear();
    blocks_.push_back(block(wanted));
  }
  current_ = used_in_current_ = used_before_current_ = 0;
}

}  // namespace lockstep
