#include "report/svg_plot.hpp"

#include "support/test.hpp"

namespace {

std::string line_through(const SvgPlot::Points& points) {
  SvgPlot plot("recall", "epoch", "recall");
  plot.line("recall", 0, points);
  return plot.html();
}

}  // namespace

TEST_SUITE("report.svg_plot") {
  TEST_CASE("every range of values has a few ticks") {
    const double next = std::nextafter(0.05, 1);
    const std::pair<double, double> ranges[] = {{0, 1},         {-3, 17},         {0.05, 0.05}, {0.05, next},
                                                {1e298, 1e299}, {1e-300, 2e-300}, {0, 0},       {-1e299, 1e299}};
    for (const auto& [low, high] : ranges) {
      CAPTURE(low);
      CAPTURE(high);
      const std::string svg = line_through({{1, low}, {2, high}});
      const int ticks = occurrences(svg, "class=\"tick\"");
      CHECK(ticks <= 40);
      CHECK(ticks >= 4);
      CHECK(svg.find("nan") == std::string::npos);
    }
  }

  TEST_CASE("a constant is drawn within a tenth of itself, with labels that differ") {
    const std::string svg = line_through({{1, 0.001}, {2, 0.001}});
    CHECK(svg.find(">0.001<") != std::string::npos);
    for (const char* far : {">0<", ">0.2<", ">-0.2<"}) CHECK(svg.find(far) == std::string::npos);
    CHECK(line_through({{1, 0.123451}, {2, 0.123459}}).find(">0.123454<") != std::string::npos);
  }

  TEST_CASE("a logarithmic axis within a decade has labels") {
    SvgPlot plot("loss", "step", "loss");
    plot.log_y().line("loss", 0, {{1, 0.45}, {2, 0.22}});
    const std::string svg = plot.html();
    CHECK(occurrences(svg, "text-anchor=\"end\"") >= 3);
    CHECK(svg.find(">0.3<") != std::string::npos);
  }

  TEST_CASE("times that differ only by rounding are drawn") {
    CHECK(occurrences(line_through({{1e6, 1}, {std::nextafter(1e6, 2e6), 2}}), "class=\"tick\"") >= 4);
  }

  TEST_CASE("a line without points is empty") {
    CHECK(line_through({}).empty());
    CHECK(line_through({{1, std::nan("")}}).empty());
  }
}
