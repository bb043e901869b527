#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "lockstep/base/log.hpp"
#include "lockstep/ops/fma_peak.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {

namespace {

using ops::Isa;

/// The processors that this process may run on, as a bit set; empty if the system does not report them. A fixed
/// cpu_set_t is too small for kernels that count more than 1024 processors.
std::vector<std::byte> own_processors() {
  for (std::size_t count = 1024; count <= std::size_t{1} << 20; count *= 2) {
    std::vector<std::byte> set(CPU_ALLOC_SIZE(count));
    if (sched_getaffinity(0, set.size(), reinterpret_cast<cpu_set_t*>(set.data())) == 0) return set;
  }
  return {};
}

int count_of(const std::vector<std::byte>& processors) {
  return CPU_COUNT_S(processors.size(), reinterpret_cast<const cpu_set_t*>(processors.data()));
}

/// Logs on rank 0 if threads share cores, or if cores are idle.
///
/// sharers  number of ranks that may use the processors `mine`;  of_node  the processors of all ranks of the node
void check_binding(World& world, int threads, std::int64_t on_node, int sharers, const std::vector<std::byte>& mine,
                   const std::vector<std::byte>& of_node, bool chosen) {
  constexpr const char* kBinding = "(mpirun --bind-to none or --map-by ...:PE=THREADS, srun --cpus-per-task=THREADS)";
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int bound = count_of(mine), usable = count_of(of_node);
  if (world.rank() != 0) return;
  if (on_node > online) {
    log::warning(on_node, " threads on the ", online, " cores of ", world.host(), "; use fewer ranks or --threads");
  } else if (bound > 0 && threads * sharers > bound) {
    log::warning(threads * sharers, threads * sharers == 1 ? " thread is" : " threads are", " bound to ", bound,
                 bound == 1 ? " core" : " cores", " of the ", online, " of ", world.host(), "; let the ranks use more ",
                 kBinding, ", or use --threads ", std::max(1, bound / sharers));
  } else if (!chosen && usable > 0 && 2 * usable < online) {
    log::info("the ranks of ", world.host(), " may use ", usable, " of its ", online,
              " cores; to give them more, start them with more threads ", kBinding);
  }
}

/// The threads of this rank, set for OpenMP.
int choose_threads(World& world, std::int64_t wanted) {
  const std::vector<std::byte> mine = own_processors();
  std::vector<std::byte> of_node;
  int sharers = 0;
  const Gathered all = world.node_communicator().all_gather(mine, "processors");
  for (int r = 0; r < all.ranks(); ++r) {
    const std::span<const std::byte> theirs = all.of(r);
    if (std::ranges::equal(theirs, mine)) ++sharers;
    of_node.resize(std::max(of_node.size(), theirs.size()));
    for (std::size_t i = 0; i < theirs.size(); ++i) of_node[i] |= theirs[i];
  }
  const bool by_environment = std::getenv("OMP_NUM_THREADS") != nullptr;
  int threads = static_cast<int>(wanted);
  if (threads == 0) threads = by_environment ? omp_get_max_threads() : std::max(1, omp_get_num_procs() / sharers);
  // A smaller OpenMP team would make the training wait for gradients of threads that do not exist.
  if (const int most = omp_get_thread_limit(); threads > most) {
    if (world.rank() == 0)
      log::warning(threads, " threads per rank are not possible: OMP_THREAD_LIMIT = ", most,
                   "; each rank computes with ", most);
    threads = most;
  }
  const auto on_node =
      world.node_communicator().all_reduced(std::int64_t{threads}, ReduceOp::sum, "threads of this node");
  check_binding(world, threads, on_node, sharers, mine, of_node, wanted != 0 || by_environment);
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
  return threads;
}

/// The fastest set for the slowest rank. last  the last one that all processors have
Isa fastest_of_all(World& world, Isa last) {
  std::vector<Isa> isas;
  for (const Isa isa : ops::available_isas())
    if (isa != Isa::generic) isas.push_back(isa);  // without fused multiply-adds: never the fastest
  static const std::vector<double> measured = isas.size() > 1 ? ops::measure_products(isas) : std::vector<double>();
  isas.resize(static_cast<std::size_t>(std::ranges::find(isas, last) - isas.begin()) + 1);
  if (isas.size() < 2) return last;
  std::vector<double> rates(measured.begin(), measured.begin() + std::ssize(isas));
  world.communicator().all_reduce(std::span<double>(rates), ReduceOp::min, "rates of the instruction sets");
  const Isa chosen = ops::fastest(isas, rates);
  std::string list;
  for (std::size_t i = 0; i < isas.size(); ++i)
    list += join(i > 0 ? ", " : "", name(isas[i]), " ", std::llround(rates[i] / 1e9));
  log::info("matrix products on the slowest rank, GFLOP/s per thread: ", list, "; all ranks compute with ",
            name(chosen), " (option run.isa)");
  return chosen;
}

}  // namespace

void choose_isa(World& world, const std::string& wanted, const std::string& before, BestIsa best) {
  require_same_architecture(world);
  const std::vector<Isa>& mine = ops::available_isas();
  Communicator& comm = world.communicator();
  const auto of_all = [&](Isa isa, ReduceOp op) {
    return static_cast<Isa>(comm.all_reduced(static_cast<std::int64_t>(isa), op, "instruction sets"));
  };
  const Isa least = of_all(mine.back(), ReduceOp::min), most = of_all(mine.back(), ReduceOp::max);
  Isa chosen = least;
  world.together("choosing the instruction set", [&] {
    std::string names;
    bool found = false;
    for (const Isa isa : mine) {
      names += join(names.empty() ? "" : ", ", name(isa));
      if (wanted == "auto" ? isa > least || ops::record_name(isa) != before : name(isa) != wanted) continue;
      found = true;
      chosen = isa;
    }
    require_usage(found || wanted == "auto", "option run.isa = ", wanted, ": the processor of ", world.host(), " has ",
                  names, "; choose one of these, or auto");
  });
  if (best == BestIsa::fastest && wanted == "auto" && before.empty()) chosen = fastest_of_all(world, least);
  ops::use_isa(chosen);
  if (least != most) {
    const bool weakest = mine.back() == least;
    const std::int64_t rank =
        comm.all_reduced(std::int64_t{weakest ? world.rank() : world.size()}, ReduceOp::min, "instruction sets");
    const std::string host = comm.broadcast_text(world.host(), static_cast<int>(rank), "host name");
    log::info("the ranks' processors differ: that of rank ", rank, " (", host, ") has no better instruction set than ",
              name(least), ", others have ", name(most), "; all ranks compute with ", name(chosen));
  }
  if (!before.empty() && before != ops::record_name(chosen)) {
    const bool here = std::any_of(mine.begin(), mine.end(), [&](Isa isa) { return ops::record_name(isa) == before; });
    log::warning("the run began with instruction set ", before, ", this start computes with ", ops::record_name(chosen),
                 ": weights will differ in the last digits from an uninterrupted run",
                 wanted == "auto" || !here ? "; the processors lack the former set"
                                           : "; use --run.isa " + before.substr(0, before.find(' ')));
  }
}

int prepare_cpu(World& world, const RunConfig& config, BestIsa best) {
  const bool measures = !config.run.reproducible && config.run.device != "cuda";
  choose_isa(world, config.run.isa, config.first_isa, measures ? best : BestIsa::last);
  return choose_threads(world, config.run.threads);
}

}  // namespace lockstep
