#pragma once
#include <sstream>
#include <string>

#include "cuda_runtime.h"

/// What the parts of the stand-in share about failures: a number for the caller, and a sentence that cudaGetErrorString
/// hands out until the calling thread's next failure.
namespace cuda_host {

/// A failure on its way to the caller of the runtime's function.
struct Failure {
  cudaError_t error;
  std::string message;
};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// errors  Failure unless the condition holds. The parts are only written then.
template <class... Parts>
void require(bool condition, cudaError_t error, const Parts&... parts) {
  if (!condition) throw Failure{error, text(parts...)};
}

/// Notes a failure as the calling thread's latest, and returns its number.
cudaError_t note(const Failure& failure);
/// The sentence of the calling thread's latest failure, if it is of this kind; else null.
const char* noted(cudaError_t error);

/// Runs a function of the runtime's: its Failure becomes the returned number.
template <class F>
cudaError_t guarded(F&& f) {
  try {
    f();
    return cudaSuccess;
  } catch (const Failure& failure) {
    return note(failure);
  }
}

}  // namespace cuda_host
