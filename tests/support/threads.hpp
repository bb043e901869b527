#pragma once
#include <omp.h>

namespace lockstep::test {

/// Sets the number of OpenMP threads during its lifetime.
class Threads {
 public:
  explicit Threads(int count) { omp_set_num_threads(count); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_ = omp_get_max_threads();
};

}  // namespace lockstep::test
