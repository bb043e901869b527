/// `lockstep-prep sequences` and `synth-sequences` as users run them: files, checks, messages, exit codes.

#include "lockstep/prep/sequences/gap_sessions.hpp"
#include "lockstep/prep/sequences/interactions.hpp"
#include "prep/program.hpp"
#include "support/test.hpp"

namespace {
const std::string kGolden = golden_path();

prep::SequenceSet read(const fs::path& path) { return prep::read_sequence_set(H5File::open(path)); }

/// Everything but the raw ids and where the rows come from.
auto content(const fs::path& path) {
  const prep::SequenceSet set = read(path);
  return std::tuple(set.offsets, set.n_train, set.item, set.time_raw, set.time_scaled, set.item_count);
}

/// The reference's rows as a raw file with this mark between the fields, with ratings or without.
std::string golden_rows(const std::string& mark, bool rating) {
  const auto rows = H5File::open(kGolden + "/tisasrec_data.h5").read<std::int64_t>("/inputs/rows");
  std::string text;
  for (std::size_t at = 0; at < rows.size(); at += 4) {
    text += std::to_string(rows[at]) + mark + std::to_string(rows[at + 1]) + mark;
    if (rating) text += std::to_string(rows[at + 2]) + mark;
    text += std::to_string(rows[at + 3]) + "\n";
  }
  return text;
}
}  // namespace

