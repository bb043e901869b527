/// Raw interactions: lines, formats, filter, numbers, order, scaled times, split; and the errors of bad lines.
#include "lockstep/prep/sequences/interactions.hpp"

#include <zlib.h>

#include "lockstep/base/date_time.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
Interactions read(const std::string& text, const InteractionOptions& options = {}) {
  write_text("raw", text);
  return read_interactions({"raw"}, options);
}

/// Everything kept.
SequenceOptions unfiltered() {
  SequenceOptions options;
  options.min_user = options.min_item = 1;
  return options;
}

SequenceSet make(const Interactions& raw, const SequenceOptions& options) {
  SequenceReport report;
  return make_sequences(raw, options, report);
}

std::vector<std::int64_t> scaled(const std::vector<std::int64_t>& raw, const std::string& scale) {
  std::vector<std::int64_t> out(raw.size());
  scale_times(raw, scale, out);
  return out;
}
}  // namespace

TEST_SUITE("prep.interactions") {
  TEST_CASE("fractions of a second decide the order, whole seconds are kept") {
    auto raw = read("user_id,item_id,time\n1,4,100\n1,3,101.75\n1,2,101.5\n1,1,101.25\n");
    const auto set = make(raw, unfiltered());
    CHECK(set.item == std::vector<std::int32_t>{4, 1, 2, 3});
    CHECK(set.time_raw == std::vector<std::int64_t>{100, 101, 101, 101});
    CHECK(repeated_lines(raw, Repeated::drop) == 0);
  }

  TEST_CASE("a gzip file reads as the plain one; other compression and damage are errors") {
    std::string text;
    for (int line = 0; line < 40000; ++line) text += join(line % 7, " ", line, " ", line, "\r\n");  // several blocks
    const gzFile file = gzopen("raw.gz", "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    const auto plain = read(text), packed = read_interactions({"raw.gz"}, {});
    CHECK(packed.size() == 40000);
    CHECK(packed.user == plain.user);
    CHECK(packed.item == plain.item);
    CHECK(packed.time == plain.time);
    const std::string member = read_text("raw.gz");
    write_text("raw.gz", member + member);
    CHECK(read_interactions({"raw.gz"}, {}).size() == 80000);
    write_text("raw.gz", member + "1 2 3\n");
    check_mentions(error_of(Fault::data, [&] { read_interactions({"raw.gz"}, {}); }), "raw.gz",
                   "other bytes follow the end of its gzip data");
    write_text("raw.gz", member);
    fs::resize_file("raw.gz", fs::file_size("raw.gz") / 2);
    check_mentions(error_of(Fault::data, [&] { read_interactions({"raw.gz"}, {}); }), "raw.gz", "truncated");
    check_mentions(error_of(Fault::data,
                            [&] {
                              read(
                                  "\xFD"
                                  "7zXZ\n");
                            }),
                   "compressed with xz", "xz -dk");
  }

  TEST_CASE("every format gives the same interactions, whether it is named or detected") {
    const std::pair<const char*, const char*> cases[] = {
        {"movielens", "2::10::5::100\n1::30::3::50\n2::7::1::90\n"},
        {"tsv4", "2\t10\t5\t100\n1\t30\t3.5\t50\n2\t7\t1\t90\n"},
        {"tsv3", "2\t10\t100\n1\t30\t50\n2\t7\t90"},
        {"triples", "2 10 100\n1 30 50\n2 7 90\n\n"},
        {"csv", "user_id,item_id,rating,timestamp\n2,10,5,100\n1,30,,50\n2,7,x,90\n"},
        {"csv",
         "\xEF\xBB\xBF"
         "time:float\titem_id:token\tuser_id:token\r\n100.0\t10\t2\r\n50\t30\t1\r\n90\t7\t2\r\n"}};
    for (const auto& [format, text] : cases) {
      for (const bool named : {false, true}) {
        CAPTURE(text);
        InteractionOptions options;
        if (named) options.format = format;
        const auto raw = read(text, options);
        CHECK(raw.readings.size() == 1);
        CHECK(raw.readings.at(0).starts_with(join(format, ", separated by ")));
        REQUIRE(raw.size() == 3);
        CHECK(raw.time == std::vector<std::int64_t>{100, 50, 90});
        CHECK(raw.user == std::vector<std::int32_t>{0, 1, 0});
        CHECK(raw.users.id(0) == "2");
        CHECK(raw.items.id(2) == "7");
      }
    }
    for (const char* text : {"2 10\n1 30\n2 7\n", "2\t10\n1\t30\n2\t7\n"}) {
      const auto raw = read(text);
      CHECK(raw.readings.at(0).starts_with("pairs"));
      CHECK_FALSE(raw.has_time);
      CHECK(raw.size() == 3);
    }
    InteractionOptions columns;
    columns.user_column = "userId";
    columns.item_column = "movieId";
    columns.time_column = "when";
    CHECK(read("movieId,when,userId\n5,7,9\n", columns).time == std::vector<std::int64_t>{7});
  }

  TEST_CASE("the filter counts in the whole input and passes once") {
    // Item 1 has two lines, item 2 three, item 3 one; user 3 has one line.
    const auto raw = read("1 1 5\n1 2 6\n2 2 7\n2 1 8\n3 2 9\n1 3 10\n");
    SequenceOptions options;
    options.min_user = options.min_item = 2;
    SequenceReport report;
    const auto set = make_sequences(raw, options, report);
    CHECK(report.few_user == 1);
    CHECK(report.few_item == 1);
    CHECK(set.n_users() == 2);
    CHECK(set.n_items() == 2);
    CHECK(set.item == std::vector<std::int32_t>{1, 2, 2, 1});
    // Without user 3 item 2 has only two lines, and stays.
    options.min_item = 3;
    CHECK(make(read("1 2 5\n1 2 6\n3 2 9\n"), options).rows() == 2);
  }

  TEST_CASE("numbers follow the raw ids: as numbers, or byte by byte") {
    auto set = make(read("10 b 1\n9 a 1\n9 B 2\n10 a 2\n"), unfiltered());
    CHECK(set.users.numbers == std::vector<std::int64_t>{9, 10});
    CHECK(set.items.texts == std::vector<std::string>{"B", "a", "b"});
    CHECK(set.item == std::vector<std::int32_t>{2, 1, 3, 2});
    CHECK(set.items.name(3) == "b");
    set = make(read("010 1 1\n9 2 1\n9 1 2\n010 2 2\n"), unfiltered());
    CHECK(set.users.texts == std::vector<std::string>{"010", "9"});  // 010 is not 10
    SequenceOptions text = unfiltered();
    text.ids = "text";
    CHECK(make(read("10 1 1\n9 2 1\n9 1 2\n"), text).users.texts == std::vector<std::string>{"10", "9"});
  }

  TEST_CASE("kept ids leave gaps, and users without interactions") {
    SequenceOptions options = unfiltered();
    options.keep_ids = true;
    const auto set = make(read("4 7 1\n4 2 2\n2 7 5\n"), options);
    CHECK(set.offsets == std::vector<std::int64_t>{0, 0, 1, 1, 3});
    CHECK(set.n_items() == 7);
    CHECK(set.item == std::vector<std::int32_t>{7, 7, 2});
    CHECK(set.item_count == std::vector<std::int32_t>{0, 1, 0, 0, 0, 0, 2});
    for (const auto& [text, expected] : {std::pair{"0 1 1\n0 2 2\n", "user id '0' is out of range"},
                                         std::pair{"1 1 1\n1 268435457 2\n", "line 2: item id"},
                                         std::pair{"1 1 1\n1 x 2\n", "is not an integer, so ids cannot be kept"}}) {
      const std::string words = text;
      check_mentions(error_of(Fault::data, [&] { make(read(words), options); }), expected);
    }
  }

  TEST_CASE("times that go backwards are sorted, ties keep the order of the file") {
    const auto set = make(read("1 5 30\n1 4 10\n1 3 10\n1 2 20\n1 1 10\n"), unfiltered());
    CHECK(set.item == std::vector<std::int32_t>{4, 3, 1, 2, 5});
    CHECK(set.time_raw == std::vector<std::int64_t>{10, 10, 10, 20, 30});
    CHECK(set.time_scaled == std::vector<std::int64_t>{1, 1, 1, 2, 3});
    CHECK(make(read("1 5\n1 4\n1 3\n1 6\n"), unfiltered()).item == std::vector<std::int32_t>{3, 2, 1, 4});
  }

  TEST_CASE("scaled times: smallest gap with halves to even, units, seconds") {
    CHECK(scaled({100, 100, 104, 110, 114}, "per_user_min") ==
          std::vector<std::int64_t>{1, 1, 2, 3, 5});  // 2.5 -> 2, 3.5 -> 4
    CHECK(scaled({7, 7, 7}, "per_user_min") == std::vector<std::int64_t>{1, 1, 1});
    CHECK(scaled({0, 59, 60, 3600}, "unit:minute") == std::vector<std::int64_t>{1, 1, 2, 61});
    CHECK(scaled({0, 86399, 86400}, "unit:day") == std::vector<std::int64_t>{1, 1, 2});
    CHECK(scaled({5, 3605}, "unit:hour") == std::vector<std::int64_t>{1, 2});
    CHECK(scaled({5, 9}, "raw") == std::vector<std::int64_t>{1, 5});
    CHECK(scaled({5, 9}, "unit:second") == std::vector<std::int64_t>{1, 5});
    CHECK(scaled({0, 1, kLargestTime}, "per_user_min") == std::vector<std::int64_t>{1, 2, kLargestTime + 1});
  }

  TEST_CASE("the last two of a user with enough interactions are held out") {
    const auto raw = read("1 1\n1 2\n1 3\n1 4\n2 1\n2 2\n2 3\n3 1\n3 2\n");
    SequenceOptions options = unfiltered();
    auto set = make(raw, options);
    CHECK(set.n_train == std::vector<std::int32_t>{2, 1, 2});
    CHECK(set.item_count == std::vector<std::int32_t>{3, 2, 0, 0});
    options.min_split = 4;
    set = make(raw, options);
    CHECK(set.n_train == std::vector<std::int32_t>{2, 3, 2});
  }

  TEST_CASE("bad lines are named by file and number") {
    const std::pair<std::string, std::string> cases[] = {
        {"1::2::3::4\n1::2::3\n", "line 2: 3 fields separated by '::', expected 4 (user, item, rating, time)"},
        {"1::2::3::4::5\n", "line 1: 5 fields"},
        {"1::2::good::4\n", "line 1: rating 'good' is not a number"},
        {"1::2::3::4\n1::2::3::-4\n", "line 2: time -4 is negative"},
        {"1::2::3::4\n1::2::3::9223372036854775807\n", "line 2: time 9223372036854775807 is out of range"},
        {"1::2::3::99999999999999999999\n", "line 1: time 99999999999999999999 is out of range"},
        {"1::2::3::1969-12-31\n", "line 1: time 1969-12-31 is negative"},
        {"1::2::3::noon\n", "line 1: time 'noon' is neither a number nor a date"},
        {"1::::3::4\n", "line 1: an empty item id"},
        {"1 2\n1 2 3\n", "line 2: 3 fields separated by blanks, expected 2"},
        {"1 2 3 4\n", "line 1: cannot tell the format: 4 fields separated by blanks, and no column"},
        {"buyer,product\n1,2\n", "line 1: cannot tell the format: 2 fields separated by commas"},
        {"user_id,product\n1,2\n", "line 1: the header has no column called item_id, item"},
        {"user_id,item_id,time,timestamp\n1,2,3,4\n", "choose one with --time-column"},
        {"user_id,item_id,item_id\n1,2,3\n", "names 'item_id' twice"},
        {"user_id,item_id\n1,\"2\n", "line 2: a quoted field is not closed"},
        {"1 a\xFF 3\n", "line 1: the item id is not UTF-8 text"},
        {"1 " + std::string(1025, 'a') + " 3\n", "has 1025 bytes, at most 1024 are stored"},
        {"", "no lines"},
        {"user_id,item_id\n", "no interactions"}};
    for (const auto& [text, expected] : cases) {
      CAPTURE(text);
      check_mentions(error_of(Fault::data, [&] { read(text); }), "raw'", expected);
    }
    write_text("timed", "1 2 3\n");
    write_text("untimed", "1 2\n");
    check_mentions(error_of(Fault::data, [&] { read_interactions({"timed", "untimed"}, {}); }), "no times");
    write_text("second", "1 2 3\n1 2\n");
    check_mentions(error_of(Fault::data, [&] { read_interactions({"timed", "second"}, {}); }), "second', line 2");
    check_mentions(error_of(Fault::usage, [&] { read_interactions({"."}, {}); }), "no regular file");
  }

  TEST_CASE("ids that do not fit, and sets that are left empty, are refused") {
    SequenceOptions integer = unfiltered();
    integer.ids = "integer";
    check_mentions(error_of(Fault::data, [&] { make(read("1 1 1\n1 2x 2\n"), integer); }),
                   "line 2: item id '2x' is not an integer");
    check_mentions(error_of(Fault::data, [&] { make(read("1 1 1\n1 99999999999999999999 2\n"), unfiltered()); }),
                   "line 2: item id '99999999999999999999' is out of range");
    check_mentions(error_of(Fault::data, [&] { make(read("buyer product\n1 2\n1 3\n"), unfiltered()); }),
                   "is it a header?");
    const char* objects = R"({"user": "ann", "item": 1}
{"user": 2, "item": 1}
{"user": 2, "item": 3})";  // without a header
    CHECK(make(read(objects), unfiltered()).users.texts == std::vector<std::string>{"2", "ann"});
    check_mentions(error_of(Fault::data, [&] { make(read("1 1 1\n1 2 2\n"), {}); }), "the filter leaves none of 2",
                   "fewer than 5", "--min-user");
    check_mentions(error_of(Fault::data, [&] { make(read("1 1 1\n2 2 2\n"), unfiltered()); }),
                   "no user has two interactions to train on");
  }
}
