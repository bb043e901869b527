#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "status.hpp"

namespace lockstep {

/// The identity of a collective call, compared byte by byte; texts are truncated.
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

/// Requires that all ranks make the same call; `all` holds the calls by rank.
/// errors   CollectiveError (internal) with rank 0's call and the first different one; rank 0 prints it
void require_same_collective(std::span<const Signature> all, int rank,
                             const std::function<std::string(int)>& name_rank);

}  // namespace lockstep
