#pragma once
#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/cuda_earlier.hpp"
#include "lockstep/device/device.hpp"

/// The dynamic shared memory of a block; kernels cast it to their types. In the host build the stand-in runtime defines
/// it.
#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char sm_bytes[];
#endif

/// Kernel launches. Every kernel file includes this header.
namespace lockstep::gpu {

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

template <std::integral A, std::integral B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// Blocks of a grid, or threads of a block, in up to three dimensions.
struct Extents {
  std::int64_t x, y, z;
  template <std::integral X, std::integral Y = int, std::integral Z = int>
  constexpr Extents(X x_, Y y_ = 1, Z z_ = 1)  // NOLINT: implicit on purpose
      : x(static_cast<std::int64_t>(x_)), y(static_cast<std::int64_t>(y_)), z(static_cast<std::int64_t>(z_)) {}
  Extents(const dim3& d) : Extents(d.x, d.y, d.z) {}  // NOLINT: implicit on purpose
  /// Numbers beyond 32 bits become the largest: then the launch fails.
  operator dim3() const { return {narrow(x), narrow(y), narrow(z)}; }  // NOLINT: implicit on purpose

 private:
  static unsigned narrow(std::int64_t n) {
    constexpr unsigned kMost = std::numeric_limits<unsigned>::max();
    return n < kMost ? static_cast<unsigned>(n) : kMost;
  }
};

/// Blocks and threads of a launch.
struct Grid {
  Extents grid = 1;  ///< a launch of 0 blocks does nothing
  Extents block = 1;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
  /// Floating-point operations of the whole launch, without tensor cores, for the ledger (ledger.hpp). 0 if memory
  /// traffic takes longer in any case.
  double flops = 0;
  /// Whether the blocks wait for one another in the kernel: then all of them must fit on the GPU at once
  /// (resident_blocks()).
  bool cooperative = false;
};

/// Upper limit on the blocks of a grid-stride loop: enough to fill any GPU several times.
inline constexpr std::int64_t kMostBlocks = 4096;

/// A one-dimensional grid for a grid-stride loop over `count` elements.
inline Grid grid_for(std::int64_t count, int threads = 256) {
  const std::int64_t blocks = ceil_div(count, threads);
  return {.grid = blocks < kMostBlocks ? blocks : kMostBlocks, .block = threads};
}
/// One thread per element.
inline Grid thread_per_element(std::int64_t count, int threads = 256) {
  return {.grid = ceil_div(count, threads), .block = threads};
}

/// Warps of a block with one row each.
inline constexpr int kRowWarps = 8;
/// One warp per row: the kernel finds its row with warp_row().
inline Grid warp_per_row(std::int64_t rows) { return {.grid = ceil_div(rows, kRowWarps), .block = {kWarp, kRowWarps}}; }
__device__ inline std::int64_t warp_row() { return std::int64_t{blockIdx.x} * kRowWarps + threadIdx.y; }

/// The most shared memory that a block of this GPU can have. Units: bytes
std::size_t most_shared_bytes(const Stream& stream);

/// Lets the blocks of a kernel have this much dynamic shared memory on the stream's GPU. Without it, static and dynamic
/// shared memory may take 48 KiB together, and the static part is not known here. The limit never falls: a graph may
/// hold a launch that needs more than the latest one.
cudaError_t reserve_shared(const Stream& stream, const void* kernel, std::size_t size_bytes);

/// Whether the host waits for each kernel: LOCKSTEP_CUDA_SYNC=1. Then a fault names the kernel that caused it.
bool launches_wait();
/// Reports a failed launch; with launches_wait() waits for the kernel, unless the stream is captured.
void after_launch(cudaError_t status, const Stream& stream, const void* kernel, const Grid& grid);

/// Whether kernels that wait (cuda_earlier.hpp) may start early: LOCKSTEP_CUDA_DEPENDENT=1, or the latest
/// let_kernels_start_early(), for tests.
bool kernels_start_early();
void let_kernels_start_early(bool early);
/// Whether this kernel, which waits, may start early on the stream's GPU: its code there contains the wait.
bool may_start_early(const Stream& stream, const void* kernel);

/// Bytes that one kernel writes and the next one should still find in the second-level cache: half of it, because the
/// next one's other arrays pass through it, too (25 MiB of an H100, 20 MB of an A100).
std::int64_t cached_bytes(const Stream& stream);

/// How many blocks of a kernel fit on the GPU at once; 0 if it cannot run cooperative launches.
int resident_blocks(const Stream& stream, const void* kernel, int threads, std::size_t shared_bytes);

/// Launches a kernel on a stream, unless the grid is empty. The arguments are those after gpu::Earlier.
/// errors  Error if the launch fails
template <class... Params, class... Args>
void launch(const Stream& stream, const Grid& grid, void (*kernel)(Params...), Args&&... args) {
  constexpr bool waits = kWaits<Params...>;
  if (grid.grid.x * grid.grid.y * grid.grid.z == 0) return;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  if (grid.shared_bytes > 0)
    check(reserve_shared(stream, function, grid.shared_bytes), "reserving ", grid.shared_bytes,
          " bytes of shared memory for a kernel");
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.grid;
  config.blockDim = grid.block;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native());
  cudaLaunchAttribute attribute = {};
  config.attrs = &attribute;
  if (grid.cooperative) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.numAttrs = 1;
  } else if (waits && may_start_early(stream, function)) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
  }
  [&grid](auto& c) {
    if constexpr (requires { c.flops; }) {  // fields of the stand-in, which keeps the ledger and checks the wait
      c.flops = grid.flops;
      c.waits = waits;
    }
  }(config);
  cudaError_t status;
  if constexpr (waits)
    status = cudaLaunchKernelEx(&config, kernel, Earlier{}, std::forward<Args>(args)...);
  else
    status = cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
  if (status != cudaSuccess || launches_wait()) after_launch(status, stream, function, grid);
}

}  // namespace lockstep::gpu
