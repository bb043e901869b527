#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "lockstep/io/h5.hpp"
#include "support/outcome.hpp"

int main(int argc, char** argv) {
  lockstep::H5File::prepare_library();
  doctest::Context context(argc, argv);
  const int failed = context.run();
  return context.shouldExit() ? failed : lockstep::test::exit_code(failed);
}
