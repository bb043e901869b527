#pragma once
#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/// Notifications for AddressSanitizer. Empty without it.
namespace cuda_host {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddressSanitizer = true;
inline void poison(const void* memory, std::size_t size) { __asan_poison_memory_region(memory, size); }
inline void unpoison(const void* memory, std::size_t size) { __asan_unpoison_memory_region(memory, size); }
/// Call before and after a jump to another stack. `kept` belongs to the context that is left.
inline void leave_stack(void** kept, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(kept, bottom, size);
}
inline void enter_stack(void* kept, const void** old_bottom, std::size_t* old_size) {
  __sanitizer_finish_switch_fiber(kept, old_bottom, old_size);
}
#else
inline constexpr bool kAddressSanitizer = false;
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
inline void leave_stack(void**, const void*, std::size_t) {}
inline void enter_stack(void*, const void**, std::size_t*) {}
#endif

}  // namespace cuda_host
