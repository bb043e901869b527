#include "lockstep/step/sharded_step.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"
#include "support/toy_task.hpp"

namespace {

const GlobalBatch kBatch{.seed = 7, .epoch = 2, .step = 31, .first = 20, .count = 0};

GlobalBatch batch_of(std::int64_t count, std::int64_t micro = 0) {
  GlobalBatch batch = kBatch;
  batch.count = count;
  batch.micro = micro;
  return batch;
}

/// Largest difference from the gradient of the whole batch on one rank, relative to its largest element.
double error_against_reference(const ToyTask& model, const ShardedStep& step, const StepSums& sums,
                               const GlobalBatch& batch) {
  double loss, weight;
  const std::vector<double> expected = model.reference(batch.seed, batch.epoch, batch.first, batch.count, loss, weight);
  double largest = 0, worst = std::abs(sums.loss - loss) / loss;
  if (sums.weight != weight) return 1e9;
  for (const double g : expected) largest = std::max(largest, std::abs(g));
  visit_float(step.gradient().dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = std::abs(static_cast<double>(step.gradient().data<T>()[i]) - expected[i]) / largest;
      worst = std::isfinite(error) ? std::max(worst, error) : 1e9;
    }
  });
  return worst;
}

}  // namespace

TEST_SUITE("step.sharded_step") {
  TEST_CASE("for any ranks, threads, shards, chunks, buckets and micro-batches the gradient is the whole batch's") {
    Communicator& comm = test_world().communicator();
    ToyTask model(DType::f64);
    for (const bool reproducible : {false, true}) {
      for (const int threads : {1, 2, 3}) {
        for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 20}) {
          const auto step = make_sharded_step(
              comm, model,
              {.threads = threads, .shards = 8, .reproducible = reproducible, .bucket_bytes = bucket_bytes});
          CHECK(step->buckets() == (bucket_bytes == 1 ? 5 : 1));
          for (const std::int64_t count : {1, 2, 3, 7, 8, 61, 80}) {  // fewer samples than ranks, threads, shards
            for (const auto& [micro, chunk, rows] :
                 {std::tuple<std::int64_t, std::int64_t, std::int64_t>{0, 0, 0}, {5, 0, 1}, {0, 3, 7}, {5, 1, 7}}) {
              model.in_cache = chunk;
              model.most_rows = rows;
              const GlobalBatch batch = batch_of(count, micro);
              const StepSums sums = step->run(batch);
              CAPTURE(count);
              CAPTURE(threads);
              CAPTURE(micro);
              CAPTURE(chunk);
              CAPTURE(rows);
              CAPTURE(reproducible);
              CHECK(error_against_reference(model, *step, sums, batch) < 1e-13);
            }
          }
        }
      }
    }
  }

  TEST_CASE("default mode: ranks and threads share the rows of a batch") {
    const Communicator& comm = test_world().communicator();
    for (const int threads : {1, 2, 3}) {
      for (const std::int64_t micro : {0, 300}) {
        ToyTask model(DType::f32, 1000);
        model.most_rows = 7;
        const auto step = make_sharded_step(test_world().communicator(), model, {.threads = threads, .shards = 1});
        const GlobalBatch batch = batch_of(777, micro);
        step->run(batch);
        CHECK(model.row_counts == (micro == 0 ? 1 : 3));
        REQUIRE(std::ssize(model.computed) == (micro == 0 ? 1 : 3) * threads);
        for (const Shard& part : model.computed) {
          Shard whole = part;
          whole.first = batch.first + (micro > 0 ? (part.first - batch.first) / micro * micro : 0);
          whole.count = std::min(micro > 0 ? micro : batch.count, batch.first + batch.count - whole.first);
          const double fair = static_cast<double>(model.count_rows(whole, {}).rows) / (comm.size() * threads);
          // Each of the four cuts is at most half of a sample beside its place.
          CHECK(std::abs(static_cast<double>(model.count_rows(part, {}).rows) - fair) <= 4 * 3.5);
        }
      }
    }
  }

  TEST_CASE("reproducible: the bits do not depend on ranks and threads") {
    const auto alone = make_self_communicator();
    for (const std::int64_t shards : {16, 64}) {
      ToyTask model(DType::f32, 1000);
      model.in_cache = 7;
      if (shards == 64) model.most_rows = 7;  // threads share rows
      const auto reference = make_sharded_step(*alone, model, {.threads = 1, .shards = shards, .reproducible = true});
      for (const int threads : {1, 2, 3, 9}) {
        const auto step = make_sharded_step(test_world().communicator(), model,
                                            {.threads = threads, .shards = shards, .reproducible = true});
        for (const std::int64_t count : {1, 2, 15, 16, 17, 500, 777}) {
          for (const std::int64_t micro : {0, 100}) {
            const StepSums expected = reference->run(batch_of(count, micro)), sums = step->run(batch_of(count, micro));
            CAPTURE(count);
            CHECK(sums.loss == expected.loss);
            CHECK(sums.weight == expected.weight);
            CHECK(std::memcmp(step->gradient().raw(), reference->gradient().raw(), step->gradient().size_bytes()) == 0);
          }
        }
      }
    }
  }

  TEST_CASE("default mode: one more thread changes no more than rounding, and the same run repeats its bits") {
    ToyTask model(DType::f32, 1000);
    const auto one = make_sharded_step(test_world().communicator(), model, {.threads = 1});
    const auto two = make_sharded_step(test_world().communicator(), model, {.threads = 2});
    const GlobalBatch batch = batch_of(777);
    const StepSums a = one->run(batch), b = two->run(batch);
    CHECK(error_against_reference(model, *one, a, batch) < 1e-5);
    CHECK(error_against_reference(model, *two, b, batch) < 1e-5);
    const auto again = make_sharded_step(test_world().communicator(), model, {.threads = 2});
    again->run(batch);
    CHECK(std::memcmp(two->gradient().raw(), again->gradient().raw(), two->gradient().size_bytes()) == 0);
  }

  TEST_CASE("a flag that one rank raises is seen by all, in both modes and with buckets") {
    World& world = test_world();
    ToyTask model;
    for (const bool reproducible : {false, true}) {
      const auto step = make_sharded_step(world.communicator(), model,
                                          {.threads = 2, .reproducible = reproducible, .bucket_bytes = 1});
      CHECK(step->run(batch_of(10), 0).flags == 0);
      const bool last = world.rank() == world.size() - 1;
      CHECK(step->run(batch_of(10), last ? kStop : 0u).flags == kStop);
      CHECK(step->run(batch_of(10), world.rank() == 0 ? kCheckpoint | kStop : 0u).flags == (kCheckpoint | kStop));
      CHECK(step->run(batch_of(10), 0).flags == 0);
    }
  }

  TEST_CASE("compressed: bf16's digits in the gradient, all digits in loss and weight, the same bits on every rank") {
    World& world = test_world();
    ToyTask model(DType::f32, 1000);
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 20}) {
      const auto step = make_sharded_step(
          world.communicator(), model, {.threads = 2, .bucket_bytes = bucket_bytes, .compression = Compression::bf16});
      for (const std::int64_t count : {1, 7, 777}) {
        const GlobalBatch batch = batch_of(count);
        const StepSums sums = step->run(batch, kCheckpoint);
        CAPTURE(count);
        CHECK(sums.flags == kCheckpoint);
        double loss, weight;
        model.reference(batch.seed, batch.epoch, batch.first, batch.count, loss, weight);
        CHECK(std::abs(sums.loss - loss) < 1e-5 * loss);
        // Half a unit of 2^-8 for what each rank sends, and for the sum; ranks' parts may be larger than their sum.
        CHECK(error_against_reference(model, *step, sums, batch) < (world.size() == 1 ? 1e-5 : 1.5e-2));
        const auto bits = step->gradient().span<float>();
        std::vector<float> high(bits.begin(), bits.end()), low = high;
        world.communicator().all_reduce(std::span(high), ReduceOp::max, "gradient");
        world.communicator().all_reduce(std::span(low), ReduceOp::min, "gradient");
        CHECK(high == low);
      }
    }
    ToyTask wide(DType::f64);
    CHECK_THROWS_WITH_AS(make_sharded_step(world.communicator(), wide, {.compression = Compression::bf16}),
                         doctest::Contains("dist.compress"), Error);
    CHECK_THROWS_WITH_AS(
        make_sharded_step(world.communicator(), model, {.reproducible = true, .compression = Compression::bf16}),
        doctest::Contains("dist.compress"), Error);
  }

  TEST_CASE("run() rethrows the exception of a shard on a thread") {
    ToyTask model;
    const auto alone = make_self_communicator();
    for (const bool reproducible : {false, true}) {
      const auto step = make_sharded_step(*alone, model, {.threads = 3, .reproducible = reproducible});
      model.fails_at = 25;
      CHECK_THROWS_WITH(step->run(batch_of(50)), "sample 25 is bad");
      model.fails_at = -1;
      const StepSums sums = step->run(batch_of(50));
      CHECK(error_against_reference(model, *step, sums, batch_of(50)) < 1e-5);
    }
  }

  TEST_CASE("reproducible needs a power of two of shards, and one for each rank") {
    ToyTask model;
    World& world = test_world();
    CHECK_THROWS_AS(make_sharded_step(world.communicator(), model, {.shards = 12, .reproducible = true}), Error);
    if (world.size() > 2)
      CHECK_THROWS_AS(make_sharded_step(world.communicator(), model, {.shards = 2, .reproducible = true}), Error);
  }
}
