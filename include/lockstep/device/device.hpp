#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Where memory lies and work runs: the host's processor, or one GPU.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool is_cuda() const { return kind == DeviceKind::cuda; }
  bool operator==(const Device&) const = default;
};

/// Order of execution on one device: what is given to a stream runs in that order. On the CPU every call has run when it returns.
class Stream {
 public:
  explicit Stream(Device device = {}) : device_(device) {}
  Device device() const { return device_; }

 private:
  Device device_;
};

/// Memory on a device, owned, aligned to kAlignment bytes and zero at first.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  Buffer() = default;
  /// errors  Error (internal) when the memory cannot be had: the message names the size
  Buffer(Device device, std::size_t size_bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  Device device_;
  std::size_t size_bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

/// Memory of one step: allocation moves a pointer, reset() gives everything back at once.
///
/// Nothing is freed before reset(), so addresses repeat from step to step once the arena has seen its largest step: it then
/// holds one block, and a step allocates nothing. Not thread safe: one arena per worker.
class Arena {
 public:
  explicit Arena(Device device = {}, std::size_t first_block_bytes = std::size_t{1} << 16);
  /// Uninitialised memory, aligned to Buffer::kAlignment, valid until reset().
  void* allocate(std::size_t size_bytes);
  void reset();
  /// Where allocation stands, and back to there: what was allocated since is given back.
  struct Mark {
    std::size_t block = 0, used_in_block = 0, used_before = 0;
  };
  Mark mark() const { return {current_, used_in_current_, used_before_current_}; }
  void rewind(const Mark& mark);
  Device device() const { return device_; }
  /// The most bytes that were in use at once.
  std::size_t high_water_bytes() const { return high_water_; }

 private:
  Device device_;
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
