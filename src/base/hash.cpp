#include "lockstep/base/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <boost/crc.hpp>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace lockstep {

std::uint64_t hash64(const void* bytes, std::size_t size_bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size_bytes, seed);
}

Hash64::Hash64(std::uint64_t seed)
    : state_(XXH3_createState(), [](void* s) { XXH3_freeState(static_cast<XXH3_state_t*>(s)); }) {
  XXH3_64bits_reset_withSeed(static_cast<XXH3_state_t*>(state_.get()), seed);
}

std::vector<std::byte> Hash64::state() const {
  const auto* bytes = static_cast<const std::byte*>(state_.get());
  return {bytes, bytes + sizeof(XXH3_state_t)};
}

void Hash64::take(std::span<const std::byte> state) {
  auto* mine = static_cast<XXH3_state_t*>(state_.get());
  const unsigned char* secret = mine->extSecret;  // an address of this process, determined by the seed
  std::memcpy(mine, state.data(), sizeof *mine);
  mine->extSecret = secret;
}

void Hash64::add(const void* bytes, std::size_t size_bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes, size_bytes);
}

std::uint64_t Hash64::value() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get())); }

std::string hex64(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

std::uint32_t crc32c(const void* bytes, std::size_t size_bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes, size_bytes);
  return sum.checksum();
}

}  // namespace lockstep
