#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "lockstep/doctor/doctor.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// The first line of a file, or "".
std::string line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

double number_in(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory, missing))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Adds the interfaces of this network namespace. /proc/net/dev lists them, even where /sys shows another namespace.
void add_interfaces(const fs::path& root, std::vector<NetLink>& links) {
  constexpr std::string_view kInfiniband = "32";  // ARPHRD_INFINIBAND
  std::ifstream in(root / "proc/net/dev");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    NetLink link;
    link.name = line.substr(0, colon);
    link.name.erase(0, link.name.find_first_not_of(' '));
    const fs::path about = root / "sys/class/net" / link.name;
    std::error_code error;
    const bool bridged = fs::exists(about / "bridge", error) || fs::exists(about / "brport", error);
    if (link.name == "lo" || bridged || link.name.starts_with("docker") || link.name.starts_with("virbr")) continue;
    std::istringstream columns(line.substr(colon + 1));
    for (int column = 0; column < 9; ++column) columns >> link.sent;  // the ninth: bytes sent
    link.kind = line_of(about / "type") == kInfiniband ? "ipoib"
                : link.name.starts_with("hsn")         ? "slingshot"
                                                       : "ethernet";
    link.up = line_of(about / "operstate") == "up";
    link.bytes_per_s = std::max(0.0, number_in(line_of(about / "speed"))) * 1e6 / 8;  // Mbit/s; -1: unknown
    link.mtu = static_cast<int>(number_in(line_of(about / "mtu")));
    links.push_back(link);
  }
}

void add_ports(const fs::path& root, std::vector<NetLink>& links) {
  const fs::path devices = root / "sys/class/infiniband";
  for (const std::string& device : names_in(devices)) {
    for (const std::string& port : names_in(devices / device / "ports")) {
      const fs::path about = devices / device / "ports" / port;
      NetLink link;
      link.name = device + ":" + port;
      link.kind = line_of(about / "link_layer") == "InfiniBand" ? "infiniband" : "roce";
      link.up = line_of(about / "state").find("ACTIVE") != std::string::npos;
      link.bytes_per_s = number_in(line_of(about / "rate")) * 1e9 / 8;            // "200 Gb/sec (4X HDR)"
      link.sent = 4 * number_in(line_of(about / "counters" / "port_xmit_data"));  // in words of 4 bytes
      links.push_back(link);
    }
  }
}

/// The smallest number of processors that the control group of this process or one of its parents allows; 0: no limit.
double cpu_quota(const fs::path& root) {
  const std::string own = line_of(root / "proc/self/cgroup");  // "0::/path" with control groups of version 2
  if (!own.starts_with("0::/")) return 0;
  double least = 0;
  for (fs::path group = own.substr(4);; group = group.parent_path()) {
    std::istringstream text(line_of(root / "sys/fs/cgroup" / group / "cpu.max"));  // "200000 100000", "max 100000"
    double quota = 0, period = 0;
    if (text >> quota >> period && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
    if (group.empty()) return least;
  }
}

}  // namespace

HostFacts read_host_facts(const fs::path& root) {
  HostFacts facts;
  add_interfaces(root, facts.links);
  add_ports(root, facts.links);
  facts.quota = cpu_quota(root);
  struct statvfs shm {};
  if (statvfs((root / "dev/shm").c_str(), &shm) == 0)
    facts.shm_free = static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_frsize);
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
    facts.lockable = locked.rlim_cur == RLIM_INFINITY ? 1e18 : static_cast<double>(locked.rlim_cur);
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) facts.threads = std::atoi(threads);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
    if (equals != std::string_view::npos &&
        (begins("OMPI_MCA_btl") || begins("OMPI_MCA_pml") || begins("OMPI_MCA_mtl") || begins("OMPI_MCA_oob_tcp_if") ||
         begins("PRTE_MCA_prte_if") || begins("UCX_") || begins("FI_") || begins("NCCL_") || begins("MPICH_") ||
         begins("HDF5_USE")))
      facts.environment.emplace(name, text.substr(equals + 1));
  }
  return facts;
}

}  // namespace lockstep
