#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/device/ledger.hpp"

namespace lockstep::apps {

/// A ledger of `steps` steps: counts per step, one object per name of work, and the estimated time of a step on some
/// GPUs. For each launch the estimate is
///
///   node + max(max(m / bandwidth, moved bytes / rate of the L2 cache, flops / rate) * max(1, SMs / blocks),
///              waves * (accesses * latency + shared accesses * shared latency) / kInFlight, host bytes / bus rate)
///
/// where m is LedgerEntry::memory_bytes of the L2 cache, and accesses are those of the busiest thread. `floor` is the
/// time for the necessary bytes and flops alone, without launches and latencies. Launches run one after another.
/// Neither is a measurement.
nlohmann::ordered_json ledger_json(const Ledger& ledger, std::int64_t steps);
/// The report as a table.
std::string ledger_text(const nlohmann::ordered_json& report);

}  // namespace lockstep::apps
