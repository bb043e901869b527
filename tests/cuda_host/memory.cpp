#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "error.hpp"
#include "faults.hpp"
#include "ordering.hpp"
#include "sanitizer.hpp"

namespace cuda_host {

namespace {

constexpr std::size_t kAlignment = 256;  // that of CUDA
constexpr std::size_t kGuardBytes = 64 << 10;
constexpr std::size_t kHugePage = 2 << 20;

std::size_t round_up(std::size_t n, std::size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Addresses for one kind of memory. Each is used only once.
class AddressRange {
 public:
  AddressRange() {
    for (size_ = std::size_t{1} << 38; size_ >= std::size_t{1} << 32; size_ /= 2) {
      void* memory = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) continue;
      begin_ = next_ = static_cast<std::byte*>(memory);
      return;
    }
    throw Failure{cudaErrorInitializationError, "reserving addresses for device memory: the system gives none"};
  }
  bool holds(const void* address) const { return address >= begin_ && address < begin_ + size_; }
  std::span<const std::byte> all() const { return {begin_, size_}; }
  /// Reserves whole pages for `size` bytes, surrounded by guards.
  std::byte* take(std::size_t size) {
    const auto align = size >= 2 * kHugePage ? kHugePage : kGuardBytes;
    std::byte* pages = begin_ + round_up(static_cast<std::size_t>(next_ - begin_) + kGuardBytes, align);
    if (pages + size + kGuardBytes > begin_ + size_) return nullptr;
    next_ = pages + size;
    if (align == kHugePage) madvise(pages, size, MADV_HUGEPAGE);
    return pages;
  }

 private:
  std::byte* begin_ = nullptr;
  std::byte* next_ = nullptr;
  std::size_t size_ = 0;
};

struct Block : Allocation {
  std::byte* pages = nullptr;
  std::size_t pages_size = 0;
  bool open = false;
};

struct Memory {
  std::mutex mutex;
  AddressRange device, pinned;
  std::map<const std::byte*, Block> blocks;  // by address; freed ones are kept for messages
  std::vector<Block*> open;
  std::map<int, std::size_t> used;
};
Memory& memory() {
  static auto* all = new Memory;  // never destroyed, because destructors of static objects may still free memory
  return *all;
}

/// The last block that begins at or before the address.
Block* block_before(Memory& m, const void* address) {
  auto after = m.blocks.upper_bound(static_cast<const std::byte*>(address));
  return after == m.blocks.begin() ? nullptr : &std::prev(after)->second;
}

void protect(const Block& block, int protection) {
  if (mprotect(block.pages, block.pages_size, protection) != 0) {
    std::perror("cuda_host: mprotect");
    std::abort();
  }
}

}  // namespace

int& DeviceAccess::depth() {
  static thread_local int depth = 0;
  return depth;
}

std::size_t device_bytes() {
  static const std::size_t bytes = [] {
    const char* text = std::getenv("LOCKSTEP_CUDA_HOST_MEMORY");
    return (text ? std::strtoull(text, nullptr, 10) : 8192) << 20;
  }();
  return bytes;
}

std::size_t device_bytes_used(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().used[device];
}

void* allocate(MemoryKind kind, int device, std::size_t size) {
  if (size == 0) return nullptr;
  install_fault_handlers();
  Memory& m = memory();
  std::byte* begin = nullptr;
  {
    const std::lock_guard lock(m.mutex);
    const bool on_device = kind == MemoryKind::device;
    Block block;
    block.size = size;
    block.kind = kind;
    block.device = device;
    block.pages_size = round_up(size, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
    const bool fits = !on_device || m.used[device] + size <= device_bytes();
    block.pages = fits ? (on_device ? m.device : m.pinned).take(block.pages_size) : nullptr;
    require(block.pages != nullptr, cudaErrorMemoryAllocation, "allocating ", size, " bytes on cuda:", device,
            ": out of memory (", m.used[device], " of ", device_bytes(), " are in use)");
    // Place the block at the end of its pages, as far as the alignment allows, so that an access past its end hits the
    // guard.
    begin = block.begin = block.pages + block.pages_size - round_up(size, kAlignment);
    if (on_device)
      m.used[device] += size;
    else
      protect(block, PROT_READ | PROT_WRITE);
    m.blocks.emplace(begin, block);
  }
  const DeviceAccess access;
  std::memset(begin, 0xff, round_up(size, kAlignment));
  poison(begin + size, round_up(size, kAlignment) - size);
  return begin;
}

void release(MemoryKind kind, void* address) {
  if (address == nullptr) return;
  Memory& m = memory();
  std::unique_lock lock(m.mutex);
  const auto found = m.blocks.find(static_cast<const std::byte*>(address));
  require(found != m.blocks.end(), cudaErrorInvalidValue, "freeing ", address,
          ", which is not the begin of an allocation");
  Block& block = found->second;
  require(block.kind == kind, cudaErrorInvalidValue, "freeing ", address, ", which is ",
          kind == MemoryKind::device ? "page-locked host memory, with cudaFree" : "device memory, with cudaFreeHost");
  require(!block.freed, cudaErrorInvalidValue, "freeing ", address, " a second time");
  block.freed = true;
  unpoison(block.pages, block.pages_size);
  madvise(block.pages, block.pages_size, MADV_DONTNEED);
  protect(block, PROT_NONE);
  std::erase(m.open, &block);
  if (kind == MemoryKind::device) m.used[block.device] -= block.size;
  lock.unlock();
  forget_memory(address);
}

std::optional<Allocation> find_allocation(const void* address) {
  Memory& m = memory();
  if (!in_own_range(address)) return std::nullopt;
  const std::lock_guard lock(m.mutex);
  const Block* block = block_before(m, address);
  if (!block || address > block->end()) return std::nullopt;
  return *block;
}

std::string describe_address(const void* address) {
  Memory& m = memory();
  if (!in_own_range(address)) return text(address, ", host memory");
  const std::lock_guard lock(m.mutex);
  const Block* block = block_before(m, address);
  if (!block) return text(address, ", before the first allocation");
  const auto* at = static_cast<const std::byte*>(address);
  const std::string where =
      text(block->freed ? "freed " : "", block->size, " bytes at ", static_cast<void*>(block->begin),
           block->kind == MemoryKind::device ? text(" on cuda:", block->device) : " of page-locked host memory");
  if (at < block->end()) return text("byte ", at - block->begin, " of the ", where);
  const auto next = m.blocks.upper_bound(at);
  const auto past = at - block->begin - static_cast<std::ptrdiff_t>(block->size);
  if (next != m.blocks.end() && next->first - at < past)
    return text(next->first - at, " bytes before the ", next->second.size, " bytes at ",
                static_cast<const void*>(next->first));
  return text(past, " bytes past the end of the ", where);
}

std::span<const std::byte> device_range() { return memory().device.all(); }
std::span<const std::byte> pinned_range() { return memory().pinned.all(); }
bool in_device_range(const void* address) { return memory().device.holds(address); }
bool in_own_range(const void* address) { return memory().device.holds(address) || memory().pinned.holds(address); }

bool open_device_memory(const void* address) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  Block* block = block_before(m, address);
  if (!block || block->freed || address >= block->pages + block->pages_size) return false;
  if (!block->open) {
    protect(*block, PROT_READ | PROT_WRITE);
    block->open = true;
    m.open.push_back(block);
  }
  return true;
}

void close_device_memory() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  for (Block* block : m.open) {
    protect(*block, PROT_NONE);
    block->open = false;
  }
  m.open.clear();
}

void check_range(const char* doing, const void* address, std::size_t size) {
  const auto allocation = find_allocation(address);
  const auto* last = static_cast<const std::byte*>(address) + (size > 0 ? size - 1 : 0);
  require(!in_own_range(address) || (allocation && !allocation->freed && last < allocation->end()),
          cudaErrorInvalidValue, doing, " ", size, " bytes at ", describe_address(address));
}

}  // namespace cuda_host
