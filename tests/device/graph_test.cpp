#include "lockstep/device/graph.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.hpp"

using namespace lockstep;

namespace {

const Device kGpu{DeviceKind::cuda, 0};

/// A number that travels from pinned memory to the GPU and back.
struct Echo {
  Buffer in = Buffer::pinned(sizeof(int)), there{kGpu, sizeof(int)}, out = Buffer::pinned(sizeof(int));
  void give(const Stream& stream) const {
    copy_bytes(stream, there.data(), in.data(), sizeof(int));
    copy_bytes(stream, out.data(), there.data(), sizeof(int));
  }
  void say(int value) const { std::memcpy(in.data(), &value, sizeof value); }
  int heard(const Stream& stream) const {
    stream.synchronize();
    int value;
    std::memcpy(&value, out.data(), sizeof value);
    return value;
  }
};

}  // namespace

TEST_SUITE("device.graph") {
  TEST_CASE("the processor has no graphs") {
    Graph graph;
    CHECK_FALSE(graph.ready());
    CHECK_THROWS_WITH_AS(graph.capture(Stream(), [] {}), doctest::Contains("only GPUs"), Error);
  }
}

TEST_SUITE("device.graph.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("what was captured runs at each launch, not before, and reads host memory as it is then") {
    const Stream stream(kGpu);
    const Echo echo;
    Graph graph;
    echo.say(3);
    REQUIRE(graph.capture(stream, [&] { echo.give(stream); }));
    CHECK(echo.heard(stream) == 0);
    for (const int value : {5, 7}) {
      echo.say(value);
      graph.launch(stream);
      CHECK(echo.heard(stream) == value);
    }
  }

  TEST_CASE("another capture replaces what was kept, the same work or other") {
    const Stream stream(kGpu);
    const Echo a, b;
    Graph graph;
    a.say(1), b.say(2);
    REQUIRE(graph.capture(stream, [&] { a.give(stream); }));
    REQUIRE(graph.capture(stream, [&] { b.give(stream); }));
    graph.launch(stream);
    CHECK(a.heard(stream) == 0);
    CHECK(b.heard(stream) == 2);
    REQUIRE(graph.capture(stream, [&] { a.give(stream), b.give(stream), zero_bytes(stream, b.there.data(), 4); }));
    b.say(4);
    graph.launch(stream);
    CHECK(a.heard(stream) == 1);
    CHECK(b.heard(stream) == 4);
  }

  TEST_CASE("what has no place in a graph leaves none, and the stream as it was") {
    const Stream stream(kGpu);
    const Echo echo;
    Graph graph;
    CHECK_FALSE(graph.capture(stream, [&] { echo.give(stream), stream.synchronize(); }));
    CHECK(graph.why().find("waiting for the GPU") == 0);
    CHECK_FALSE(graph.capture(stream, [&] { const Buffer more(kGpu, 64); }));
    CHECK_FALSE(graph.capture(stream, [] { throw std::runtime_error("no such sample"); }));
    CHECK(graph.why() == "no such sample");
    CHECK_FALSE(graph.ready());
    CHECK_THROWS_AS(graph.launch(stream), Error);
    echo.say(6);
    echo.give(stream);
    CHECK(echo.heard(stream) == 6);
    REQUIRE(graph.capture(stream, [&] { echo.give(stream); }));
    graph.launch(stream);
    CHECK(echo.heard(stream) == 6);
  }

  TEST_CASE("a graph is not ready any more once memory that it may know has been freed") {
    const Stream stream(kGpu);
    const Echo echo;
    Graph graph;
    {
      const Buffer other(kGpu, 64);
      REQUIRE(graph.capture(stream, [&] { echo.give(stream); }));
      CHECK(graph.ready());
    }
    CHECK_FALSE(graph.ready());
    REQUIRE(graph.capture(stream, [&] { echo.give(stream); }));
    CHECK(graph.ready());
    graph.clear();
    CHECK_FALSE(graph.ready());
  }
}

TEST_SUITE("device.arena.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("pinned memory takes turns from reset to reset, the GPU's own is used again at once") {
    Arena arena(kGpu);
    void *there[4], *pinned[4];
    for (int step = 0; step < 4; ++step) {
      there[step] = arena.allocate(1000), pinned[step] = arena.host().allocate(1000);
      arena.reset();
    }
    CHECK(there[0] == there[1]);
    CHECK(pinned[0] != pinned[1]);
    CHECK(pinned[0] == pinned[2]);
    CHECK(pinned[1] == pinned[3]);
  }

  TEST_CASE("room that one of the two has needed the other one has, too") {
    Arena arena(kGpu, 64);
    for (int i = 0; i < 3; ++i) arena.host().allocate(1000);
    arena.reset();
    const auto* first = static_cast<std::byte*>(arena.host().allocate(1000));
    CHECK(static_cast<std::byte*>(arena.host().allocate(1000)) == first + 1024);
    CHECK(static_cast<std::byte*>(arena.host().allocate(1000)) == first + 2048);
  }

  TEST_CASE("what the GPU needs no more can be given back while the host keeps its part") {
    Arena arena(kGpu);
    const Arena::Mark begin = arena.mark();
    void* const there = arena.allocate(100);
    void* const pinned = arena.host().allocate(100);
    arena.rewind_device(begin);
    CHECK(arena.allocate(100) == there);
    CHECK(arena.host().allocate(100) != pinned);
  }
}
