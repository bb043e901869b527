#include "lockstep/step/scaling.hpp"

#include "support/test.hpp"

TEST_SUITE("step.scaling") {
  TEST_CASE("the fit recovers the constants that made the times") {
    const LinkCost cost{2e-5, 1e-9};
    std::vector<AllReduceTime> times;
    for (const std::size_t bytes : {256u, 8192u, 65536u, 4194304u})
      times.push_back({bytes, all_reduce_seconds(cost, 4, static_cast<double>(bytes))});
    const LinkCost found = fit_link_cost(times, 4);
    CHECK(found.alpha_s == Approx(cost.alpha_s));
    CHECK(found.beta_s == Approx(cost.beta_s));
    CHECK(all_reduce_seconds(cost, 1, 1e9) == 0);
    CHECK(fit_link_cost({{100, 1e-5}, {1000000, 1e-5}}, 2).beta_s >= 0);
    CHECK_THROWS_AS(fit_link_cost({{8, 1e-5}}, 2), Error);
    CHECK_THROWS_AS(fit_link_cost(times, 1), Error);
  }

  TEST_CASE("overlap hides communication up to the backward pass, and never makes a step shorter than its compute") {
    StepWork work{.compute_s = 0.03, .update_s = 0.001, .ranks = 2, .fixed_global_batch = false};
    work.bucket_bytes = {1e6, 1e6, 1e6, 1e6};
    const LinkCost fast{1e-6, 1e-9};  // 1 GB/s: a bucket takes 1 ms, the backward 20 ms
    const StepPrediction hidden = predict_step(work, fast, 2);
    CHECK(hidden.communication_s == Approx(4 * (1e-3 + 2e-6)));
    CHECK(hidden.exposed_s == Approx(1e-3 + 2e-6));  // the last bucket has nothing to hide behind
    work.overlap = false;
    CHECK(predict_step(work, fast, 2).exposed_s == Approx(hidden.communication_s));
    CHECK(predict_step(work, fast, 1).exposed_s == 0);
    CHECK(predict_step(work, fast, 1).efficiency == Approx(1));
  }

  TEST_CASE("only the backward of the last shard hides messages, and embeddings that go first hide behind weights") {
    StepWork work{.compute_s = 0.03, .ranks = 2, .shards = 8, .fixed_global_batch = false};
    work.bucket_bytes = {2e6, 1e6};
    const LinkCost fast{0, 1e-9};  // buckets take 2 and 1 ms; the last of four backward passes 5 ms
    CHECK(predict_step(work, fast, 2).exposed_s == Approx(1e-3 + 1e-3 / 3));
    work.shards = 1;
    CHECK(predict_step(work, fast, 2).exposed_s == Approx(1e-3));
    work.bucket_bytes = {7e6, 1e6};
    work.embeddings_first = true;  // 20 / 3 ms before the end
    CHECK(predict_step(work, fast, 2).exposed_s == Approx(1e-3 + 1e-3 / 3));
  }

  TEST_CASE("a fixed global batch shrinks a rank's compute, a fixed batch per rank does not") {
    StepWork work{.compute_s = 0.01, .ranks = 2, .fixed_global_batch = true};
    work.bucket_bytes = {4e6};
    const LinkCost cost{1e-5, 1e-9};
    CHECK(predict_step(work, cost, 8).step_s == Approx(0.0025 + all_reduce_seconds(cost, 8, 4e6)));
    work.fixed_global_batch = false;
    CHECK(predict_step(work, cost, 8).step_s == Approx(0.01 + all_reduce_seconds(cost, 8, 4e6)));
    work.ranks_per_member = 4;  // two hosts
    CHECK(predict_step(work, cost, 8).step_s == Approx(0.01 + all_reduce_seconds(cost, 2, 4e6)));
    double efficiency = 2;
    for (const std::int64_t ranks : read_rank_range("2..1024")) {
      CHECK(predict_step(work, cost, ranks).efficiency <= efficiency);
      efficiency = predict_step(work, cost, ranks).efficiency;
    }
  }

  TEST_CASE("nodes pay while a doubling saves a fifth of the time per sample, and the line names the remedy") {
    LinkCost cost;
    // 12 ms of compute and 4 ms of messages on 4 nodes of 2 ranks. On 1, 2, 4, ... nodes: 48, 26.7, 16, 10.7, 8, 6.7 ms.
    StepWork work = work_of_wait(0.012, 0.004, 0, 8, 4, cost);
    CHECK(predict_step(work, cost, 8).step_s == Approx(0.016));
    CHECK(predict_step(work, cost, 4).step_s == Approx(0.024 + 0.004 / 1.5));
    CHECK(paying_members(work, cost) == 16);
    CHECK(paying_text(work, cost, "node", 16) == "nodes that pay: 16 (a step: 10.7ms on 8, 8.0ms on 16, 6.7ms on 32)");
    work = work_of_wait(0.001, 0.03, 0, 2, 2, cost);
    CHECK(paying_members(work, cost) == 1);
    CHECK(paying_text(work, cost, "rank", 2) ==
          "ranks that pay: 1 (a step: 2.0ms on 1, 31.0ms on 2); a larger batch or dist.compress = bf16 makes more of "
          "them pay, or train other seeds on the others");
    work.fixed_global_batch = false;  // twice the samples in 31 ms
    CHECK(paying_members(work, cost) == 1);
    work = work_of_wait(0.03, 0.001, 0, 2, 2, cost);
    work.fixed_global_batch = false;
    CHECK(paying_text(work, cost, "node", 64).starts_with("nodes that pay: at least 1024 ("));
  }

  TEST_CASE("a range of ranks is doubled up to its end, and a wrong range is an error") {
    CHECK(read_rank_range("2..16") == std::vector<std::int64_t>{2, 4, 8, 16});
    CHECK(read_rank_range("3..10") == std::vector<std::int64_t>{3, 6, 10});
    CHECK(read_rank_range("6") == std::vector<std::int64_t>{6});
    for (const char* bad : {"", "..", "4..2", "0..4", "2..x", "two", "2..99999999999999"})
      CHECK_THROWS_AS(read_rank_range(bad), Error);
  }
}
