#include "apps/lockstep/thread_waiting.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace lockstep::apps {

void limit_spinning(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string_view(threads) == "1") return;
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "200", 1);
  ::execv("/proc/self/exe", argv);  // returns only when it fails, and then the default is what we have
}

}  // namespace lockstep::apps
