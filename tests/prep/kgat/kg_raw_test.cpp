#include "prep/kgat/kg_text.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
const KgFinding* find(const std::vector<KgFinding>& findings, const std::string& what) {
  const auto found =
      std::find_if(findings.begin(), findings.end(), [&](const KgFinding& f) { return f.what.starts_with(what); });
  return found == findings.end() ? nullptr : &*found;
}

void check_found(const std::vector<KgFinding>& findings, const std::string& what, std::int64_t count,
                 const std::string& first) {
  CAPTURE(what);
  const KgFinding* finding = find(findings, what);
  REQUIRE(finding != nullptr);
  CHECK(finding->count == count);
  check_mentions(finding->first, first);
}

std::vector<std::int32_t> items(const UserItems& part, std::int64_t user) {
  return {part.of(user).begin(), part.of(user).end()};
}

/// The message of the data error in these texts.
std::string refusal(const std::string& train, const std::string& test, const std::string& kg,
                    const KgRules& rules = {}) {
  return error_of(Fault::data, [&] { parse_kg(train, test, kg, rules); });
}

const std::string kTrain = "0 4 1\n1 2 \n2 0 3\n", kTest = "0 2\n1 0\n", kKg = "0 0 5\n1 1 5\n2 0 6\n";
}  // namespace

