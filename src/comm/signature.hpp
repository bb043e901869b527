#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/comm/communicator.hpp"
#include "status.hpp"

namespace lockstep {

/// "all_reduce sum".
const char* operation_name(ReduceOp op);
/// The name of the elements of a reduction in messages: "f32".
template <class T>
const char* element_name() {
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, double>) return "f64";
  return std::is_signed_v<T> ? "i64" : "u64";
}

Signature make_signature(std::uint64_t sequence, std::int64_t step, std::string_view operation, std::uint64_t count,
                         std::string_view type, std::string_view what);

/// Requires that all ranks make the same call; `all` holds the calls by rank.
/// errors   CollectiveError (internal) with rank 0's call and the first different one; rank 0 prints it
void require_same_collective(std::span<const Signature> all, int rank,
                             const std::function<std::string(int)>& name_rank);

}  // namespace lockstep
