#pragma once
#include "lockstep/ops/isa.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// Runs f once with each available instruction set.
void for_every_isa(const auto& f) {
  const ops::Isa before = ops::active_isa();
  for (const ops::Isa isa : ops::available_isas()) {
    CAPTURE(std::string(name(isa)));
    ops::use_isa(isa);
    f();
  }
  ops::use_isa(before);
}

/// A test case that for_every_isa() runs.
#define EVERY_ISA_TEST_CASE(title) EVERY_ISA_TEST_CASE_OF(DOCTEST_ANONYMOUS(every_isa_), title)
#define EVERY_ISA_TEST_CASE_OF(body, title) \
  static void body();                       \
  TEST_CASE(title) { for_every_isa(body); } \
  static void body()

}  // namespace lockstep::test
