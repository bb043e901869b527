#include "lockstep/report/progress_line.hpp"

#include "support/test.hpp"

namespace {
const ProgressState kState{.step = 2520,
                           .steps = 6000,
                           .epoch = 25.2,
                           .epochs = 60,
                           .loss = 0.01234,
                           .validation = 0.0143,
                           .samples_per_s = 84210,
                           .seconds_left = 32};
std::size_t width(const std::string& utf8) {
  std::size_t n = 0;
  for (const char c : utf8) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}
}  // namespace

TEST_SUITE("report.progress_line") {
  TEST_CASE("the line shows the step, the speed and the time to the end") {
    CHECK(progress_line(kState, 140, false) ==
          "============>.................  42%  step 2520/6000  epoch 25/60  loss 0.01234  val 0.0143  84.2k/s "
          " 32.0s left");
  }
  TEST_CASE("the line fits any width in characters and drops the step last") {
    for (int columns = 12; columns < 160; ++columns)
      for (const bool utf8 : {false, true}) {
        CAPTURE(columns);
        const std::string line = progress_line(kState, columns, utf8);
        CHECK(width(line) < to_size(columns));
        if (columns > 25) CHECK(line.find("step 2520/6000") != std::string::npos);
      }
  }
  TEST_CASE("an ordinary terminal has room for a bar") {
    CHECK(progress_line(kState, 80, false) ==
          "====>.....  42%  step 2520/6000  epoch 25/60  loss 0.01234  84.2k/s  32.0s left");
  }
  TEST_CASE("without a known end there is no bar and no percentage") {
    CHECK(progress_line({.step = 7, .loss = 1}, 80, false) == "step 7  loss 1");
    CHECK(progress_line({.step = 64, .unit = "users"}, 80, false) == "users 64");
  }
  TEST_CASE("the bar is empty at the start and full at the end") {
    CHECK(progress_line({.step = 0, .steps = 5}, 80, false).starts_with(">............................."));
    CHECK(progress_line({.step = 5, .steps = 5}, 80, false).starts_with("============================== 100%"));
    CHECK(progress_line({.step = 6, .steps = 5}, 80, false).starts_with("=============================="));
  }
  TEST_CASE("rates are short") {
    CHECK(short_rate(84210) == "84.2k");
    CHECK(short_rate(999.6) == "1k");
    CHECK(short_rate(123456789) == "123M");
    CHECK(short_rate(0.5) == "0.5");
  }
}
