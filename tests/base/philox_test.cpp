#include "lockstep/base/philox.hpp"

#include <Random123/philox.h>

#include "support/test.hpp"

namespace {
std::array<std::uint32_t, 4> oracle(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  const r123::Philox4x32 philox;
  const auto out = philox({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {out[0], out[1], out[2], out[3]};
}
/// A generator with this counter (index / 4, site, sample, step) and this key (the seed).
Philox philox_of(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  return {key[0] | static_cast<std::uint64_t>(key[1]) << 32, counter[3], Site(counter[1]), counter[2]};
}
}  // namespace

TEST_SUITE("base.philox") {
  TEST_CASE("blocks equal the known answers of Philox4x32-10") {
    // kat_vectors of Random123
    CHECK(philox_of({0, 0, 0, 0}, {0, 0}).block(0) ==
          std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t kAll = 0xffffffff;
    CHECK(philox_of({kAll, kAll, kAll, kAll}, {kAll, kAll}).block(kAll) ==
          std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox_of({0, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}).block(0x243f6a88) ==
          std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  TEST_CASE("blocks agree with the authors' implementation at ordinary and at extreme arguments") {
    const std::vector<std::uint32_t> words = {0, 1, 2, 77, 0x7fffffff, 0x80000000, 0xffffffff, 0x9e3779b9};
    for (const std::uint32_t index : words)
      for (const std::uint32_t site : words)
        for (const std::uint32_t sample : words)
          for (const std::uint32_t key : words) {
            const std::uint32_t step = index ^ sample, high = key * 3;
            REQUIRE(philox_of({0, site, sample, step}, {key, high}).block(index) ==
                    oracle({index, site, sample, step}, {key, high}));
          }
  }

  TEST_CASE("every argument changes the draws, including its upper half") {
    const auto draw = [](std::uint64_t seed, std::uint64_t step, Site site, std::uint64_t sample, std::uint64_t index) {
      return Philox(seed, step, site, sample).bits64(index);
    };
    const std::uint64_t base = draw(1, 2, "site", 3, 4);
    constexpr std::uint64_t kHigh = std::uint64_t{1} << 40;
    for (const std::uint64_t other :
         {draw(2, 2, "site", 3, 4), draw(1 + kHigh, 2, "site", 3, 4), draw(1, 3, "site", 3, 4),
          draw(1, 2 + kHigh, "site", 3, 4), draw(1, 2, "sitf", 3, 4), draw(1, 2, "site", 4, 4),
          draw(1, 2, "site", 3 + kHigh, 4), draw(1, 2, "site", 3, 5), draw(1, 2, "site", 3, 4 + kHigh)})
      CHECK(other != base);
    CHECK(draw(1, 2, "site", 3, 4) == base);
  }

  TEST_CASE("words, uniforms, integers and normals use the draws at their documented indices") {
    const Philox p(42, 7, "test", 9);
    const auto block = p.block(5);
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(p.bits(20 + i) == block[i]);
    CHECK(p.bits64(11) == (block[2] | static_cast<std::uint64_t>(block[3]) << 32));
    CHECK(p.uniform(11) == static_cast<double>(p.bits64(11) >> 11) / 9007199254740992.0);
    CHECK(p.below(10, 11) == static_cast<std::uint64_t>((static_cast<uint128>(p.bits64(11)) * 10) >> 64));
    CHECK(p.below(1, 3) == 0);
    CHECK(p.normal(3) == std::sqrt(-2 * std::log1p(-p.uniform(6))) * std::cos(2 * std::acos(-1.0) * p.uniform(7)));
  }

  TEST_CASE("uniforms fill [0, 1) evenly, integers take every value, normals have the right moments") {
    const Philox p(3, 1, "moments");
    constexpr int kDraws = 40000;
    double mean = 0, square = 0, normal = 0, normal2 = 0, normal4 = 0;
    std::array<int, 7> hits{};
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double u = p.uniform(i), z = p.normal(i);
      REQUIRE(u >= 0);
      REQUIRE(u < 1);
      mean += u;
      square += u * u;
      normal += z;
      normal2 += z * z;
      normal4 += z * z * z * z;
      ++hits[p.below(7, i)];
    }
    CHECK(mean / kDraws == Approx(0.5).epsilon(0.01));
    CHECK(square / kDraws == Approx(1.0 / 3).epsilon(0.02));
    CHECK(std::abs(normal / kDraws) < 0.02);
    CHECK(normal2 / kDraws == Approx(1).epsilon(0.03));
    CHECK(normal4 / kDraws == Approx(3).epsilon(0.08));
    for (const int n : hits) CHECK(std::abs(n - kDraws / 7) < 400);
  }

  TEST_CASE("a site is the FNV-1a hash of its name, known at compile time") {
    static_assert(Site("").id == 2166136261u);
    static_assert(Site("a").id == 0xe40c292cu);
    static_assert(Site("foobar").id == 0xbf9cf968u);
    static_assert(Philox(1, 2, "x").bits(0) != Philox(1, 2, "y").bits(0));
    CHECK(Site(std::string_view("foobar")).id == Site(0xbf9cf968u).id);
  }
}
