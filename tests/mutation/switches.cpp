#include "switches.hpp"

#include <cstdio>
#include <cstdlib>

namespace mutation {

int chosen = 0;
bool reached[kMost] = {};

namespace {

/// LOCKSTEP_MUTANT: the mutant that is on. LOCKSTEP_MUTANTS_REACHED: the file to which each rank appends the numbers of
/// mutants whose code has run.
struct Program {
  Program() {
    if (const char* text = std::getenv("LOCKSTEP_MUTANT")) chosen = std::atoi(text);
  }
  ~Program() {
    const char* name = std::getenv("LOCKSTEP_MUTANTS_REACHED");
    std::FILE* file = name == nullptr ? nullptr : std::fopen(name, "a");
    if (file == nullptr) return;
    for (int id = 0; id < kMost; ++id)
      if (reached[id]) std::fprintf(file, "%d\n", id);
    std::fclose(file);
  }
} program;

}  // namespace
}  // namespace mutation
