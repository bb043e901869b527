#include "apps/lockstep/ledger_report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::apps {

namespace {

using Json = nlohmann::ordered_json;

/// The data sheet of the H100 SXM, without sparsity: bytes of memory per second, and flops by FlopUnit.
constexpr double kBytesPerS = 3.35e12;
constexpr double kFlopsPerS[kFlopUnits] = {67e12, 495e12, 989e12};
/// The L2 cache of an A100, a part of which (gpu-l2-cache of github.com/te42kyfo/gpu-benches) keeps data at its full
/// rate. Those of the H100 and the L40S are larger.
constexpr double kCacheBytes = 28e6;

/// Seconds of an H100 for the necessary bytes or the flops of all launches, whichever take longer.
double floor_s(const LedgerEntry& e) {
  double multiplying = 0;
  for (int unit = 0; unit < kFlopUnits; ++unit) multiplying += e.flops[unit] / kFlopsPerS[unit];
  return std::max(e.necessary_bytes / kBytesPerS, multiplying);
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
    double memory = 0, floor = 0;
    std::int64_t most_blocks = 0;
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
      memory += other.memory;
      floor += other.floor;
    }
    Json json() const {
      return {{"launches", launches},   {"early_launches", early},
              {"blocks", most_blocks},  {"necessary_bytes", necessary},
              {"memory_bytes", memory}, {"moved_bytes", moved},
              {"bus_bytes", bus},       {"flops", flops},
              {"longest", longest},     {"longest_shared", longest_shared},
              {"floor_s", floor}};
    }
  };
  std::map<std::string, Row> rows;
  Row total;
  for (const LedgerEntry& e : ledger.entries) {
    const Row row{.launches = per_step(static_cast<double>(e.launches)),
                  .early = per_step(static_cast<double>(e.early)),
                  .necessary = per_step(e.necessary_bytes),
                  .moved = per_step(e.moved_bytes),
                  .bus = per_step(e.bus_bytes),
                  .flops = per_step(e.flops[0] + e.flops[1] + e.flops[2]),
                  .longest = e.longest,
                  .longest_shared = e.longest_shared,
                  .memory = per_step(e.memory_bytes(kCacheBytes)),
                  .floor = per_step(floor_s(e)),
                  .most_blocks = e.blocks};
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
                   [](const auto& a, const auto& b) { return a.second.moved > b.second.moved; });
  for (const auto& [name, row] : sorted) out["work"][name] = row.json();
  return out;
}

std::string ledger_text(const Json& report) {
  std::string out = printed("%-33s%7s%8s%10s%8s%6s%8s%6s%7s%8s%8s%8s\n", "work, per step", "times", "blocks",
                            "necessary", "memory", "x", "moved", "x", "flop", "longest", "shared", "floor");
  const auto line = [&](const std::string& name, const Json& row) {
    const double necessary = row["necessary_bytes"], memory = row["memory_bytes"], moved = row["moved_bytes"];
    out += printed("%-33s%7s%8s%10s%8s%6s%8s%6s%7s%8s%8s%8s\n", name.substr(0, 32).c_str(),
                   counted(row["launches"]).c_str(), counted(row["blocks"]).c_str(), counted(necessary).c_str(),
                   counted(memory).c_str(), counted(ratio(memory, necessary)).c_str(), counted(moved).c_str(),
                   counted(ratio(moved, necessary)).c_str(), counted(row["flops"]).c_str(),
                   counted(row["longest"]).c_str(), counted(row["longest_shared"]).c_str(),
                   counted(1e6 * row["floor_s"].get<double>()).c_str());
  };
  for (const auto& [name, row] : report["work"].items()) line(name, row);
  const Json& total = report["total"];
  line("all", total);
  out += join("host: ", counted(report["host_launches"]), " launches, of them ", counted(report["graphs"]),
              " graphs with ", counted(report["nodes"]), " nodes; waits for the latest work ",
              counted(report["host_waits"]), ", for earlier work ", counted(report["late_waits"]),
              "\nhost memory: ", counted(report["to_gpu_bytes"]), " bytes copied to the GPU, ",
              counted(report["from_gpu_bytes"]), " from it; ",
              counted(std::max(0.0, total["bus_bytes"].get<double>() - report["to_gpu_bytes"].get<double>() -
                                        report["from_gpu_bytes"].get<double>())),
              " read and written in place by kernels\n");
  const double early = total["early_launches"];
  if (early > 0) out += join(counted(early), " kernels may start early\n");
  out +=
      "Bytes, flops and accesses are counted on the stand-in. floor: microseconds that an H100 needs at least for the "
      "necessary bytes or the flops; not a measurement.\n";
  return out;
}

}  // namespace lockstep::apps
