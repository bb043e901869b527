#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Where memory lies and work runs: the host's processor, or one GPU.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool is_cuda() const { return kind == DeviceKind::cuda; }
  bool operator==(const Device&) const = default;
};

/// Whether this program can use GPUs at all.
bool built_with_cuda();

/// "cpu", "cuda:0".
std::string name(Device device);

/// GPUs that this process can use; 0 without CUDA or without a driver.
int gpu_count();
/// What a GPU is: "NVIDIA H100 80GB HBM3, compute capability 9.0, 79.2 GiB". errors  Error if there is none of this index
std::string describe_gpu(int index);
/// Which GPU of this host it is, whatever the process calls it: its place on the PCI bus.
std::string gpu_address(int index);

/// What memory of a GPU is for, as reports count it.
enum class MemoryUse : std::uint8_t { parameters, gradients, optimizer, activations, data, workspace, other };
inline constexpr std::size_t kMemoryUses = 7;
const char* name(MemoryUse use);

/// A GPU's memory. Units: bytes.
struct GpuMemory {
  std::size_t total = 0, free = 0;
  std::array<std::size_t, kMemoryUses> used{};  ///< by this process's Buffers, by use
  std::size_t all_used() const;
};
GpuMemory gpu_memory(int index);
/// "parameters 1.2 MiB, gradients 1.2 MiB": the uses that are not 0.
std::string describe(const GpuMemory& memory);

/// A GPU has too little memory left.
class OutOfMemory : public Error {
 public:
  OutOfMemory(std::string facts, MemoryUse use, std::source_location where = std::source_location::current())
      : Error(Fault::internal, facts + (use == MemoryUse::activations ? "; a smaller batch.size needs less" : ""),
              where),
        facts_(std::move(facts)) {}
  /// What was asked, what is free, and what the rest is used for.
  const std::string& facts() const { return facts_; }

 private:
  std::string facts_;
};

/// Order of execution on one device: what is given to a stream runs in that order. On the CPU every call has run when
/// it returns; on a GPU when synchronize() has.
///
/// Stream(device) is the GPU's main stream, the same for all of a process: what computes is ordered by it, whoever
/// asks. The thread that makes a Stream uses its GPU from then on.
class Stream {
 public:
  /// errors  Error when the GPU cannot be used: the message says why
  explicit Stream(Device device = {});
  Device device() const { return device_; }
  /// Waits until all that was given to the stream has run. errors  Error if any of it failed
  void synchronize() const;
  /// The runtime's handle (cudaStream_t); null on the CPU.
  void* native() const { return native_; }

 private:
  Device device_;
  void* native_ = nullptr;
};

/// Copies bytes, from and to the host or the stream's GPU. With a GPU the host's side may be used again, or read, after
/// stream.synchronize().
void copy_bytes(const Stream& stream, void* to, const void* from, std::size_t size_bytes);
/// Sets bytes of the stream's device to zero.
void zero_bytes(const Stream& stream, void* memory, std::size_t size_bytes);

/// Memory on a device, owned, aligned to kAlignment bytes and zero at first.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  Buffer() = default;
  /// errors  Error (internal) when the memory cannot be had: the message names the size; of a GPU OutOfMemory
  Buffer(Device device, std::size_t size_bytes, MemoryUse use = MemoryUse::other);
  /// Host memory that GPUs read and write at the same address (page-locked): for what the host prepares for a kernel.
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

/// Memory of one step: allocation moves a pointer, reset() gives everything back at once.
///
/// Nothing is freed before reset(), so addresses repeat from step to step once the arena has seen its largest step: it then
/// holds one block, and a step allocates nothing. Not thread safe: one arena per worker.
///
/// The arena of a GPU has one of pinned host memory beside it, for what the host writes and kernels read (indices,
/// batches) and for the records of a tape; it follows every reset and rewind. Work of one stream may use the GPU's part
/// again at once; of the pinned part there are two, which take turns with every reset, so that the host can prepare what
/// comes next while kernels still read what was allocated before the last reset. What was allocated before the last but one
/// must have been read.
class Arena {
 public:
  explicit Arena(Device device = {}, std::size_t first_block_bytes = std::size_t{1} << 16);
  /// Uninitialised memory, aligned to Buffer::kAlignment, valid until reset().
  void* allocate(std::size_t size_bytes);
  void reset();
  /// The arena whose memory the host may touch: itself on the CPU.
  Arena& host() { return host_ ? *host_ : *this; }
  /// Where allocation stands, and back to there: what was allocated since is given back.
  struct Mark {
    struct Place {
      std::size_t block = 0, used_in_block = 0, used_before = 0;
    };
    Place own, host;
  };
  Mark mark() const { return {place(), host_ ? host_->place() : Mark::Place{}}; }
  void rewind(const Mark& mark);
  /// Gives back what was allocated on the GPU since the mark, but not in pinned memory: for work that follows in the same
  /// stream while the host goes on.
  void rewind_device(const Mark& mark) { rewind(mark.own); }
  Device device() const { return device_; }
  /// The most bytes that were in use at once.
  std::size_t high_water_bytes() const { return high_water_; }

 private:
  struct Pinned {};
  Arena(Pinned, std::size_t first_block_bytes);
  Buffer block(std::size_t size_bytes) const;
  Mark::Place place() const { return {current_, used_in_current_, used_before_current_}; }
  void rewind(const Mark::Place& place);
  void reset_own(std::size_t least_bytes);
  Device device_;
  bool pinned_ = false;
  std::unique_ptr<Arena> host_, other_host_;
  std::vector<Buffer> blocks_;
  std::size_t current_ = 0;  ///< the block that is being filled; later ones are empty
  std::size_t used_in_current_ = 0;
  std::size_t used_before_current_ = 0;
  std::size_t high_water_ = 0;
};

/// Gives back at its end what an arena has allocated in its life.
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
