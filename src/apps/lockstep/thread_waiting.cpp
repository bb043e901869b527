#include "apps/lockstep/thread_waiting.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace lockstep::apps {

void limit_spinning(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string_view(threads) == "1") return;
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "200", 1);
  // The real path, since the system names a process after the path that it executes: top and pgrep would see "exe".
  std::error_code failed;
  const std::filesystem::path self = "/proc/self/exe", path = std::filesystem::read_symlink(self, failed);
  if (path.filename().string().starts_with("ld-")) return;  // started as ld.so PROGRAM: that file is not the program
  if (!failed && std::filesystem::equivalent(path, self, failed)) ::execv(path.c_str(), argv);
  ::execv(self.c_str(), argv);  // returns only on failure; the program then runs with the defaults
}

}  // namespace lockstep::apps
