#include "lockstep/base/hash.hpp"

#include "support/test.hpp"

TEST_SUITE("base.hash") {
  TEST_CASE("crc32c has its catalogue check value and the values of RFC 3720") {
    CHECK(crc32c("123456789", 9) == 0xe3069283u);
    CHECK(crc32c("", 0) == 0);
    std::vector<unsigned char> bytes(32, 0);
    CHECK(crc32c(bytes.data(), 32) == 0x8a9136aau);
    bytes.assign(32, 0xff);
    CHECK(crc32c(bytes.data(), 32) == 0x62a8ab43u);
    for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(i);
    CHECK(crc32c(bytes.data(), 32) == 0x46dd794eu);
  }

  TEST_CASE("hash64 is XXH3 and depends on every byte, the length and the seed") {
    CHECK(hash64("") == 0x2d06800538d394c2ull);  // XXH3_64bits of nothing
    const std::string text(300, 'x');
    for (const std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{150}, std::size_t{299}}) {
      std::string changed = text;
      changed[at] = 'y';
      CHECK(hash64(changed) != hash64(text));
    }
    CHECK(hash64(text.substr(1)) != hash64(text));
    CHECK(hash64(text.data(), text.size(), 1) != hash64(text));
    CHECK(hash64(text.data(), text.size()) == hash64(text));
  }

  TEST_CASE("bytes hashed piece by piece have the hash of the whole, wherever they are cut") {
    CHECK(Hash64().value() == hash64(""));
    std::string text;
    for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7 % 251);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{256}, std::size_t{2999}}) {
      Hash64 hash;
      for (std::size_t at = 0; at < text.size(); at += piece)
        hash.add(text.data() + at, std::min(piece, text.size() - at));
      CHECK(hash.value() == hash64(text));
    }
  }

  TEST_CASE("a hash goes on in another object from its state, with any seed") {
    const std::string text(1000, 'x');
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{5}})
      for (const std::size_t cut : {std::size_t{0}, std::size_t{100}, std::size_t{700}}) {
        Hash64 first(seed), second(seed);
        first.add(text.data(), cut);
        second.take(first.state());
        second.add(text.data() + cut, text.size() - cut);
        CHECK(second.value() == hash64(text, seed));
      }
  }

  TEST_CASE("hexadecimal digits are lower-case and always sixteen") {
    CHECK(hex64(0) == "0000000000000000");
    CHECK(hex64(0xABCDEF) == "0000000000abcdef");
    CHECK(hex64(~0ull) == "ffffffffffffffff");
  }
}
