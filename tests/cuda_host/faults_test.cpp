#include <sys/wait.h>
#include <unistd.h>

#include "complaint.hpp"
#include "lockstep/device/cuda_copy_async.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_mma.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/ledger.hpp"
#include "sanitizer.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

// Errors that a GPU hides or hangs on. Each kernel below has one.

namespace {

constexpr unsigned kAll = gpu::kWholeWarp;

__global__ void early_return_kernel(int* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void two_barriers_kernel(int* out) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
__global__ void missing_lanes_kernel(int* out) {
  int value = 1;
  if (threadIdx.x % 32 != 5) value = gpu::warp_reduce(value);
  __syncthreads();
  out[threadIdx.x] = value;
}
__global__ void ended_lanes_kernel(int* out) {
  if (threadIdx.x > 60) return;
  out[threadIdx.x] = gpu::warp_reduce(1);
}
__global__ void short_warp_kernel(int* out) { out[threadIdx.x] = gpu::warp_reduce(1); }
__global__ void wrong_mask_kernel(int* out) { out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 1); }
__global__ void lane_outside_kernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}
__global__ void two_masks_kernel(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(threadIdx.x < 16 ? 0xffffu : kAll, 1, 1);
}
__global__ void store_kernel(float* out, std::int64_t at) {
  if (blockIdx.x == 1 && threadIdx.x == 2) out[at] = 1;
}
__global__ void load_kernel(float* out, const float* in, std::int64_t at) { out[threadIdx.x] = in[at]; }
__global__ void local_array_kernel(float* out, int at) {
  float values[4] = {1, 2, 3, 4};
  out[0] = values[at];
}
__global__ void shared_array_kernel(float* out, int at) {
  __shared__ float sm_values[8];
  sm_values[threadIdx.x % 8] = 1;
  out[0] = sm_values[at];
}
template <class T>
__global__ void pack_kernel(T* out, const T* in, std::int64_t to, std::int64_t from) {
  gpu::store<T, 4>(out + to, gpu::load<4>(in + from));
}
template <int kBytes>
__global__ void copy_kernel(float* out, const float* in, int to, std::int64_t from) {
  auto* sm_values = reinterpret_cast<float*>(sm_bytes);
  gpu::copy_async<kBytes>(sm_values + to, in + from);
  gpu::wait_for_copies();
  out[0] = sm_values[to];
}
__global__ void dynamic_shared_kernel(float* out, int at) {
  auto* sm_values = reinterpret_cast<float*>(sm_bytes);
  sm_values[at] = 1;
  out[0] = 1;
}
__global__ void fresh_shared_kernel(float* out) {
  __shared__ float sm_static[5];
  const auto* sm_dynamic = reinterpret_cast<const float*>(sm_bytes);
  out[2 * blockIdx.x] = sm_static[blockIdx.x];
  out[2 * blockIdx.x + 1] = sm_dynamic[blockIdx.x];
  sm_static[blockIdx.x + 1] = 1;
}
/// The lane's matrix row starts `late` bytes late. The last lane may be missing, or the matrix may not be in shared
/// memory.
__global__ void matrix_kernel(std::uint32_t* out, int late, bool all, const unsigned char* elsewhere) {
  if (!all && threadIdx.x == 31) return;
  std::uint32_t to[4];
  gpu::load_matrices(to, (elsewhere != nullptr ? elsewhere : sm_bytes) + 16 * threadIdx.x + late);
  out[threadIdx.x] = to[0];
}
__global__ void divide_kernel(int* out, int by) { out[0] = 7 / by; }
int deep(int n) {
  volatile char room[4096];
  room[n % 4096] = static_cast<char>(n);
  return n == 0 ? room[0] : deep(n - 1) + room[n % 4096];
}
__global__ void deep_kernel(int* out, int n) { out[0] = deep(n); }
struct Table {
  std::int64_t rows;
  const float* values;
};
__global__ void table_kernel(float* out, Table table) { out[0] = table.values[0]; }

