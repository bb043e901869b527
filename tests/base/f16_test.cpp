#include "lockstep/base/f16.hpp"

#include "support/test.hpp"

TEST_SUITE("base.f16") {
  TEST_CASE("every f16 value survives conversion to f32 and back") {
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
      const float value = from_f16(static_cast<std::uint16_t>(bits));
      if (std::isnan(value))
        CHECK(std::isnan(from_f16(to_f16(value))));
      else
        CHECK(to_f16(value) == bits);
    }
  }

  TEST_CASE("values round to the nearest f16, ties to even") {
    for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {
      const float low = from_f16(static_cast<std::uint16_t>(bits)),
                  high = from_f16(static_cast<std::uint16_t>(bits + 1));
      const float middle = (low + high) / 2;
      CHECK(to_f16(middle) == bits + (bits & 1u));
      CHECK(to_f16(std::nextafter(middle, low)) == bits);
      CHECK(to_f16(std::nextafter(middle, high)) == bits + 1);
      CHECK(to_f16(-middle) == (0x8000u | (bits + (bits & 1u))));
    }
  }

  TEST_CASE("values above the largest f16 become infinite") {
    CHECK(from_f16(to_f16(65519.0F)) == 65504.0F);
    CHECK(from_f16(to_f16(65520.0F)) == std::numeric_limits<float>::infinity());
    CHECK(from_f16(to_f16(-1e30F)) == -std::numeric_limits<float>::infinity());
  }
}
