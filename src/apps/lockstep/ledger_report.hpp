#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/device/ledger.hpp"

namespace lockstep::apps {

/// A ledger of `steps` steps: counts per step, one object per name of work. `memory_bytes` are those of the L2 cache of
/// an A100, `floor_s` the time of an H100 for the necessary bytes or the flops of each launch, whichever is longer.
nlohmann::ordered_json ledger_json(const Ledger& ledger, std::int64_t steps);
/// The report as a table.
std::string ledger_text(const nlohmann::ordered_json& report);

}  // namespace lockstep::apps
