#include "tasks/parallel_blocks.hpp"

#include <algorithm>
#include <exception>

namespace lockstep {

void parallel_blocks(Device device, DType dtype, int threads, std::int64_t count, std::int64_t block,
                     const std::function<void(Tape& tape, std::int64_t first, std::int64_t count)>& work) {
  std::exception_ptr error;
#pragma omp parallel num_threads(device.is_cuda() ? 1 : threads)  // one thread is enough for a GPU
  {
    Stream stream(device);
    Arena arena(device);
#pragma omp for schedule(dynamic)
    for (std::int64_t first = 0; first < count; first += block) {
      try {
        arena.reset();
        Tape tape(stream, arena, dtype, Tape::Mode::forward);
        work(tape, first, std::min(block, count - first));
      } catch (...) {
#pragma omp critical(parallel_blocks_error)
        error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
