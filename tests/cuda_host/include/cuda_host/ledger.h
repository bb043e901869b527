#pragma once
#include <string>

#include "lockstep/device/ledger.hpp"

/// The stand-in's counts for lockstep/device/ledger.hpp.
namespace cuda_host {

std::string why_no_ledger();
void start_ledger();
lockstep::Ledger finish_ledger();

}  // namespace cuda_host
