#include "lockstep/device/ledger.hpp"

#include "complaint.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/graph.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

namespace {

constexpr int kThreads = 64;

/// y_i = x_(i stride) for n elements, one per thread.
__global__ void take_kernel(float* y, const float* x, int n, int stride) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i * stride];
}

/// y_b = the sum of n sectors of x, `step` sectors further in each block b, by its first thread alone.
__global__ void sum_by_one_kernel(float* y, const float* x, int n, int step) {
  __shared__ float sm_sums[2];
  if (threadIdx.x != 0) return;
  sm_sums[0] = sm_sums[1] = 0;
  for (int i = 0; i < n; ++i) sm_sums[i % 2] += x[(static_cast<int>(blockIdx.x) * step + i) * 8];
  y[blockIdx.x] = sm_sums[0] + sm_sums[1];
}

/// x_i += 1 by an atomic operation, then y_i = x_i.
__global__ void waits_kernel(gpu::Earlier earlier, int* y) {
  earlier.wait();
  y[threadIdx.x] = 1;
}
template <int kNumber>
__global__ void one_of_several_kernel(gpu::Earlier earlier, int* y) {
  earlier.wait();
  y[threadIdx.x] = kNumber;
}
__global__ void count_kernel(int* y, int* x, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= n) return;
  atomicAdd(x + i, 1);
  y[i] = x[i];
}

const LedgerEntry& entry(const Ledger& ledger, const char* name) {
  const auto found = std::find_if(ledger.entries.begin(), ledger.entries.end(),
                                  [&](const LedgerEntry& e) { return e.name.find(name) != std::string::npos; });
  REQUIRE(found != ledger.entries.end());
  return *found;
}

/// The ledger of work that is enqueued on a stream.
Ledger ledger_of(const auto& work) {
  start_ledger();
  work();
  return finish_ledger();
}

}  // namespace

