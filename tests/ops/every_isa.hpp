#pragma once
#include "lockstep/ops/isa.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// Runs f once with each available instruction set.
void for_every_isa(const auto& f) {
  const ops::Isa before = ops::active_isa();
  for (const ops::Isa isa : ops::available_isas()) {
    CAPTURE(std::string(ops::name(isa)));
    ops::use_isa(isa);
    f();
  }
  ops::use_isa(before);
}

}  // namespace lockstep::test
