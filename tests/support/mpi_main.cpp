#define DOCTEST_CONFIG_IMPLEMENT
#include "support/mpi_main.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <iostream>
#include <sstream>

namespace {
lockstep::World* world = nullptr;
}  // namespace

lockstep::World& test_world() { return *world; }

/// Every rank runs all test cases, in the same order; the program fails when one of them fails on any rank. Between
/// collectives a test uses CHECK, not REQUIRE: a rank that leaves a test case early would leave the others waiting (the
/// watchdog ends such a run).
int main(int argc, char** argv) {
  lockstep::World here(&argc, &argv);
  world = &here;
  return here.run([&] {
    lockstep::WorldOptions options = here.options();
    options.timeout_s = 60;
    here.configure(options);
    doctest::Context context(argc, argv);
    context.setOption("order-by", "file");
    context.setOption("no-colors", true);
    // One report, of rank 0; the others' only where they know of a failure.
    std::ostringstream report;
    if (here.rank() != 0) context.setCout(&report);
    const int failed_here = context.run();
    if (here.rank() != 0 && failed_here != 0)
      std::cout << lockstep::join("rank ", here.rank(), ":\n", report.str()) << std::flush;
    const int failed =
        here.communicator().all_reduced(std::int64_t{failed_here}, lockstep::ReduceOp::max, "test results") != 0;
    if (failed != 0 && failed_here == 0 && here.rank() == 0)
      std::fprintf(stderr, "a test case failed on another rank\n");
    return failed;
  });
}