TEST_SUITE("prep.sequences_program") {
  TEST_CASE("the reference's rows as text of each kind give one and the same content") {
    const auto golden = H5File::open(kGolden + "/tisasrec_data.h5");
    const std::pair<const char*, std::string> made[] = {
        {"a.dat", golden_rows("::", true)},
        {"a.tsv", golden_rows("\t", true)},
        {"b.tsv", golden_rows("\t", false)},
        {"b.txt", golden_rows(" ", false)},
        {"a.csv", "user_id,item_id,rating,timestamp\n" + golden_rows(",", true)}};
    for (const auto& [name, text] : made) {
      CAPTURE(std::string(name));
      write_text(name, text);
      prepare(std::string("sequences -i ") + name + " -o out.h5");
      const auto set = read("out.h5");
      CHECK(set.offsets == golden.read<std::int64_t>("/outputs/offsets"));
      CHECK(set.item == golden.read<std::int32_t>("/outputs/items"));
      CHECK(set.time_scaled == golden.read<std::int64_t>("/outputs/times_scaled"));
      CHECK(set.source_name == name);
      prepare("check out.h5");
    }
    check_mentions(run_prep("info out.h5").text, "33, 30", "scale per_user_min, largest 24", "a.csv", "sha256");
    // In two parts the content is the same, and both sources are named.
    const std::string all = golden_rows("::", true);
    const auto cut = all.find('\n', all.size() / 2) + 1;
    write_text("part1", all.substr(0, cut));
    write_text("part2", all.substr(cut));
    prepare("sequences -i 'part?' -o parts.h5");
    CHECK((content("parts.h5") == content("out.h5")));
    CHECK(read("parts.h5").source_name == "part1,part2");
  }

  TEST_CASE("generated sessions come back from text") {
    prepare(
        "synth-sequences --users 120 --categories 4 --clusters 3 --members 10 --min-length 8 --max-length 20 "
        "--raw a.tsv -o a.h5");
    check_mentions(run_prep("info a.h5").text, "ideal_test_hr10_gap", "time_span", "generated");
    prepare("sequences -i a.tsv --min-user 1 --min-item 1 --keep-ids -o b.h5");
    CHECK((content("a.h5") == content("b.h5")));
  }

  TEST_CASE("a set of more than a million interactions is stored in compressed chunks and reads back") {
    auto set = prep::make_gap_sessions({.users = 11000, .min_length = 100, .max_length = 100});
    REQUIRE(set.rows() == 1100000);
    set.rule.reset();  // its rates take longer than the rest
    set.source_sha256 = std::string(64, '0');
    prep::write_sequence_set("large.h5", set);
    CHECK(fs::file_size("large.h5") < 1100000 * 20 / 2);
    const auto file = H5File::open("large.h5");
    const auto back = prep::read_sequence_set(file);
    CHECK(back.item == set.item);
    CHECK(back.time_scaled == set.time_scaled);
    std::vector<std::string> remarks;
    CHECK(prep::check_sequence_set(file, remarks).empty());
  }

  TEST_CASE("the check finds what was changed") {
    prepare("synth-sequences --users 30 -o a.h5");
    auto good = read("a.h5");
    const auto complains = [&](auto change, const char* expected) {
      auto bad = good;
      change(bad);
      prep::write_sequence_set("bad.h5", bad);
      check_mentions(prepare("check bad.h5", 3), expected, "not usable");
    };
    complains([](auto& s) { s.rule->noise = 2; }, "/synth: categories");
    complains([](auto& s) { s.rule->category[0] = 8; }, "/synth: categories");
    good.rule.reset();  // whose rates do not survive the other changes
    good.source_sha256 = std::string(64, 'a');
    complains([](auto& s) { s.offsets[2] = s.offsets[3] + 1; }, "/users/offsets falls at row 3");
    complains([](auto& s) { s.offsets.back() -= 1; }, "/users/offsets runs from 0 to");
    complains([](auto& s) { s.item[7] = 641; }, "/inter/item row 7: 641, must be 1 .. 640 (1 of");
    complains([](auto& s) { s.item[7] = 0; }, "row 7: 0");
    complains([](auto& s) { std::swap(s.time_raw[3], s.time_raw[4]); }, "/inter/time_raw falls in row 4");
    complains([](auto& s) { ++s.time_scaled[5]; }, "/inter/time_scaled: ");
    complains([](auto& s) { --s.n_train[1]; }, "/users/n_train: ");
    complains([](auto& s) { ++s.item_count[0]; }, "/items/count: ");
    complains([](auto& s) { ++s.time_max; }, "time_max = ");
    complains([](auto& s) { std::swap(s.users.numbers[0], s.users.numbers[1]); }, "/users/raw_id does not rise");
    complains([](auto& s) { s.source_sha256 = "beef"; }, "is not a SHA-256 checksum");
    complains([](auto& s) { s.time_scale = "fortnights"; }, "unknown time_scale");
  }

  TEST_CASE("wrong usage ends with exit code 2, bad data with 3, in one line and without output") {
    write_text("good", "1 1 1\n1 2 2\n1 3 3\n");
    write_text("cut", "1::1::5::10\n1::2::5\n");
    write_text("negative", "1 1 5\n1 2 -5\n");
    write_text("single", "1 1 1\n2 2 2\n");
    prepare("synth-sequences --users 5 -o a.h5");
    fs::copy("a.h5", "cut.h5");
    fs::resize_file("cut.h5", fs::file_size("cut.h5") / 2);
    struct Case {
      int status;
      std::string words, expected;
    };
    const std::vector<Case> cases = {
        {2, "sequences -i absent -o o.h5", "absent"},
        {2, "sequences -i good", "output"},
        {2, "sequences -i good -o no/such/o.h5", "no/such"},
        {2, "sequences -i good --format moovielens -o o.h5", "movielens"},
        {2, "sequences -i good --min-user 0 -o o.h5", "min"},
        {2, "sequences -i good --min-split 2 -o o.h5", "min"},
        {2, "sequences -i good --columns user,item --user-column 1 -o o.h5", "files without a header"},
        {2, "sequences -i good --time-unit week -o o.h5", "yyyymmdd"},
        {2, "sequences -i good --where rating -o o.h5", "option where = 'rating'"},
        {2, "sequences -i good --keep-ids --ids text -o o.h5", "cannot be kept"},
        {2, "sequences -i good --time-scale unit:week -o o.h5", "unit:day"},
        {2, "synth-sequences --min-length 9 --max-length 8 -o o.h5", "9 > 8"},
        {2, "synth-sequences --members 1 -o o.h5", "32 items for sessions of up to 50"},
        {2, "synth-sequences --noise 1.5 -o o.h5", "noise"},
        {3, "sequences -i cut -o o.h5", "'cut', line 2: 3 fields separated by '::', expected 4"},
        {3, "sequences -i negative -o o.h5", "'negative', line 2: time -5 is negative"},
        {3, "sequences -i good -o o.h5", "the filter leaves none of 3"},
        {3, "sequences -i single --min-user 1 --min-item 1 -o o.h5", "no user has two interactions"},
        {3, "check cut.h5", "cut.h5"},
        {3, "info cut.h5", "cut.h5"}};
    const auto before = names_in(".");
    for (const auto& c : cases) check_refused(c.words, c.status, c.expected);
    CHECK(names_in(".") == before);
  }

  TEST_CASE("a time column of another name and repeated lines are reported") {
    write_text("other.csv", "user_id,item_id,when\n1,1,10\n1,2,20\n1,3,30\n1,4,40\n");
    write_text("times.csv", "user_id,item_id,time\n1,1,10\n1,2,20\n1,2,20\n1,2,30\n1,1,10\n1,1,40\n");
    check_mentions(prepare("sequences --input other.csv --min-user 1 --min-item 1 -o o.h5"),
                   "no times, so the order of the lines counts", "left aside: when", "--time-column");
    const std::string named =
        prepare("sequences --input other.csv --time-column when --min-user 1 --min-item 1 -o o.h5");
    CHECK(!contains(named, "note"));
    const std::string words = "sequences --input times.csv --min-user 1 --min-item 1 -o o.h5 --repeated ";
    check_mentions(prepare(words + "keep"), "2 lines repeat user, item and time of an earlier line and are kept");
    CHECK(read("o.h5").time_raw == std::vector<std::int64_t>{10, 10, 20, 20, 30, 40});
    check_mentions(prepare(words + "drop"), "2 lines repeat", "and are dropped");
    CHECK(read("o.h5").time_raw == std::vector<std::int64_t>{10, 20, 30, 40});
    CHECK(read("o.h5").item == std::vector<std::int32_t>{1, 2, 2, 1});
  }

  TEST_CASE("the summary names columns, dates, recurring items and what the filters dropped") {
    std::string rows = "userId;movieId;rating;timestamp;tag\n", more;
    for (int user = 1; user <= 4; ++user)
      for (int k = 0; k < 6; ++k)
        rows += join(user, "; ", k == 5 ? 1 : k + 1, ";", k == 4 ? 2 : 5, ";", 1500000000 + 86401 * (user + k), ";x\n");
    for (int item = 100; item < 106; ++item) more += join("9;", item, ";5;1500000000;x\n");
    write_text("full.csv", rows + "\n" + more);
    check_mentions(prepare("sequences -i full.csv -o o.h5 --min-item 4 --where 'rating > 4,tag = x'"),
                   "csv, separated by semicolons; user = userId, item = movieId, time = timestamp; left aside: nothing",
                   "4 lines by --where 'rating > 4'", "0 lines by --where 'tag = x'",
                   "2017-07-14 02:40:00 to 2017-07-23 02:40:09 UTC, 10 distinct; numbers, taken as s since 1970",
                   "blanks around 24 fields are removed", "1 empty lines are skipped",
                   "the filter drops 23 % of the interactions and 60 % of the items", "--min-user 1 --min-item 1",
                   "0.0 % of the validation items and 100.0 % of the test items occur earlier",
                   "5 / 5.00 / 5 / 5 / 5 (min / mean / median / 90th percentile / max)");
    CHECK(read("o.h5").rows() == 20);
    check_refused("sequences -i full.csv -o o.h5 --columns user,item,rating,time,tag", 3, "line 1: a header");
  }

  TEST_CASE("implausible times and ids are warnings, which the file keeps and --strict refuses") {
    // 30 users have the items 1 .. 5; `time` makes the field from the seconds.
    const auto table = [](const std::function<std::string(std::int64_t)>& time) {
      std::string text;
      for (int user = 1; user <= 30; ++user)
        for (int item = 1; item <= 5; ++item)
          text += join(user, "\t", item, "\t", time(1400000000 + std::int64_t{90061} * (user * 5 + item)), "\n");
      write_text("raw.tsv", text);
    };
    const auto warned = [](const std::string& more = "") {
      const std::string text = prepare("sequences -i raw.tsv --min-user 1 --min-item 1 -o o.h5 " + more);
      const bool stored = H5File::open("o.h5").has_attribute("/", "warnings");
      CHECK(stored == contains(text, "warning: "));
      return stored ? text : "";
    };
    table([](std::int64_t t) { return std::to_string(t); });
    CHECK(warned() == "");
    const auto plain = content("o.h5");
    table([](std::int64_t t) { return std::to_string(t % 5 + 1); });
    check_mentions(warned(), "150 of 150 times are before 1980 or after 2100", "5 distinct values",
                   "ratings, counts or positions", "--columns user,item,rating");
    check_mentions(prepare("check o.h5"), "before 1980");
    prepare("check o.h5 --strict", 3);
    check_mentions(prepare("sequences -i raw.tsv --min-user 1 --min-item 1 --strict -o strict.h5", 3), "before 1980");
    CHECK(!fs::exists("strict.h5"));
    CHECK(warned("--columns user,item,-") == "");
    table([](std::int64_t t) { return std::to_string(t * 1000); });
    check_mentions(warned(), "they run from 46", "with --time-unit ms they lie between 1980 and 2100");
    CHECK(warned("--time-unit ms") == "");
    CHECK((content("o.h5") == plain));
    table([](std::int64_t t) { return std::to_string(t * 1000000); });
    check_mentions(warned(), "--time-unit us");
    table([](std::int64_t t) { return std::to_string(t / 86400); });
    check_mentions(warned(), "--time-unit day");
    table([](std::int64_t t) { return join("201", t % 9 + 1, "0523"); });
    check_mentions(warned(), "--time-unit yyyymmdd");
    CHECK(warned("--time-unit yyyymmdd") == "");
    table([](std::int64_t t) { return std::to_string(t % 7 == 0 ? 0 : t); });
    check_mentions(warned(), "of 150 times are before 1980", "leave their lines out");
    CHECK(warned("--where 'time >= 1980-01-01'") == "");
    table([](std::int64_t t) { return std::to_string(1400000000 + t % 3); });
    check_mentions(warned(), "few different times", "3 distinct values");
    table([](std::int64_t t) { return std::to_string((16000 + t % 3) * 86400); });  // days have few values
    CHECK(warned() == "");
    write_text("raw.tsv", "user\titem\n1\t1\n1\t2\nNaN\t1\nNaN\t2\n1\t3\n1\t4\n");
    check_mentions(warned(), "2 of 6 interactions have the user 'NaN'", "--where 'COLUMN != NaN'");
    CHECK(warned("--where 'user != NaN'") == "");
  }

  TEST_CASE("text among integers is reported, and text ids read back") {
    write_text("mixed", "1 10\n1 B00\n1 10\n1 \xC3\xA9t\xC3\xA9\n");
    check_mentions(prepare("sequences -i mixed --min-user 1 --min-item 1 -o o.h5"),
                   "item ids are taken as text because of 'B00' (mixed, line 2)", "times              none");
    CHECK(read("o.h5").items.texts == std::vector<std::string>{"10", "B00", "\xC3\xA9t\xC3\xA9"});
    prepare("check o.h5");
    prepare("info o.h5");
  }
}
