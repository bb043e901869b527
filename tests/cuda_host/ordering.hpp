#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/device/ledger.hpp"

/// Checks whether one use of memory happens before another. The work of a stream runs in order. A stream that waits for
/// an event, or a host that waits for a stream or an event, comes after the work before it. Work that the host submits
/// comes after everything that the host has waited for. Two streams that use the same memory must be ordered in this
/// way if one of them writes. For an argument of a kernel, only the first byte is known to be used.
namespace cuda_host {

/// How much of each stream's work is known to have run, by the number of the stream.
using Clock = std::map<int, std::uint64_t>;
void join(Clock& into, const Clock& other);

struct Use {
  const void* begin;
  std::size_t size;
  bool writes;
};
/// Uses of memory by one piece of work, for messages and for the check.
struct Uses {
  const void* kernel = nullptr;  ///< or null, and then
  const char* name = "";
  std::vector<Use> ranges;
  // For the ledger: the shape and the arithmetic of a product, and how much of the ranges is only workspace.
  std::string shape = {};
  double flops = 0;
  lockstep::FlopUnit unit = lockstep::FlopUnit::fp32;
  std::size_t workspace_bytes = 0;
  bool of_graph = false;  ///< the sum of the uses of a graph, which count one by one
};

/// The work that the calling thread knows to have run.
Clock& host_clock();
/// Checks work on a stream, whose clock is `clock`, against the work of other streams, and records it.
///
/// errors   Failure (cudaErrorIllegalState) that names both
void note_uses(int stream, Clock& clock, const Uses& uses);
/// Call it when the host has waited for all work of a stream: its uses can no longer conflict.
void forget_uses(int stream);
/// Call it when memory is freed.
void forget_memory(const void* begin);

}  // namespace cuda_host
