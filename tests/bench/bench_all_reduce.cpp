// Short all_reduces beside plain MPI_Allreduce, in turn, in one run; medians over blocks of calls. Start it with one rank
// per host:   srun --mpi=pmix --ntasks-per-node=1 bench_all_reduce [BLOCKS]
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/comm/world.hpp"

using namespace lockstep;

int main(int argc, char** argv) {
  World world(&argc, &argv);
  return world.run([&] {
    const int blocks = argc > 1 ? std::atoi(argv[1]) : 40, calls = 20;
    if (world.rank() == 0)
      std::printf("%s, %d ranks on %d hosts\n%8s %18s %16s %7s\n", world.mpi_description().c_str(), world.size(),
                  world.nodes(), "bytes", "MPI_Allreduce, us", "all_reduce, us", "ratio");
    for (std::size_t bytes = 8; bytes <= 65536; bytes *= bytes < 4096 ? 8 : 2) {
      std::vector<double> values(bytes / sizeof(double)), plain, ours;
      for (int block = 0; block <= blocks; ++block) {
        const Stopwatch one;
        for (int i = 0; i < calls; ++i)
          MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                        MPI_COMM_WORLD);
        const double plain_s = one.seconds();
        const Stopwatch other;
        for (int i = 0; i < calls; ++i) world.communicator().all_reduce(std::span(values), ReduceOp::sum, "benchmark");
        if (block == 0) continue;  // connections
        plain.push_back(plain_s);
        ours.push_back(other.seconds());
      }
      const auto median_us = [&](std::vector<double>& seconds) {
        std::nth_element(seconds.begin(), seconds.begin() + blocks / 2, seconds.end());
        return 1e6 * seconds[static_cast<std::size_t>(blocks / 2)] / calls;
      };
      const double plain_us = median_us(plain), ours_us = median_us(ours);
      if (world.rank() == 0) {
        std::printf("%8zu %18.1f %16.1f %7.2f\n", bytes, plain_us, ours_us, ours_us / plain_us);
        std::fflush(stdout);
      }
    }
    return 0;
  });
}
