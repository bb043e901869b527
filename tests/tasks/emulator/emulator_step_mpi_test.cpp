#include "emulator_training.hpp"
#include "support/mpi_gpus.hpp"
#include "support/test.hpp"

using Network = EmulatorNetwork;
using Training = EmulatorTraining;

TEST_SUITE("tasks.emulator_step" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("a step of two kernels on several GPUs agrees with one GPU, with separate kernels and between ranks") {
    Communicator& comm = test_world().communicator();
    if (!gpu_for_each_rank()) return skip("a step of two kernels needs a GPU for each rank");
    const Device own = own_gpu();
    const std::vector<std::pair<Network, std::vector<std::int64_t>>> cases = {
        {{.in = 5, .out = 3, .hidden = 12}, {40, 40, 1, 40, 40, 13, 40, 40}},  // some ranks without samples
        {{.in = 5, .out = 3, .hidden = 64}, {40, 13, 40}},                     // two partial sums of the norm
    };
    for (const auto& [network, counts] : cases) {
      Training graphs(network, true, own, &comm), calls(network, true, own, &comm), parts(network, false, own, &comm),
          alone(network, true, own);
      graphs.train(counts, 0.2);
      calls.train(counts, 0.2, Graphs::off);
      parts.train(counts, 0.2);
      alone.train(counts, 0.2);
      CHECK(same_bits(graphs, calls));
      CHECK(difference(graphs, parts) < 1e-11);  // see emulator_step_test.cpp
      CHECK(difference(graphs, alone) < 1e-11);
      if (comm.size() == 1) CHECK(same_bits(graphs, alone));
      for (const OwnedTensor& t : graphs.state()) {
        const std::vector<double> mine(t->data<double>(), t->data<double>() + t->size());
        std::vector<double> least = mine;
        comm.all_reduce(std::span(least), ReduceOp::min, "weights");
        CHECK(least == mine);
      }
    }
  }
}
