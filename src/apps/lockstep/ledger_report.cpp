#include "apps/lockstep/ledger_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::apps {

namespace {

using Json = nlohmann::ordered_json;

struct Gpu {
  const char* name;
  double sms, clock_hz;
  double bytes_per_s, bus_bytes_per_s;
  double l2_bytes, l2_bytes_per_s;
  double node_s;                   ///< from the end of a node of a graph to the start of the next, with both
  double flops[kFlopUnits];        ///< by FlopUnit, dense
  double latency, shared_latency;  ///< of a load from memory, and from shared memory. Units: cycles
};

/// Rates: NVIDIA's data sheets of the H200 SXM, the A100 80 GB SXM and the L40S, without sparsity; the bus is PCIe in
/// one direction. Clocks: those that the fp32 rates follow from. L2 caches and nodes: measured on an H200, an A100 80
/// GB and an L40 (the chip of the L40S) by github.com/te42kyfo/gpu-benches. Its gpu-l2-cache reads data sets of
/// increasing size: the largest one that is read at nearly the full rate, and that rate; NVIDIA's sizes are 50, 40 and
/// 96 MB. In its gpu-small-kernels a node of a graph that copies 32 KB takes 2.26, 1.36 and 0.94 us; less its load and
/// store, as they are estimated here. Latencies: Luo et al. 2024, arXiv:2402.13499, for the H100, the A100 and the RTX
/// 4090 (Ada, as the L40S).
constexpr std::array<Gpu, 3> kGpus = {{
    {"H200", 132, 1.98e9, 4.8e12, 64e9, 45e6, 9.7e12, 2.1e-6, {67e12, 494e12, 989e12}, 480, 29},
    {"A100", 108, 1.41e9, 2.04e12, 32e9, 28e6, 5.4e12, 1.2e-6, {19.5e12, 156e12, 312e12}, 470, 29},
    {"L40S", 142, 2.52e9, 0.864e12, 32e9, 93e6, 5.2e12, 0.8e-6, {91.6e12, 183e12, 362e12}, 540, 30},
}};
/// The GPU whose bytes of memory the table shows: the smallest L2 cache.
constexpr std::size_t kSmallest = 1;
/// Assumed number of loads that a thread has in flight.
constexpr double kInFlight = 4;
constexpr double kThreadsOfSm = 2048;
/// Assumed share of the time between two nodes that an early start saves, which only the H200 has. No measurement was
/// found, so the estimates leave it out.
constexpr double kEarlySaves = 0.5;

struct Estimate {
  double likely = 0, floor = 0;
};

Estimate estimate(const Gpu& gpu, const LedgerEntry& e) {
  const auto n = static_cast<double>(e.launches);
  double multiplying = 0;
  for (int unit = 0; unit < kFlopUnits; ++unit) multiplying += e.flops[unit] / gpu.flops[unit];
  const double bus = e.bus_bytes / gpu.bus_bytes_per_s;
  const auto blocks = static_cast<double>(e.blocks);
  const double idle = blocks > 0 ? std::max(1.0, gpu.sms / blocks) : 1;
  const double waves = std::max(1.0, blocks * static_cast<double>(e.block_threads) / (gpu.sms * kThreadsOfSm));
  const double chain =
      waves * (e.longest * gpu.latency + e.longest_shared * gpu.shared_latency) / (kInFlight * gpu.clock_hz);
  const double working = idle * std::max({e.memory_bytes(gpu.l2_bytes) / gpu.bytes_per_s,
                                          e.moved_bytes / gpu.l2_bytes_per_s, multiplying});
  return {.likely = n * gpu.node_s + std::max({working, n * chain, bus}),
          .floor = std::max(e.necessary_bytes / gpu.bytes_per_s, multiplying)};
}

/// "cuda::spmm_kernel<float, 4>" as "spmm"; kernels that apply a function object with its name: "map add".
std::string short_name(const std::string& name) {
  const auto bare = [](std::string text) {
    text = text.substr(0, text.find_first_of("<({"));
    if (const auto at = text.rfind(':'); at != std::string::npos) text = text.substr(at + 1);
    return text.ends_with("_kernel") ? text.substr(0, text.size() - 7) : text;
  };
  const std::string kernel = bare(name);
  const auto object = name.find("::", name.find('<'));
  const bool applies = (kernel == "map" || kernel == "column_sums") && object != std::string::npos;
  return applies ? join(kernel, " ", bare(name.substr(object + 2))) : kernel;
}

double ratio(double moved, double necessary) { return necessary > 0 ? moved / necessary : 1; }

/// "12.3k", "4.5M": three digits.
std::string counted(double value) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (value >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  return printed(value >= 99.5 || value == std::floor(value) ? "%.0f%s"
                 : value >= 9.95                             ? "%.1f%s"
                                                             : "%.2f%s",
                 value, kUnits[unit]);
}

}  // namespace

