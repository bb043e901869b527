#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// A place for memory and work: the CPU or one GPU.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool is_cuda() const { return kind == DeviceKind::cuda; }
  bool operator==(const Device&) const = default;
};

/// Whether this program was built with CUDA.
bool built_with_cuda();

/// "cpu", "cuda:0".
std::string name(Device device);

/// Number of GPUs that this process can use; 0 without CUDA or without a driver.
int gpu_count();
/// Why gpu_count() is 0, and the remedy: "the driver supports CUDA 12.4, but this program needs 13.0: ...".
std::string why_no_gpu();
/// Runs an empty kernel, so that a GPU that this program cannot use is reported early.
/// errors   Error (usage) if this program has no code for the GPU, or the driver cannot compile it
void require_usable(Device gpu);
/// Describes a GPU: "NVIDIA H100 80GB HBM3, compute capability 9.0, 79.2 GiB". errors  Error if `index` is not a GPU
std::string describe_gpu(int index);
/// The PCI bus address of a GPU. It identifies the GPU on this host independently of CUDA_VISIBLE_DEVICES. Instances
/// (MIG) of a GPU share its address.
std::string gpu_address(int index);
/// The UUID of a GPU, or of an instance of one, in hexadecimal digits.
std::string gpu_uuid(int index);

/// The purpose of GPU memory, for reports.
enum class MemoryUse : std::uint8_t { parameters, gradients, optimizer, activations, data, workspace, other };
inline constexpr std::size_t kMemoryUses = 7;
const char* name(MemoryUse use);

/// A GPU's memory. Units: bytes.
struct GpuMemory {
  std::size_t total = 0, free = 0;
  std::array<std::size_t, kMemoryUses> used{};  ///< by the Buffers of this process, by use
  std::size_t all_used() const;
};
GpuMemory gpu_memory(int index);
/// Formats the uses that are not 0: "parameters 1.2 MiB, gradients 1.2 MiB".
std::string describe(const GpuMemory& memory);

/// The error of a GPU allocation that does not fit into the free memory.
class OutOfMemory : public Error {
 public:
  OutOfMemory(std::string facts, MemoryUse use, std::source_location where = std::source_location::current())
      : Error(Fault::internal, facts + (use == MemoryUse::activations ? "; a smaller batch.size needs less" : ""),
              where),
        facts_(std::move(facts)) {}
  /// The message without advice: the requested size, the free memory and the memory in use.
  const std::string& facts() const { return facts_; }

 private:
  std::string facts_;
};

/// An execution queue of one device: work runs in the order in which it is enqueued. On the CPU every call is complete
/// when it returns; on a GPU work is complete after synchronize().
///
/// Stream(device) is the main stream of the GPU. All Stream objects of a process share it, so it orders all
/// computation. Constructing a Stream makes its GPU current for the calling thread.
class Stream {
 public:
  /// errors   Error with the reason if the GPU cannot be used
  explicit Stream(Device device = {});
  /// A stream that other code made on this GPU: a cudaStream_t, or null for CUDA's default stream. The GPU must be
  /// current (CurrentGpu) while work is enqueued.
  Stream(Device gpu, void* native) : device_(gpu), native_(native) {}
  Device device() const { return device_; }
  /// Waits until all enqueued work is complete. errors  Error if any of it failed
  void synchronize() const;
  /// The runtime's handle (cudaStream_t); null on the CPU.
  void* native() const { return native_; }

 private:
  Device device_;
  void* native_ = nullptr;
};

/// The GPU that is current for the calling thread. errors  Error with the reason if there is none
Device current_gpu();
/// Makes a GPU current for the calling thread until the end of its life. errors  as Stream(gpu)
class CurrentGpu {
 public:
  explicit CurrentGpu(Device gpu);
  CurrentGpu(const CurrentGpu&) = delete;
  ~CurrentGpu();

 private:
  int before_;
};

