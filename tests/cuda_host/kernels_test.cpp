#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_mma.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

namespace {

__global__ void indices_kernel(std::int64_t* out) {
  const std::int64_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const std::int64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += block * 1000 + thread;
}

/// Sums each block's elements in a tree in dynamic shared memory.
__global__ void tree_kernel(double* sums, const double* x, int count) {
  auto* sm_x = reinterpret_cast<double*>(sm_bytes);
  const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x * blockDim.x) + t;
  sm_x[t] = i < count ? x[i] : 0;
  for (int half = static_cast<int>(blockDim.x) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) sm_x[t] += sm_x[t + half];
  }
  if (t == 0) sums[blockIdx.x] = sm_x[0];
}

template <class T>
__global__ void __launch_bounds__(1024) reduce_kernel(T* sums, T* maxima, const T* __restrict__ x) {
  const T value = x[blockIdx.x * blockDim.x + threadIdx.x];
  const T sum = gpu::block_reduce<T>(value), most = gpu::block_reduce(value, T(-1e30), gpu::Max{});
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    maxima[blockIdx.x] = most;
  }
}

struct WarpResults {
  int up[32], from[32], crossed[32], any[32], ballot[32], halves[32];
};
__global__ void warp_kernel(WarpResults* r) {
  const int lane = static_cast<int>(threadIdx.x);
  constexpr unsigned kAll = gpu::kWholeWarp;
  r->up[lane] = __shfl_up_sync(kAll, lane, 3);
  r->from[lane] = __shfl_sync(kAll, lane * 10, lane / 2);
  r->crossed[lane] = __shfl_xor_sync(kAll, lane, 9);
  r->any[lane] = __any_sync(kAll, lane == 17);
  r->ballot[lane] = static_cast<int>(__ballot_sync(kAll, lane % 3 == 0));
  int value = lane;
  if (lane < 16) {  // two groups, each by itself
    for (int d = 8; d > 0; d /= 2) value += __shfl_xor_sync(0xffffu, value, d);
  } else {
    for (int d = 8; d > 0; d /= 2) value = value > __shfl_xor_sync(0xffff0000u, value, d) ? value : 31;
  }
  r->halves[lane] = value;
}

__global__ void count_kernel(int* out, int limit) {
  const int t = static_cast<int>(threadIdx.x);
  const int some = __syncthreads_or(t == limit), none = __syncthreads_or(t == 1000);
  atomicAdd(&out[0], some + 2 * none);
  atomicMax(&out[1], t);
}

struct MatrixShape {
  std::int64_t rows, columns;
};
/// Transposes through a static tile, twice: a missing barrier would show as a race.
__global__ void transpose_kernel(MatrixShape shape, float* y, const float* x) {
  __shared__ float sm_tile[32][33];
  const std::int64_t row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < shape.rows && column < shape.columns) sm_tile[threadIdx.y][threadIdx.x] = x[row * shape.columns + column];
  __syncthreads();
  const std::int64_t out_row = blockIdx.x * 32 + threadIdx.y, out_column = blockIdx.y * 32 + threadIdx.x;
  if (out_row < shape.columns && out_column < shape.rows)
    y[out_row * shape.rows + out_column] = sm_tile[threadIdx.x][threadIdx.y];
}

__global__ void copy_indexed_kernel(float* y, const float* x, const std::int32_t* index, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = x[index[i]];
}

