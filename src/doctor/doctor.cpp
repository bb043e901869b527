#include "lockstep/doctor/doctor.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/comm/gpu_reduce.hpp"

namespace lockstep {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetLink, name, kind, up, bytes_per_s, mtu, sent, carried)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFacts, host, ranks, processors, least_processors, threads, quota, shm_free,
                                   lockable, memory_bytes_per_s, file_system, links, environment)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostPair, a, b, latency_s, bytes_per_s, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NcclCheck, protocol, bytes, bytes_per_s, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, what, change)

namespace {

/// Half of the shortest of `trips` round trips between two ranks, the same on all ranks. The others send nothing.
///
/// memory  on these two ranks: the message to send, then as many bytes for the one received
double half_trip_s(Communicator& comm, std::pair<int, int> ranks, std::span<std::byte> memory, int trips) {
  const auto [a, b] = ranks;
  const std::span<std::byte> out = memory.first(memory.size() / 2), in = memory.last(memory.size() / 2);
  double best = 1e30;
  for (int i = 0; i < trips; ++i) {
    const Stopwatch watch;
    comm.pass(a, b, out, in, "doctor");
    comm.pass(b, a, out, in, "doctor");
    if (comm.rank() == a) best = std::min(best, watch.seconds() / 2);
  }
  return comm.all_reduced(best, ReduceOp::min, "doctor round trip");
}

/// sent_bytes  bytes that this rank has sent so far; updated
HostPair time_pair(Communicator& comm, std::pair<int, int> hosts, std::pair<int, int> ranks, double limit_s,
                   double& sent_bytes) {
  constexpr int kShortTrips = 50, kLongTrips = 3;
  constexpr std::size_t kFirst = std::size_t{1} << 20, kLast = std::size_t{16} << 20;
  HostPair pair{hosts.first, hosts.second};
  const bool mine = comm.rank() == ranks.first || comm.rank() == ranks.second;
  std::vector<std::byte> memory(mine ? 2 * 8 : 0);
  half_trip_s(comm, ranks, memory, 2);
  pair.latency_s = half_trip_s(comm, ranks, memory, kShortTrips);
  for (std::size_t bytes = kFirst; bytes <= kLast; bytes *= 4) {
    memory.resize(mine ? 2 * bytes : 0);
    double trip_s = half_trip_s(comm, ranks, memory, 1);  // touches the memory, opens connections
    int trips = 1;
    if (2 * kLongTrips * trip_s < limit_s) {
      trip_s = half_trip_s(comm, ranks, memory, kLongTrips);
      trips += kLongTrips;
    }
    if (mine) sent_bytes += trips * static_cast<double>(bytes);
    pair.bytes = bytes;
    pair.bytes_per_s = static_cast<double>(bytes) / trip_s;
    if (8 * kLongTrips * trip_s > limit_s) break;
  }
  return pair;
}

/// Bytes that the node reads and writes per second while all its ranks copy, best of three.
double memory_speed(World& world) {
  constexpr std::size_t kBytes = std::size_t{32} << 20;  // beyond the caches of most ranks
  std::vector<char> from(kBytes, 1), to(kBytes);
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    world.node_communicator().barrier("doctor memory");
    const Stopwatch watch;
    std::memcpy(to.data(), from.data(), kBytes);
    best = std::min(best, watch.seconds());
    std::swap(from, to);  // keeps the compiler from removing the copies
  }
  return world.node_communicator().all_reduced(2.0 * kBytes / best, ReduceOp::sum, "doctor memory");
}

/// Sets host, ranks and processors of a host from all its ranks.
void count_processors(World& world, HostFacts& facts) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_ZERO(&mine);
  facts.least_processors = static_cast<int>(
      world.node_communicator().all_reduced(std::int64_t{CPU_COUNT(&mine)}, ReduceOp::min, "doctor processors"));
  std::array<std::uint64_t, sizeof(cpu_set_t) / sizeof(std::uint64_t)> mask;
  std::memcpy(mask.data(), &mine, sizeof mine);
  world.node_communicator().all_reduce(std::span<std::uint64_t>(mask), ReduceOp::bit_or, "doctor processors");
  std::memcpy(&mine, mask.data(), sizeof mine);
  facts.processors = CPU_COUNT(&mine);
  facts.ranks = world.node_size();
  facts.host = world.host();
}

/// Sets NetLink::carried from what each link has sent since `links` was read.
///
/// sent_bytes  bytes of messages that this rank has sent
void share_traffic(std::vector<NetLink>& links, double sent_bytes) {
  if (sent_bytes <= 0) return;
  const std::vector<NetLink> now = read_host_facts().links;
  for (NetLink& link : links) {
    const auto same = std::ranges::find(now, link.name, &NetLink::name);
    if (same != now.end()) link.carried = std::clamp((same->sent - link.sent) / sent_bytes, 0.0, 1.0);
  }
}

