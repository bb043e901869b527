#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/doctor/doctor.hpp"

namespace lockstep {

std::string doctor_text(const DoctorReport& report) {
  constexpr std::size_t kMostPairs = 20;
  const auto rate = [](double bytes_per_s) {
    return bytes_per_s > 0 ? human_bytes(bytes_per_s) + "/s" : std::string("?");
  };
  std::string text = "\n  host             ranks  processors  threads        memory  /dev/shm free\n";
  for (const HostFacts& h : report.hosts)
    text += printed("  %-16s %5d  %10d  %7s  %12s  %13s\n", h.host.c_str(), h.ranks, h.processors,
                    h.threads > 0 ? std::to_string(h.threads).c_str() : "-", rate(h.memory_bytes_per_s).c_str(),
                    human_bytes(h.shm_free).c_str());
  text += "\n  host             link              kind        state         states    MTU  carried\n";
  for (const HostFacts& h : report.hosts)
    for (const NetLink& link : h.links)
      text += printed("  %-16s %-16s  %-10s  %-5s  %12s  %5s  %5.0f %%\n", h.host.c_str(), link.name.c_str(),
                      link.kind.c_str(), link.up ? "up" : "down", rate(link.bytes_per_s).c_str(),
                      link.mtu > 0 ? std::to_string(link.mtu).c_str() : "-", 100 * link.carried);
  if (!report.pairs.empty()) {
    std::vector<HostPair> slowest = report.pairs;
    std::ranges::sort(slowest, {}, &HostPair::bytes_per_s);
    text += "\n  pair of hosts                        latency     bandwidth  at bytes\n";
    for (std::size_t i = 0; i < std::min(slowest.size(), kMostPairs); ++i) {
      const HostPair& p = slowest[i];
      const std::string name = report.hosts[p.a].host + " - " + report.hosts[p.b].host;
      text += printed("  %-32s %11s  %12s  %8zu\n", name.c_str(), human_seconds(p.latency_s).c_str(),
                      rate(p.bytes_per_s).c_str(), p.bytes);
    }
    if (slowest.size() > kMostPairs) text += join("  and ", slowest.size() - kMostPairs, " faster pairs\n");
  }
  if (!report.nccl.empty()) text += "\n  NCCL all_reduce       bytes     bandwidth\n";
  for (const NcclCheck& c : report.nccl)
    text += printed("  %-15s %11zu  %12s  %s\n", c.protocol.c_str(), c.bytes, rate(c.bytes_per_s).c_str(),
                    c.problem.empty() ? "exact" : "WRONG");
  text += "\n";
  const std::vector<Finding> findings = diagnose(report);
  for (const Finding& finding : findings) text += join("FOUND   ", finding.what, "\n        ", finding.change, "\n");
  if (findings.empty()) text += "The doctor found nothing wrong.\n";
  return text + join("Kind of network: SITE=", fabric_of(report), "\n");
}

}  // namespace lockstep
