#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

// Barriers, warp primitives, atomics and bit operations of device code. Calls to the first two record their source
// line: threads that meet in one operation must be at the same line.

namespace cuda_host {

using Place = std::source_location;

/// Operations of all lanes of a warp.
enum class WarpOp : std::uint8_t { sync, shuffle, ballot, matrix };

/// Waits until every thread of the block has arrived.
void block_barrier(Place place);
/// Waits as block_barrier, and returns the number of threads whose predicate holds.
int block_count(bool predicate, Place place);
/// Waits until every lane of the mask has arrived, each with its bits. Returns the bits of all lanes, valid until the
/// caller's next warp operation.
const std::uint64_t* warp_exchange(WarpOp op, unsigned mask, std::uint64_t bits, Place place);
/// Ends the kernel with a fault: a shuffle reads from a lane that its mask excludes.
[[noreturn]] void shuffle_from_outside(unsigned mask, int source, Place place);
/// The calling thread has waited for the earlier work of its stream.
void wait_for_earlier_work();
/// The next kernel may start when all blocks have called this.
void let_next_start();
/// The lane of the calling thread in its warp.
inline int lane() { return thread_number % 32; }

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The value of lane `source` in the caller's group of `width` lanes, or the caller's own value if there is no such
/// lane.
template <class T>
T shuffle(unsigned mask, T value, int source, bool in_range, Place place) {
  const std::uint64_t* given = warp_exchange(WarpOp::shuffle, mask, to_bits(value), place);
  if (!in_range) return value;
  if (source < 0 || source >= 32 || !(mask >> source & 1)) shuffle_from_outside(mask, source, place);
  return from_bits<T>(given[source]);
}

}  // namespace cuda_host

inline void __syncthreads(cuda_host::Place place = cuda_host::Place::current()) { cuda_host::block_barrier(place); }
inline int __syncthreads_or(int predicate, cuda_host::Place place = cuda_host::Place::current()) {
  return cuda_host::block_count(predicate != 0, place) != 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, cuda_host::Place place = cuda_host::Place::current()) {
  cuda_host::warp_exchange(cuda_host::WarpOp::sync, mask, 0, place);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              cuda_host::Place place = cuda_host::Place::current()) {
  const int first = cuda_host::lane() & ~(width - 1);
  return cuda_host::shuffle(mask, value, first + (source & (width - 1)), true, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  cuda_host::Place place = cuda_host::Place::current()) {
  const int own = cuda_host::lane(), source = own ^ lane_mask;
  return cuda_host::shuffle(mask, value, source, source < (own & ~(width - 1)) + width, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 cuda_host::Place place = cuda_host::Place::current()) {
  const int own = cuda_host::lane(), source = own - static_cast<int>(delta);
  return cuda_host::shuffle(mask, value, source, source >= (own & ~(width - 1)), place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_host::Place place = cuda_host::Place::current()) {
  const std::uint64_t* given = cuda_host::warp_exchange(cuda_host::WarpOp::ballot, mask, predicate != 0, place);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) result |= static_cast<unsigned>(given[i]) << i;
  return result;
}
inline int __any_sync(unsigned mask, int predicate, cuda_host::Place place = cuda_host::Place::current()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline void cudaGridDependencySynchronize() { cuda_host::wait_for_earlier_work(); }
inline void cudaTriggerProgrammaticLaunchCompletion() { cuda_host::let_next_start(); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Atomics on integers only. Floating-point sums in order of arrival would differ from run to run.
namespace cuda_host {
template <class T>
concept AtomicInteger = std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <class T, class Op>
T atomic_update(T* address, Op op) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, op(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace cuda_host
template <cuda_host::AtomicInteger T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
requires cuda_host::AtomicInteger<T> || std::is_same_v<T, long long> T atomicMax(T* address,
                                                                                 std::type_identity_t<T> value) {
  return cuda_host::atomic_update(address, [=](T old) { return old < value ? value : old; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return cuda_host::atomic_update(address, [=](unsigned old) { return old >= limit ? 0 : old + 1; });
}

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