/// Copies bytes between the host and the stream's device, or within the device. With a GPU, the host memory may be
/// reused or read only after stream.synchronize().
void copy_bytes(const Stream& stream, void* to, const void* from, std::size_t size_bytes);
/// Sets bytes on the stream's device to zero.
void zero_bytes(const Stream& stream, void* memory, std::size_t size_bytes);

/// Owned memory on a device, aligned to kAlignment bytes and initially zero.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  Buffer() = default;
  /// errors   Error (internal) with the size if the allocation fails; OutOfMemory on a GPU
  Buffer(Device device, std::size_t size_bytes, MemoryUse use = MemoryUse::other);
  /// Page-locked host memory, which GPUs access at the same address: for data that the host prepares for kernels.
  static Buffer pinned(std::size_t size_bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }

 private:
  enum class Memory : std::uint8_t { host, pinned, gpu };
  struct Free {
    Memory memory;
    MemoryUse use;
    int gpu;
    std::size_t size_bytes;
    Free() : Free(Memory::host, MemoryUse::other, 0, 0) {}
    Free(Memory m, MemoryUse u, int g, std::size_t size) : memory(m), use(u), gpu(g), size_bytes(size) {}
    void operator()(std::byte* data) const;
  };
  Buffer(Device device, std::size_t size_bytes, MemoryUse use, Memory memory);
  Device device_;
  std::size_t size_bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

/// Memory of one step: allocation advances a pointer, reset() releases everything at once.
///
/// Nothing is freed before reset(). After its largest step the arena holds a single block: later steps allocate nothing
/// and addresses repeat from step to step. Not thread safe: use one arena per worker.
///
/// The arena of a GPU is paired with arenas of pinned host memory, for data that the host writes and kernels read
/// (indices, batches) and for the records of a tape. They follow reset(), but not rewind(). GPU memory is reused at
/// once, because the stream orders its use. Pinned memory is double-buffered: reset() switches buffers, so the host can
/// prepare the next step while kernels still read the previous one. Kernels must have finished reading a buffer when
/// reset() switches back to it.
class Arena {
 public:
  explicit Arena(Device device = {}, std::size_t first_block_bytes = std::size_t{1} << 16);
  /// Uninitialised memory, aligned to Buffer::kAlignment, valid until reset().
  void* allocate(std::size_t size_bytes);
  /// The same for `count` elements. Their destructors do not run.
  template <class T>
  std::span<T> array(std::integral auto count) {
    const auto n = static_cast<std::size_t>(count);
    return {static_cast<T*>(allocate(n * sizeof(T))), n};  // NOLINT: T may be a pointer
  }
  void reset();
  /// The arena of host-accessible memory: the arena itself on the CPU.
  Arena& host() { return host_ ? *host_ : *this; }
  /// A position of the arena. rewind() releases the memory allocated after the mark for later work of the same stream.
  /// Pinned memory stays until reset(), because kernels may not have read it yet.
  struct Mark {
    std::size_t block = 0, used_in_block = 0, used_before = 0;
  };
  Mark mark() const { return {current_, used_in_current_, used_before_current_}; }
  void rewind(const Mark& mark);
  Device device() const { return device_; }
  /// The largest number of bytes in use at once.
  std::size_t high_water_bytes() const { return high_water_; }

 private:
  struct Pinned {};
  Arena(Pinned, std::size_t first_block_bytes);
  Buffer block(std::size_t size_bytes) const;
  void reset_own(std::size_t least_bytes);
  Device device_;
  bool pinned_ = false;
  std::unique_ptr<Arena> host_, other_host_;
  std::vector<Buffer> blocks_;
  std::size_t current_ = 0;  ///< the block in use; later blocks are empty
  std::size_t used_in_current_ = 0;
  std::size_t used_before_current_ = 0;
  std::size_t high_water_ = 0;
};

/// Releases, at the end of its life, the memory that the arena has allocated during its life: Arena::rewind().
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
  ~ArenaScope() { arena_.rewind(mark_); }

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace lockstep
