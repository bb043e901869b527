#include "tasks/sequences/history_file.hpp"

#include "support/test.hpp"

namespace {

const IdTable& items() {
  static const IdTable table({"10", "20", "30"}, {"Alien", "Brazil", ""});
  return table;
}

Histories read(std::string_view text, bool timed = false, Unknown unknown = Unknown::refuse,
               const InteractionOptions& options = {}) {
  write_text("h", text);
  return read_histories("h", options, items(), "the 3 items", unknown, timed, "unit:minute");
}

std::string refusal(std::string_view text, bool timed = false) {
  return error_of(Fault::data, [&] { read(text, timed); });
}

using Items = std::vector<std::int32_t>;
using Times = std::vector<std::int64_t>;

}  // namespace

TEST_SUITE("tasks.history_file") {
  TEST_CASE("CSV and JSON lines of the same histories read alike: ids or names, ordered by time, times scaled") {
    const Histories csv =
        read("time,user,extra,item\n300,anna,x,Alien\n60,anna,\"a, b\",30\n\n7,bob,,20\n60,anna,,20\n", true);
    const Histories prepared = read(
        "user_id,item_id,timestamp\nanna,Alien,1970-01-01T00:05:00Z\nanna,30,60.25\nbob,20,7.5\nanna,20,60.5\n", true);
    const Histories events = read(R"({"user_id": "anna", "item_id": 10, "timestamp": 300})"
                                  "\n"
                                  R"({"user_id": "anna", "item_id": 30, "timestamp": 60})"
                                  "\n"
                                  R"({"user_id": "bob", "item_id": 20, "timestamp": 7})"
                                  "\n"
                                  R"({"user_id": "anna", "item_id": 20, "timestamp": 60})",
                                  true);
    InteractionOptions columns;
    columns.columns = {"time", "user", "item"};
    const Histories by_position =
        read("300;anna;10\n60;anna;30\n7;bob;20\n60;anna;20\n", true, Unknown::refuse, columns);
    const Histories json = read(
        "\xEF\xBB\xBF{\"user\": \"anna\", \"items\": [\"Alien\", 30, 20], \"times\": [300, 60, 60]}\r\n"
        "{\"times\": [7], \"user\": \"bob\", \"items\": [\"Brazil\"]}",
        true);
    const Histories dates =
        read(R"({"user": "anna", "items": [10, 20, 30], "times": ["1970-01-01T00:05:00Z", 60.5, 60.25]})"
             "\n"
             R"({"user": "bob", "items": [20], "times": [7]})",
             true);
    for (const Histories& h : {csv, prepared, events, by_position, json, dates}) {
      CHECK(h.users == std::vector<std::string>{"anna", "bob"});
      CHECK(h.offsets == Times{0, 3, 4});
      CHECK(h.item == Items{3, 2, 1, 2});
      CHECK(h.time == Times{1, 1, 5, 1});
      CHECK(h.times == "1970-01-01 00:00:07 to 1970-01-01 00:05:00 UTC");
      CHECK(h.of(1).items.size() == 1);
      CHECK(h.of(1).times[0] == 1);
    }
  }

  TEST_CASE("a name of several items is refused, also where unknown items are left out") {
    const IdTable twins({"1", "2", "3"}, {"Dracula", "Dracula", "Emma"});
    write_text("h", "user,item\nanna,Emma\nanna,Dracula\n");
    CHECK(error_of(Fault::data, [&] { read_histories("h", {}, twins, "the 3 items", Unknown::skip, false, "raw"); }) ==
          "reading 'h', line 3: 'Dracula' is the name of several items; give the id instead");
  }

  TEST_CASE("a user per line may have times in any unit, but takes no options of a table") {
    InteractionOptions options;
    options.time_unit = "ms";
    const std::string text = R"({"user": 1, "items": [10, 20, 30], "times": [120000, "1970-01-01", 60500]})";
    const Histories h = read(text, true, Unknown::refuse, options);
    CHECK(h.item == Items{2, 3, 1});
    CHECK(h.time == Times{1, 2, 3});
    options.where = {"times > 3"};
    check_mentions(error_of(Fault::usage, [&] { read(text, true, Unknown::refuse, options); }), "where",
                   "has an object per user");
  }

  TEST_CASE("without times the order of the file stays, and a model without times takes none") {
    CHECK(contains(read("user,item,time\n1,30,1700000000000\n", true).times, " UTC; numbers in another unit need"));
    const Histories h = read("user,item\n1,30\n2,10\n1,10\n");
    CHECK(h.times.empty());
    CHECK(h.item == Items{3, 1, 1});
    CHECK(h.of(0).times.empty());
    CHECK(read("{\"user\": 5, \"items\": [20, 10], \"times\": [9, 3]}").item == Items{1, 2});
    CHECK(read("{\"user\": 5, \"items\": [20, 10], \"times\": [9, 3]}").time.empty());
  }

  TEST_CASE("unknown items and empty histories are left out and counted on request") {
    const Histories h = read("user,item,time\nu,10,3\nu,99,1\nv,x,2\nu,30,2\nw,x,1\n", true, Unknown::skip);
    CHECK(h.users == std::vector<std::string>{"u"});
    CHECK(h.item == Items{3, 1});
    CHECK(h.time == Times{1, 1});
    CHECK(h.left_out == "3 events of 2 unknown items, 2 users without a known item: 'v' (line 4), 'w' (line 6)");
    CHECK(h.reading == "csv, separated by commas; user = user, item = item, time = time; left aside: nothing");
    const Histories json = read("{\"user\": 1, \"items\": [10]}\n{\"user\": 2, \"items\": []}", false, Unknown::skip);
    CHECK(json.left_out == "1 users without a known item: '2' (line 2)");
    CHECK(read("user,item\nu,10\n", false, Unknown::skip).left_out.empty());
    CHECK(contains(error_of(Fault::data, [] { read("user,item\nu,x\n", false, Unknown::skip); }),
                   "no history has one of the 3 items"));
  }

  TEST_CASE("an error names its line") {
    CHECK(contains(refusal("user,item\nu,10\nu,99\nv,x\n"),
                   "'99' (line 3), 'x' (line 4) are none of the 3 items; --unknown skip leaves them out"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10]}\n{\"user\": 2, \"items\": []}"),
                   "'2' (line 2): a history without"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10]}\n{\"user\": 1, \"items\": [20]}"), "user '1' occurs twice"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10], \"times\": [1, 2]}"), "1 items and 2 times"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10], \"times\": [-2]}"), "time -2 is out of range"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10], \"times\": [18446744073709551615]}"), "is out of range"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10], \"times\": [1]}\n{\"user\": 2, \"items\": [10]}"),
                   "no array 'times'"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10]", false), "line 1: not a JSON object"));
    CHECK(contains(refusal("{\"items\": [10]}", false), "line 1: expected an object"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
                   "nested too deeply"));
    CHECK(contains(refusal("{\"user\": 1, \"items\": [10], \"times\": [\"soon\"]}"), "time \"soon\" is neither"));
    CHECK(contains(refusal("{\"user\": [1], \"items\": [10]}"), "an id must be"));
    CHECK(contains(refusal("who,what\n1,10\n"), "line 1: cannot tell the format"));
    CHECK(contains(refusal("user,item\n1\n"), "line 2: 1 field separated by commas, expected 2"));
    CHECK(contains(refusal("user,item\n1,\"10\n"), "quoted field"));
    CHECK(contains(refusal("user,item,time\n1,10,yesterday\n"), "line 2: time 'yesterday'"));
    CHECK(contains(refusal("user,item\n,10\n"), "an empty user id"));
    CHECK(contains(refusal("user,item\n1,10\n", true), "no times, and this model needs them"));
    CHECK(contains(refusal("user,item\n"), "no histories"));
    for (const char* nothing : {"", "\xEF\xBB\xBF", "\n \r\n"}) CHECK(contains(refusal(nothing), "'h': no lines"));
    CHECK(contains(refusal("\x1F\x8B\x08"), "'h': it is truncated"));
    CHECK(contains(refusal("user,item\r1,10\r"), "its lines end with carriage returns alone"));
  }
}