Json ledger_json(const Ledger& ledger, std::int64_t steps) {
  const auto per_step = [steps](double sum) { return sum / static_cast<double>(steps); };
  struct Row {
    double launches = 0, early = 0, necessary = 0, moved = 0, bus = 0, flops = 0, longest = 0, longest_shared = 0;
    std::int64_t most_blocks = 0;
    std::array<double, kGpus.size()> memory = {};
    std::array<Estimate, kGpus.size()> times;
    void add(const Row& other) {
      launches += other.launches;
      early += other.early;
      necessary += other.necessary;
      moved += other.moved;
      bus += other.bus;
      flops += other.flops;
      longest = std::max(longest, other.longest);
      longest_shared = std::max(longest_shared, other.longest_shared);
      most_blocks = std::max(most_blocks, other.most_blocks);
      for (std::size_t g = 0; g < kGpus.size(); ++g) {
        memory[g] += other.memory[g];
        times[g].likely += other.times[g].likely;
        times[g].floor += other.times[g].floor;
      }
    }
    Json json() const {
      Json out = {{"launches", launches},
                  {"early_launches", early},
                  {"blocks", most_blocks},
                  {"necessary_bytes", necessary},
                  {"moved_bytes", moved},
                  {"bus_bytes", bus},
                  {"flops", flops},
                  {"longest", longest},
                  {"longest_shared", longest_shared}};
      for (std::size_t g = 0; g < kGpus.size(); ++g) {
        out["memory_bytes"][kGpus[g].name] = memory[g];
        out["estimate_s"][kGpus[g].name] = times[g].likely;
        out["floor_s"][kGpus[g].name] = times[g].floor;
      }
      return out;
    }
  };
  std::map<std::string, Row> rows;
  Row total;
  for (const LedgerEntry& e : ledger.entries) {
    Row row{.launches = per_step(static_cast<double>(e.launches)),
            .early = per_step(static_cast<double>(e.early)),
            .necessary = per_step(e.necessary_bytes),
            .moved = per_step(e.moved_bytes),
            .bus = per_step(e.bus_bytes),
            .flops = per_step(e.flops[0] + e.flops[1] + e.flops[2]),
            .longest = e.longest,
            .longest_shared = e.longest_shared,
            .most_blocks = e.blocks,
            .memory = {},
            .times = {}};
    for (std::size_t g = 0; g < kGpus.size(); ++g) {
      const Estimate all = estimate(kGpus[g], e);
      row.memory[g] = per_step(e.memory_bytes(kGpus[g].l2_bytes));
      row.times[g] = {per_step(all.likely), per_step(all.floor)};
    }
    rows[short_name(e.name)].add(row);
    total.add(row);
  }
  Json out = {{"job", "ledger"},
              {"steps", steps},
              {"graphs", per_step(static_cast<double>(ledger.graphs))},
              {"nodes", per_step(static_cast<double>(ledger.nodes))},
              {"host_launches", per_step(static_cast<double>(ledger.launches))},
              {"host_waits", per_step(static_cast<double>(ledger.waits))},
              {"late_waits", per_step(static_cast<double>(ledger.late_waits))},
              {"to_gpu_bytes", per_step(ledger.to_gpu_bytes)},
              {"from_gpu_bytes", per_step(ledger.from_gpu_bytes)},
              {"total", total.json()}};
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.times[0].likely > b.second.times[0].likely; });
  for (const auto& [name, row] : sorted) out["work"][name] = row.json();
  return out;
}

std::string ledger_text(const Json& report) {
  std::string out = printed("%-33s%7s%8s%10s%8s%6s%8s%6s%7s%8s%8s", "work, per step", "times", "blocks", "necessary",
                            "memory", "x", "moved", "x", "flop", "longest", "shared");
  for (const Gpu& gpu : kGpus) out += printed("%8s", gpu.name);
  out += "\n";
  const auto line = [&](const std::string& name, const Json& row) {
    const double necessary = row["necessary_bytes"], moved = row["moved_bytes"];
    const double memory = row["memory_bytes"][kGpus[kSmallest].name];
    out += printed("%-33s%7s%8s%10s%8s%6s%8s%6s%7s%8s%8s", name.substr(0, 32).c_str(), counted(row["launches"]).c_str(),
                   counted(row["blocks"]).c_str(), counted(necessary).c_str(), counted(memory).c_str(),
                   counted(ratio(memory, necessary)).c_str(), counted(moved).c_str(),
                   counted(ratio(moved, necessary)).c_str(), counted(row["flops"]).c_str(),
                   counted(row["longest"]).c_str(), counted(row["longest_shared"]).c_str());
    for (const Gpu& gpu : kGpus)
      out += printed("%8s", counted(1e6 * row["estimate_s"][gpu.name].get<double>()).c_str());
    out += "\n";
  };
  for (const auto& [name, row] : report["work"].items()) line(name, row);
  const Json& total = report["total"];
  line("all", total);
  out += printed("%-109s", "floor: necessary bytes and flops alone");
  for (const Gpu& gpu : kGpus) out += printed("%8s", counted(1e6 * total["floor_s"][gpu.name].get<double>()).c_str());
  out += join("\nhost: ", counted(report["host_launches"]), " launches, of them ", counted(report["graphs"]),
              " graphs with ", counted(report["nodes"]), " nodes; waits for the latest work ",
              counted(report["host_waits"]), ", for earlier work ", counted(report["late_waits"]),
              "\nhost memory: ", counted(report["to_gpu_bytes"]), " bytes copied to the GPU, ",
              counted(report["from_gpu_bytes"]), " from it; ",
              counted(std::max(0.0, total["bus_bytes"].get<double>() - report["to_gpu_bytes"].get<double>() -
                                        report["from_gpu_bytes"].get<double>())),
              " read and written in place by kernels\n");
  const double early = total["early_launches"];
  if (early > 0)
    out +=
        join(counted(early), " kernels may start early: if that saves half of the time between nodes (an assumption), ",
             counted(1e6 * early * kEarlySaves * kGpus[0].node_s), " us less on an ", kGpus[0].name, "\n");
  out +=
      "Bytes, flops and accesses are counted on the stand-in; times are estimates in microseconds of GPU work, not "
      "measurements.\n";
  return out;
}

}  // namespace lockstep::apps