TEST_SUITE("prep.kg_raw") {
  TEST_CASE("blanks, tabs, carriage returns, blank lines, any order and a missing last line end are read") {
    const auto set = parse_kg("2 \t 3\t0 \r\n\n0 4  1\n  1 2", "1 0 \n", "0\t0\t5 \n \n1 1 5\r\n2 0 6");
    CHECK(items(set.train, 0) == std::vector<std::int32_t>{1, 4});
    CHECK(items(set.train, 1) == std::vector<std::int32_t>{2});
    CHECK(items(set.train, 2) == std::vector<std::int32_t>{0, 3});
    CHECK(items(set.test, 1) == std::vector<std::int32_t>{0});
    CHECK(set.triples == std::vector<Triple>{{0, 0, 5}, {1, 1, 5}, {2, 0, 6}});
    CHECK(set.sizes.users == 3);
    CHECK(set.sizes.items == 5);
    CHECK(set.sizes.entities == 7);
    CHECK(set.sizes.kg_relations == 2);
    CHECK(set.sizes.nodes() == 10);
  }

  TEST_CASE("sizes cover both interaction files, and items that no triple has") {
    const auto set = parse_kg("0 1\n", "4\n3 9\n", "0 0 2\n");
    CHECK(set.sizes.users == 5);
    CHECK(set.sizes.items == 10);
    CHECK(set.sizes.entities == 10);  // ids of users would otherwise be those of items
    CHECK(set.test.users() == 5);
  }

  TEST_CASE("a field that is not an id, out of range or incomplete is named by file and line") {
    struct Case {
      std::string train, test, kg, where, what;
    };
    const Case cases[] = {
        {"0 1\n1 x7\n", kTest, kKg, "'train.txt' line 2", "'x7' is not a valid item id"},
        {"0 1\n-1 2\n", kTest, kKg, "'train.txt' line 2", "user id '-1' is out of range"},
        {kTrain, "0 1\n\n1 1.5\n", kKg, "'test.txt' line 3", "'1.5' is not a valid item id"},
        {kTrain, "0 99999999999999999999\n", kKg, "'test.txt' line 1", "is out of range"},
        {kTrain, "0 2147483647\n", kKg, "'test.txt' line 1", "ids are 0 .. 2147483646"},
        {kTrain, kTest, "0 0 5\n1 1\n", "'kg_final.txt' line 2", "expected head, relation and tail, found 2 fields"},
        {kTrain, kTest, "0 0 5 6\n", "'kg_final.txt' line 1", "found 4 fields"},
        {kTrain, kTest, "0 0 5\n0 0 5\n0 r 5\n", "'kg_final.txt' line 3", "'r' is not a valid relation id"},
        {kTrain, kTest, "0,0,5\n", "'kg_final.txt' line 1", "found 1 field"},
        {"0 1\n1 \x01\xff\n", kTest, kKg, "'train.txt' line 2", "is not a valid item id"},
        {"0\n1\n", kTest, kKg, "'train.txt'", "no user has an item"},
        {"", kTest, kKg, "'train.txt'", "no user has an item"},
        {kTrain, kTest, "\n\n", "'kg_final.txt'", "no triples"},
        {"0 1\n2000000000 2\n", kTest, kKg, "'train.txt' line 2", "--max-nodes"},
        {kTrain, kTest, "0 0 5\n3 0 200000000\n", "'kg_final.txt' line 2", "--max-nodes"},
        {kTrain, kTest, "0 0 5\n3 200000000 1\n", "'kg_final.txt' line 2", "200000001 relations"},
    };
    for (const auto& c : cases) check_mentions(refusal(c.train, c.test, c.kg), c.where, c.what);
  }

  TEST_CASE("declared sizes make larger ids errors and smaller ones isolated nodes") {
    KgRules rules{.users = 3, .items = 5, .entities = 9, .relations = 4};
    const auto set = parse_kg(kTrain, kTest, kKg, rules);
    CHECK(set.sizes.entities == 9);
    CHECK(set.sizes.kg_relations == 4);
    check_mentions(refusal(kTrain + "3 1\n", kTest, kKg, rules), "'train.txt' line 4", "user id 3", "0 .. 2");
    check_mentions(refusal(kTrain, kTest + "2 5\n", kKg, rules), "'test.txt' line 3", "item id 5", "0 .. 4");
    check_mentions(refusal(kTrain, kTest, kKg + "9 0 1\n", rules), "'kg_final.txt' line 4", "head id 9");
    check_mentions(refusal(kTrain, kTest, kKg + "1 4 1\n", rules), "'kg_final.txt' line 4", "relation id 4");
    KgRules vast{.users = 2'000'000'000};
    check_mentions(error_of(Fault::usage, [&] { parse_kg(kTrain, kTest, kKg, vast); }), "max-nodes = 100000000");
    rules.items = 0, rules.entities = 4;
    CHECK(error_of(Fault::usage, [&] { parse_kg(kTrain, kTest, "0 0 1\n", rules); }) != "no error");
  }

  TEST_CASE("repeated interactions and users' lines count once, are reported, or refused") {
    const std::string train = "0 4 1 4\n1 2\n0 3 1\n";
    std::vector<KgFinding> findings;
    const auto set = parse_kg(train, kTest, kKg, {}, &findings);
    CHECK(items(set.train, 0) == std::vector<std::int32_t>{1, 3, 4});
    CHECK(set.sizes.train == 4);
    check_found(findings, "repeated interactions", 2, "'train.txt' line 1: user 0 already has item 4");
    check_found(findings, "further lines of a user", 1, "'train.txt' line 3: user 0 already has line 1");
    findings.clear();
    parse_kg("1 2\n1 3\n0 4\n0 1\n", kTest, kKg, {}, &findings);
    check_found(findings, "further lines of a user", 2, "'train.txt' line 2: user 1 already has line 1");
    KgRules strict{.duplicates = KgPolicy::refuse};
    check_mentions(refusal(train, kTest, kKg, strict), "'train.txt' line 3", "--duplicates");
    check_mentions(refusal("0 4 1\n1 2 2\n", kTest, kKg, strict), "'train.txt' line 2", "user 1 already has item 2");
    check_mentions(refusal(kTrain, "0 2 2\n", kKg, strict), "'test.txt' line 1");
    CHECK_NOTHROW(parse_kg(kTrain, kTest, kKg, strict));
  }

  TEST_CASE("repeated triples count once, in the order of their first occurrence") {
    const std::string kg = "3 1 5\n0 0 5\n3 1 5\n0 0 6\n0 0 5\n3 1 5\n";
    std::vector<KgFinding> findings;
    const auto set = parse_kg(kTrain, kTest, kg, {}, &findings);
    CHECK(set.triples == std::vector<Triple>{{3, 1, 5}, {0, 0, 5}, {0, 0, 6}});
    check_found(findings, "repeated triples", 3, "'kg_final.txt' line 3: triple 3 1 5 is already in line 1");
    KgRules strict{.duplicates = KgPolicy::refuse};
    check_mentions(refusal(kTrain, kTest, kg, strict), "'kg_final.txt' line 3");
  }

  TEST_CASE("parallel edges, in either direction, are kept, thinned to the first, or refused") {
    const std::string kg = "0 0 5\n6 0 2\n0 1 5\n5 2 0\n2 1 6\n7 0 7\n";
    std::vector<KgFinding> findings;
    CHECK(parse_kg(kTrain, kTest, kg, {}, &findings).triples.size() == 6);
    check_found(findings, "parallel triples, kept", 3,
                "'kg_final.txt' line 3: triple 0 1 5 connects the same entities as 0 0 5 in line 1");
    check_found(findings, "triples from an entity to itself", 1, "'kg_final.txt' line 6: triple 7 0 7");
    KgRules rules{.parallel = KgPolicy::drop};
    const auto set = build_kg(kTrain, kTest, kg, rules);
    CHECK(set.triples == std::vector<Triple>{{0, 0, 5}, {6, 0, 2}, {7, 0, 7}});
    CHECK(set.ckg.nnz() == set.sizes.ckg_triples() - 1);  // the self loop and its inverse share their pair
    rules.parallel = KgPolicy::refuse;
    check_mentions(refusal(kTrain, kTest, kg, rules), "'kg_final.txt' line 3", "--parallel");
  }

  TEST_CASE("test items that are train items are kept, dropped, or refused") {
    const std::string overlapping = "2 1\n0 2 4 1\n";
    std::vector<KgFinding> findings;
    const auto kept = parse_kg(kTrain, overlapping, kKg, {}, &findings);
    CHECK(items(kept.test, 0) == std::vector<std::int32_t>{1, 2, 4});
    check_found(findings, "test items that are train items", 2, "'test.txt' line 2: test item 1 of user 0");
    KgRules rules{.overlap = KgPolicy::drop};
    const auto dropped = parse_kg(kTrain, overlapping, kKg, rules);
    CHECK(items(dropped.test, 0) == std::vector<std::int32_t>{2});
    CHECK(items(dropped.test, 2) == std::vector<std::int32_t>{1});
    CHECK(dropped.sizes.test == 2);
    rules.overlap = KgPolicy::refuse;
    check_mentions(refusal(kTrain, overlapping, kKg, rules), "'test.txt' line 2", "--overlap");
  }

  TEST_CASE("users without train items, empty relations and missing ids are reported, or refused") {
    std::vector<KgFinding> findings;
    parse_kg("0 4 1\n1\n5 2\n", "3 0\n", "0 0 5\n1 3 8\n", {}, &findings);
    check_found(findings, "users without train items", 4, "'train.txt' line 2: user 1 has no train items");
    check_found(findings, "user ids that never occur", 2,
                "'train.txt' line 3: ids go up to 5, the first that is "
                "missing is 2");
    check_found(findings, "item ids that never occur", 1, "the first that is missing is 3");
    check_found(findings, "entity ids that never occur", 3, "'kg_final.txt' line 2");
    check_found(findings, "items without triples", 3, "first is item 2");
    check_found(findings, "relations without triples", 2,
                "'kg_final.txt' line 2: ids go up to 3, the first that is missing is 1");
    const auto refuses = [&](KgPolicy KgRules::*rule, const std::string& train, const std::string& test,
                             const std::string& where, const std::string& what) {
      KgRules rules;
      rules.*rule = KgPolicy::refuse;
      check_mentions(refusal(train, test, "0 0 1\n1 3 4\n", rules), where, what);
    };
    refuses(&KgRules::empty_users, "0 4\n1\n", "", "'train.txt' line 2", "user 1 has no train items");
    refuses(&KgRules::empty_users, "0 4\n", "0 1\n1 2\n", "'test.txt' line 2", "test items but no train items");
    refuses(&KgRules::empty_users, "0 4\n2 3\n", "", "'train.txt' line 2", "user 1 has no line");
    refuses(&KgRules::empty_relations, "0 4\n", "", "'kg_final.txt' line 2", "missing is 1");
    refuses(&KgRules::missing_ids, "0 4\n2 3\n", "", "'train.txt' line 2", "missing is 1");
    refuses(&KgRules::missing_ids, "0 6\n", "", "'train.txt' line 1", "missing is 2");
  }

  TEST_CASE("an item id among the entities, cold test items and an empty test are reported") {
    std::vector<KgFinding> findings;
    const auto set = parse_kg("0 1 0\n1 1\n2 9\n", "0 2\n1 2 3\n", "0 0 5\n1 0 6\n2 0 7\n9 0 8\n", {}, &findings);
    CHECK(set.sizes.items == 10);
    check_found(findings, "items without interactions", 4,
                "'train.txt' line 3: items go up to 9, the first without interactions is 5");
    check_found(findings, "test items without train interactions", 2, "'test.txt' line 1: item 2 of user 0");
    CHECK(find(findings, "files without test") == nullptr);
    findings.clear();
    parse_kg(kTrain, "", kKg, {}, &findings);
    check_found(findings, "files without test interactions", 1, "'test.txt'");
    findings.clear();
    parse_kg(kTrain, kTest, kKg, {}, &findings);
    for (const char* what : {"items without interactions", "test items without train", "files without test"})
      CHECK(find(findings, what) == nullptr);
  }

  TEST_CASE("without a graph the entities are the items, and only interactions are edges") {
    std::vector<KgFinding> findings;
    const auto set = read_kg_text({"a", kTrain}, {"b", kTest}, std::nullopt, {}, findings);
    CHECK(set.sizes.entities == set.sizes.items);
    CHECK(set.sizes.relations() == 2);
    const auto graph = build_ckg(set.sizes, set.train, set.triples, SymmetricForm::sound);
    CHECK(graph.nnz() == 2 * set.sizes.train);
    CHECK(find(findings, "relations without triples") == nullptr);
  }

  TEST_CASE("lists are split from the right, counted, and refused by line") {
    const KgText list{"item_list.txt", "org_id remap_id freebase_id\nThe title, with blanks 0 m.1\n 2 m.2\nx 7 m.3\n"};
    const auto finding = read_kg_list(list, 3, 4, "item");
    CHECK(finding.count == 2);
    check_mentions(finding.first, "item_list.txt", "the first without a name is 1", "line 4");
    const KgText twice{"r", "org_id remap_id\na 0\nb 1\nc 0\n"}, foreign{"r", "h\na b\n"}, blank{"r", "h\na 0 m\n0\n"};
    check_mentions(error_of(Fault::data, [&] { read_kg_list(twice, 2, 2, "relation"); }), "'r' line 4", "named twice");
    check_mentions(error_of(Fault::data, [&] { read_kg_list(foreign, 2, 2, "relation"); }), "'r' line 2", "'b' is no");
    check_mentions(error_of(Fault::data, [&] { read_kg_list(blank, 3, 2, "item"); }), "'r' line 3", "found 1");
  }
}
