#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep {

/// A network interface (/sys/class/net) or a port of an RDMA device (/sys/class/infiniband) of a host.
struct NetLink {
  std::string name;  ///< eth0; mlx5_0:1
  std::string kind;  ///< ethernet | ipoib | slingshot; of a port: infiniband | roce
  bool up = false;
  double bytes_per_s = 0;  ///< as the hardware states; 0: unknown
  int mtu = 0;             ///< bytes; 0 for a port
  double sent = 0;         ///< bytes since the host started
  double carried = 0;      ///< fraction of the doctor's messages that left through it, by its byte counter
};

/// What a host offers and what limits the ranks on it.
struct HostFacts {
  std::string host;
  int ranks = 0, processors = 0;      ///< processors: usable by at least one rank
  int least_processors = 0;           ///< usable by the rank with the fewest
  int threads = 0;                    ///< OMP_NUM_THREADS; 0: not set
  double quota = 0;                   ///< processors that the control group allows (cpu.max); 0: no limit
  double shm_free = 0, lockable = 0;  ///< free bytes of /dev/shm; bytes that a process may lock in memory
  double memory_bytes_per_s = 0;      ///< reads plus writes while all ranks of the host copy arrays
  std::string file_system = {};       ///< of the working directory, if hosts share it: NFS, Lustre, ...
  std::vector<NetLink> links = {};    ///< without loopback, bridges, and interfaces attached to bridges
  std::map<std::string, std::string> environment = {};  ///< variables of MPI, UCX, libfabric, NCCL, HDF5
};

/// A pair of hosts, measured by a ping-pong between their first ranks while all other ranks are idle.
struct HostPair {
  int a = 0, b = 0;        ///< indices into DoctorReport::hosts
  double latency_s = 0;    ///< half the shortest round trip of 8 bytes
  double bytes_per_s = 0;  ///< of the longest timed message, by its shortest round trip
  std::size_t bytes = 0;   ///< length of that message
};

/// NCCL's all-reduce under one protocol, compared with the exact sum. On GPUs only.
struct NcclCheck {
  std::string protocol;  ///< LL | LL128 | Simple
  std::size_t bytes = 0;
  double bytes_per_s = 0;
  std::string problem;  ///< first wrong element; "" if all are right
};

struct DoctorReport {
  std::vector<HostFacts> hosts;
  std::vector<HostPair> pairs;  ///< of host_pairs()
  std::vector<NcclCheck> nccl;
};

/// A setting or a part of the machine that slows the job down or can break it.
struct Finding {
  std::string what;    ///< the problem, with the values that show it
  std::string change;  ///< what to do
};

struct DoctorOptions {
  double budget_s = 10;          ///< for the pairs of hosts
  std::string file_system = {};  ///< HostFacts::file_system of this rank's host
  Device device = {};            ///< with a GPU, NCCL's protocols are checked
};

/// Pairs of hosts to measure: all pairs if there are at most 64, otherwise hosts at the distances 1, 2, 4, ... (below
/// hosts / 2) until there are 64 pairs or more. Each host occurs; no pair occurs twice.
std::vector<std::pair<int, int>> host_pairs(int hosts);
/// Reads the links and limits of this host. Ranks, processors and measurements stay 0.
///
/// root  prefix of the paths that are read, for tests
HostFacts read_host_facts(const std::filesystem::path& root = "/");
/// Measures pairs of hosts and the hosts' memory, and collects their facts. Collective; every rank receives the report.
DoctorReport examine(World& world, const DoctorOptions& options);
/// Judges the measurements and settings. The thresholds are the constants in the file.
std::vector<Finding> diagnose(const DoctorReport& report);
/// infiniband | slingshot | tcp: the name of the file in slurm/sites that fits all hosts.
std::string fabric_of(const DoctorReport& report);
/// The text of a file for slurm/sites: the interface that all hosts have, and the settings of fabric_of().
std::string site_file(const DoctorReport& report);
/// Tables, then findings.
std::string doctor_text(const DoctorReport& report);
/// One JSON object with `hosts`, `pairs`, `nccl` and `findings`.
std::string doctor_json(const DoctorReport& report);

}  // namespace lockstep
