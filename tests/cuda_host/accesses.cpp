#include <cstddef>
#include <cstdint>

#include "block_runner.hpp"
#include "error.hpp"
#include "ledger.hpp"
#include "memory.hpp"
#include "symbols.hpp"
#include "watch.hpp"

// The functions that -fsanitize=thread calls: before each load and store, and instead of atomic operations.

namespace {

using namespace cuda_host;

[[gnu::noinline, gnu::cold]] void examine(const void* address, std::size_t size, bool writes, const void* caller) {
  if ((watched & kMustWait) != 0 && in_own_range(address))
    fault(cudaErrorLaunchFailure, text(writes ? "writes " : "reads ", describe_address(address), at(caller),
                                       ", before it has waited for the earlier work of its stream"));
  if ((watched & kCounts) != 0) count_access(address, size, writes);
}

[[gnu::always_inline]] inline void access(const void* address, std::size_t size, bool writes) {
  if (watched != 0) [[unlikely]]
    examine(address, size, writes, __builtin_return_address(0));
}

}  // namespace

#define ACCESS(size)                                                            \
  void __tsan_read##size(const void* address) { access(address, size, false); } \
  void __tsan_write##size(const void* address) { access(address, size, true); } \
  void __tsan_unaligned_read##size(const void* a) { access(a, size, false); }   \
  void __tsan_unaligned_write##size(const void* a) { access(a, size, true); }

#define UPDATE(bits, T, name, builtin)                                \
  T __tsan_atomic##bits##_##name(volatile T* address, T value, int) { \
    const void* at = const_cast<const T*>(address);                   \
    access(at, sizeof(T), false);                                     \
    access(at, sizeof(T), true);                                      \
    return builtin(address, value, __ATOMIC_SEQ_CST);                 \
  }
#define ATOMICS(bits, T)                                                                                \
  T __tsan_atomic##bits##_load(const volatile T* address, int) {                                        \
    access(const_cast<const T*>(address), sizeof(T), false);                                            \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                     \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int) {                                 \
    access(const_cast<const T*>(address), sizeof(T), true);                                             \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                     \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* address, T* old, T value, int, int) {  \
    access(const_cast<const T*>(address), sizeof(T), false);                                            \
    access(const_cast<const T*>(address), sizeof(T), true);                                             \
    return __atomic_compare_exchange_n(address, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                     \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* address, T* old, T value, int, int) {    \
    return __tsan_atomic##bits##_compare_exchange_strong(address, old, value, 0, 0);                    \
  }                                                                                                     \
  UPDATE(bits, T, exchange, __atomic_exchange_n)                                                        \
  UPDATE(bits, T, fetch_add, __atomic_fetch_add)                                                        \
  UPDATE(bits, T, fetch_sub, __atomic_fetch_sub)                                                        \
  UPDATE(bits, T, fetch_and, __atomic_fetch_and)                                                        \
  UPDATE(bits, T, fetch_or, __atomic_fetch_or)                                                          \
  UPDATE(bits, T, fetch_xor, __atomic_fetch_xor)

extern "C" {

void __tsan_init() {}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void*, void*) {}
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(const void* address, std::size_t size) { access(address, size, false); }
void __tsan_write_range(const void* address, std::size_t size) { access(address, size, true); }
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)

}  // extern "C"
