#pragma once
#include <string>

#include "lockstep/comm/doctor.hpp"

namespace lockstep {

/// How hosts tell their facts: one JSON object.
std::string host_facts_text(const HostFacts& facts);
HostFacts host_facts_from(const std::string& text);

}  // namespace lockstep
