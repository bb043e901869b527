// For LD_PRELOAD: sends its process a signal at its Nth allocation, so that signals_test.sh can stop a program at every
// point. SIGNAL_AT="N NUMBER" (N = 0: never); SIGNAL_RANK: the rank that gets it; SIGNAL_COUNT: the file that gets the
// number of allocations.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<long> allocations = 0;

struct Settings {
  long at = 0;
  int number = 0;
  Settings() {
    const char *rank = std::getenv("OMPI_COMM_WORLD_RANK"), *wanted = std::getenv("SIGNAL_RANK");
    if (rank != nullptr && wanted != nullptr && std::strcmp(rank, wanted) != 0) return;
    if (const char* text = std::getenv("SIGNAL_AT")) std::sscanf(text, "%ld %d", &at, &number);
  }
  ~Settings() {
    const char* path = std::getenv("SIGNAL_COUNT");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    std::fprintf(file, "%ld\n", allocations.load());
    std::fclose(file);
  }
} settings;

}  // namespace

/// Replaces the one of the C++ library, whose other forms call it.
void* operator new(std::size_t size) {
  if (++allocations == settings.at) ::kill(::getpid(), settings.number);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
