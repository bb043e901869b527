#include "lockstep/doctor/doctor.hpp"

#include "support/test.hpp"

namespace {

constexpr double kGigabit = 1e9 / 8;

NetLink ethernet(const std::string& name, double bytes_per_s, double carried) {
  return {.name = name, .kind = "ethernet", .up = true, .bytes_per_s = bytes_per_s, .mtu = 1500, .carried = carried};
}

/// Hosts whose eth0 of 10 Gbit/s carries all messages, at 8 Gbit/s between every pair.
DoctorReport healthy(int hosts) {
  DoctorReport report;
  for (int h = 0; h < hosts; ++h)
    report.hosts.push_back({.host = join("node", h + 1),
                            .ranks = 2,
                            .processors = 8,
                            .least_processors = 4,
                            .threads = 4,
                            .shm_free = 8e9,
                            .lockable = 1e18,
                            .memory_bytes_per_s = 2e10,
                            .links = {ethernet("eth0", 10 * kGigabit, 1)},
                            .environment = {}});
  for (const auto& [a, b] : host_pairs(hosts)) report.pairs.push_back({a, b, 2e-5, 8 * kGigabit, 1 << 20});
  return report;
}

/// "what | change" of all findings.
std::string findings(const DoctorReport& report) {
  std::string text;
  for (const Finding& finding : diagnose(report)) text += finding.what + " | " + finding.change + "\n";
  return text;
}

bool finds(const DoctorReport& report, const std::string& part) {
  const std::string all = findings(report);
  CAPTURE(all);
  return all.find(part) != std::string::npos;
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_text(path, text);
}

}  // namespace