__global__ void waits_kernel(gpu::Earlier earlier, float* out, const float* in) {
  __shared__ float sm_values[32];
  sm_values[threadIdx.x] = 1;  // no fault: shared memory is the block's own
  earlier.wait();
  out[threadIdx.x] = in[threadIdx.x] + sm_values[threadIdx.x];
}
__global__ void late_wait_kernel(gpu::Earlier earlier, float* out, const float* in) {
  const float value = in[threadIdx.x];
  earlier.wait();
  out[threadIdx.x] = value;
}
__global__ void late_wait_after_store_kernel(gpu::Earlier earlier, unsigned* out) {
  if (threadIdx.x == 3) atomicAdd(out + 7, 1);
  earlier.wait();
}
__global__ void ends_without_wait_kernel(gpu::Earlier earlier, float* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  earlier.wait();
  out[threadIdx.x] = 1;
}
__global__ void barrier_before_wait_kernel(gpu::Earlier earlier, float* out) {
  __syncthreads();
  earlier.wait();
  out[threadIdx.x] = 1;
}

/// What a child process prints on stderr before it dies in f; empty if it survives.
std::string last_words(const std::function<void()>& f) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    f();
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  char piece[256];
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) words.append(piece, to_size(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : words;
}

}  // namespace

TEST_SUITE("cuda_host.faults") {
  TEST_CASE("a barrier that some threads never reach is an error") {
    DeviceArray<int> out(64);
    check_mentions(complaint_of({.grid = 1, .block = 64}, early_return_kernel, out.data(), 50),
                   "kernel early_return_kernel, block (0,0,0)",
                   "thread (0,0,0) waits in __syncthreads at faults_test.cpp:", "but thread (50,0,0) has ended");
    CHECK(complaint_of({.grid = 1, .block = 64}, early_return_kernel, out.data(), 64).empty());
  }

  TEST_CASE("two halves of a block that wait in different barriers are an error") {
    DeviceArray<int> out(32);
    check_mentions(complaint_of({.grid = 2, .block = 32}, two_barriers_kernel, out.data()),
                   "thread (16,0,0) waits in __syncthreads at faults_test.cpp:",
                   "but thread (0,0,0) of its block does so at faults_test.cpp:");
  }

  TEST_CASE("a warp operation with missing or foreign lanes is an error") {
    DeviceArray<int> out(64);
    check_mentions(complaint_of({.grid = 1, .block = 64}, missing_lanes_kernel, out.data()),
                   "for lane 5, but thread (5,0,0) waits in __syncthreads at faults_test.cpp:");
    check_mentions(complaint_of({.grid = 1, .block = 64}, ended_lanes_kernel, out.data()),
                   "for lane 29, but thread (61,0,0) has ended");
    check_mentions(complaint_of({.grid = 1, .block = 48}, short_warp_kernel, out.data()),
                   "thread (32,0,0) names lanes in the mask 0xffffffff");
    check_mentions(complaint_of({.grid = 1, .block = 32}, wrong_mask_kernel, out.data()),
                   "thread (16,0,0) is lane 16, which the mask 0xffff of its own warp operation");
    check_mentions(complaint_of({.grid = 1, .block = 32}, lane_outside_kernel, out.data()), "shuffles from lane 20");
    check_mentions(complaint_of({.grid = 1, .block = 32}, two_masks_kernel, out.data()), "with mask 0xffff");
  }

  TEST_CASE("accesses outside device memory and to freed memory are errors that describe the address") {
    DeviceArray<float> out(1024);
    const gpu::Grid grid{.grid = 2, .block = 32};
    CHECK(complaint_of(grid, store_kernel, out.data(), 1023).empty());
    check_mentions(complaint_of(grid, store_kernel, out.data(), 1024),
                   "kernel store_kernel, block (1,0,0), thread (2,0,0) writes 0 bytes past the end of the 4096 bytes",
                   "on cuda:0, in store_kernel");
    check_mentions(complaint_of(grid, store_kernel, out.data(), -1025), "writes ");
    check_mentions(complaint_of(grid, load_kernel, out.data(), static_cast<const float*>(out.data()), 5000), "reads ");
    check_mentions(complaint_of(grid, load_kernel, out.data(), static_cast<const float*>(nullptr), 0), "reads 0");
    const float* freed = nullptr;
    { freed = DeviceArray<float>(16).data(); }
    check_mentions(complaint_of(grid, load_kernel, out.data(), freed, 0),
                   "argument 2 points to byte 0 of the freed 64 bytes");
  }

  TEST_CASE("indices outside local and shared arrays are errors" * doctest::skip(cuda_host::kAddressSanitizer)) {
    DeviceArray<float> out(4);
    const gpu::Grid grid{.grid = 1, .block = 32, .shared_bytes = 64};
    CHECK(complaint_of(grid, local_array_kernel, out.data(), 3).empty());
    check_mentions(complaint_of(grid, local_array_kernel, out.data(), 4), "an array index out of its bounds");
    CHECK(complaint_of(grid, shared_array_kernel, out.data(), 7).empty());
    check_mentions(complaint_of(grid, shared_array_kernel, out.data(), 8), "an array index out of its bounds");
    CHECK(complaint_of(grid, dynamic_shared_kernel, out.data(), 15).empty());
    check_mentions(
        complaint_of(grid, dynamic_shared_kernel, out.data(), 16),
        "kernel dynamic_shared_kernel, block (0,0,0) wrote to byte 64 of its 64 bytes of dynamic shared memory");
    CHECK(complaint_of(grid, dynamic_shared_kernel, out.data(), 15).empty());
  }

  TEST_CASE("accesses that are not aligned for their type are errors") {
    constexpr const char* kFault = "an access that is not aligned for its type";
    DeviceArray<float> out(16);
    const DeviceArray<float> in(std::vector<float>(16));
    const auto pack = [&]<class T>(std::int64_t to, std::int64_t from) {
      return complaint_of({}, pack_kernel<T>, reinterpret_cast<T*>(out.data()), reinterpret_cast<const T*>(in.data()),
                          to, from);
    };
    CHECK(pack.operator()<float>(4, 8).empty());
    check_mentions(pack.operator()<float>(6, 8), kFault, "pack_kernel");
    check_mentions(pack.operator()<float>(4, 9), kFault);
    CHECK(pack.operator()<bf16>(4, 8).empty());
    check_mentions(pack.operator()<bf16>(4, 6), kFault);
    const gpu::Grid grid = {.shared_bytes = 64};
    const auto copy = [&](auto* kernel, int to, std::int64_t from) {
      return complaint_of(grid, kernel, out.data(), static_cast<const float*>(in.data()), to, from);
    };
    CHECK(copy(copy_kernel<16>, 4, 8).empty());
    CHECK(copy(copy_kernel<8>, 2, 6).empty());
    check_mentions(copy(copy_kernel<16>, 4, 6), kFault, "copy_kernel");
    check_mentions(copy(copy_kernel<16>, 2, 8), kFault);
    check_mentions(copy(copy_kernel<8>, 2, 5), kFault);
  }

  TEST_CASE("tensor-core matrices with misaligned, missing or not shared rows are errors") {
    DeviceArray<std::uint32_t> out(32);
    const DeviceArray<unsigned char> elsewhere(std::vector<unsigned char>(512));
    const gpu::Grid grid = {.grid = 1, .block = 32, .shared_bytes = 528};
    const auto load = [&](int late, bool all, const unsigned char* from) {
      return complaint_of(grid, matrix_kernel, out.data(), late, all, from);
    };
    CHECK(load(0, true, nullptr).empty());
    check_mentions(load(2, true, nullptr), "which is no multiple of 16");
    check_mentions(load(0, false, nullptr), "waits in the warp operation");
    check_mentions(load(0, true, elsewhere.data()), "not from shared memory, but");
  }

  TEST_CASE("unwritten memory holds NaN: device memory, and shared memory of each block") {
    const Stream stream({DeviceKind::cuda, 0});
    DeviceArray<float> out(8);
    gpu::launch(stream, {.grid = 4, .block = 1, .shared_bytes = 64}, fresh_shared_kernel, out.data());
    for (const float value : out.read()) CHECK(std::isnan(value));
    double* fresh = nullptr;
    double copy[3] = {};
    gpu::check(cudaMalloc(&fresh, sizeof copy), "allocating");
    gpu::check(cudaMemcpyAsync(copy, fresh, sizeof copy, cudaMemcpyDeviceToHost), "copying");
    for (const double value : copy) CHECK(std::isnan(value));
    gpu::check(cudaFree(fresh), "freeing");
  }

  TEST_CASE("a kernel argument that points to host memory or another device is an error") {
    DeviceArray<float> out(4);
    std::vector<float> host(4);
    const int on_stack = 0;
    const gpu::Grid grid{.grid = 1, .block = 1};
    check_mentions(complaint_of(grid, load_kernel, out.data(), static_cast<const float*>(host.data()), 0),
                   "kernel load_kernel: argument 2 points to 0x");
    check_mentions(complaint_of(grid, table_kernel, out.data(), Table{1, host.data()}),
                   "argument 2 (at byte 8) points to 0x");
    CHECK(complaint_of(grid, table_kernel, out.data(), Table{0x7f0000000001, out.data()}).empty());
    check_mentions(complaint_of(grid, divide_kernel, const_cast<int*>(&on_stack), 1),
                   "a kernel reads device or page-locked");
    const DeviceArray<float> elsewhere(4, 1);
    check_mentions(complaint_of(grid, load_kernel, out.data(), static_cast<const float*>(elsewhere.data()), 0),
                   "on cuda:1, but the stream is of cuda:0");
  }

  TEST_CASE("a kernel whose threads do not wait for the earlier work first is an error, also if none starts early") {
    const DeviceArray<float> in(std::vector<float>(32, 2)), out(32);
    const DeviceArray<unsigned> counts(32);
    const gpu::Grid grid{.grid = 2, .block = 32};
    for (const bool early : {false, true}) {
      CAPTURE(early);
      const EarlyStarts starts(early);
      if (why_no_ledger().empty()) {  // otherwise kernels do not report their accesses
        check_mentions(complaint_of(grid, late_wait_kernel, out.data(), in.data()),
                       "kernel late_wait_kernel, block (0,0,0), thread (0,0,0) reads byte 0 of the 128 bytes at 0x",
                       ", in late_wait_kernel", ", before it has waited for the earlier work of its stream");
        check_mentions(complaint_of(grid, late_wait_after_store_kernel, counts.data()), "thread (3,0,0) ",
                       " byte 28 of the 128 bytes at 0x", ", before it has waited");
      }
      check_mentions(complaint_of(grid, ends_without_wait_kernel, out.data(), 30),
                     "thread (30,0,0) has ended, before it has waited for the earlier work of its stream");
      check_mentions(complaint_of(grid, barrier_before_wait_kernel, out.data()),
                     "thread (0,0,0) waits in __syncthreads at faults_test.cpp:", ", before it has waited");
      CHECK(complaint_of(grid, waits_kernel, out.data(), in.data()).empty());
      CHECK(out.read() == std::vector<float>(32, 3));
      CHECK(complaint_of(grid, load_kernel, out.data(), static_cast<const float*>(in.data()), 0).empty());
    }
  }

  TEST_CASE("a launch that starts early although its kernel does not wait, or its blocks do for one another") {
    const DeviceArray<float> in(32), out(32);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = 1;
    config.attrs = attributes;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, waits_kernel, gpu::Earlier{}, out.data(), in.data()) == cudaSuccess);
    CHECK(cudaLaunchKernelEx(&config, load_kernel, out.data(), in.data(), 0) == cudaErrorLaunchFailure);
    config.numAttrs = 2;
    CHECK(cudaLaunchKernelEx(&config, waits_kernel, gpu::Earlier{}, out.data(), in.data()) == cudaErrorNotSupported);
  }

  TEST_CASE("host code that touches device memory dies with an explanation") {
    DeviceArray<float> memory(std::vector<float>{1, 2, 3});
    const volatile float* x = memory.data();
    check_mentions(last_words([&] { std::printf("%g", static_cast<double>(x[1])); }),
                   "host code reads byte 4 of the 64 bytes at 0x");
    check_mentions(last_words([&] { memory.data()[2] = 1; }), "host code writes byte 8");
    check_mentions(last_words([&] {
                     const Stream stream({DeviceKind::cuda, 0});
                     gpu::launch(stream, {}, store_kernel, memory.data(), std::int64_t{0});
                     stream.synchronize();
                     memory.data()[2] = 1;
                   }),
                   "but only a device may access it");
    CHECK(last_words([&] { memory.read(); }).empty());
  }

  TEST_CASE("after a division by zero and a stack overflow the next kernel runs") {
    DeviceArray<int> out(4);
    check_mentions(complaint_of({.grid = 1, .block = 32}, divide_kernel, out.data(), 0), "an integer division by zero");
    check_mentions(complaint_of({.grid = 1, .block = 32}, deep_kernel, out.data(), 1000), "its stack is full");
    CHECK(complaint_of({.grid = 1, .block = 32}, divide_kernel, out.data(), 2).empty());
    CHECK(out.read()[0] == 3);
  }

  TEST_CASE("a launch that a GPU refuses is an error that names its sizes") {
    DeviceArray<int> out(4);
    CHECK(complaint_of({.grid = 0, .block = 32}, divide_kernel, out.data(), 0).empty());  // nothing is launched
    check_mentions(complaint_of({.grid = 1, .block = 1025}, divide_kernel, out.data(), 1),
                   "blocks of 1025x1x1 threads");
    check_mentions(complaint_of({.grid = dim3(1, 65536), .block = 1}, divide_kernel, out.data(), 1),
                   "cudaErrorInvalidConfiguration");
    check_mentions(complaint_of({.grid = 1, .block = 1, .shared_bytes = 228 << 10}, divide_kernel, out.data(), 1),
                   "233472 bytes of shared memory");
    // 48 KiB for static and dynamic shared memory together, unless the kernel asks for more.
    const DeviceArray<float> fresh(2);
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = 1;
    config.dynamicSmemBytes = 48 << 10;
    CHECK(cudaLaunchKernelEx(&config, fresh_shared_kernel, fresh.data()) == cudaErrorInvalidValue);
    const gpu::Grid asks = {.grid = 1, .block = 1, .shared_bytes = 48 << 10};
    CHECK(complaint_of(asks, fresh_shared_kernel, fresh.data()).empty());
    check_mentions(complaint([](const Stream&) { Stream({DeviceKind::cuda, 99}); }), "using cuda:99");
  }

  TEST_CASE("copies, fills and frees with a wrong size, direction or address are errors") {
    const Stream stream({DeviceKind::cuda, 0});
    DeviceArray<int> out(4);
    std::vector<int> host(20);
    const auto copy = [&](void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
      return cudaMemcpyAsync(to, from, size, kind) == cudaSuccess ? std::string()
                                                                  : cudaGetErrorString(cudaGetLastError());
    };
    check_mentions(copy(host.data(), out.data(), 80, cudaMemcpyDefault),
                   "copying from 80 bytes at byte 0 of the 64 bytes");
    check_mentions(copy(host.data(), out.data(), 16, cudaMemcpyHostToDevice), "another direction");
    CHECK(copy(host.data(), out.data(), 16, cudaMemcpyDeviceToHost).empty());
    CHECK(cudaMemset(host.data(), 0, 4) == cudaErrorInvalidValue);
    CHECK(cudaFree(out.data() + 1) == cudaErrorInvalidValue);
    CHECK(cudaFreeHost(out.data()) == cudaErrorInvalidValue);
    void* twice = nullptr;
    CHECK(cudaMalloc(&twice, 64) == cudaSuccess);
    CHECK(cudaFree(twice) == cudaSuccess);
    CHECK(cudaFree(twice) == cudaErrorInvalidValue);
    void* too_much = nullptr;
    CHECK(cudaMalloc(&too_much, std::size_t{1} << 50) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
  }
}
