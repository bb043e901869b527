#include <doctest/doctest.h>

#include <vector>

#include "emulator_training.hpp"
#include "support/mpi_main.hpp"
#include "support/outcome.hpp"

using namespace lockstep;
using Network = test::EmulatorNetwork;
using Training = test::EmulatorTraining;

TEST_SUITE("tasks.emulator_step") {
  TEST_CASE("a step of two kernels on several GPUs agrees with one GPU, with separate kernels and between ranks" *
            doctest::skip(gpu_count() == 0)) {
    Communicator& comm = test_world().communicator();
    if (gpu_count() < comm.size()) return test::skip("a step of two kernels needs a GPU for each rank");
    const Device own = {DeviceKind::cuda, comm.rank()};
    const std::vector<std::int64_t> counts = {40, 40, 1, 40, 40, 13, 40, 40};  // some ranks without samples
    const Network network = {.in = 5, .out = 3, .hidden = 12};
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
    for (const OwnedTensor& t : graphs.state())
      for (std::int64_t i = 0; i < t->size(); ++i) {
        const double mine = t->data<double>()[i];
        CHECK(comm.all_reduced(mine, ReduceOp::min, "weights") == mine);
      }
  }
}
