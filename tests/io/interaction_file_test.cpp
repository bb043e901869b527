/// Files of interactions as users have them: separators, headers, positions, JSON lines, units of time, conditions.
#include "lockstep/io/interaction_file.hpp"

#include "lockstep/io/interaction_lines.hpp"
#include "support/test.hpp"

namespace {
std::vector<std::string> fields(std::string_view line, Separator separator) {
  std::vector<std::string> out;
  CHECK(split_line(line, separator, out));
  return out;
}

struct Row {
  std::string user, item;
  std::int64_t time = 0;
  bool operator==(const Row&) const = default;
};
/// The interactions of a text.
std::vector<Row> rows(const std::string& text, const InteractionOptions& options = {}) {
  write_text("table", text);
  InteractionFile file("table", options);
  std::vector<Row> out;
  while (file.next()) out.push_back({file.user(), file.item(), file.time().seconds});
  return out;
}
std::string refusal(const std::string& text, const InteractionOptions& options = {}, Fault fault = Fault::data) {
  return error_of(fault, [&] { rows(text, options); });
}
using Rows = std::vector<Row>;
}  // namespace

TEST_SUITE("io.interaction_file") {
  TEST_CASE("fields are split at the separator of the format") {
    using Words = std::vector<std::string>;
    CHECK(fields("1::2::3", Separator::double_colon) == Words{"1", "2", "3"});
    CHECK(fields("1\t\t3", Separator::tab) == Words{"1", "", "3"});
    CHECK(fields(" 1 \t 2 ", Separator::blanks) == Words{"1", "2"});
    CHECK(fields("a,\"b, \"\"c\"\"\",,d", Separator::comma) == Words{"a", "b, \"c\"", "", "d"});
    CHECK(fields("\"a\"", Separator::comma) == Words{"a"});
    CHECK(fields("a,", Separator::comma) == Words{"a", ""});
    CHECK(fields("1 , \"a, b\" ,2", Separator::comma) == Words{"1 ", "a, b", "2"});
    CHECK(fields("a;\"b;c\";1,5", Separator::semicolon) == Words{"a", "b;c", "1,5"});
    CHECK(fields("a|b||", Separator::bar) == Words{"a", "b", "", ""});
    Words out;
    CHECK_FALSE(split_line("a,\"b", Separator::comma, out));
    CHECK_FALSE(split_line("\"a\"b,c", Separator::comma, out));
  }

  TEST_CASE("times are seconds, with or without a fraction, or dates") {
    const auto time = [](std::string_view text) {
      Moment value;
      CAPTURE(text);
      CHECK(read_time(text, value) == TimeFault::none);
      return static_cast<double>(value.seconds) + value.fraction;
    };
    CHECK(time("978300760") == 978300760);
    CHECK(time("978300760.0") == 978300760);
    CHECK(time("1.5e9") == 1500000000);
    CHECK(time("978300760.25") == 978300760.25);
    CHECK(time("-0.25") == -0.25);
    CHECK(time("2016-02-05") == 1454630400);
    CHECK(time("2016-02-05 12:30") == 1454675400);
    CHECK(time("2016-02-05 12") == 1454673600);
    CHECK(time("2016-02-05T12:30:15.5Z") == 1454675415.5);
    CHECK(time("2016-02-05T12:30:15+01:30") == 1454675415 - 5400);
    CHECK(time("2016-02-05T12:30:15-0130") == 1454675415 + 5400);
    Moment value;
    for (const char* text : {"12x", "", "nan", "2016-02-30", "2016-2-5", "2016-02-05 24:00", "2016-02-05T12:30:15 ",
                             "2016-02-05T12:30:15+1", "2016-02-05T", "05/02/2016"}) {
      CAPTURE(text);
      CHECK(read_time(text, value) == TimeFault::no_time);
    }
    CHECK(read_time("9223372036854775808", value) == TimeFault::too_large);
  }

  TEST_CASE("numbers are times in a unit, and dates are dates in every unit") {
    const auto time = [](std::string_view text, std::size_t unit) {
      Moment value;
      CAPTURE(text);
      CHECK(read_time(text, value, kTimeUnits[unit]) == TimeFault::none);
      return static_cast<double>(value.seconds) + value.fraction;
    };
    CHECK(time("1500888598137", 1) == 1500888598.137);
    CHECK(time("1500888598137250", 2) == 1500888598.13725);
    CHECK(time("1500888598500000000", 3) == 1500888598.5);
    CHECK(time("-9223372036854775808", 1) == -9223372036854775.808);
    CHECK(time("16836", 4) == 1454630400);
    CHECK(time("16836.5", 4) == 1454630400 + 43200);
    CHECK(time("20160205", 5) == 1454630400);
    CHECK(time("2016020512", 5) == 1454630400 + 43200);
    CHECK(time("20160205123015", 5) == 1454675415);
    for (std::size_t unit = 0; unit < std::size(kTimeUnits); ++unit) CHECK(time("2016-02-05", unit) == 1454630400);
    Moment value;
    for (const char* text : {"20160230", "2016", "201602051", "1454630400.5"})
      CHECK(read_time(text, value, kTimeUnits[5]) == TimeFault::no_time);
    CHECK(read_time("999999999999999", value, kTimeUnits[4]) == TimeFault::too_large);
  }

  TEST_CASE("a headed file may have any separator, quotes, blanks around fields and other columns") {
    const Rows expected = {{"u 1", "a", 100}, {"u2", "b", 90}};
    InteractionOptions named;
    named.user_column = "who";
    named.item_column = "what";
    named.time_column = "when";
    for (const char* text :
         {"who,what,x,when\n u 1 , \"a\" ,,100\nu2,b,1, 90\n", "what;when;who;y\n\"a\";100;\"u 1\";z\nb;90;u2;\n",
          "who|when|what\nu 1|100|a\nu2|90|b\n", "who:token\twhat:token\twhen:float\nu 1\ta\t100.0\nu2\tb\t90\n"}) {
      CAPTURE(text);
      CHECK(rows(text, named) == expected);
    }
    CHECK(rows("user_id:token item_id:token timestamp:float\n1 10 5\n") == Rows{{"1", "10", 5}});
    CHECK(rows("userId,movieId,rating,timestamp\n1,10,3,5\n") == Rows{{"1", "10", 5}});
    CHECK(rows("user,item\n\xC2\xA0 1\xC2\xA0,2\n") == Rows{{"1", "2", 0}});  // no-break spaces
    named.time_column = "-";
    CHECK(rows("who,what,timestamp\n1,10,5\n", named) == Rows{{"1", "10", 0}});
    write_text("table", ",user,item,time,price,shop\n0, 1,2 ,3,4,5\n\n1,1,2,3,4,5\n\n");
    InteractionFile file("table", {});
    while (file.next()) {
    }
    CHECK(file.reading() ==
          "csv, separated by commas; user = user, item = item, time = time; left aside: column 1, price, shop");
    CHECK(file.counts().trimmed == 2);
    CHECK(file.counts().empty == 1);
  }

  TEST_CASE("tables without a header are read by position, whatever their width and separator") {
    InteractionOptions options;
    options.columns = {"item", "-", "user", "time", "note"};
    const Rows expected = {{"9", "a", 100}, {"8", "b", 1454630400}};
    for (const std::string mark : {",", ";", "|", "\t", "::", " "}) {
      CAPTURE(mark);
      std::string text = "a,x,9,100,n\nb,y,8,2016-02-05,n\n";
      for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos; at += mark.size())
        text.replace(at, 1, mark);
      CHECK(rows(text, options) == expected);
    }
    check_mentions(refusal("a,x,9,100\n", options), "line 1: 4 fields separated by commas, expected 5 (item, -, user");
    check_mentions(refusal("i,x,u,t,n\na,x,9,100,n\n", options), "line 1: time 't'", "if this line is a header");
    check_mentions(refusal("item,shop,user,t,n\na,x,9,100,n\n", options), "line 1: a header", "leave it out");
    options.columns = {"user", "time"};
    check_mentions(refusal("1 2\n", options, Fault::usage), "option columns = user, time",
                   "one of them user and one item");
    options.columns = {"user", "item", "item"};
    check_mentions(refusal("1 2 3\n", options, Fault::usage), "'item' occurs twice");
    options.columns = {"user", "item"};
    options.user_column = "who";
    check_mentions(refusal("1 2\n", options, Fault::usage), "files without a header");
  }

  TEST_CASE("JSON lines are read by key; other notations are named") {
    CHECK(rows("{\"reviewerID\": \"R1\", \"asin\": \"B1\", \"unixReviewTime\": 100, \"style\": {\"a\": 1}}\n"
               "{\"asin\": \"B2\", \"reviewerID\": \"R1\", \"unixReviewTime\": 90}\n") ==
          Rows{{"R1", "B1", 100}, {"R1", "B2", 90}});
    InteractionOptions options;
    options.user_column = "u";
    options.item_column = "i";
    options.time_column = "date";
    options.where = {"stars >= 4", "vote > 1"};
    CHECK(rows("{\"u\": 7, \"i\": \"x\", \"date\": \"2016-02-05\", \"stars\": 5.0}\n"
               "{\"u\": 8, \"i\": \"y\", \"date\": \"2016-02-05\", \"stars\": 4.0, \"vote\": 2}\n"
               "{\"u\": 9, \"i\": \"z\", \"date\": \"2016-02-05\", \"stars\": 3, \"vote\": 2}\n",
               options) == Rows{{"8", "y", 1454630400}});
    check_mentions(refusal("{\"u\": 7, \"i\": 1, \"date\": 5, \"stars\": 5}\n", options), "no object has a key 'vote'");
    check_mentions(refusal("{u'username': u'p1'}\n"), "line 1: a Python dictionary", "ast.literal_eval");
    check_mentions(refusal("{'username': 'p1'}\n"), "line 1: a Python dictionary");
    check_mentions(refusal("[{\"user\": 1, \"item\": 2}]\n"), "a JSON array", "jq -c '.[]'");
    check_mentions(refusal("{\"user\": 1, \"item\": 2}\n{\"user\": 1\n"), "line 2: not a JSON object");
    check_mentions(refusal("{\"user\": 1, \"item\": [2]}\n"), "'item' is a list");
    check_mentions(refusal("{\"user\": 1, \"thing\": 2}\n"), "no column called item_id", "but thing, user");
    check_mentions(refusal("{\"user\": 1, \"item\": 2}\n{\"user\": 1}\n"), "line 2: an empty item id");
    check_mentions(refusal("{\"user\": 1, \"item\": 2}\n{\"user\": 1, \"item\": 3, \"time\": 5}\n"),
                   "line 2: it has 'time', which the first object lacks", "--time-column -");
    options = {};
    options.time_column = "-";
    CHECK(rows("{\"user\": 1, \"item\": 2}\n{\"user\": 1, \"item\": 3, \"time\": 5}\n", options) ==
          Rows{{"1", "2", 0}, {"1", "3", 0}});
    CHECK(rows("{\"user\": 18446744073709551615, \"item\": 1.0}\n") == Rows{{"18446744073709551615", "1.0", 0}});
    check_mentions(refusal("{\"user\": 100000000000000000001, \"item\": 2}\n"), "'user' is read as 1e+20", "quote ids");
  }

  TEST_CASE("conditions on numbers, texts and times choose the lines") {
    const std::string text =
        "user,item,rating,kind,time\n1,a,5,buy,2016-02-05\n1,b,3.5,view,2016-02-06\n1,c,,buy,2016-02-07\n";
    const auto kept = [&](const std::vector<std::string>& where) {
      InteractionOptions options;
      options.where = where;
      std::string items;
      for (const Row& row : rows(text, options)) items += row.item;
      return items;
    };
    CHECK(kept({"rating >= 3.5"}) == "ab");
    CHECK(kept({"rating>3.5"}) == "a");
    CHECK(kept({"rating < 5"}) == "b");
    CHECK(kept({"rating = 5.0"}) == "a");
    CHECK(kept({"rating != 5"}) == "bc");
    CHECK(kept({"rating != \"\""}) == "ab");
    CHECK(kept({"kind == 'buy'", "rating <= 5"}) == "a");
    CHECK(kept({"kind > buy"}) == "b");
    CHECK(kept({"item != b"}) == "ac");
    CHECK(kept({"time >= 2016-02-06"}) == "bc");
    CHECK(kept({"time < 1454716800"}) == "a");
    InteractionOptions positions;
    positions.where = {"rating >= 4"};
    CHECK(rows("1::10::4::7\n1::11::3::8\n", positions) == Rows{{"1", "10", 7}});
    const auto refused = [&](const std::string& where, Fault fault = Fault::data) {
      InteractionOptions options;
      options.where = {where};
      return refusal(text, options, fault);
    };
    check_mentions(refused("raating > 3"), "no column 'raating'", "did you mean 'rating'?", "--where");
    check_mentions(refused("kind > 3"), "line 2: kind 'buy' cannot be compared with '3'", "--where 'kind != buy'");
    for (const char* where : {"rating", ">= 4", "rating => 4", "rating ~ 4"})
      check_mentions(refused(where, Fault::usage), join("option where = '", where, "'"));
  }

  TEST_CASE("what a reader cannot guess is refused with what to write") {
    InteractionOptions named;
    named.user_column = "userid";
    check_mentions(refusal("userId\titemId\ttime\n1\t2\t3\n", named), "no column 'userid'", "did you mean 'userId'?",
                   "it has userId, itemId, time");
    check_mentions(refusal("buyer,isbn,grade\n1,2,3\n"), "3 fields separated by commas", "--user-column",
                   "--columns user,item,-,time");
    check_mentions(refusal("userID\tartistID\tweight\n1\t2\t3\n"), "no column called item_id", "--item-column");
    CHECK(rows("User\tItem\nanna\ttea\n") == Rows{{"anna", "tea", 0}});
    CHECK(rows("USER_ID,Rating,ItemId,Timestamp\nanna,5,tea,7\n") == Rows{{"anna", "tea", 7}});
    check_mentions(refusal("user_id,user,item\n1,2,3\n"), "has both 'user_id' and 'user'", "--user-column");
    check_mentions(refusal("user,item\n1,2\nuser,item\n"), "line 3: the header of line 1 again");
    check_mentions(refusal(std::string("\xFF\xFEu\0s\0", 6)), "UTF-16", "iconv");
    check_mentions(refusal(std::string("u\0s\0e\0", 6)), "UTF-16");
    check_mentions(refusal("us\xE9r 1 1500888598\n"), "not UTF-8", "iconv -f LATIN1");
    named.item_column = "userid";
    check_mentions(refusal("userid,item\n1,2\n", named, Fault::usage), "both are 'userid'");
    named.item_column = "";
    named.user_column = "K\xC3\xA4ufer";
    check_mentions(refusal("K\xE4ufer;item\n1;2\n", named), "the header is not UTF-8", "iconv -f LATIN1");
    check_mentions(refusal("1 2 16836000000000000000\n"), "out of range");
  }
}
