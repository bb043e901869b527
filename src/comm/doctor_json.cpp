#include "doctor_json.hpp"

#include <nlohmann/json.hpp>

namespace lockstep {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetLink, name, kind, up, bytes_per_s, mtu, sent, carried)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFacts, host, ranks, processors, least_processors, threads, quota, shm_free,
                                   lockable, memory_bytes_per_s, file_system, links, environment)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostPair, a, b, latency_s, bytes_per_s, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NcclCheck, protocol, bytes, bytes_per_s, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, what, change)

std::string host_facts_text(const HostFacts& facts) {
  // A variable of the environment need not be UTF-8.
  return Json(facts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

HostFacts host_facts_from(const std::string& text) { return Json::parse(text).get<HostFacts>(); }

std::string doctor_json(const DoctorReport& report) {
  const Json all = {{"hosts", report.hosts},
                    {"pairs", report.pairs},
                    {"nccl", report.nccl},
                    {"fabric", fabric_of(report)},
                    {"findings", diagnose(report)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