TEST_SUITE("cuda_host.ledger" * doctest::skip(!why_no_ledger().empty())) {
  TEST_CASE("the ledger counts a kernel's distinct bytes, and the sectors that its blocks move") {
    constexpr int kCount = 256;
    Stream stream({DeviceKind::cuda, 0});
    const DeviceArray<float> y(std::vector<float>(kCount, 0)), x(std::vector<float>(kCount * 8, 0));
    const gpu::Grid grid{.grid = kCount / kThreads, .block = kThreads, .flops = 77};
    const Ledger whole = ledger_of([&] { gpu::launch(stream, grid, take_kernel, y.data(), x.data(), kCount, 1); });
    const LedgerEntry& dense = entry(whole, "take_kernel");
    CHECK(dense.launches == 1);
    CHECK(dense.blocks == 4);
    CHECK(dense.block_threads == kThreads);
    CHECK(dense.necessary_bytes == 2 * 4 * kCount);
    CHECK(dense.moved_bytes == 2 * 4 * kCount);
    CHECK(dense.longest == 2);
    CHECK(dense.flops[static_cast<int>(FlopUnit::fp32)] == 77);
    // Every eighth element: a sector for each, of which an eighth is wanted.
    const Ledger sparse = ledger_of([&] { gpu::launch(stream, grid, take_kernel, y.data(), x.data(), kCount, 8); });
    CHECK(entry(sparse, "take_kernel").necessary_bytes == 2 * 4 * kCount);
    CHECK(entry(sparse, "take_kernel").moved_bytes == (4 + 32) * kCount);
    // All blocks read the same memory: necessary once, moved for each block. One thread does it all.
    const Ledger again = ledger_of(
        [&] { gpu::launch(stream, {.grid = 3, .block = 32}, sum_by_one_kernel, y.data(), x.data(), 100, 0); });
    const LedgerEntry& sum = entry(again, "sum_by_one");
    CHECK(sum.necessary_bytes == 4 * 100 + 4 * 3);
    CHECK(sum.moved_bytes == 3 * (32 * 100 + 32));
    CHECK(sum.longest == 101);
    CHECK(sum.longest_shared >= 200);
    CHECK(sum.longest_shared <= 204);
    // A read of data that the kernel has written is not necessary; an atomic operation reads and writes.
    const DeviceArray<int> a(std::vector<int>(kThreads, 0)), b(std::vector<int>(kThreads, 0));
    const Ledger atomics =
        ledger_of([&] { gpu::launch(stream, {.block = kThreads}, count_kernel, b.data(), a.data(), kThreads); });
    CHECK(entry(atomics, "count_kernel").necessary_bytes == 3 * 4 * kThreads);
    CHECK(entry(atomics, "count_kernel").longest == 4);
  }

  TEST_CASE("the ledger counts launches that may start before the launch in front of them has ended") {
    const Stream stream({DeviceKind::cuda, 0});
    const DeviceArray<int> y(std::vector<int>(kThreads, 0)), x(std::vector<int>(kThreads, 0));
    const gpu::Grid grid{.block = kThreads};
    const auto work = [&] {
      gpu::launch(stream, grid, waits_kernel, y.data());
      gpu::launch(stream, grid, waits_kernel, y.data());
      gpu::launch(stream, grid, waits_kernel, y.data());
      gpu::launch(stream, grid, count_kernel, y.data(), x.data(), kThreads);  // does not let the next one start
      gpu::launch(stream, grid, waits_kernel, y.data());
      zero_bytes(stream, x.data(), 4);
      gpu::launch(stream, grid, waits_kernel, y.data());
    };
    const auto early = [&](const auto& enqueue) { return entry(ledger_of(enqueue), "waits_kernel").early; };
    {
      const EarlyStarts none(false);
      CHECK(early(work) == 0);
    }
    const EarlyStarts all(true);
    CHECK(early(work) == 2);
    Graph graph;
    REQUIRE(graph.capture(stream, work));
    CHECK(early([&] {
            graph.launch(stream);
            graph.launch(stream);
          }) == 4);
    // The code of this GPU may be compiled from PTX of an earlier one, which contains no wait.
    const auto several = [&]<int kNumber> {
      return entry(ledger_of([&] {
                     for (int i = 0; i < 3; ++i) gpu::launch(stream, grid, one_of_several_kernel<kNumber>, y.data());
                   }),
                   "one_of_several_kernel")
          .early;
    };
    CHECK(several.template operator()<1>() == 2);
    setenv("LOCKSTEP_CUDA_HOST_CODE", "80", 1);
    CHECK(several.template operator()<1>() == 2);  // known by now
    CHECK(several.template operator()<2>() == 0);
    unsetenv("LOCKSTEP_CUDA_HOST_CODE");
  }

  TEST_CASE("bytes of device memory depend on the size of the L2 cache") {
    constexpr double kMib = 1 << 20;
    constexpr int kHalf = 1 << 14;  // sectors of half a MiB
    Stream stream({DeviceKind::cuda, 0});
    const DeviceArray<float> y(std::vector<float>(8, 0)), x(std::vector<float>(5 * kHalf * 8, 0));
    const auto sum = [&](int n, int step) {
      const gpu::Grid grid{.grid = 4, .block = 32};
      return entry(ledger_of([&] { gpu::launch(stream, grid, sum_by_one_kernel, y.data(), x.data(), n, step); }),
                   "sum_by_one");
    };
    // Four blocks read the same 2 MiB, and write to the same sector.
    const LedgerEntry same = sum(4 * kHalf, 0);
    CHECK(same.first_bytes == 2 * kMib + 32);
    CHECK(same.touched_bytes == same.first_bytes);
    CHECK(same.moved_bytes == 4 * same.first_bytes);
    CHECK(same.memory_bytes(2.1 * kMib) == same.first_bytes);  // all of the launch fits
    CHECK(same.memory_bytes(2 * kMib) == same.moved_bytes);
    // Each block reads the second half of the MiB of the one before.
    const LedgerEntry overlapping = sum(2 * kHalf, kHalf);
    CHECK(overlapping.touched_bytes == 2.5 * kMib + 32);
    CHECK(overlapping.moved_bytes == 4 * (kMib + 32));
    CHECK(overlapping.memory_bytes(2 * kMib) == overlapping.touched_bytes);
    CHECK(overlapping.memory_bytes(0.5 * kMib) == overlapping.moved_bytes);
    // What a kernel has written and then reads is in the cache; what it has read and then writes must go to memory.
    const DeviceArray<int> a(std::vector<int>(kThreads, 0)), b(std::vector<int>(kThreads, 0));
    const Ledger atomics =
        ledger_of([&] { gpu::launch(stream, {.block = kThreads}, count_kernel, b.data(), a.data(), kThreads); });
    CHECK(entry(atomics, "count_kernel").first_bytes == 3 * 4 * kThreads);
    CHECK(entry(atomics, "count_kernel").touched_bytes == 2 * 4 * kThreads);
    // Two launches that fit one by one.
    LedgerEntry twice = same;
    twice.launches = 2;
    twice.touched_bytes *= 2;
    CHECK(twice.memory_bytes(2.1 * kMib) == same.first_bytes);
    stream.synchronize();
  }

  TEST_CASE("the ledger counts copies, host memory that kernels read, waits and graphs") {
    constexpr int kCount = 64;
    Stream stream({DeviceKind::cuda, 0});
    const DeviceArray<float> y(std::vector<float>(kCount, 0)), x(std::vector<float>(kCount, 0));
    const Buffer host = Buffer::pinned(kCount * sizeof(float));
    const auto* on_host = reinterpret_cast<const float*>(host.data());
    const gpu::Grid grid{.block = kThreads};
    stream.synchronize();
    const Ledger calls = ledger_of([&] {
      copy_bytes(stream, y.data(), host.data(), 100);
      gpu::launch(stream, grid, take_kernel, y.data(), on_host, kCount, 1);
      stream.synchronize();
      stream.synchronize();  // nothing was left to wait for
    });
    CHECK(calls.launches == 2);
    CHECK(calls.waits == 1);
    CHECK(calls.nodes == 0);
    CHECK(calls.to_gpu_bytes == 100);
    CHECK(calls.from_gpu_bytes == 0);
    CHECK(entry(calls, "take_kernel").bus_bytes == 4 * kCount);
    CHECK(entry(calls, "take_kernel").moved_bytes == 4 * kCount);
    Graph graph;
    REQUIRE(graph.capture(stream, [&] {
      for (int i = 0; i < 3; ++i) gpu::launch(stream, grid, take_kernel, y.data(), x.data(), kCount, 1);
    }));
    const Ledger replayed = ledger_of([&] {
      graph.launch(stream);
      graph.launch(stream);
    });
    CHECK(replayed.launches == 2);
    CHECK(replayed.graphs == 2);
    CHECK(replayed.nodes == 6);
    CHECK(replayed.waits == 0);
    CHECK(entry(replayed, "take_kernel").launches == 6);
    stream.synchronize();
  }

  TEST_CASE("a wait for earlier work counts as a wait that leaves the GPU busy") {
    Stream stream({DeviceKind::cuda, 0});
    const DeviceArray<float> y(std::vector<float>(1, 0)), x(std::vector<float>(1, 0));
    cudaEvent_t event = nullptr;
    gpu::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    const auto launch = [&] { gpu::launch(stream, {}, take_kernel, y.data(), x.data(), 1, 1); };
    const auto record = [&] {
      gpu::check(cudaEventRecord(event, static_cast<cudaStream_t>(stream.native())), "recording an event");
    };
    const Ledger earlier = ledger_of([&] {
      launch();
      record();
      launch();
      gpu::check(cudaEventSynchronize(event), "waiting");
    });
    CHECK(earlier.waits == 0);
    CHECK(earlier.late_waits == 1);
    const Ledger latest = ledger_of([&] {
      launch();
      record();
      gpu::check(cudaEventQuery(event), "asking");
    });
    CHECK(latest.waits == 1);
    CHECK(latest.late_waits == 0);
    gpu::check(cudaEventDestroy(event), "destroying an event");
  }
}
