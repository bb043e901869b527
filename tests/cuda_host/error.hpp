#pragma once
#include <sstream>
#include <string>

#include "cuda_runtime.h"

/// Failures inside the stand-in: a status code for the caller, and a message that cudaGetErrorString returns until the
/// calling thread's next failure.
namespace cuda_host {

/// A failure that propagates to the caller of a runtime function.
struct Failure {
  cudaError_t error;
  std::string message;
};

std::string text(const auto&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws Failure unless the condition holds. The message is formatted only in that case.
void require(bool condition, cudaError_t error, const auto&... parts) {
  if (!condition) throw Failure{error, text(parts...)};
}

/// Stores a failure as the calling thread's latest, and returns its status code.
cudaError_t note(const Failure& failure);
/// The message of the calling thread's latest failure if it has this status code, else null.
const char* noted(cudaError_t error);

/// Loses the devices of the process: from now on every call fails with this error, as after a fault of a kernel on a
/// GPU.
void lose_devices(const Failure& failure);
/// errors   Failure: the devices are lost
void require_devices();

/// Runs the body of a runtime function and converts a Failure to the returned status code.
cudaError_t guarded(auto&& f) {
  try {
    require_devices();
    f();
    return cudaSuccess;
  } catch (const Failure& failure) {
    return note(failure);
  }
}

}  // namespace cuda_host