/// NCCL_PROTO is read when a communicator starts: one communicator per protocol.
std::vector<NcclCheck> check_nccl(World& world, Device device) {
  constexpr std::size_t kLongest = std::size_t{8} << 20;
  std::vector<NcclCheck> checks;
  Communicator& comm = world.communicator();
  if (!device.is_cuda() || comm.size() == 1 || !gpus_are_apart(comm, device)) return checks;
  const char* before = std::getenv("NCCL_PROTO");
  const std::string previous = before == nullptr ? "" : before;
  const Stream stream(device);
  for (const char* protocol : {"LL", "LL128", "Simple"}) {
    setenv("NCCL_PROTO", protocol, 1);
    const auto reduce = make_gpu_reduce(comm, device, world.options().timeout_s);
    for (std::size_t bytes = 8; bytes <= kLongest; bytes *= 16) {
      const std::size_t count = bytes / sizeof(float);
      std::vector<float> values(count);
      // Small integers: every order of summation is exact.
      const auto value = [](int rank, std::size_t i) {
        return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
      };
      for (std::size_t i = 0; i < count; ++i) values[i] = value(comm.rank(), i);
      const Buffer on_gpu(device, bytes);
      copy_bytes(stream, on_gpu.data(), values.data(), bytes);
      stream.synchronize();
      comm.barrier("doctor NCCL");
      const Stopwatch watch;
      reduce->all_reduce(stream, on_gpu.data(), on_gpu.data(), static_cast<std::int64_t>(count), GpuElement::f32,
                         "doctor NCCL");
      reduce->join(stream);
      reduce->wait(stream, -1);
      const double seconds = comm.all_reduced(watch.seconds(), ReduceOp::max, "doctor NCCL");
      copy_bytes(stream, values.data(), on_gpu.data(), bytes);
      stream.synchronize();
      std::string problem;
      for (std::size_t i = 0; i < count && problem.empty(); ++i) {
        float wanted = 0;
        for (int r = 0; r < comm.size(); ++r) wanted += value(r, i);
        if (values[i] != wanted)
          problem =
              join("rank ", comm.rank(), ", element ", i, " of ", count, ": found ", values[i], ", expected ", wanted);
      }
      NcclCheck check{protocol, bytes, static_cast<double>(bytes) / seconds, ""};
      for (const std::string& found : comm.all_gather_text(problem, "doctor NCCL"))
        if (check.problem.empty()) check.problem = found;
      checks.push_back(check);
    }
  }
  if (before == nullptr) {
    unsetenv("NCCL_PROTO");
  } else {
    setenv("NCCL_PROTO", previous.c_str(), 1);
  }
  return checks;
}

}  // namespace

std::vector<std::pair<int, int>> host_pairs(int hosts) {
  constexpr int kMost = 64;
  std::vector<std::pair<int, int>> pairs;
  if (hosts * (hosts - 1) / 2 <= kMost) {
    for (int a = 0; a < hosts; ++a)
      for (int b = a + 1; b < hosts; ++b) pairs.emplace_back(a, b);
    return pairs;
  }
  for (int distance = 1; 2 * distance < hosts && static_cast<int>(pairs.size()) < kMost; distance *= 2)
    for (int a = 0; a < hosts; ++a) pairs.emplace_back(a, (a + distance) % hosts);
  return pairs;
}

DoctorReport examine(World& world, const DoctorOptions& options) {
  Communicator& comm = world.communicator();
  world.at("doctor", -1);
  HostFacts own = read_host_facts();
  own.file_system = options.file_system;
  count_processors(world, own);
  own.memory_bytes_per_s = memory_speed(world);

  std::vector<int> first_ranks(world.nodes(), -1);
  const std::vector<std::string> nodes = comm.all_gather_text(join(world.node()), "doctor nodes");
  for (std::size_t r = nodes.size(); r-- > 0;) first_ranks[std::stoul(nodes[r])] = static_cast<int>(r);
  const auto pairs = host_pairs(world.nodes());
  DoctorReport report;
  double sent_bytes = 0;
  for (const auto& [a, b] : pairs)
    report.pairs.push_back(time_pair(comm, {a, b}, {first_ranks[a], first_ranks[b]},
                                     options.budget_s / static_cast<double>(pairs.size()), sent_bytes));
  comm.barrier("doctor counters");
  share_traffic(own.links, sent_bytes);
  const std::vector<std::string> facts =
      comm.all_gather_text(world.node_rank() == 0 ? json_text(Json(own)) : "", "doctor facts");
  for (const int rank : first_ranks) report.hosts.push_back(parse_json(facts[rank]).get<HostFacts>());
  report.nccl = check_nccl(world, options.device);
  return report;
}

std::string doctor_json(const DoctorReport& report) {
  const Json all = {{"hosts", report.hosts},
                    {"pairs", report.pairs},
                    {"nccl", report.nccl},
                    {"fabric", fabric_of(report)},
                    {"findings", diagnose(report)}};
  return json_text(all, 2);
}

}  // namespace lockstep
