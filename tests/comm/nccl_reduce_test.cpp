#include <stdexcept>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/device/graph.hpp"
#include "support/test.hpp"

// One rank: what a machine with one GPU can run of NCCL.
TEST_SUITE("comm.nccl_reduce.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("collectives run call by call, in a graph, and after a capture that failed") {
    constexpr std::int64_t kCount = 1000;
    constexpr std::size_t kBytes = kCount * sizeof(float);
    const Device gpu{DeviceKind::cuda, 0};
    const Stream stream(gpu);
    const auto alone = make_self_communicator();
    const auto reduce = make_gpu_reduce(*alone, gpu, 60);
    const Buffer in = Buffer::pinned(kBytes), out = Buffer::pinned(2 * kBytes), values(gpu, kBytes),
                 gathered(gpu, kBytes);
    const auto numbers = [](const Buffer& buffer, std::int64_t first) {
      return std::span(reinterpret_cast<float*>(buffer.data()) + first, to_size(kCount));
    };
    const auto collectives = [&] {
      copy_bytes(stream, values.data(), in.data(), kBytes);
      reduce->all_gather(stream, gathered.data(), values.data(), kBytes, "gather");
      reduce->all_reduce(stream, values.data(), values.data(), kCount, GpuElement::f32, "sum");
    };
    const auto round = [&] {
      collectives();
      reduce->join(stream);
      copy_bytes(stream, out.data(), values.data(), kBytes);
      copy_bytes(stream, out.data() + kBytes, gathered.data(), kBytes);
    };
    const auto check = [&](float first, const auto& enqueue) {
      for (float& value : numbers(in, 0)) value = first++;
      enqueue();
      reduce->wait(stream, 0);
      CHECK(std::ranges::equal(numbers(out, 0), numbers(in, 0)));
      CHECK(std::ranges::equal(numbers(out, kCount), numbers(in, 0)));
    };
    check(1, round);
    Graph graph;
    for (const float first : {2.f, 30.f}) {
      REQUIRE(graph.capture(stream, round));
      for (const float more : {0.f, 5.f}) check(first + more, [&] { graph.launch(stream); });
      // The capture ends while NCCL's stream is part of it.
      CHECK_FALSE(graph.capture(stream, [&] {
        collectives();
        throw std::runtime_error("no such sample");
      }));
      reduce->join(stream);
      check(first + 9, round);
    }
  }
}