/// 1 + a b of 16 x 16 matrices, or 1 + a b' if `across`.
template <class T>
__global__ void product_kernel(float* y, const T* a, const T* b, bool across) {
  auto* sm_a = reinterpret_cast<T*>(sm_bytes);
  T* sm_b = sm_a + 256;
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) {
    sm_a[i] = a[i];
    sm_b[i] = b[i];
  }
  __syncwarp();
  std::uint32_t of_a[4], of_b[4];
  gpu::load_matrices(of_a, sm_a + lane % 16 * 16 + lane / 16 * 8);
  if (across)
    gpu::load_matrices(of_b, sm_b + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
  else
    gpu::load_transposed(of_b, sm_b + lane % 16 * 16 + lane / 16 * 8);
  for (int n = 0; n < 2; ++n) {
    float c[4] = {1, 1, 1, 1};
    gpu::multiply_add<T>(c, of_a, of_b[2 * n], of_b[2 * n + 1]);
    for (int i = 0; i < 4; ++i) y[(g + 8 * (i / 2)) * 16 + 8 * n + 2 * t + i % 2] = c[i];
  }
}
template <class T>
__global__ void pack_kernel(std::uint32_t* packed, const float* x) {
  packed[threadIdx.x] = gpu::pack_halves<T>(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
}

}  // namespace

