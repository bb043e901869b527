#include "node_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/device/device.hpp"
#include "mpi_comm.hpp"

namespace lockstep {

namespace {

class PlainMemory final : public NodeMemory {
 public:
  explicit PlainMemory(std::size_t size_bytes) : buffer_({}, std::max<std::size_t>(size_bytes, 1)), size_(size_bytes) {}
  std::span<std::byte> bytes() const override { return {buffer_.data(), size_}; }

 private:
  Buffer buffer_;
  std::size_t size_;
};

/// A segment of /dev/shm that the first rank of the node creates and the others map. It is unlinked before it has a
/// size, so it never remains when a rank is killed. The system reserves the memory at once, so all ranks of a node with
/// too little memory fail here.
class SegmentMemory final : public NodeMemory {
 public:
  SegmentMemory(MPI_Comm node, int node_rank, const std::string& host, std::size_t size_bytes)
      : size_(size_bytes), mapped_(std::max<std::size_t>(size_bytes, 1)) {
    const bool first = node_rank == 0;
    const std::string doing =
        join("sharing ", human_bytes(static_cast<double>(size_bytes)), " between the ranks of ", host);
    std::uint64_t number = 0;
    if (first) (void)!getrandom(&number, sizeof number, 0);
    check_mpi(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, node), doing);
    const std::string name = "/lockstep-" + hex64(number);
    int file = -1;
    const auto all_can = [&](bool can) {
      int worst = can ? 0 : std::max(errno, 1);
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, node), doing);
      if (worst == 0) return;
      if (first && file >= 0) shm_unlink(name.c_str());
      if (file >= 0) close(file);
      if (worst == ENOMEM) throw out_of_memory(doing, "use more memory, a smaller data set or one rank per node");
      struct statvfs space {};
      const bool known = statvfs("/dev/shm", &space) == 0;
      const auto bytes = [&](auto blocks) {
        return human_bytes(static_cast<double>(blocks) * static_cast<double>(space.f_frsize));
      };
      throw Error(
          Fault::internal,
          join(doing, ": ", std::strerror(worst), "; /dev/shm has ",
               known ? join(bytes(space.f_bavail), " free of ", bytes(space.f_blocks)) : std::string("no size"),
               "; enlarge it (mount -o remount,size=..., --shm-size of a container), or start one rank per node"));
    };
    if (first) file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    all_can(!first || file >= 0);
    if (!first) file = shm_open(name.c_str(), O_RDWR, 0);
    all_can(file >= 0);
    if (first) shm_unlink(name.c_str());
    if (first) {
      while ((errno = posix_fallocate(file, 0, static_cast<off_t>(mapped_))) == EINTR) {
      }
    }
    all_can(!first || errno == 0);
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    all_can(memory_ != MAP_FAILED);
    close(file);
  }
  ~SegmentMemory() override { munmap(memory_, mapped_); }
  std::span<std::byte> bytes() const override { return {static_cast<std::byte*>(memory_), size_}; }

 private:
  void* memory_ = nullptr;
  std::size_t size_, mapped_;  ///< mapped_: at least 1, because an empty mapping is an error
};

}  // namespace

std::unique_ptr<NodeMemory> plain_memory(std::size_t size_bytes) { return std::make_unique<PlainMemory>(size_bytes); }

std::unique_ptr<NodeMemory> shared_memory(MPI_Comm node, int node_rank, const std::string& host,
                                          std::size_t size_bytes) {
  return std::make_unique<SegmentMemory>(node, node_rank, host, size_bytes);
}

}  // namespace lockstep
