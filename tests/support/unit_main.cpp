#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "support/outcome.hpp"

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int failed = context.run();
  return context.shouldExit() ? failed : lockstep::test::exit_code(failed);
}