TEST_SUITE("cuda_host.kernels") {
  TEST_CASE("every thread of every block runs once, with its own indices") {
    const Stream stream({DeviceKind::cuda, 0});
    const dim3 grid(3, 2, 4), block(5, 3, 2);
    DeviceArray<std::int64_t> out(std::vector<std::int64_t>(24 * 30, 0));
    gpu::launch(stream, {.grid = grid, .block = block}, indices_kernel, out.data());
    const auto found = out.read();
    for (std::int64_t i = 0; i < 24 * 30; ++i) CHECK(found[i] == i / 30 * 1000 + i % 30);
  }

  TEST_CASE("barriers order what threads write to shared memory and read from it") {
    const Stream stream({DeviceKind::cuda, 0});
    std::vector<double> x(1000);
    std::iota(x.begin(), x.end(), 1.0);
    const DeviceArray<double> in(x);
    DeviceArray<double> sums(std::vector<double>(4));
    gpu::launch(stream, {.grid = 4, .block = 256, .shared_bytes = 256 * sizeof(double)}, tree_kernel, sums.data(),
                in.data(), 1000);
    const auto found = sums.read();
    CHECK(std::accumulate(found.begin(), found.end(), 0.0) == 500500);
  }

  TEST_CASE_TEMPLATE("block_reduce agrees with a plain loop for every size of block", T, float, double) {
    const Stream stream({DeviceKind::cuda, 0});
    for (const int threads : {32, 64, 96, 256, 1024}) {
      std::vector<T> x(to_size(3 * threads));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>((i * 7919) % 101) - 50;
      const DeviceArray<T> in(x);
      DeviceArray<T> sums(std::vector<T>(3)), maxima(std::vector<T>(3));
      gpu::launch(stream, {.grid = 3, .block = static_cast<unsigned>(threads)}, reduce_kernel<T>, sums.data(),
                  maxima.data(), in.data());
      const auto sum = sums.read(), most = maxima.read();
      for (int b = 0; b < 3; ++b) {
        const auto begin = x.begin() + b * threads;
        CHECK(sum[b] == std::accumulate(begin, begin + threads, T(0)));
        CHECK(most[b] == *std::max_element(begin, begin + threads));
      }
    }
  }

  TEST_CASE("warp primitives behave as in the CUDA programming guide") {
    const Stream stream({DeviceKind::cuda, 0});
    DeviceArray<WarpResults> out(1);
    gpu::launch(stream, {.grid = 1, .block = 32}, warp_kernel, out.data());
    const WarpResults r = out.read()[0];
    for (int lane = 0; lane < 32; ++lane) {
      CHECK(r.up[lane] == (lane >= 3 ? lane - 3 : lane));
      CHECK(r.from[lane] == lane / 2 * 10);
      CHECK(r.crossed[lane] == (lane ^ 9));
      CHECK(r.any[lane] == 1);
      CHECK(static_cast<unsigned>(r.ballot[lane]) == 0x49249249u);
      CHECK(r.halves[lane] == (lane < 16 ? 120 : 31));
    }
  }

  TEST_CASE("a barrier returns whether its predicate holds for any thread, and atomics count every thread") {
    const Stream stream({DeviceKind::cuda, 0});
    DeviceArray<int> out(std::vector<int>(2));
    gpu::launch(stream, {.grid = 2, .block = 70}, count_kernel, out.data(), 11);
    CHECK(out.read() == std::vector<int>{2 * 70, 69});
  }

  TEST_CASE("a transpose through static shared memory is right with threads outside the matrix") {
    const Stream stream({DeviceKind::cuda, 0});
    std::vector<float> x(37 * 45);
    std::iota(x.begin(), x.end(), 0.0f);
    const DeviceArray<float> in(x);
    DeviceArray<float> out(x.size());
    gpu::launch(stream, {.grid = dim3(2, 2), .block = dim3(32, 32)}, transpose_kernel, MatrixShape{37, 45}, out.data(),
                in.data());
    const auto y = out.read();
    for (int i = 0; i < 37; ++i)
      for (int j = 0; j < 45; ++j) REQUIRE(y[j * 37 + i] == x[i * 45 + j]);
  }

  TEST_CASE("quotients and remainders are right for numbers beyond 32 bits") {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 32, (std::int64_t{5} << 32) + 3})
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{41}, std::int64_t{0xffffffff}, std::int64_t{1} << 32,
                                   (std::int64_t{11} << 32) + 5}) {
        CAPTURE(i);
        CAPTURE(n);
        CHECK(gpu::quotient(i, n) == i / n);
        CHECK(gpu::remainder(i, n) == i % n);
      }
  }

  TEST_CASE("kernels read page-locked host memory at its host address") {
    const Stream stream({DeviceKind::cuda, 0});
    const Buffer index = Buffer::pinned(100 * sizeof(std::int32_t));
    auto* const which = reinterpret_cast<std::int32_t*>(index.data());
    std::vector<float> x(100);
    for (int i = 0; i < 100; ++i) {
      which[i] = (i * 37) % 100;
      x[i] = static_cast<float>(i);
    }
    const DeviceArray<float> in(x);
    DeviceArray<float> out(100);
    gpu::launch(stream, gpu::grid_for(100, 32), copy_indexed_kernel, out.data(), in.data(), which, 100);
    const auto y = out.read();
    for (int i = 0; i < 100; ++i) CHECK(y[i] == static_cast<float>(which[i]));
  }

  TEST_CASE_TEMPLATE("tensor-core products are exact for plain and transposed matrices", T, bf16, f16) {
    const Stream stream({DeviceKind::cuda, 0});
    std::vector<T> a(256), b(256);
    std::vector<float> x(256), z(256);
    for (std::size_t i = 0; i < 256; ++i) {  // small whole numbers: every sum is exact
      x[i] = static_cast<float>(i * 37 % 19) - 9;
      z[i] = static_cast<float>(i * 53 % 23) - 11;
      a[i] = gpu::from_real<T>(x[i]);
      b[i] = gpu::from_real<T>(z[i]);
    }
    const DeviceArray<T> of_a(a), of_b(b);
    for (const bool across : {false, true}) {
      DeviceArray<float> out(256);
      gpu::launch(stream, {.grid = 1, .block = 32, .shared_bytes = 512 * sizeof(T)}, product_kernel<T>, out.data(),
                  of_a.data(), of_b.data(), across);
      const auto y = out.read();
      for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t j = 0; j < 16; ++j) {
          float expected = 1;
          for (std::size_t k = 0; k < 16; ++k) expected += x[i * 16 + k] * (across ? z[j * 16 + k] : z[k * 16 + j]);
          CHECK(y[i * 16 + j] == expected);
        }
    }
    DeviceArray<std::uint32_t> packed(128);
    gpu::launch(stream, {.grid = 1, .block = 128}, pack_kernel<T>, packed.data(), DeviceArray<float>(x).data());
    const auto pairs = packed.read();
    for (std::size_t i = 0; i < 128; ++i)
      CHECK(pairs[i] == (std::uint32_t{a[2 * i].bits} | std::uint32_t{a[2 * i + 1].bits} << 16));
  }
}
