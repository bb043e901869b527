#include "lockstep/tasks/kgat/ranking_metrics.hpp"

#include "support/test.hpp"

namespace {
std::map<std::string, double> values(const RankingMetrics& metrics, const std::vector<double>& sums) {
  std::map<std::string, double> all;
  for (const Metric& m : metrics.metrics(sums)) all[m.name] = m.value;
  return all;
}
double d(int rho) { return 1 / std::log2(rho + 1.0); }
}  // namespace

TEST_SUITE("tasks.ranking_metrics") {
  TEST_CASE("one user's metrics have the values computed by hand") {
    const RankingMetrics metrics({2, 5});
    std::vector<double> sums(to_size(metrics.sum_count()), 0.0);
    const std::vector<std::int32_t> top = {7, 3, 9, 1, -1}, relevant = {1, 3, 20};
    metrics.add(top, relevant, sums.data());
    const auto f = values(metrics, sums);
    CHECK(f.at("recall@2") == Approx(1.0 / 3));
    CHECK(f.at("recall@5") == Approx(2.0 / 3));
    CHECK(f.at("precision@2") == 0.5);
    CHECK(f.at("precision@5") == Approx(0.4));
    CHECK(f.at("hit@2") == 1);
    CHECK(f.at("ndcg@2") == Approx(d(2) / (d(1) + d(2))));
    CHECK(f.at("ndcg@5") == Approx((d(2) + d(4)) / (d(1) + d(2) + d(3))));
    CHECK(f.at("ndcg_retrieved@2") == Approx(d(2) / (d(1) + d(2))));
    CHECK(f.at("ndcg_retrieved@5") == Approx((d(2) + d(4)) / (d(1) + d(2))));
  }

  TEST_CASE("metrics are means over users; a perfect ranking is 1, one without hits 0") {
    const RankingMetrics metrics({1, 3});
    std::vector<double> sums(to_size(metrics.sum_count()), 0.0);
    CHECK(values(metrics, sums).at("recall@3") == 0);  // no users yet
    metrics.add(std::vector<std::int32_t>{4, 5, 6}, std::vector<std::int32_t>{4, 5, 6}, sums.data());
    for (const auto& [name, value] : values(metrics, sums)) {
      CAPTURE(name);
      CHECK(value == Approx(name == "recall@1" ? 1.0 / 3 : 1.0));
    }
    metrics.add(std::vector<std::int32_t>{0, 1, 2}, std::vector<std::int32_t>{9}, sums.data());
    CHECK(values(metrics, sums).at("ndcg@3") == Approx(0.5));
    CHECK(values(metrics, sums).at("ndcg_retrieved@3") == Approx(0.5));
    CHECK(values(metrics, sums).at("precision@3") == Approx(0.5));
  }

  TEST_CASE("cutoffs that do not ascend are refused") {
    CHECK_THROWS_WITH_AS(RankingMetrics({20, 20}),
                         "option eval.k: cutoff 20 of the ranking: cutoffs must be positive and ascending", Error);
    CHECK_THROWS_AS(RankingMetrics({}), Error);
    CHECK_THROWS_AS(RankingMetrics({0}), Error);
  }
}
