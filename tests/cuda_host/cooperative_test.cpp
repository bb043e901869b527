#include <cooperative_groups.h>

#include "complaint.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/graph.hpp"
#include "lockstep/device/ledger.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

// Blocks that wait for one another.

namespace {

constexpr int kThreads = 48, kBlocks = 6, kRounds = 3;

/// In each round a block adds what its neighbours wrote in the round before. What it has in shared memory, static and
/// dynamic, and in variables of its threads must outlast the barriers.
__global__ void neighbours_kernel(int* all, int* kept) {
  auto* sm_dynamic = reinterpret_cast<int*>(sm_bytes);
  __shared__ int sm_static[kThreads];
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int blocks = static_cast<int>(gridDim.x), left = (block + blocks - 1) % blocks, right = (block + 1) % blocks;
  sm_static[thread] = 1000 * block + thread;
  sm_dynamic[thread] = 2000 * block + thread;
  int value = block * kThreads + thread;
  for (int round = 0; round < kRounds; ++round) {
    all[block * kThreads + thread] = value;
    cooperative_groups::this_grid().sync();
    const int sum = all[left * kThreads + thread] + all[right * kThreads + (thread + 1) % kThreads];
    cooperative_groups::this_grid().sync();
    value = sum;
    __syncthreads();
  }
  kept[block * kThreads + thread] =
      sm_static[(thread + 1) % kThreads] + sm_dynamic[(thread + 2) % kThreads] + static_cast<int>(threadIdx.x);
  all[block * kThreads + thread] = value;
}

__global__ void absent_block_kernel(int* out) {
  if (blockIdx.x == 2) return;
  cooperative_groups::this_grid().sync();
  out[0] = 1;
}
__global__ void absent_thread_kernel(int* out) {
  if (threadIdx.x == 5) return;
  cooperative_groups::this_grid().sync();
  out[0] = 1;
}
__global__ void two_places_kernel(int* out) {
  if (blockIdx.x == 0)
    cooperative_groups::this_grid().sync();
  else
    cooperative_groups::this_grid().sync();
  out[0] = 1;
}
__global__ void mixed_barriers_kernel(int* out) {
  if (threadIdx.x < 7)
    __syncthreads();
  else
    cooperative_groups::this_grid().sync();
  out[0] = 1;
}

constexpr gpu::Grid kGrid = {.grid = kBlocks, .block = kThreads, .shared_bytes = 4 * kThreads, .cooperative = true};

std::vector<int> neighbours() {
  std::vector<int> values(kBlocks * kThreads);
  for (int i = 0; i < kBlocks * kThreads; ++i) values[to_size(i)] = i;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int> before = values;
    const auto at = [&](int block, int thread) {
      return before[to_size((block + kBlocks) % kBlocks * kThreads + thread % kThreads)];
    };
    for (int b = 0; b < kBlocks; ++b)
      for (int t = 0; t < kThreads; ++t) values[to_size(b * kThreads + t)] = at(b - 1, t) + at(b + 1, t + 1);
  }
  return values;
}

}  // namespace

TEST_SUITE("cuda_host.cooperative") {
  TEST_CASE("blocks see what others wrote before a barrier of the grid, and keep their shared memory, in any order") {
    for (const char* order : {"", "reverse"}) {
      CAPTURE(order);
      setenv("LOCKSTEP_CUDA_HOST_ORDER", order, 1);
      DeviceArray<int> all(kBlocks * kThreads), kept(kBlocks * kThreads);
      CHECK(complaint_of(kGrid, neighbours_kernel, all.data(), kept.data()).empty());
      CHECK(all.read() == neighbours());
      const std::vector<int> sums = kept.read();
      for (int b = 0; b < kBlocks; ++b)
        for (int t = 0; t < kThreads; ++t)
          CHECK(sums[to_size(b * kThreads + t)] == 3000 * b + (t + 1) % kThreads + (t + 2) % kThreads + t);
    }
    unsetenv("LOCKSTEP_CUDA_HOST_ORDER");
  }

  TEST_CASE("a cooperative kernel in a graph is a node, and its blocks wait in each launch") {
    Stream stream({DeviceKind::cuda, 0});
    DeviceArray<int> all(kBlocks * kThreads), kept(kBlocks * kThreads);
    Graph graph;
    REQUIRE(graph.capture(stream, [&] { gpu::launch(stream, kGrid, neighbours_kernel, all.data(), kept.data()); }));
    for (int i = 0; i < 2; ++i) {
      graph.launch(stream);
      CHECK(all.read() == neighbours());
    }
  }

  TEST_CASE("a grid barrier that not all threads reach at the same line is an error") {
    DeviceArray<int> out(4);
    check_mentions(complaint_of(kGrid, absent_block_kernel, out.data()), "but 1 of the 6 blocks have ended");
    check_mentions(complaint_of(kGrid, absent_thread_kernel, out.data()),
                   "waits in a barrier of the grid at cooperative_test.cpp:", "but thread (5,0,0) has ended");
    check_mentions(complaint_of(kGrid, two_places_kernel, out.data()), "but block (1,0,0) in that at");
    check_mentions(complaint_of(kGrid, mixed_barriers_kernel, out.data()), "waits in __syncthreads at");
    CHECK(complaint_of(kGrid, neighbours_kernel, DeviceArray<int>(kBlocks * kThreads).data(),
                       DeviceArray<int>(kBlocks * kThreads).data())
              .empty());
  }

  TEST_CASE("a grid barrier outside a cooperative launch, and blocks that do not fit at once, are errors") {
    DeviceArray<int> out(4);
    gpu::Grid grid = kGrid;
    grid.cooperative = false;
    check_mentions(complaint_of(grid, absent_block_kernel, out.data()), "but the launch is not cooperative");
    const Stream stream({DeviceKind::cuda, 0});
    const auto* kernel = reinterpret_cast<const void*>(absent_thread_kernel);
    const int fit = gpu::resident_blocks(stream, kernel, 1024, 0);
    CHECK(fit == 4);  // two multiprocessors of 2048 threads
    CHECK(gpu::resident_blocks(stream, kernel, 64, 100 << 10) == 4);
    CHECK(gpu::resident_blocks(stream, kernel, 64, 228 << 10) == 0);
    CHECK(gpu::resident_blocks(stream, kernel, 64, 227 << 10) == 2);
    CHECK(gpu::resident_blocks(stream, reinterpret_cast<const void*>(neighbours_kernel), 64, 227 << 10) == 0);
    grid = {.grid = static_cast<unsigned>(fit) + 1, .block = 1024, .cooperative = true};
    check_mentions(complaint_of(grid, absent_thread_kernel, out.data()),
                   "a cooperative launch of 5 blocks, but only 4 fit on the device at once");
  }

  TEST_CASE("the ledger counts a block that waits as one block" * doctest::skip(!why_no_ledger().empty())) {
    const Stream stream({DeviceKind::cuda, 0});
    DeviceArray<int> all(kBlocks * kThreads), kept(kBlocks * kThreads);
    start_ledger();
    gpu::launch(stream, kGrid, neighbours_kernel, all.data(), kept.data());
    const Ledger ledger = finish_ledger();
    REQUIRE(ledger.entries.size() == 1);
    const LedgerEntry& entry = ledger.entries.front();
    CHECK(entry.blocks == kBlocks);
    CHECK(entry.longest == 3 * kRounds + 2);
    CHECK(entry.necessary_bytes == 2 * 4 * kBlocks * kThreads);  // written; what is read was written before
  }
}
