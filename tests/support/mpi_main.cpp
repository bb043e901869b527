#define DOCTEST_CONFIG_IMPLEMENT
#include "support/mpi_main.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <iostream>
#include <sstream>

#include "support/outcome.hpp"

namespace {
lockstep::World* world = nullptr;
}  // namespace

lockstep::World& test_world() { return *world; }

/// Every rank runs all test cases in the same order; the program fails if a test case fails on any rank. Between
/// collectives a test uses CHECK, not REQUIRE: if a rank leaves a test case early, the others wait until the watchdog
/// ends the run.
int main(int argc, char** argv) {
  lockstep::World here(&argc, &argv);
  world = &here;
  return here.run([&] {
    lockstep::WorldOptions options = here.options();
    options.timeout_s = 300;  // for a busy machine; ctest ends a test after 600 s
    here.configure(options);
    doctest::Context context(argc, argv);
    context.setOption("order-by", "file");
    context.setOption("no-colors", true);
    // Rank 0 reports; the other ranks only if a test case fails there.
    std::ostringstream report;
    if (here.rank() != 0) context.setCout(&report);
    const int failed_here = context.run();
    if (here.rank() != 0 && failed_here != 0)
      std::cout << lockstep::join("rank ", here.rank(), ":\n", report.str()) << std::flush;
    const std::int64_t code = lockstep::test::exit_code(failed_here);
    const bool failed = here.communicator().all_reduced(code % 77, lockstep::ReduceOp::max, "test results") != 0;
    if (failed && code % 77 == 0 && here.rank() == 0) std::fprintf(stderr, "a test case failed on another rank\n");
    return failed ? 1 : static_cast<int>(code);
  });
}
