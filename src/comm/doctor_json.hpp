#pragma once
#include <string>

#include "lockstep/comm/doctor.hpp"

namespace lockstep {

/// The facts of a host as one JSON object, in which form ranks send them.
std::string host_facts_text(const HostFacts& facts);
HostFacts host_facts_from(const std::string& text);

}  // namespace lockstep
