#include "signature.hpp"

#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/world.hpp"

namespace lockstep {

namespace {

std::string describe(const Signature& s) {
  const std::string in_step = s.step >= 0 ? join(" in step ", s.step) : std::string();
  std::string text = join(s.operation.view());
  if (!s.type.view().empty()) text += join(" of ", s.count, " ", s.type.view());
  return join(text, " '", s.what.view(), "'", in_step, " (its collective ", s.sequence, ")");
}

}  // namespace

const char* operation_name(ReduceOp op) {
  constexpr const char* kByOp[] = {"all_reduce sum", "all_reduce min", "all_reduce max", "all_reduce bit_or"};
  return kByOp[static_cast<std::size_t>(op)];
}

Signature make_signature(std::uint64_t sequence, std::int64_t step, std::string_view operation, std::uint64_t count,
                         std::string_view type, std::string_view what) {
  Signature s{.sequence = sequence, .step = step, .count = count, .operation = {}, .type = {}, .what = {}};
  s.operation.set(operation);
  s.type.set(type);
  s.what.set(what);
  return s;
}

void require_same_collective(std::span<const Signature> all, int rank,
                             const std::function<std::string(int)>& name_rank) {
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (std::memcmp(&all[0], &all[r], sizeof(Signature)) == 0) continue;
    const std::string message =
        join("the ranks' collectives do not match: ", name_rank(0), " calls ", describe(all[0]), ", but ",
             name_rank(static_cast<int>(r)), " calls ", describe(all[r]),
             "; every rank must call the same collectives, in the same order, with the same counts");
    if (rank == 0) log::error(message);
    throw CollectiveError(Fault::internal, message);
  }
}

}  // namespace lockstep
