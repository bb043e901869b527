#include "lockstep/base/text.hpp"

#include "lockstep/base/csv.hpp"
#include "support/test.hpp"

TEST_SUITE("base.text") {
  TEST_CASE("bytes and seconds are printed in readable units") {
    CHECK(human_bytes(0) == "0 B");
    CHECK(human_bytes(1023) == "1023 B");
    CHECK(human_bytes(1536) == "1.5 KiB");
    CHECK(human_bytes(3.0 * 1024 * 1024 * 1024) == "3.0 GiB");
    CHECK(human_seconds(0.0021) == "2.1ms");
    CHECK(human_seconds(2.5e-6) == "2.5us");
    CHECK(human_seconds(12.34) == "12.3s");
    CHECK(human_seconds(93.5) == "1m34s");
    CHECK(human_seconds(3600 * 5 + 60 * 7 + 3) == "5h07m");
    CHECK(human_seconds(std::numeric_limits<double>::infinity()) == "?");
  }

  TEST_CASE("exact text is short and reads back as the same number") {
    CHECK(exact(0.1) == "0.1");
    CHECK(exact(1e-3) == "0.001");
    CHECK(exact(1) == "1");
    for (const double value : {1.0 / 3, 6.02214076e23, -2.2250738585072014e-308, 123456789.125})
      CHECK(std::strtod(exact(value).c_str(), nullptr) == value);
  }

  TEST_CASE("trim removes blanks at both ends, split keeps empty fields") {
    CHECK(trim(" \t a b\r\n") == "a b");
    CHECK(trim(" \n") == "");
    CHECK(split("a,,b,", ',') == std::vector<std::string>{"a", "", "b", ""});
    CHECK(split("abc", ',') == std::vector<std::string>{"abc"});
    CHECK(split("", ',').empty());
  }

  TEST_CASE("lines are read without the line ends and the byte order mark of Windows") {
    std::istringstream in("\xEF\xBB\xBFone\r\n\r\n\xEF\xBB\xBFthree");
    std::vector<std::string> lines;
    std::int64_t number = 0;
    for (std::string line; next_line(in, line, number, "a.csv");) lines.push_back(line);
    CHECK(lines == std::vector<std::string>{"one", "", "\xEF\xBB\xBFthree"});
    CHECK(number == 3);
  }

  TEST_CASE("compressed files and lines that end with carriage returns alone are refused by their first line") {
    const auto refusal = [](const std::string& text) {
      std::istringstream in(text);
      std::string line;
      std::int64_t number = 0;
      return error_of(Fault::data, [&] { next_line(in, line, number, "a.csv"); });
    };
    for (const auto& [magic, unpack] : {std::pair("\x1F\x8B", "gzip -dk 'a.csv'"),
                                        {"\x28\xB5\x2F\xFD", "zstd -d 'a.csv'"},
                                        {"BZh91AY", "bzip2 -dk 'a.csv'"}})
      check_mentions(refusal(magic), "reading 'a.csv': it is compressed with", unpack);
    CHECK(refusal("user,item\r1,2\r") ==
          "reading 'a.csv': its lines end with carriage returns alone; write line feeds: tr '\\r' '\\n' < 'a.csv'");
    CHECK(refusal("user,item\r") == "no error");
  }

  TEST_CASE("wrapped text keeps its words and line breaks, and no line exceeds the columns unless one word does") {
    CHECK(wrapped("one two three four five six", 0, 20) == "one two three four\nfive six");
    CHECK(wrapped("one two three four five six", 2, 22) == "one two three four\n  five six");
    CHECK(wrapped("one\ntwo", 0, 20) == "one\ntwo");
    CHECK(wrapped("a word-of-more-than-twenty-columns b", 0, 20) == "a\nword-of-more-than-twenty-columns\nb");
    CHECK(wrapped("", 4, 20).empty());
  }

  TEST_CASE("clean UTF-8 is well-formed and has no control characters") {
    CHECK(is_clean_utf8("B00\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x8E\xB5"));
    for (const char* bad : {"\xC3", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "a\x01", "\xFF"})
      CHECK_FALSE(is_clean_utf8(bad));
  }

  TEST_CASE("printable text keeps UTF-8, tabs and line breaks, and shows every other byte as a number") {
    CHECK(printable("Grüße, \xE4\xB8\x96\t1\n") == "Grüße, \xE4\xB8\x96\t1\n");
    CHECK(printable("a\x1b[2Jb\r") == "a\\x1b[2Jb\\x0d");
    CHECK(printable(std::string("\0\x7F", 2)) == "\\x00\\x7f");
    CHECK(printable("Fu\xDF") == "Fu\\xdf");
    CHECK(printable("\xE4\xB8") == "\\xe4\\xb8");
    CHECK(printable("") == "");
  }

  TEST_CASE("the nearest word corrects a typo, and nonsense gets no suggestion") {
    const std::vector<std::string> keys = {"optim.lr", "optim.name", "batch.size", "train.epochs"};
    CHECK(nearest("optim.lrr", keys) == "optim.lr");
    CHECK(nearest("bach.size", keys) == "batch.size");
    CHECK(nearest("lr", keys) == "optim.lr");
    CHECK(nearest("epochs", keys) == "train.epochs");
    CHECK(nearest("zzzzzzzz", keys) == "");
    CHECK(nearest("user", {"set", "lr"}) == "");
    CHECK(nearest("x", {}) == "");
  }
}
