#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "status.hpp"

namespace lockstep {

/// What a rank is about to do, as the others see it. Compared byte by byte, texts as their first characters.
struct Signature {
  std::uint64_t sequence;
  std::int64_t step;
  std::uint64_t count;
  Text<24> operation;
  Text<8> type;
  Text<64> what;
};

Signature make_signature(std::uint64_t sequence, std::int64_t step, const char* operation, std::uint64_t count,
                         const char* type, const char* what);

/// What all ranks are about to do, by rank, must be the same.
/// errors  Departure (internal) naming rank 0's collective and the first other one; rank 0 prints it
void require_same_collective(std::span<const Signature> all, int rank,
                             const std::function<std::string(int)>& name_rank);

}  // namespace lockstep
