#include "node_reduce.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
constexpr int kDirectRanks = 4;  // up to this number each rank reads all vectors
constexpr std::size_t kDirectBytes =
    2048;  // up to this size, too: reading all vectors costs less than a second synchronisation

template <class T>
void combine(T* __restrict__ into, const T* __restrict__ from, std::size_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
      break;
    case ReduceOp::min:
      for (std::size_t i = 0; i < count; ++i) into[i] = from[i] < into[i] ? from[i] : into[i];
      break;
    case ReduceOp::max:
      for (std::size_t i = 0; i < count; ++i) into[i] = from[i] > into[i] ? from[i] : into[i];
      break;
    case ReduceOp::bit_or:
      if constexpr (std::is_integral_v<T>)
        for (std::size_t i = 0; i < count; ++i) into[i] |= from[i];
      break;
  }
}

template <class T>
constexpr std::uint64_t type_code() {
  return std::is_same_v<T, float> ? 0 : std::is_same_v<T, double> ? 1 : std::is_same_v<T, std::int64_t> ? 2 : 3;
}

constexpr std::uint64_t kGatherKind = 1 << 16, kBarrierKind = 2 << 16;

std::string describe(std::uint64_t kind, std::uint64_t count) {
  if (kind == kBarrierKind) return "barrier";
  if (kind == kGatherKind) return join("all_gather of ", count, " bytes");
  constexpr const char* kOps[] = {"sum", "min", "max", "bit_or"};
  constexpr const char* kTypes[] = {"f32", "f64", "i64", "u64"};
  return join("all_reduce ", kOps[kind >> 8 & 3], " of ", count, " ", kTypes[kind & 3]);
}
}  // namespace

std::size_t NodeReduce::region_bytes(int ranks, std::size_t slot_bytes) {
  const auto n = static_cast<std::size_t>(ranks);
  return n * sizeof(Flags) + 2 * (n + 1) * slot_bytes;
}

NodeReduce::NodeReduce(std::span<std::byte> region, int rank, int ranks, std::size_t slot_bytes)
    : region_(region),
      rank_(rank),
      ranks_(ranks),
      slot_bytes_(slot_bytes),
      flags_(reinterpret_cast<Flags*>(region.data())),
      slots_(region.data() + static_cast<std::size_t>(ranks) * sizeof(Flags)) {
  require(region.size() >= region_bytes(ranks, slot_bytes) && slot_bytes % 64 == 0, "node reduce: ", region.size(),
          " bytes do not hold ", ranks, " slots of ", slot_bytes);
}

std::byte* NodeReduce::slot(int rank) const {
  const std::size_t set = call_ % 2;
  return slots_ + (set * static_cast<std::size_t>(ranks_ + 1) + static_cast<std::size_t>(rank)) * slot_bytes_;
}

std::byte* NodeReduce::result() const { return slot(ranks_); }

template <class Ready>
void NodeReduce::wait(CommContext& context, const Call& call, Ready ready) {
  if (ready()) return;
  Backoff backoff(context);
  while (!ready()) {
    // Keeps MPI moving: other ranks may wait for data that this rank has yet to send.
    if (backoff.pause()) call.progress();
  }
}

void NodeReduce::meet(CommContext& context, std::span<const std::byte> mine, std::uint64_t kind, std::uint64_t count,
                      const Call& call) {
  ++call_;
  const std::size_t set = call_ % 2;
  Flags& flags = flags_[rank_];
  if (!mine.empty()) std::memcpy(slot(rank_), mine.data(), mine.size());
  flags.count[set].store(count, std::memory_order_relaxed);
  flags.kind[set].store(kind, std::memory_order_relaxed);
  flags.arrived.store(call_, std::memory_order_release);
  for (int r = 0; r < ranks_; ++r) {
    wait(context, call, [&] { return flags_[r].arrived.load(std::memory_order_acquire) >= call_; });
    const std::uint64_t their_count = flags_[r].count[set].load(std::memory_order_relaxed);
    const std::uint64_t their_kind = flags_[r].kind[set].load(std::memory_order_relaxed);
    require(their_count == count && their_kind == kind, "collective '", call.what, "': ", call.name_rank(rank_),
            " calls ", describe(kind, count), ", but ", call.name_rank(r), " calls ", describe(their_kind, their_count),
            "; every rank must call the same collectives with the same counts");
  }
}

void NodeReduce::barrier(CommContext& context, const Call& call) { meet(context, {}, kBarrierKind, 0, call); }

void NodeReduce::all_gather(CommContext& context, std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                            std::span<std::byte> into, const Call& call) {
  meet(context, mine, kGatherKind, into.size(), call);
  std::byte* at = into.data();
  for (int r = 0; r < ranks_; ++r) {
    const auto size = static_cast<std::size_t>(sizes[r]);
    if (size > 0) std::memcpy(at, slot(r), size);
    at += size;
  }
}

template <class T>
void NodeReduce::all_reduce(CommContext& context, std::span<T> values, const Call& call) {
  const std::size_t count = values.size(), bytes = values.size_bytes();
  require(bytes <= slot_bytes_, "node reduce: ", bytes, " bytes into slots of ", slot_bytes_);
  const std::uint64_t kind = static_cast<std::uint64_t>(call.op) << 8 | type_code<T>();
  meet(context, std::as_bytes(values), kind, count, call);
  const bool one_node = !call.between_nodes;
  if (one_node && (ranks_ <= kDirectRanks || bytes <= kDirectBytes)) {
    constexpr std::size_t kBlock = 8192 / sizeof(T);  // the sum stays in the L1 cache while the vectors stream through
    for (std::size_t first = 0; first < count; first += kBlock) {
      const std::size_t n = std::min(kBlock, count - first);
      T* into = values.data() + first;
      std::memcpy(into, reinterpret_cast<const T*>(slot(0)) + first, n * sizeof(T));
      for (int r = 1; r < ranks_; ++r) combine(into, reinterpret_cast<const T*>(slot(r)) + first, n, call.op);
    }
    return;
  }

  const auto cut = [&](int r) { return count * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks_); };
  const std::size_t first = cut(rank_), n = cut(rank_ + 1) - first;
  T* sum = reinterpret_cast<T*>(result());
  if (n > 0) {
    std::memcpy(sum + first, reinterpret_cast<const T*>(slot(0)) + first, n * sizeof(T));
    for (int r = 1; r < ranks_; ++r) combine(sum + first, reinterpret_cast<const T*>(slot(r)) + first, n, call.op);
  }
  flags_[rank_].reduced.store(call_, std::memory_order_release);
  if (one_node || rank_ == 0)
    for (int r = 0; r < ranks_; ++r)
      wait(context, call, [&] { return flags_[r].reduced.load(std::memory_order_acquire) >= call_; });
  if (!one_node) {
    if (rank_ == 0) {
      call.between_nodes(result());
      flags_[0].finished.store(call_, std::memory_order_release);
    } else {
      wait(context, call, [&] { return flags_[0].finished.load(std::memory_order_acquire) >= call_; });
    }
  }
  if (bytes > 0) std::memcpy(values.data(), sum, bytes);
}

template void NodeReduce::all_reduce(CommContext&, std::span<float>, const Call&);
template void NodeReduce::all_reduce(CommContext&, std::span<double>, const Call&);
template void NodeReduce::all_reduce(CommContext&, std::span<std::int64_t>, const Call&);
template void NodeReduce::all_reduce(CommContext&, std::span<std::uint64_t>, const Call&);

}  // namespace lockstep
