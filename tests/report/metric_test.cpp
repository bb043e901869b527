#include "lockstep/report/metric.hpp"

#include "support/test.hpp"

TEST_SUITE("report.metric") {
  TEST_CASE("scores of classes follow from the confusion matrix; a ratio without samples is 0") {
    const std::vector<std::string> names = {"SIT", "LIE", "RUN"};
    const MetricTable scores = class_scores({"confusion", names, names, {6, 2, 0, 4, 12, 0, 0, 0, 0}});
    CHECK(scores.rows == names);
    CHECK(scores.columns == std::vector<std::string>{"precision", "recall", "f1", "support"});
    CHECK(scores.values[0] == Approx(0.6));
    CHECK(scores.values[1] == Approx(0.75));
    CHECK(scores.values[2] == Approx(2 * 0.6 * 0.75 / 1.35));
    CHECK(scores.values[3] == 8);
    CHECK(scores.values[4] == Approx(12.0 / 14));
    CHECK(scores.values[7] == 16);
    for (std::size_t i = 8; i < 12; ++i) CHECK(scores.values[i] == 0);
  }

  TEST_CASE("a table prints with aligned columns, the names above their values") {
    CHECK(text_of({"t", {"a", "long"}, {"x", "precision"}, {1, 0.5, 20, 3}}) ==
          "t\n         x  precision\n  a      1        0.5\n  long  20          3\n");
    CHECK(text_of({"t", {"a"}, {"x", "y"}, {0.0123456789, 1}}) == "t\n                x  y\n  a  0.0123456789  1\n");
  }
}