TEST_SUITE("doctor.doctor") {
  TEST_CASE("a healthy allocation has no findings, and the site file names its interface") {
    for (const int hosts : {1, 2, 5}) CHECK(findings(healthy(hosts)) == "");
    const std::string site = site_file(healthy(2));
    CHECK(site.find("INTERFACE=${INTERFACE:-eth0}\n# shellcheck disable=SC1091\nsource "
                    "\"$LOCKSTEP_HOME/slurm/sites/tcp.sh\"\n") != std::string::npos);
  }

  TEST_CASE("a host whose every pair is slow is named, and no other") {
    DoctorReport report = healthy(4);
    for (HostPair& pair : report.pairs)
      if (pair.a == 2 || pair.b == 2) pair.bytes_per_s = 2.4e6;
    CHECK(finds(report, "every measured pair with node3 is slow: at best 2.3 MiB/s"));
    CHECK(finds(report, "3 of 6 pairs reach less than 20 % of the stated speed of their links"));
    CHECK(finds(report, "tc qdisc show dev eth0"));
    CHECK_FALSE(finds(report, "with node1"));
    CHECK_FALSE(finds(report, "the pair "));
  }

  TEST_CASE("one slow pair is named by both hosts; two hosts are compared with their links alone") {
    DoctorReport report = healthy(4);
    report.pairs[0].bytes_per_s = 2.5 * kGigabit;
    CHECK(findings(report).find("the pair node1 - node2 moves") == 0);
    DoctorReport two = healthy(2);
    two.pairs[0].bytes_per_s = 2.1 * kGigabit;
    CHECK(findings(two) == "");
    two.pairs[0].bytes_per_s = 1.9 * kGigabit;
    CHECK(finds(two, "1 of 1 pairs reach less than 20 %"));
    two.hosts[1].links[0].bytes_per_s = 0;  // unknown: nothing to compare with
    CHECK(findings(two) == "");
  }

  TEST_CASE("an idle faster link is named, with the settings that keep messages off it") {
    DoctorReport report = healthy(2);
    for (HostFacts& host : report.hosts) {
      host.links.push_back(ethernet("eth1", 100 * kGigabit, 0));
      host.links.push_back({.name = "mlx5_0:1", .kind = "infiniband", .up = true, .bytes_per_s = 200 * kGigabit});
      host.links.push_back({.name = "ib0", .kind = "ipoib", .up = true, .mtu = 2044});
    }
    CHECK(finds(report, "while eth1 (ethernet, 11.6 GiB/s) is up and idle | INTERFACE=eth1"));
    for (HostFacts& host : report.hosts) host.links.erase(host.links.begin() + 1);
    CHECK(finds(report, "while mlx5_0:1 (infiniband, 23.3 GiB/s) is up and idle | use RDMA: SITE=infiniband"));
    CHECK(fabric_of(report) == "infiniband");
    CHECK(site_file(report).find("INTERFACE=${INTERFACE:-ib0}\n# shellcheck disable=SC1091\nsource "
                                 "\"$LOCKSTEP_HOME/slurm/sites/infiniband.sh\"") != std::string::npos);
    for (HostFacts& host : report.hosts) host.links[0].carried = 0, host.links[1].carried = 1;
    report.pairs[0].bytes_per_s = 100 * kGigabit;
    CHECK(findings(report) == "");
    for (const auto& [variable, value] : {std::pair{"OMPI_MCA_pml", "ob1"},
                                          {"OMPI_MCA_btl", "self,vader,tcp"},
                                          {"UCX_TLS", "tcp,self,sm"},
                                          {"FI_PROVIDER", "tcp"},
                                          {"NCCL_IB_DISABLE", "1"},
                                          {"NCCL_NET", "Socket"}}) {
      DoctorReport wrong = report;
      wrong.hosts[1].environment[variable] = value;
      CHECK(finds(wrong, join(variable, " = ", value, " on node2, which has InfiniBand up")));
    }
    for (const auto& [variable, value] :
         {std::pair{"UCX_TLS", "all"}, {"UCX_TLS", "rc,sm,self,tcp"}, {"OMPI_MCA_pml", "ucx"}}) {
      DoctorReport right = report;
      right.hosts[0].environment[variable] = value;
      CHECK(findings(right) == "");
    }
    report.hosts[0].lockable = 65536;
    CHECK(finds(report, "node1 lets a process lock 64.0 KiB of memory"));
    report.hosts[1].links.erase(report.hosts[1].links.begin() + 1);  // not on all hosts
    CHECK(fabric_of(report) == "tcp");
  }

  TEST_CASE("settings that this host cannot follow are named") {
    DoctorReport report = healthy(2);
    const auto with = [&](const char* variable, const char* value) {
      DoctorReport changed = healthy(2);
      changed.hosts[1].environment[variable] = value;
      return changed;
    };
    CHECK(
        finds(with("OMPI_MCA_btl_tcp_if_include", "ib0"),
              "OMPI_MCA_btl_tcp_if_include = ib0, but node2 has no ib0 | choose an interface that is up there: eth0"));
    for (const char* fine : {"eth0", "10.0.0.0/8", "lo,eth0"})
      CHECK(findings(with("OMPI_MCA_btl_tcp_if_include", fine)) == "");
    for (const char* fine : {"eth", "=eth0", "^lo,docker"}) CHECK(findings(with("NCCL_SOCKET_IFNAME", fine)) == "");
    CHECK(finds(with("NCCL_SOCKET_IFNAME", "hsn"), "but node2 has no hsn"));
    CHECK(finds(with("UCX_NET_DEVICES", "mlx5_0:1"), "but node2 has no mlx5_0:1"));
    report.hosts[0].processors = report.hosts[0].least_processors = 1;
    CHECK(finds(report, "the 2 ranks of node1 share 1 processors"));
    report = healthy(1);
    report.hosts[0].least_processors = 1;
    CHECK(finds(report, "a rank of node1 is bound to 1 processors, but OMP_NUM_THREADS = 4"));
    report = healthy(1);
    report.hosts[0].quota = 4;
    CHECK(finds(report, "the control group of node1 allows 4 processors for 2 ranks of 4 threads"));
    report = healthy(1);
    report.hosts[0].shm_free = 64 << 20;
    CHECK(finds(report, "/dev/shm of node1 has 64.0 MiB free"));
    report = healthy(1);
    report.hosts[0].file_system = "Lustre";
    CHECK(finds(report, "is on Lustre and HDF5_USE_FILE_LOCKING is not set"));
    report.hosts[0].environment["HDF5_USE_FILE_LOCKING"] = "FALSE";
    CHECK(findings(report) == "");
    report = healthy(3);
    report.hosts[2].links[0].mtu = 9000;
    CHECK(finds(report, "eth0 of node3 has an MTU of 9000, eth0 of node1 one of 1500"));
    report = healthy(3);
    report.hosts[1].memory_bytes_per_s = 5e9;
    CHECK(finds(report, "the memory of node2 moves 4.7 GiB/s"));
    report = healthy(2);
    report.nccl = {{"LL", 8, 1e6, ""}, {"LL128", 8, 1e6, ""}, {"LL128", 128, 1e6, "rank 1, element 3"}};
    CHECK(finds(report,
                "NCCL's protocol LL128 gives wrong sums at 128 bytes: rank 1, element 3 | export NCCL_PROTO=^LL128"));
    CHECK(site_file(report).find("export NCCL_PROTO=${NCCL_PROTO:-^LL128}\n# shellcheck") != std::string::npos);
  }

  TEST_CASE("many hosts are sampled: each occurs, no pair twice, few more than the hosts") {
    CHECK(host_pairs(1).empty());
    CHECK(host_pairs(4).size() == 6);
    for (const int hosts : {12, 13, 16, 100, 1000}) {
      const auto pairs = host_pairs(hosts);
      std::set<std::pair<int, int>> different;
      std::set<int> seen;
      for (const auto& [a, b] : pairs) {
        REQUIRE((a != b && a >= 0 && b >= 0 && a < hosts && b < hosts));
        different.insert(std::minmax(a, b));
        seen.insert({a, b});
      }
      CHECK(different.size() == pairs.size());
      CHECK(static_cast<int>(seen.size()) == hosts);
      CHECK(static_cast<int>(pairs.size()) <= std::max(2 * hosts, 64 + hosts));
    }
  }

  TEST_CASE("the facts of a host are read from its files; what is missing is unknown") {
    const fs::path at = ".";
    CHECK(read_host_facts(at).links.empty());
    write(at / "proc/net/dev",
          "Inter-|   Receive  |  Transmit\n face |bytes packets | bytes\n"
          "    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  eth0: 10 2 0 0 0 0 0 0 777 4 0 0 0 0 0 0\n"
          "   ib0: 1 2 0 0 0 0 0 0 5 4 0 0 0 0 0 0\n  br-x: 1 2 0 0 0 0 0 0 5 4 0 0 0 0 0 0\n hsn0:1 2 0 0 0 0 0 0 5 4 "
          "0 0 0 0 0 0\n");
    write(at / "sys/class/net/eth0/speed", "25000\n");
    write(at / "sys/class/net/eth0/operstate", "up\n");
    write(at / "sys/class/net/eth0/mtu", "9000\n");
    write(at / "sys/class/net/ib0/type", "32\n");
    write(at / "sys/class/net/ib0/speed", "-1\n");
    write(at / "sys/class/net/br-x/bridge/bridge_id", "8000\n");
    write(at / "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write(at / "sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
    write(at / "sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
    write(at / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "1000\n");
    write(at / "proc/self/cgroup", "0::/job/step\n");
    write(at / "sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
    write(at / "sys/fs/cgroup/job/cpu.max", "250000 100000\n");
    const HostFacts facts = read_host_facts(at);
    REQUIRE(facts.links.size() == 4);
    const NetLink& eth0 = facts.links[0];
    CHECK((eth0.name == "eth0" && eth0.kind == "ethernet" && eth0.up && eth0.mtu == 9000 && eth0.sent == 777));
    CHECK(eth0.bytes_per_s == 25 * kGigabit);
    CHECK((facts.links[1].kind == "ipoib" && facts.links[1].bytes_per_s == 0 && !facts.links[1].up));
    CHECK(facts.links[2].kind == "slingshot");
    const NetLink& port = facts.links[3];
    CHECK((port.name == "mlx5_0:1" && port.kind == "infiniband" && port.up && port.sent == 4000));
    CHECK(port.bytes_per_s == 200 * kGigabit);
    CHECK(facts.quota == 2.5);
  }
}
