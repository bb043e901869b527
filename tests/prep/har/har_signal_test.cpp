#include "lockstep/prep/har/har_signal.hpp"

#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
double worst(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}
}  // namespace

TEST_SUITE("prep.har_signal") {
  TEST_CASE("the filters give scipy's numbers: medfilt, lfilter with lfilter_zi") {
    const std::vector<double> x = {
        0.9180555898766518, 0.9111111304603812, 0.8819444981597608, 2.5, 0.8722222, 0.91, -0.3, 0.7, 0.95, 1.25};
    CHECK(median3(x) == std::vector<double>{0.9111111304603812, 0.9111111304603812, 0.9111111304603812,
                                            0.8819444981597608, 0.91, 0.8722222, 0.7, 0.7, 0.95, 0.95});
    const auto split = split_signal(x);
    CHECK(worst(split.total, {0.9111111304603812, 0.9111111304603812, 0.9111111304603812, 0.8957221041031056,
                              0.8914431227520252, 0.8954866177560827, 0.7760637238414089, 0.6650592146676858,
                              0.8399397138211436, 1.001505572207078}) < 1e-14);
    // scipy solves for the steady state of the slow filter to 7e-12; ours is its closed form, good to the last digits.
    CHECK(worst(split.body, {-9.093170660889882e-12, -9.092726571680032e-12, -9.091838393260332e-12,
                             -0.015388927078689552, -0.019667292582039475, -0.01562192504005211, -0.13504013251293112,
                             -0.24603272803822507, -0.07112570998029366, 0.0904865657439261}) < 1e-10);
  }

  TEST_CASE("a signal at rest has no start-up swing, and a slow one is all gravity") {
    const std::vector<double> rest(500, 0.7);
    const auto still = split_signal(rest);
    for (std::size_t i = 0; i + 1 < rest.size(); ++i) {  // the median's last value sees a zero
      CHECK(std::abs(still.total[i] - 0.7) < 1e-12);
      CHECK(std::abs(still.body[i]) < 1e-10);
    }
    CHECK(median3(std::vector<double>{-1, -2}) == std::vector<double>{-1, -1});
    CHECK(median3(std::vector<double>{5}) == std::vector<double>{0});
    CHECK(filter3(kLowPass20Hz, {}).empty());
  }

  TEST_CASE("tables are read with blanks or commas, signs, exponents and a line of names") {
    write_text("a.txt", "  1.5e-001 -2 +3\r\n4\t5 6\n\n  \n");
    const auto a = read_text_table("a.txt", 3);
    CHECK(a.values == std::vector<double>{0.15, -2, 3, 4, 5, 6});
    CHECK(a.column(1) == std::vector<double>{-2, 5});
    CHECK(a.line_of(1) == "a.txt:2");
    write_text("b.csv", "ax, ay\n1,2\n3 , 4\n5,6");
    const auto b = read_text_table("b.csv", 0, Header::optional);
    CHECK(b.header == std::vector<std::string>{"ax", "ay"});
    CHECK(b.values == std::vector<double>{1, 2, 3, 4, 5, 6});
    CHECK(b.line_of(0) == "b.csv:2");
    const auto values = [](const std::string& text) {
      write_text("c.txt", text);
      return read_text_table("c.txt", 0, Header::optional).values;
    };
    const std::vector<double> expected = {0.5, -2, 3, 4.25};
    for (const char* text : {"0.5,-2;\n3,4.25;\n", "0,5;-2\n3;4,25\n", "0,5 -2,0\n3,0 4,25\n", "0,5\t-2,0\n3\t4,25\n",
                             "x;y;\n0,5;-2;\n3;4,25;\n", "0.5,-2,\n3,4.25,\n", "acc x\tacc y\n0.5\t-2\n3\t4.25\n",
                             "x y\n0.5, -2\n3, 4.25\n", "\"x\";\"y\"\n\"0,5\";-2\n3;4,25\n"}) {
      CAPTURE(text);
      CHECK(values(text) == expected);
    }
    // Numbers above columns without names, after an empty field above their index.
    CHECK(values("0,1,2\n0.5,-2,3\n") == std::vector<double>{0.5, -2, 3});
    CHECK(values("\"1\",\"2\",\"3\"\n0.5,-2,3\n") == std::vector<double>{0.5, -2, 3});
    CHECK(values(",0,1,2\n7,0.5,-2,3\n") == std::vector<double>{7, 0.5, -2, 3});
    CHECK(values("0,1\n0.5,-2\n") == std::vector<double>{0, 1, 0.5, -2});
    CHECK(values("0,1,3\n0.5,-2,3\n").size() == 6);
    write_text("d.csv", "# x, y\n1,2\n");
    CHECK(read_text_table("d.csv", 0, Header::optional).header == std::vector<std::string>{"x", "y"});
  }

  TEST_CASE("names of columns say time, or do not") {
    for (const char* name :
         {"time", "Time", "t", "timestamp", "Creation_Time", "attr_time", "timeStamp", "SampleTimeFine",
          "timestamp (ms)", "unix_timestamp", "seconds_elapsed", "ms", "date", "clock"}) {
      CAPTURE(name);
      CHECK(says_time(name));
    }
    for (const char* name :
         {"x", "temperature", "sometimes", "centimetres", "att", "tx", "s_x", "ms2", "channel_0", ""}) {
      CAPTURE(name);
      CHECK_FALSE(says_time(name));
    }
  }

  TEST_CASE("an error in a table names its line") {
    const auto message = [&](const std::string& text, std::size_t columns = 2) {
      write_text("t.txt", text);
      return error_of(Fault::data, [&] { read_text_table("t.txt", columns, Header::optional); });
    };
    check_mentions(message("1 2\n3\n"), "t.txt:2: 1 values, expected 2");
    check_mentions(message("1 2\n3 4 5\n", 0), "t.txt:2: 3 values, expected 2");
    check_mentions(message("1 2\n3 x4\n"), "t.txt:2: 'x4' is not a number");
    check_mentions(message("1 2\n3 4.5.6\n"), "'4.5.6' is not a number");
    check_mentions(message("1 2\n3 nan\n"), "t.txt:2: nan is not finite");
    check_mentions(message("1 2\n3 1e999\n"), "t.txt:2: '1e999' is not a number");
    check_mentions(message("1,2\n3,,4\n"), "t.txt:2: 3 values, expected 2");
    check_mentions(message("1,2\n,4\n"), "t.txt:2: an empty field");
    check_mentions(message("1,2\n3,\n"), "t.txt:2: an empty field");
    check_mentions(message("1 2\n\n3 4\n"), "t.txt:2: a blank line");
    check_mentions(message("a b c\n3 4\n"), "t.txt:1: 3 names, expected 2");
    check_mentions(message("a b\nc d\n"), "t.txt:2: 'c' is not a number");
    check_mentions(message("a b\n"), "t.txt: no numbers");
    check_mentions(message(""), "t.txt: no numbers");
    check_mentions(error_of(Fault::usage, [&] { read_text_table("none.txt", 1); }), "none.txt");
    write_text("t.txt", "1\n2.5\n");
    const auto table = read_text_table("t.txt", 1);
    CHECK(whole_number(table, 0, 0) == 1);
    check_mentions(error_of(Fault::data, [&] { whole_number(table, 1, 0); }), "t.txt:2: 2.5 is not a whole number");
  }
}
