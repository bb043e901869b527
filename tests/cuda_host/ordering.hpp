#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// Whether one use of memory happens before another: work of one stream runs in order; a stream that waits for an event,
/// and the host that waits for a stream or an event, come after what these stand for; what the host gives to a stream
/// comes after what the host has waited for. Uses of the same memory on two streams, one of them writing, must be so
/// ordered. Of an argument of a kernel only the first byte is known to be used.
namespace cuda_host {

/// How much of each stream's work is known to have run: by the number of the stream.
using Clock = std::map<int, std::uint64_t>;
void join(Clock& into, const Clock& other);

struct Use {
  const void* begin;
  std::size_t size;
  bool writes;
};
/// Work, as messages and the check see it.
struct Uses {
  const void* kernel = nullptr;  ///< or null, and then
  const char* name = "";
  std::vector<Use> ranges;
};

/// What the calling thread knows to have run.
Clock& host_clock();
/// Checks work of a stream, whose clock is `clock`, against what other streams were given, and notes it.
/// errors  Failure (cudaErrorIllegalState) that names both
void note_uses(int stream, Clock& clock, const Uses& uses);
/// The host has waited for all work of a stream: its uses cannot collide any more.
void forget_uses(int stream);
/// Memory that was freed.
void forget_memory(const void* begin);

}  // namespace cuda_host
