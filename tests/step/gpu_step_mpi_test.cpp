#include "step/small_gpu_model.hpp"
#include "support/mpi_gpus.hpp"
#include "support/test.hpp"

namespace {

/// Full batches, smaller ones, and some with fewer samples than ranks.
GlobalBatch batch_at(std::int64_t step) {
  const std::int64_t counts[] = {20, 20, 13, 20, 2, 20, 1};
  return {.step = step, .first = 10 * step, .count = counts[step % 7], .micro = 7};
}

}  // namespace

TEST_SUITE("step.gpu_step" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("repeated steps of several GPUs have the bits of steps that are launched call by call") {
    Communicator& comm = test_world().communicator();
    if (!gpu_for_each_rank()) return skip("graphs need a GPU for each rank");
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 20}) {
      for (const bool fails : {false, true}) {
        CAPTURE(bucket_bytes);
        CAPTURE(fails);
        SmallModel model(own_gpu()), other(own_gpu());
        // One rank cannot capture some steps: then none repeats them, and no rank waits for another forever.
        if (fails && comm.rank() == comm.size() - 1) other.waits = [](std::int64_t step) { return step % 9 == 4; };
        const auto calls = make_sharded_step(comm, model, {.gpu_bucket_bytes = bucket_bytes, .graphs = Graphs::off});
        const auto graphs = make_sharded_step(comm, other, {.gpu_bucket_bytes = bucket_bytes});
        std::vector<StepSums> expected;
        const auto check = [&](const std::optional<EndedStep>& ended) {
          if (!ended) return;
          const StepSums& sums = expected[to_size(ended->step)];
          CHECK(ended->outcome.loss == sums.loss);
          CHECK(ended->outcome.weight == sums.weight);
          CHECK(ended->outcome.flags == sums.flags);
        };
        for (std::int64_t step = 0; step < 60; ++step) {
          CAPTURE(step);
          const unsigned flags = comm.rank() == 0 && step % 5 == 0 ? unsigned{kStop} : 0;
          expected.push_back(calls->run(batch_at(step), flags));
          CHECK(expected.back().weight == static_cast<double>(batch_at(step).count));
          graphs->start(batch_at(step), flags, {});
          check(graphs->take(false));
          if (step % 4 != 3) continue;  // the host runs ahead
          check(graphs->take(true));
          CHECK(elements<float>(graphs->gradient()) == elements<float>(calls->gradient()));
        }
        CHECK(model.passes > 0);
        if (!fails) CHECK(other.passes < model.passes / 2);
      }
    }
  }
}
