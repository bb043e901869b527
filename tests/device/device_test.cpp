#include "lockstep/device/device.hpp"

#include <sys/resource.h>

#include "cuda_host/sanitizer.hpp"
#include "lockstep/device/cuda_types.hpp"
#include "support/test.hpp"

namespace {
bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % Buffer::kAlignment == 0; }
}  // namespace

TEST_SUITE("device.types") {
  TEST_CASE("a type that the program was built without is an error that says how to build it") {
    CHECK(cuda_types() == "fp32,fp64,bf16,fp16");
    for (const char* type : {"f32", "f64", "bf16", "f16"}) require_cuda_type(type);
    require_cuda_type("bf16", "fp32,bf16");
    check_mentions(error_of(Fault::usage, [] { require_cuda_type("f16", "fp32,bf16"); }), "built without fp16",
                   "-DLOCKSTEP_CUDA_TYPES=fp32,bf16,fp16");
    check_mentions(error_of(Fault::usage, [] { require_cuda_type("f64", "fp32"); }), "built without fp64");
  }
}

TEST_SUITE("device.buffer") {
  TEST_CASE("memory is aligned, zero and of the requested size, and survives a move") {
    for (const std::size_t size : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{100003}}) {
      Buffer a({}, size);
      CHECK(aligned(a.data()));
      CHECK(a.size_bytes() == size);
      for (std::size_t i = 0; i < size; ++i) REQUIRE(a.data()[i] == std::byte{0});
      a.data()[size - 1] = std::byte{7};
      std::byte* where = a.data();
      const Buffer b = std::move(a);
      CHECK(b.data() == where);
      CHECK(b.data()[size - 1] == std::byte{7});
    }
    CHECK(Buffer({}, 0).size_bytes() == 0);
    CHECK(Buffer().data() == nullptr);
  }

  TEST_CASE("an impossible allocation is an error that names the size" * doctest::skip(cuda_host::kAddressSanitizer)) {
    check_mentions(error_of(Fault::internal, [] { Buffer(Device{}, std::size_t{1} << 60); }), "1024.0 PiB");
  }

  TEST_CASE("an allocation beyond ulimit -v names its purpose and the limit" *
            doctest::skip(cuda_host::kAddressSanitizer)) {
    const auto says = [](MemoryUse use, const char* purpose, const char* advice) {
      rlimit old{};
      REQUIRE(::getrlimit(RLIMIT_AS, &old) == 0);
      const rlimit tight = {std::size_t{1} << 30, old.rlim_max};
      REQUIRE(::setrlimit(RLIMIT_AS, &tight) == 0);
      const std::string text = error_of(Fault::usage, [&] { Buffer(Device{}, std::size_t{1} << 30, use); });
      ::setrlimit(RLIMIT_AS, &old);
      CHECK(text == join("allocating 1.0 GiB of host memory for ", purpose,
                         ": out of memory, ulimit -v allows 1.0 GiB in all; ", advice));
    };
    says(MemoryUse::data, "the data set", "choose a smaller data set");
    says(MemoryUse::activations, "activations", "use a smaller batch or fewer ranks per node");
    says(MemoryUse::optimizer, "optimizer", "lower the sizes of the network, or use fewer ranks per node");
  }

  TEST_CASE("using a GPU in a build without CUDA fails with advice") {
    CHECK_THROWS_WITH_AS(Buffer(Device{DeviceKind::cuda, 1}, 1024),
                         "allocating 1.0 KiB on cuda:1: this build has no CUDA; use --device cpu", Error);
  }
}

TEST_SUITE("device.arena") {
  TEST_CASE("allocations are aligned and disjoint, and keep their contents while the arena grows") {
    Arena arena(Device{}, 128);
    std::vector<std::pair<unsigned char*, std::size_t>> pieces;
    for (std::size_t i = 0; i < 200; ++i) {
      const std::size_t size = (i * 37) % 301;
      auto* p = static_cast<unsigned char*>(arena.allocate(size));
      CHECK(aligned(p));
      std::memset(p, static_cast<int>(i), size);
      pieces.emplace_back(p, size);
    }
    std::set<void*> distinct;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      CHECK(distinct.insert(pieces[i].first).second);  // an empty piece also has its own address
      for (std::size_t j = 0; j < pieces[i].second; ++j) REQUIRE(pieces[i].first[j] == static_cast<unsigned char>(i));
    }
  }

  TEST_CASE("after its largest step an arena holds one block: addresses repeat and stay in order") {
    Arena arena(Device{}, 64);
    std::vector<void*> before;
    for (int step = 0; step < 4; ++step) {
      std::vector<void*> now;
      for (const std::size_t size : {1000, 10, 5000, 64, 0, 300}) now.push_back(arena.allocate(size));
      if (step >= 2) CHECK(now == before);
      if (step >= 1)
        for (std::size_t i = 1; i < now.size(); ++i) CHECK(now[i] > now[i - 1]);
      before = now;
      arena.reset();
    }
  }

  TEST_CASE("a scope releases its allocations at its end, even if the arena grew") {
    Arena arena(Device{}, 64);
    for (int step = 0; step < 3; ++step) {
      auto* kept = static_cast<unsigned char*>(arena.allocate(32));
      std::memset(kept, 7, 32);
      void* inside = nullptr;
      for (int i = 0; i < 3; ++i) {
        const ArenaScope scope(arena);
        void* now = arena.allocate(1000);
        std::memset(now, 1, 1000);
        arena.allocate(5000);
        if (i > 0) CHECK(now == inside);
        inside = now;
      }
      void* after = arena.allocate(2000);
      std::memset(after, 2, 2000);
      CHECK(kept[31] == 7);
      CHECK(arena.high_water_bytes() == 64 + 1024 + 5056);
      arena.reset();
    }
  }

  TEST_CASE("the high-water mark is the largest memory in use at once, rounded up to the alignment") {
    Arena arena(Device{}, 64);
    arena.allocate(1);
    CHECK(arena.high_water_bytes() == 64);
    arena.allocate(65);
    CHECK(arena.high_water_bytes() == 192);
    arena.reset();
    arena.allocate(100);
    CHECK(arena.high_water_bytes() == 192);
    arena.allocate(100);
    CHECK(arena.high_water_bytes() == 256);
  }
}
