#include "ledger.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "block_runner.hpp"
#include "error.hpp"
#include "lockstep/base/error.hpp"
#include "memory.hpp"
#include "symbols.hpp"
#include "watch.hpp"

namespace cuda_host {

namespace {

using lockstep::FlopUnit;
using lockstep::Ledger;
using lockstep::LedgerEntry;

constexpr std::size_t kSector = 32;  // what a GPU moves at least
constexpr std::size_t kMostThreads = 1024;

/// The latest accesses to 32 bytes of memory. Block numbers increase over all kernels.
struct Sector {
  std::uint32_t read_by, written_by;    // the last block that read and wrote
  std::uint32_t read_mask, write_mask;  // the bytes that its kernel read and wrote
  std::uint32_t moved_at;               // sectors that its kernel had moved when it last moved this one
};

/// A Sector for each 32 bytes of a range of addresses. Only pages that are used take memory.
class Shadow {
 public:
  Shadow(std::span<const std::byte> of) : begin_(of.data()), size_(of.size()) {
    bytes_ = size_ / kSector * sizeof(Sector);
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw Failure{cudaErrorMemoryAllocation, text("a ledger needs ", bytes_ >> 30, " GiB of addresses")};
    sectors_ = static_cast<Sector*>(memory);
  }
  ~Shadow() { munmap(sectors_, bytes_); }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  bool holds(const std::byte* address) const { return address >= begin_ && address < begin_ + size_; }
  std::size_t offset(const std::byte* address) const { return static_cast<std::size_t>(address - begin_); }
  Sector& sector(std::size_t offset) { return sectors_[offset / kSector]; }

