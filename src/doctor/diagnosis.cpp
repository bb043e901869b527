#include <algorithm>
#include <set>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/doctor/doctor.hpp"

namespace lockstep {

namespace {

constexpr double kOfLink = 0.2;         // a pair is slow below this fraction of its hosts' stated link speed
constexpr double kOfFastest = 1.0 / 3;  // and below this fraction of the fastest pair
constexpr double kCarries = 0.5;        // MPI uses the link that carries at least this fraction of the messages
constexpr double kFaster = 2;           // an idle link is worth using if it is this many times faster
constexpr double kOfMemory = 0.5;       // a host's memory is slow below this fraction of the median
constexpr double kShm = 256.0 * 1048576, kLockable = 64.0 * 1048576;  // least bytes

std::string speed(double bytes_per_s) { return human_bytes(bytes_per_s) + "/s"; }

/// The link that the messages between hosts left through; null: unknown.
const NetLink* used_link(const HostFacts& host) {
  const auto most = std::ranges::max_element(host.links, {}, &NetLink::carried);
  return most == host.links.end() || most->carried < kCarries ? nullptr : &*most;
}

bool is_rdma(const NetLink& link) { return link.up && link.kind == "infiniband"; }
bool is_slingshot(const NetLink& link) { return link.up && link.kind == "slingshot"; }

bool on_all(const DoctorReport& report, const auto& has) {
  return !report.hosts.empty() &&
         std::ranges::all_of(report.hosts, [&](const HostFacts& host) { return std::ranges::any_of(host.links, has); });
}

std::string value_of(const HostFacts& host, const char* name) {
  const auto found = host.environment.find(name);
  return found == host.environment.end() ? "" : found->second;
}

std::vector<std::string> items(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

class Diagnosis {
 public:
  explicit Diagnosis(const DoctorReport& report) : report_(report), fabric_(fabric_of(report)) {}

  std::vector<Finding> take() {
    pairs_against_each_other();
    pairs_against_links();
    for (const HostFacts& host : report_.hosts) {
      idle_link(host);
      transport(host);
      names(host);
      processors(host);
      limits(host);
    }
    mtu();
    memory();
    nccl();
    return std::move(findings_);
  }

 private:
  /// Adds one finding per topic, with the first host that shows it.
  void add(const std::string& topic, const std::string& what, const std::string& change) {
    if (topics_.insert(topic).second) findings_.push_back({what, change});
  }
  const HostFacts& host(int number) const { return report_.hosts[number]; }
  std::string name(const HostPair& pair) const { return join(host(pair.a).host, " - ", host(pair.b).host); }

  void pairs_against_each_other() {
    double fastest = 0;
    for (const HostPair& pair : report_.pairs) fastest = std::max(fastest, pair.bytes_per_s);
    const auto slow = [&](const HostPair& pair) { return pair.bytes_per_s < kOfFastest * fastest; };
    std::set<int> bad;
    for (int h = 0; h < static_cast<int>(report_.hosts.size()); ++h) {
      int all = 0, behind = 0;
      double best = 0;
      for (const HostPair& pair : report_.pairs) {
        if (pair.a != h && pair.b != h) continue;
        ++all;
        behind += slow(pair) ? 1 : 0;
        best = std::max(best, pair.bytes_per_s);
      }
      if (all < 2 || behind < all) continue;
      bad.insert(h);
      add(join("slow host ", h),
          join("every measured pair with ", host(h).host, " is slow: at best ", speed(best), ", other pairs reach ",
               speed(fastest)),
          join("look at the cable, the port and the switch of ", host(h).host,
               " (ethtool, ibstat, tc qdisc), or leave it "
               "out: #SBATCH --exclude=",
               host(h).host));
    }
    for (const HostPair& pair : report_.pairs)
      if (slow(pair) && !bad.contains(pair.a) && !bad.contains(pair.b))
        add("slow pair",
            join("the pair ", name(pair), " moves ", speed(pair.bytes_per_s), ", others up to ", speed(fastest)),
            "look at the switches between these hosts, and at neighbours that load them");
  }

  void pairs_against_links() {
    int slow = 0;
    const HostPair* worst = nullptr;
    double worst_share = kOfLink, could = 0;
    const NetLink* through = nullptr;
    for (const HostPair& pair : report_.pairs) {
      const NetLink *a = used_link(host(pair.a)), *b = used_link(host(pair.b));
      if (a == nullptr || b == nullptr || a->bytes_per_s <= 0 || b->bytes_per_s <= 0) continue;
      const double least = std::min(a->bytes_per_s, b->bytes_per_s), share = pair.bytes_per_s / least;
      if (share >= kOfLink) continue;
      ++slow;
      if (share > worst_share) continue;
      worst = &pair, worst_share = share, could = least, through = a;
    }
    if (worst != nullptr)
      add("below the link",
          join(slow, " of ", report_.pairs.size(), " pairs reach less than ", kOfLink * 100,
               " % of the stated speed of their links; the worst, ", name(*worst), ": ", speed(worst->bytes_per_s),
               " of ", speed(could), " through ", through->name),
          join("look for a limit of the rate (tc qdisc show dev ", through->name,
               "), a worn cable, a busy switch, an MTU of 1500 on a fast link, or busy processors"));
  }

  void idle_link(const HostFacts& h) {
    const NetLink* used = used_link(h);
    if (used == nullptr || used->bytes_per_s <= 0) return;
    for (const NetLink& link : h.links) {
      if (!link.up || &link == used || link.bytes_per_s < kFaster * used->bytes_per_s || link.carried >= kCarries)
        continue;
      const bool port = link.kind == "infiniband" || link.kind == "roce";
      add("idle link",
          join("the messages of ", h.host, " go through ", used->name, " (", speed(used->bytes_per_s), "), while ",
               link.name, " (", link.kind, ", ", speed(link.bytes_per_s), ") is up and idle"),
          port                       ? "use RDMA: SITE=infiniband (Open MPI with UCX: ompi_info | grep ucx)"
          : link.kind == "slingshot" ? std::string("SITE=slingshot")
                                     : join("INTERFACE=", link.name));
      return;
    }
  }

  /// Settings that force messages through TCP although the hosts have a faster network.
  void transport(const HostFacts& h) {
    if (fabric_ == "tcp") return;
    const std::string fast = fabric_ == "infiniband" ? "InfiniBand" : "Slingshot";
    const auto forces = [&](const char* variable, const std::string& advice) {
      add(variable, join(variable, " = ", value_of(h, variable), " on ", h.host, ", which has ", fast, " up"), advice);
    };
    const std::string site = "; SITE=" + fabric_ + " sets what it needs";
    const auto names_one_of = [](const std::string& list, const std::set<std::string>& wanted) {
      return !list.starts_with("^") &&
             std::ranges::any_of(items(list), [&](const std::string& item) { return wanted.contains(item); });
    };
    const std::string pml = value_of(h, "OMPI_MCA_pml"), tls = value_of(h, "UCX_TLS");
    if (pml == "ob1") forces("OMPI_MCA_pml", "unset it, or use ucx" + site);
    if (pml.empty() && names_one_of(value_of(h, "OMPI_MCA_btl"), {"tcp"})) forces("OMPI_MCA_btl", "unset it" + site);
    if (names_one_of(tls, {"tcp"}) && !names_one_of(tls, {"all", "ib", "rc", "rc_x", "rc_v", "rc_verbs", "rc_mlx5",
                                                          "dc", "dc_x", "dc_mlx5", "ud", "ud_x", "ud_v"}))
      forces("UCX_TLS", "unset it, or use all" + site);
    if (names_one_of(value_of(h, "FI_PROVIDER"), {"tcp", "sockets", "udp", "tcp;ofi_rxm"}))
      forces("FI_PROVIDER", (fabric_ == "slingshot" ? "use cxi" : "unset it, or use verbs") + site);
    if (value_of(h, "NCCL_IB_DISABLE") == "1" && fabric_ == "infiniband")
      forces("NCCL_IB_DISABLE", "unset it: NCCL uses InfiniBand by itself");
    if (value_of(h, "NCCL_NET") == "Socket") forces("NCCL_NET", "unset it" + site);
    if (fabric_ == "infiniband" && h.lockable < kLockable)
      add("memlock", join(h.host, " lets a process lock ", human_bytes(h.lockable), " of memory; RDMA needs more"),
          "ulimit -l unlimited, in the batch system's daemon too (LimitMEMLOCK=infinity)");
  }

  /// Settings that name an interface or a device which this host lacks.
  void names(const HostFacts& h) {
    for (const char* variable : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include",
                                 "PRTE_MCA_prte_if_include", "NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES"}) {
      const bool prefixes = std::string(variable) == "NCCL_SOCKET_IFNAME";
      const std::string list = value_of(h, variable);
      if (list.starts_with("^")) continue;  // a list of exclusions
      for (std::string item : items(list)) {
        const bool exact = !prefixes || item.starts_with("=");
        if (item.starts_with("=")) item.erase(0, 1);
        // Networks (10.0.0.0/8), "all", loopback.
        if (item.empty() || item == "all" || item == "lo" || item.find('/') != std::string::npos) continue;
        const bool there = std::ranges::any_of(h.links, [&](const NetLink& link) {
          return exact ? link.name == item || link.name.starts_with(item + ":") : link.name.starts_with(item);
        });
        std::string have;
        for (const NetLink& link : h.links)
          if (link.up) have += join(have.empty() ? "" : ", ", link.name);
        if (!there)
          add(variable, join(variable, " = ", list, ", but ", h.host, " has no ", item),
              join("choose an interface that is up there: ", have.empty() ? "none" : have));
      }
    }
  }

  void processors(const HostFacts& h) {
    const int threads = std::max(h.threads, 1);
    const char* unbind =
        "mpirun --map-by ppr:RANKS:node:PE=THREADS or --bind-to none; srun --cpus-per-task=THREADS; fewer ranks or "
        "threads";
    if (h.processors < h.ranks)
      add("crowded", join("the ", h.ranks, " ranks of ", h.host, " share ", h.processors, " processors"), unbind);
    else if (h.least_processors < threads)
      add("bound",
          join("a rank of ", h.host, " is bound to ", h.least_processors,
               " processors, but OMP_NUM_THREADS = ", threads),
          unbind);
    if (h.quota > 0 && h.quota < h.ranks * threads)
      add("quota",
          join("the control group of ", h.host, " allows ", h.quota, " processors for ", h.ranks, " ranks of ", threads,
               " threads"),
          "ask the batch system or the container for more (--cpus-per-task, --cpus), or start fewer");
  }

  void limits(const HostFacts& h) {
    if (h.shm_free < kShm)
      add("shm",
          join("/dev/shm of ", h.host, " has ", human_bytes(h.shm_free),
               " free; the ranks of a host share the data set and their sums there"),
          "mount -o remount,size=..., --shm-size of a container");
    const std::string locking = value_of(h, "HDF5_USE_FILE_LOCKING");
    if (!h.file_system.empty() && locking != "FALSE" && locking != "BEST_EFFORT" && locking != "0")
      add("locking",
          join("the working directory of ", h.host, " is on ", h.file_system, " and HDF5_USE_FILE_LOCKING is ",
               locking.empty() ? "not set" : locking),
          "export HDF5_USE_FILE_LOCKING=FALSE if opening a file fails with a message about locks");
  }

  void mtu() {
    const NetLink* first = nullptr;
    const HostFacts* first_host = nullptr;
    for (const HostFacts& h : report_.hosts) {
      const NetLink* used = used_link(h);
      if (used == nullptr || used->mtu == 0) continue;
      if (first == nullptr) first = used, first_host = &h;
      if (used->mtu != first->mtu)
        add("mtu",
            join(used->name, " of ", h.host, " has an MTU of ", used->mtu, ", ", first->name, " of ", first_host->host,
                 " one of ", first->mtu),
            "set the same MTU on all hosts and switch ports (ip link set dev ... mtu ...)");
    }
  }

  void memory() {
    std::vector<double> speeds;
    for (const HostFacts& h : report_.hosts) speeds.push_back(h.memory_bytes_per_s);
    if (speeds.size() < 2) return;
    std::ranges::sort(speeds);
    const double median = speeds[speeds.size() / 2];
    for (const HostFacts& h : report_.hosts)
      if (h.memory_bytes_per_s < kOfMemory * median)
        add("memory",
            join("the memory of ", h.host, " moves ", speed(h.memory_bytes_per_s), ", the median of the hosts is ",
                 speed(median)),
            "look for another job on that host, missing memory modules, or ranks bound to one socket");
  }

  void nccl() {
    for (const NcclCheck& check : report_.nccl)
      if (!check.problem.empty())
        add("nccl " + check.protocol,
            join("NCCL's protocol ", check.protocol, " gives wrong sums at ", check.bytes, " bytes: ", check.problem),
            join("export NCCL_PROTO=^", check.protocol));
  }

  const DoctorReport& report_;
  std::string fabric_;
  std::vector<Finding> findings_;
  std::set<std::string> topics_;
};

/// The fastest interface of this kind that is up under the same name on all hosts; "" if there is none.
std::string common_interface(const DoctorReport& report, const std::string& kind) {
  const NetLink* best = nullptr;
  for (const NetLink& link : report.hosts.front().links) {
    const auto same = [&](const NetLink& other) {
      return other.up && other.name == link.name && other.kind == link.kind;
    };
    if (link.kind != kind || !on_all(report, same)) continue;
    if (best == nullptr || link.bytes_per_s > best->bytes_per_s ||
        (link.bytes_per_s == best->bytes_per_s && link.carried > best->carried))
      best = &link;
  }
  return best == nullptr ? "" : best->name;
}

}  // namespace

std::vector<Finding> diagnose(const DoctorReport& report) { return Diagnosis(report).take(); }

std::string fabric_of(const DoctorReport& report) {
  return on_all(report, is_slingshot) ? "slingshot" : on_all(report, is_rdma) ? "infiniband" : "tcp";
}

std::string site_file(const DoctorReport& report) {
  const std::string fabric = fabric_of(report);
  std::string interface = fabric == "infiniband" ? common_interface(report, "ipoib") : "";
  if (interface.empty() && fabric != "slingshot") interface = common_interface(report, "ethernet");
  std::string text = join("# shellcheck shell=bash\n# Written by lockstep comm-test --doctor on ", report.hosts.size(),
                          " hosts from ", report.hosts.front().host, " on: ", fabric);
  if (!report.pairs.empty()) {
    const HostPair& slowest = *std::ranges::min_element(report.pairs, {}, &HostPair::bytes_per_s);
    const HostPair& slowest_reply = *std::ranges::max_element(report.pairs, {}, &HostPair::latency_s);
    text += join(", pairs from ", speed(slowest.bytes_per_s), ", at most ", human_seconds(slowest_reply.latency_s));
  }
  text += ".\n";
  if (!interface.empty()) text += join("INTERFACE=${INTERFACE:-", interface, "}\n");
  std::string wrong;
  for (const NcclCheck& check : report.nccl)
    if (!check.problem.empty() && wrong.find(check.protocol) == std::string::npos)
      wrong += (wrong.empty() ? "^" : ",") + check.protocol;
  if (!wrong.empty())
    text += join("# These protocols gave wrong sums here.\nexport NCCL_PROTO=${NCCL_PROTO:-", wrong, "}\n");
  return text + join("# shellcheck disable=SC1091\nsource \"$LOCKSTEP_HOME/slurm/sites/", fabric, ".sh\"\n");
}

}  // namespace lockstep
