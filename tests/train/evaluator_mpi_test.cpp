#include "lockstep/train/evaluator.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"
#include "support/toy_task.hpp"

TEST_SUITE("train.evaluator") {
  TEST_CASE("an evaluation has the same bits on any number of ranks and threads") {
    ToyTask model(DType::f32, 5000);
    const auto alone = make_self_communicator();
    const std::vector<Metric> expected = evaluate(*alone, model, Split::validation, 1);
    CHECK(expected[0].value == 1666);
    for (const int threads : {1, 3}) {
      const std::vector<Metric> metrics = evaluate(test_world().communicator(), model, Split::validation, threads);
      CHECK(metrics[0].value == expected[0].value);
      CHECK(metrics[1].value == expected[1].value);
    }
  }
  TEST_CASE("a split with fewer samples than ranks is evaluated whole") {
    ToyTask model(DType::f32, 3);
    CHECK(evaluate(test_world().communicator(), model, Split::validation, 2)[0].value == 1);
  }

  TEST_CASE("an evaluation of some samples takes exactly that many, the same ones on any ranks") {
    ToyTask model(DType::f32, 3000);
    const auto alone = make_self_communicator();
    const std::vector<Metric> all = evaluate(*alone, model, Split::validation, 1);
    for (const std::int64_t most : {std::int64_t{7}, std::int64_t{500}, std::int64_t{999}, std::int64_t{2000}}) {
      const EvaluationOptions options{.most_samples = most};
      const std::vector<Metric> expected = evaluate(*alone, model, Split::validation, 1, nullptr, options);
      const std::vector<Metric> found =
          evaluate(test_world().communicator(), model, Split::validation, 2, nullptr, options);
      CHECK(expected[0].value == static_cast<double>(std::min<std::int64_t>(most, 1000)));
      CHECK(found[1].value == expected[1].value);
      CHECK((found[1].value == all[1].value) == (most >= 1000));
    }
  }
}