 private:
  const std::byte* begin_;
  std::size_t size_, bytes_ = 0;
  Sector* sectors_;
};

/// The launch that runs.
struct Launch {
  std::uint32_t first_block = 0;
  LedgerEntry counts;  // this launch alone
  double tensor_flops = 0;
  std::uint32_t moved = 0;                                            // sectors
  std::array<std::uint32_t, kMostThreads> accesses, shared_accesses;  // of each thread of the block
  std::uint32_t longest = 0, longest_shared = 0;
  const std::byte* last_end = nullptr;  // the latest access
  bool last_wrote = false;
  std::vector<std::span<const std::byte>> shared;
};

struct Kept {
  Shadow device{device_range()}, pinned{pinned_range()};
  Launch launch;
  std::uint32_t block = 0, last_block = 0;  // the running block; the one that started last
  std::mutex mutex;                         // of what follows
  std::map<std::tuple<std::string, std::string>, LedgerEntry> entries;
  bool next_may_start = false;  // while the last piece of work runs
  Ledger total;
};

std::unique_ptr<Kept> kept;
std::mutex one_kernel_at_a_time;
constinit thread_local Kept* counting = nullptr;  // while a kernel runs on this thread

/// A block reads or writes these bytes of a sector of device memory, which it has not read or written before.
void move(Launch& launch, Sector& sector, std::uint32_t bits, bool writes) {
  const bool was_read = sector.read_by >= launch.first_block, was_written = sector.written_by >= launch.first_block;
  const bool written = was_written && (writes || (bits & ~sector.write_mask) == 0);
  if (!was_read && !was_written) launch.counts.touched_bytes += kSector;
  if (written || (was_read && !writes)) {
    const std::size_t mib = (std::size_t{launch.moved - sector.moved_at} * kSector) >> 20;
    launch.counts.again_bytes[std::min(mib, launch.counts.again_bytes.size() - 1)] += kSector;
  } else {
    launch.counts.first_bytes += kSector;
  }
  launch.counts.moved_bytes += kSector;
  sector.moved_at = launch.moved++;
}

void touch(Launch& launch, Shadow& shadow, std::uint32_t block, std::size_t offset, std::size_t size, bool writes,
           bool on_device) {
  while (size > 0) {
    const std::size_t at = offset % kSector, here = std::min(size, kSector - at);
    Sector& sector = shadow.sector(offset);
    const auto bits = static_cast<std::uint32_t>(((std::uint64_t{1} << here) - 1) << at);
    if (sector.read_by < launch.first_block) sector.read_mask = 0;
    if (sector.written_by < launch.first_block) sector.write_mask = 0;
    std::uint32_t& by = writes ? sector.written_by : sector.read_by;
    if (by != block && on_device) move(launch, sector, bits, writes);
    if (by != block && !on_device) launch.counts.bus_bytes += kSector;
    by = block;
    const std::uint32_t fresh = bits & ~sector.write_mask & (writes ? ~0u : ~sector.read_mask);
    (writes ? sector.write_mask : sector.read_mask) |= bits;
    if (on_device) launch.counts.necessary_bytes += std::popcount(fresh);
    offset += here;
    size -= here;
  }
}

LedgerEntry& entry(Kept& k, const std::string& name, const std::string& shape) {
  LedgerEntry& e = k.entries[{name, shape}];
  e.name = name;
  e.shape = shape;
  ++e.launches;
  return e;
}
/// Adds the bytes of a launch.
void add_bytes(LedgerEntry& to, const LedgerEntry& launch) {
  to.necessary_bytes += launch.necessary_bytes;
  to.moved_bytes += launch.moved_bytes;
  to.first_bytes += launch.first_bytes;
  to.touched_bytes += launch.touched_bytes;
  to.bus_bytes += launch.bus_bytes;
  std::ranges::transform(to.again_bytes, launch.again_bytes, to.again_bytes.begin(), std::plus{});
}

}  // namespace

void note_work(const Uses& uses) {
  if (uses.ranges.empty()) return;
  double on_device = 0, on_bus = 0;
  bool from_host = false;
  for (const Use& use : uses.ranges) {
    const bool device = in_device_range(use.begin);
    (device ? on_device : on_bus) += static_cast<double>(use.size);
    if (!device && !use.writes) from_host = true;
  }
  const std::lock_guard lock(kept->mutex);
  LedgerEntry& e = entry(*kept, uses.name, uses.shape);
  kept->next_may_start = false;
  on_device -= static_cast<double>(uses.workspace_bytes);
  LedgerEntry launch;
  launch.necessary_bytes = launch.moved_bytes = launch.first_bytes = launch.touched_bytes = on_device;
  launch.bus_bytes = on_bus;
  add_bytes(e, launch);
  e.flops[static_cast<int>(uses.unit)] += uses.flops;
  (from_host ? kept->total.to_gpu_bytes : kept->total.from_gpu_bytes) += on_bus;
}

void note_launch() {
  const std::lock_guard lock(kept->mutex);
  ++kept->total.launches;
}
void note_graph(std::size_t nodes) {
  const std::lock_guard lock(kept->mutex);
  ++kept->total.graphs;
  kept->next_may_start = false;  // the first node waits for all earlier work
  kept->total.nodes += static_cast<std::int64_t>(nodes);
}
void note_wait(bool idle) {
  const std::lock_guard lock(kept->mutex);
  ++(idle ? kept->total.waits : kept->total.late_waits);
}

KernelCount::KernelCount(const cudaLaunchConfig_t& config, const void* kernel,
                         std::span<const std::span<std::byte>> shared_variables)
    : config_(config), kernel_(kernel), counts_(ledger_is_kept()) {
  if (!counts_) return;
  one_kernel_at_a_time.lock();
  counting = kept.get();
  watched |= kCounts;
  Launch& launch = kept->launch;
  launch.first_block = kept->last_block + 1;
  launch.counts = {};
  launch.tensor_flops = 0;
  launch.moved = 0;
  launch.longest = launch.longest_shared = 0;
  launch.shared.assign(shared_variables.begin(), shared_variables.end());
  launch.shared.push_back({reinterpret_cast<const std::byte*>(sm_bytes), config.dynamicSmemBytes});
}

KernelCount::~KernelCount() {
  if (!counts_) return;
  counting = nullptr;
  watched &= ~kCounts;
  const dim3 grid = config_.gridDim, block = config_.blockDim;
  const Launch& launch = kept->launch;
  {
    const std::lock_guard lock(kept->mutex);
    LedgerEntry& e = entry(*kept, function_name(kernel_),
                           text(grid.x, "x", grid.y, "x", grid.z, " blocks of ", block.x * block.y * block.z));
    e.blocks = std::int64_t{grid.x} * grid.y * grid.z;
    e.block_threads = std::int64_t{block.x} * block.y * block.z;
    add_bytes(e, launch.counts);
    e.flops[static_cast<int>(FlopUnit::half)] += launch.tensor_flops;
    e.flops[static_cast<int>(FlopUnit::fp32)] += config_.flops;
    if (starts_early(config_) && kept->next_may_start) ++e.early;
    kept->next_may_start = lets_next_start_;
    e.longest += launch.longest;
    e.longest_shared += launch.longest_shared;
  }
  one_kernel_at_a_time.unlock();
}

void KernelCount::begin_block() {
  if (!counts_) return;
  kept->block = ++kept->last_block;
  kept->launch.accesses.fill(0);
  kept->launch.shared_accesses.fill(0);
}

void KernelCount::end_block() {
  if (!counts_) return;
  Launch& launch = kept->launch;
  launch.longest = std::max(launch.longest, *std::max_element(launch.accesses.begin(), launch.accesses.end()));
  launch.longest_shared =
      std::max(launch.longest_shared, *std::max_element(launch.shared_accesses.begin(), launch.shared_accesses.end()));
}

KernelCount::Block KernelCount::suspend_block() const {
  if (!counts_) return {};
  const Launch& launch = kept->launch;
  return {kept->block,
          {launch.accesses.begin(), launch.accesses.end()},
          {launch.shared_accesses.begin(), launch.shared_accesses.end()}};
}

void KernelCount::resume_block(const Block& block) {
  if (!counts_) return;
  kept->block = block.number;
  std::ranges::copy(block.accesses, kept->launch.accesses.begin());
  std::ranges::copy(block.shared_accesses, kept->launch.shared_accesses.begin());
}

void count_access(const void* address, std::size_t size, bool writes) {
  Kept* const k = counting;
  if (!k) return;
  Launch& launch = k->launch;
  const auto* at = static_cast<const std::byte*>(address);
  const bool device = k->device.holds(at);
  const bool shared = !device && std::any_of(launch.shared.begin(), launch.shared.end(), [&](const auto& variable) {
    return at >= variable.data() && at < variable.data() + variable.size();
  });
  if (!device && !shared && !k->pinned.holds(at)) return;
  // The compiler splits loads of short vectors. Parts of the same 16 bytes, one after another, are one access.
  const bool continues =
      at == launch.last_end && writes == launch.last_wrote && reinterpret_cast<std::uintptr_t>(at) % 16 != 0;
  launch.last_end = at + size;
  launch.last_wrote = writes;
  if (!continues) ++(shared ? launch.shared_accesses : launch.accesses)[thread_number];
  if (shared) return;
  Shadow& shadow = device ? k->device : k->pinned;
  touch(launch, shadow, k->block, shadow.offset(at), size, writes, device);
}

void count_tensor_flops(double flops) {
  if (counting) counting->launch.tensor_flops += flops;
}

}  // namespace cuda_host

namespace lockstep {

using cuda_host::kept;

std::string why_no_ledger() {
#ifdef CUDA_HOST_COUNTS_ACCESSES
  return {};
#else
  return "this build's kernels do not report their accesses: compile with GCC, without another sanitizer";
#endif
}

void start_ledger() {
  const std::string why = why_no_ledger();
  require(why.empty(), "keeping a ledger of GPU work: ", why);
  try {
    kept = std::make_unique<cuda_host::Kept>();
  } catch (const cuda_host::Failure& failure) {
    throw Error(Fault::internal, failure.message);
  }
  cuda_host::ledger_open = true;
}

Ledger finish_ledger() {
  cuda_host::ledger_open = false;
  Ledger ledger = std::move(kept->total);
  for (auto& [key, e] : kept->entries) {
    e.longest /= static_cast<double>(e.launches);
    e.longest_shared /= static_cast<double>(e.launches);
    ledger.entries.push_back(std::move(e));
  }
  kept.reset();
  return ledger;
}

}  // namespace lockstep
