#include "lockstep/device/graph.hpp"

#include <stdexcept>

#include "lockstep/device/event.hpp"
#include "support/test.hpp"

namespace {

const Device kGpu{DeviceKind::cuda, 0};

/// Copies a number from pinned memory to the GPU and back.
struct Echo {
  Buffer in = Buffer::pinned(sizeof(int)), on_gpu{kGpu, sizeof(int)}, out = Buffer::pinned(sizeof(int));
  void enqueue(const Stream& stream) const {
    copy_bytes(stream, on_gpu.data(), in.data(), sizeof(int));
    copy_bytes(stream, out.data(), on_gpu.data(), sizeof(int));
  }
  void write(int value) const { std::memcpy(in.data(), &value, sizeof value); }
  int read(const Stream& stream) const {
    stream.synchronize();
    int value;
    std::memcpy(&value, out.data(), sizeof value);
    return value;
  }
};

}  // namespace

TEST_SUITE("device.graph") {
  TEST_CASE("the CPU has no graphs") {
    Graph graph;
    CHECK_FALSE(graph.ready());
    CHECK_THROWS_WITH_AS(graph.capture(Stream(), [] {}), doctest::Contains("only GPUs"), Error);
  }
}

TEST_SUITE("device.graph.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("captured work runs at each launch and then reads host memory") {
    const Stream stream(kGpu);
    const Echo echo;
    Graph graph;
    echo.write(3);
    REQUIRE(graph.capture(stream, [&] { echo.enqueue(stream); }));
    CHECK(echo.read(stream) == 0);
    for (const int value : {5, 7}) {
      echo.write(value);
      graph.launch(stream);
      CHECK(echo.read(stream) == value);
    }
  }

  TEST_CASE("another capture of the same or other work replaces the graph") {
    const Stream stream(kGpu);
    const Echo a, b;
    Graph graph;
    a.write(1);
    b.write(2);
    REQUIRE(graph.capture(stream, [&] { a.enqueue(stream); }));
    REQUIRE(graph.capture(stream, [&] { b.enqueue(stream); }));
    graph.launch(stream);
    CHECK(a.read(stream) == 0);
    CHECK(b.read(stream) == 2);
    REQUIRE(graph.capture(stream, [&] {
      a.enqueue(stream);
      b.enqueue(stream);
      zero_bytes(stream, b.on_gpu.data(), 4);
    }));
    b.write(4);
    graph.launch(stream);
    CHECK(a.read(stream) == 1);
    CHECK(b.read(stream) == 4);
  }

  TEST_CASE("a failed capture leaves no graph and a usable stream") {
    const Stream stream(kGpu);
    const Echo echo;
    Graph graph;
    CHECK_FALSE(graph.capture(stream, [&] {
      echo.enqueue(stream);
      stream.synchronize();
    }));
    CHECK(graph.why().find("waiting for the GPU") == 0);
    CHECK_FALSE(graph.capture(stream, [&] { const Buffer more(kGpu, 64); }));
    CHECK_FALSE(graph.capture(stream, [] { throw std::runtime_error("no such sample"); }));
    CHECK(graph.why() == "no such sample");
    CHECK_FALSE(graph.ready());
    CHECK_THROWS_AS(graph.launch(stream), Error);
    echo.write(6);
    echo.enqueue(stream);
    CHECK(echo.read(stream) == 6);
    REQUIRE(graph.capture(stream, [&] { echo.enqueue(stream); }));
    graph.launch(stream);
    CHECK(echo.read(stream) == 6);
  }

  TEST_CASE("a graph stays ready while memory that it does not use comes and goes") {
    const Stream stream(kGpu);
    const Echo echo;
    Graph graph;
    {
      const Buffer other(kGpu, 64);
      REQUIRE(graph.capture(stream, [&] { echo.enqueue(stream); }));
    }
    CHECK(graph.ready());
  }

  TEST_CASE("an event has passed when the work before it has run") {
    const Stream stream(kGpu);
    const Echo echo;
    const Event event(kGpu);
    echo.write(8);
    echo.enqueue(stream);
    event.record(stream);
    event.wait();
    CHECK(event.passed());
    int value = 0;
    std::memcpy(&value, echo.out.data(), sizeof value);
    CHECK(value == 8);
  }
}

TEST_SUITE("device.arena.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("reset() switches between two pinned buffers and reuses GPU memory at once") {
    Arena arena(kGpu);
    void *on_gpu[4], *pinned[4];
    for (int step = 0; step < 4; ++step) {
      on_gpu[step] = arena.allocate(1000);
      pinned[step] = arena.host().allocate(1000);
      arena.reset();
    }
    CHECK(on_gpu[0] == on_gpu[1]);
    CHECK(pinned[0] != pinned[1]);
    CHECK(pinned[0] == pinned[2]);
    CHECK(pinned[1] == pinned[3]);
  }

  TEST_CASE("both pinned buffers grow to the larger need") {
    Arena arena(kGpu, 64);
    for (int i = 0; i < 3; ++i) arena.host().allocate(1000);
    arena.reset();
    const auto* first = static_cast<std::byte*>(arena.host().allocate(1000));
    CHECK(static_cast<std::byte*>(arena.host().allocate(1000)) == first + 1024);
    CHECK(static_cast<std::byte*>(arena.host().allocate(1000)) == first + 2048);
  }

  TEST_CASE("GPU memory can be released while pinned memory stays") {
    Arena arena(kGpu);
    const Arena::Mark begin = arena.mark();
    void* const on_gpu = arena.allocate(100);
    void* const pinned = arena.host().allocate(100);
    arena.rewind(begin);
    CHECK(arena.allocate(100) == on_gpu);
    CHECK(arena.host().allocate(100) != pinned);
    const void* in_scope = nullptr;
    {
      const ArenaScope scope(arena);
      in_scope = arena.host().allocate(100);
    }
    CHECK(arena.host().allocate(100) != in_scope);  // a kernel may not have read it yet
  }
}
