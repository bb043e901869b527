/// lockstep-prep kg and synth-kg as users run them.

#include "prep/kgat/kg_file.hpp"
#include "prep/kgat/kg_text.hpp"
#include "prep/program.hpp"
#include "support/npy.hpp"
#include "support/test.hpp"

namespace {

void write_folder(const std::string& train, const std::string& test, const std::string& kg) {
  fs::create_directories("raw");
  write_text("raw/train.txt", train);
  write_text("raw/test.txt", test);
  write_text("raw/kg_final.txt", kg);
}

void write_small() { write_folder("0 4 1 4\n1 2 \n2 0 3\n", "0 2\n1 0 2\n", "0 0 5\n1 1 5\n2 0 6\n0 1 5\n0 0 5\n"); }

prep::KgSet read(const fs::path& path) { return prep::read_kg_set(H5File::open(path)); }

void check_equal(const prep::Ckg& a, const prep::Ckg& b) {
  prep::each_array({}, a.nnz(), [&](const char* name, auto array, std::int64_t) {
    CAPTURE(name);
    CHECK(a.*array == b.*array);
  });
  CHECK(a.rel_perm == b.rel_perm);
}

/// Problems of a good set after `damage`, written with right checksums.
std::string problems_after(const std::function<void(prep::KgSet&)>& damage) {
  prep::KgSet set = read("good.h5");
  damage(set);
  prep::write_kg_set("bad.h5", set, 0);
  std::string run = prepare("check bad.h5", 3);
  run_prep("info bad.h5");  // must not crash, whatever it says
  CHECK(run_prep("info bad.h5").status % 3 == 0);
  return run;
}

}  // namespace

TEST_SUITE("prep.kg_program") {
  TEST_CASE("raw files may have the marks of Windows or gzip; other compressions and line ends are named") {
    write_small();
    prepare("kg -i raw -o plain.h5");
    write_text("raw/train.txt",
               "\xEF\xBB\xBF"
               "0 4 1 4\r\n1 2 \r\n2 0 3\r\n");
    REQUIRE(run_shell("gzip -k raw/kg_final.txt").status == 0);
    prepare("kg -i raw --kg kg_final.txt.gz -o marked.h5");
    check_equal(read("plain.h5").ckg, read("marked.h5").ckg);
    write_text("raw/train.txt", "0 4 1\r1 2\r2 0 3\r");
    check_refused("kg -i raw -o a.h5", 3, "'raw/train.txt': its lines end with carriage returns alone");
    write_text("raw/train.txt", "BZh91AY&SY");
    check_refused("kg -i raw -o a.h5", 3, "bzip2 -dk 'raw/train.txt'");
  }

  TEST_CASE("a folder becomes the file of the schema, and every array has its type and shape") {
    write_small();
    write_text("raw/relation_list.txt", "org_id remap_id\nhttp://a/b 0\nhttp://c/d 1\n");
    check_mentions(prepare("kg -i raw -o a.h5"), "5 train + 0 validation + 3 test", "4 of 2 relations",
                   "18 triples of 6 relations, 16 pairs", "1 repeated interactions", "'raw/train.txt' line 1",
                   "1 repeated triples", "'raw/kg_final.txt' line 5", "1 test items that are train items",
                   "'raw/test.txt' line 2", "2 relation ids that the list names, of 2", "25 %");
    const auto file = H5File::open("a.h5");
    const std::pair<const char*, std::int64_t> sizes[] = {
        {"version", 1},      {"n_users", 3},        {"n_items", 5},        {"n_entities", 7},
        {"n_nodes", 10},     {"n_relations", 6},    {"n_cf_train", 5},     {"n_cf_test", 3},
        {"n_kg_triples", 4}, {"n_kg_relations", 2}, {"n_ckg_triples", 18}, {"nnz", 16}};
    for (const auto& [name, value] : sizes) {
      CAPTURE(name);
      CHECK(file.int_attribute("/", name) == value);
    }
    CHECK(file.text_attribute("/", "format") == "lockstep-kgat");
    CHECK(file.text_attribute("/", "name") == "raw");
    const auto sums = std::get<std::vector<std::string>>(file.attribute("/", "source_sha256"));
    CHECK(sums.size() == 4);
    struct Array {
      const char* name;
      H5Type type;
      std::vector<std::int64_t> shape;
    };
    const Array arrays[] = {{"/cf/train/indptr", H5Type::i64, {4}},  {"/cf/train/item", H5Type::i32, {5}},
                            {"/cf/test/indptr", H5Type::i64, {4}},   {"/cf/test/item", H5Type::i32, {3}},
                            {"/kg/triple", H5Type::i32, {4, 3}},     {"/ckg/indptr", H5Type::i64, {11}},
                            {"/ckg/tail", H5Type::i32, {18}},        {"/ckg/rel", H5Type::i32, {18}},
                            {"/ckg/rel_indptr", H5Type::i64, {7}},   {"/ckg/rel_perm", H5Type::i32, {18}},
                            {"/adj/indptr", H5Type::i64, {11}},      {"/adj/col", H5Type::i32, {16}},
                            {"/adj/edge_ptr", H5Type::i64, {17}},    {"/adj/transpose", H5Type::i64, {16}},
                            {"/adj/random_walk", H5Type::f32, {16}}, {"/adj/symmetric", H5Type::f32, {16}},
                            {"/node/degree", H5Type::i32, {10}}};
    for (const auto& array : arrays) {
      CAPTURE(array.name);
      const auto info = file.info(array.name);
      CHECK(info.type == array.type);
      CHECK(info.shape == array.shape);
    }
    CHECK(file.datasets_under("/").size() == std::size(arrays));
    check_mentions(prepare("check a.h5"), "a.h5: good", "1 test items are train items");
    check_mentions(run_prep("info a.h5").text, "collaborative knowledge graph 'raw'", "inverse of relation 1",
                   "2 triples are parallel", "kg_final.txt");
    check_equal(read("a.h5").ckg, build_kg("0 4 1\n1 2 \n2 0 3\n", "0 2\n1 0 2\n", "0 0 5\n1 1 5\n2 0 6\n0 1 5\n").ckg);
  }

  TEST_CASE("atomic files with text ids become the graph of their numbers, and lists name the numbers") {
    // i2 has no link; the third link is of an item without interactions, the fourth of an entity that i0 has.
    const std::string inter =
        "user_id:token\titem_id:token\trating:float\nann\ti0\t5\nann\ti1\t5\nbob\ti2\t5\nbob\ti0\t1\n"
        "\nbob\ti1\t4\nann\ti0\t5\n";
    const std::string link = "item_id:token\tentity_id:token\ni0\tm.a\ni1\tm.b\ni9\tm.z\ni2\tm.a\n";
    const std::string kg =
        "head_id:token\trelation_id:token\ttail_id:token\nm.a\tfilm.genre\tm.g\nm.b\tfilm.genre\tm.g\n"
        "m.z\tfilm.actor\ti2\nm.a\tfilm.genre\tm.g\n";
    fs::create_directories("atomic");
    write_text("atomic/x.inter", inter);
    write_text("atomic/x.link", link);
    write_text("atomic/x.kg", kg);
    check_mentions(prepare("kg -i atomic --test-fraction 0 --text lists -o a.h5"), "item = item_id",
                   "left aside: rating", "x.link: 2 of 3 items are an entity; 1 lines are of other items",
                   "1 links to the entity of an earlier item", "x.kg: 3 entities besides the items, 2 relations",
                   "largest relations  0: 2, 1: 1", "2 as heads, 0 as tails, of 3", "random share of 0",
                   "1 repeated interactions, counted once; 'atomic/x.inter' line 8: user 0 already has item 0",
                   "1 repeated triples, counted once; 'atomic/x.kg' line 5");
    const auto set = read("a.h5");
    CHECK(set.train.indptr == std::vector<std::int64_t>{0, 2, 5});
    CHECK(set.train.item == std::vector<std::int32_t>{0, 1, 0, 1, 2});
    CHECK(set.triples == std::vector<Triple>{{0, 0, 3}, {1, 0, 3}, {4, 1, 5}});  // i2 as an entity is another thing
    CHECK(set.sources == std::vector<std::string>{"x.inter", "x.kg", "x.link"});
    CHECK(read_text("lists/item_list.txt") == "org_id remap_id freebase_id\ni0 0 m.a\ni1 1 m.b\ni2 2 item:i2\n");
    CHECK(read_text("lists/user_list.txt") == "org_id remap_id\nann 0\nbob 1\n");
    prepare("check a.h5");
    prepare("kg -i lists -o back.h5");
    check_equal(read("back.h5").ckg, set.ckg);
    // The same in other notations, by position, and without links: an item is then the entity of its id.
    write_text("atomic/a.csv", "5,i0,ann\n5,i1,ann\n5,i2,bob\n1,i0,bob\n4,i1,bob\n5,i0,ann\n");
    write_text("atomic/l.csv", "i0,m.a\ni1,m.b\ni9,m.z\ni2,m.a\n");
    write_text("atomic/k.csv", "m.a,genre,m.g\nm.b,genre,m.g\nm.z,actor,i2\n");
    prepare(
        "kg -i atomic --interactions a.csv --columns rating,item,user --link l.csv --kg k.csv --test-fraction 0 -o "
        "b.h5");
    check_equal(read("b.h5").ckg, set.ckg);
    // A header without types; ids with quotes, and with what separates other tables.
    write_text("atomic/k.csv", "head,relation,tail\nm.a,genre,\"m,g\"\nm.b,genre,\"m,g\"\n\nm.z,\"a;b;c;d|t\",i2\n");
    const std::string with_links = "kg -i atomic --interactions a.csv --columns rating,item,user --link l.csv -o b.h5";
    prepare(with_links + " --kg k.csv --test-fraction 0");
    check_equal(read("b.h5").ckg, set.ckg);
    write_text("atomic/k.csv", "m.a,genre,m.g\n\"m.b,genre,m.g\n");
    check_refused(with_links + " --kg k.csv", 3, "'atomic/k.csv' line 2", "a quoted field is not closed");
    write_text("atomic/k.csv", "i0,genre,m.g\ni1,genre,m.g\nm.z,actor,i2\n");
    prepare("kg -i atomic --interactions a.csv --columns rating,item,user --kg k.csv --test-fraction 0 -o c.h5");
    CHECK(read("c.h5").triples == std::vector<Triple>{{0, 0, 3}, {1, 0, 3}, {4, 1, 2}});
    check_mentions(prepare("kg -i atomic --where 'rating > 1' --test-fraction 0.5 --val-fraction 0.1 -o d.h5"),
                   "1 lines by --where 'rating > 1'");
    const auto parts = read("d.h5");
    CHECK(parts.sizes.train + parts.sizes.test + std::ssize(parts.valid.item) == 4);
    CHECK(parts.sizes.test > 0);
    write_text("atomic/a.csv", "i 0,a b\ni_0,a_b\ni 0,a_b\n");  // in lists, blanks become _, but ids stay different
    prepare("kg -i atomic --interactions a.csv --columns item,user --link l.csv --no-kg --text lists -o f.h5");
    CHECK(read_text("lists/user_list.txt") == "org_id remap_id\na_b 0\na_b_ 1\n");
    write_text("atomic/y.inter", inter);
    check_refused("kg -i atomic -o e.h5", 2, "'x.inter'", "'y.inter'", "--interactions");
    write_text("atomic/short", "m.a genre\n");
    check_refused("kg -i atomic --interactions x.inter --kg short -o e.h5", 3, "'atomic/short' line 1",
                  "found 2 fields");
    write_small();
    check_refused("kg -i raw --where 'rating > 1' -o e.h5", 2, "name it with --interactions");
    check_refused("kg -i raw --text ./raw -o e.h5", 2, "would replace");
  }

  TEST_CASE("tables taken for lists, items outside of the graph and empty lines are reported") {
    std::string table;
    for (int user = 0; user < 4; ++user)
      for (int item = 0; item < 5; ++item) table += join(user, " ", item, " ", 10 + item, "\n");
    write_folder(table, "0 5\n\n1 5\n", "20 0 21\n\n\n22 0 21\n");
    const std::string text = prepare("kg -i raw -o a.h5");
    check_mentions(text, "warning: 20 lines that all have 3 fields, for 4 users", "'raw/train.txt'", "--interactions",
                   "warning: none of the 15 items occurs in a triple",
                   "1 empty lines amid others, skipped; 'raw/test.txt' line 2");
    check_mentions(prepare("check a.h5"), "lines that all have 3 fields");
    check_mentions(prepare("kg -i raw -o b.h5 --strict", 3), "lines that all have 3 fields");
    CHECK(!fs::exists("b.h5"));
    prepare("kg -i raw --interactions train.txt --columns user,item,time -o c.h5");
    CHECK(read("c.h5").sizes.items == 5);
    write_folder("1 10 1500888598\n1 11 1500888658\n1 12 1500888798\n", "1 1\n", "0 0 5\n");
    check_refused("kg -i raw -o b.h5", 3, "more than 100000000", "3 lines that all have 3 fields, for 1 users");
    write_folder("0,0,1,3\n", "0 2\n", "0 0 4\n");
    check_refused("kg -i raw -o b.h5", 3, "'0,0,1,3' is not a valid user id", "separated by blanks");
    write_folder("0 0 1 3\n", "0 2\n", "m.04ab film.genre m.0b\n");
    check_refused("kg -i raw -o b.h5", 3, "'m.04ab' is not a valid head id",
                  "--interactions reads tables with text ids");
    write_small();
    CHECK(!contains(prepare("kg -i raw -o a.h5"), "warning"));
  }

  TEST_CASE("options set compression, upstream values, a validation set and no graph") {
    prepare("synth-kg --users 60 --text raw -o a.h5");
    prepare("kg -i raw --gzip 9 -o small.h5");
    CHECK(fs::file_size("small.h5") < fs::file_size("a.h5") / 2);
    check_equal(read("a.h5").ckg, read("small.h5").ckg);
    prepare("kg -i raw --symmetric-upstream -o upstream.h5");
    CHECK(read("upstream.h5").ckg.symmetric != read("a.h5").ckg.symmetric);
    CHECK(read("upstream.h5").ckg.random_walk == read("a.h5").ckg.random_walk);
    prepare("kg -i raw --val-fraction 0.2 --seed 3 -o valid.h5");
    const auto valid = read("valid.h5");
    CHECK(valid.sizes.train + std::ssize(valid.valid.item) == read("a.h5").sizes.train);
    CHECK(valid.valid.item.size() > 100);
    prepare("kg -i raw --val-fraction 0.2 --seed 3 -o again.h5");
    CHECK(read_text("valid.h5") == read_text("again.h5"));
    prepare("kg -i raw --val-fraction 0.2 --seed 4 -o again.h5");
    CHECK(read_text("valid.h5") != read_text("again.h5"));
    prepare("kg -i raw --no-kg -o cf.h5");
    CHECK(read("cf.h5").sizes.kg_triples == 0);
    check_mentions(prepare("check small.h5 upstream.h5 valid.h5 cf.h5"), "upstream form", "interactions alone");
    check_mentions(run_prep("info valid.h5").text, "validation", "valid_fraction");
  }

  TEST_CASE("generated graphs pass the check, and come back from their text") {
    prepare("synth-kg --users 50 --text raw -o planted.h5");
    prepare("kg -i raw --entities 520 --items 400 -o text.h5");
    check_equal(read("text.h5").ckg, read("planted.h5").ckg);
    prepare("synth-kg --task sized -i raw --entities 900 --relations 5 --triples 3000 --text text -o sized.h5");
    const auto sized = read("sized.h5");
    CHECK(sized.sizes.entities == 900);
    CHECK(sized.sizes.kg_triples == 3000);
    CHECK(sized.train.item == read("planted.h5").train.item);
    prepare("kg -i text --entities 900 --items 400 --relations 5 -o back.h5");
    check_equal(read("back.h5").ckg, sized.ckg);
    prepare("check planted.h5 text.h5 sized.h5 back.h5");
  }

  TEST_CASE("check names what is wrong, with right checksums too") {
    prepare("synth-kg --users 50 --val-fraction 0.2 -o good.h5");
    using prep::KgSet;
    const std::pair<std::function<void(KgSet&)>, const char*> cases[] = {
        {[](KgSet& s) { s.train.indptr[3] = 1; }, "/cf/train/indptr falls at row 3"},
        {[](KgSet& s) { s.train.indptr[0] = 1; }, "/cf/train/indptr runs from 1"},
        {[](KgSet& s) { s.test.item[5] = 400; }, "/cf/test/item row 5: 400, must be 0 .. 399 (1 of 400 values)"},
        {[](KgSet& s) { std::swap(s.test.item[0], s.test.item[1]); }, "the items of user 0 are not ascending"},
        {[](KgSet& s) { s.valid.item[0] = s.train.item[0]; }, "/cf/valid"},
        {[](KgSet& s) { s.triples[2].tail = -1; }, "/kg/triple column tail row 2: -1, must be 0 .. 519 (1 of 800"},
        {[](KgSet& s) { s.triples[2].relation = 4; }, "/kg/triple column relation row 2: 4"},
        {[](KgSet& s) { s.triples[2] = s.triples[0]; }, "occurs more than once"},
        {[](KgSet& s) { s.ckg.indptr[2] += 1; }, "/ckg/indptr: 1 of"},
        {[](KgSet& s) { s.ckg.indptr[2] = 1'000'000; }, "/ckg/indptr: 1 of"},
        {[](KgSet& s) { s.ckg.rel[9] = 0; }, "/ckg/rel: 1 of"},
        {[](KgSet& s) { s.ckg.rel_perm[9] = -4; }, "/ckg/rel_perm: 1 of"},
        {[](KgSet& s) { s.ckg.col[4] += 1; }, "/adj/col: 1 of"},
        {[](KgSet& s) { s.ckg.edge_ptr[1] += 1; }, "/adj/edge_ptr: 1 of"},
        {[](KgSet& s) { std::swap(s.ckg.transpose[0], s.ckg.transpose[1]); }, "/adj/transpose: 2 of"},
        {[](KgSet& s) { s.ckg.random_walk[8] *= 1.01f; }, "/adj/random_walk: 1 of"},
        {[](KgSet& s) { s.ckg.symmetric[8] = NAN; }, "/adj/symmetric: 1 of"},
        {[](KgSet& s) { s.symmetric = prep::SymmetricForm::upstream; }, "/adj/symmetric"},
        {[](KgSet& s) { s.ckg.degree[0] = 0; }, "/node/degree: 1 of"},
        {[](KgSet& s) { s.sha256.push_back("x"); }, "1 checksums for 0 sources"},
        {[](KgSet& s) { s.sizes.users += 1; }, "/cf/train/indptr"},
        {[](KgSet& s) { s.sizes.entities = 3; }, "fewer than the 400 items"},
    };
    for (const auto& [damage, expected] : cases) check_mentions(problems_after(damage), expected);
  }

  TEST_CASE("a flipped bit in test items, which nothing else could tell, is noticed") {
    prepare("synth-kg --users 50 -o a.h5");
    std::string bytes = read_text("a.h5");
    const auto place = bytes.find(bytes_of(read("a.h5").test.item));
    REQUIRE(place != std::string::npos);
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    write_text("a.h5", bytes);
    check_mentions(prepare("check a.h5", 3), "/cf/test/item");
  }

  TEST_CASE("wrong usage ends with one line, exit code 2 and no output") {
    write_small();
    write_text("raw/item_list.txt", "org_id remap_id freebase_id\nx 0 m.1\n");
    const std::pair<const char*, const char*> cases[] = {
        {"kg -i raw -o raw/item_list.txt", "it is the input"},
        {"synth-kg --task sized -i raw --text ./raw --entities 20 --triples 5 -o o.h5", "would replace"},
        {"kg -i none -o o.h5", "no such folder"},
        {"kg -i raw --kg graph.txt -o o.h5", "--no-kg"},
        {"kg -i raw --test other.txt -o o.h5", "raw/other.txt"},
        {"kg -i raw -o no/o.h5", "no"},
        {"kg -i raw --overlap forget -o o.h5", "overlap"},
        {"kg -i raw --val-fraction 1 -o o.h5", "val-fraction"},
        {"kg -i raw --gzip 10 -o o.h5", "gzip"},
        {"kg -i raw --entities 4 --no-kg -o o.h5", "items are entities too"},
        {"kg -o o.h5", "input"},
        {"synth-kg --task sized -o o.h5", "needs a folder"},
        {"synth-kg -i raw -o o.h5", "--task sized"},
        {"synth-kg --task sized -i raw --entities 5 -o o.h5", "must be others"},
        {"synth-kg --test-items 30 -o o.h5", "test-items"}};
    for (const auto& [words, expected] : cases) {
      CAPTURE(words);
      check_refused(words, 2, expected);
      CHECK(std::distance(fs::directory_iterator("."), fs::directory_iterator()) == 1);
    }
  }

  TEST_CASE("bad data ends with one line that names file and line, exit code 3 and the old file untouched") {
    write_small();
    prepare("kg -i raw -o o.h5");
    const std::string old = read_text("o.h5");
    const std::pair<const char*, const char*> cases[] = {
        {"kg -i raw --duplicates refuse -o o.h5", "'raw/train.txt' line 1"},
        {"kg -i raw --parallel refuse -o o.h5", "'raw/kg_final.txt' line 4"},
        {"kg -i raw --overlap refuse -o o.h5", "'raw/test.txt' line 2"},
        {"kg -i raw --users 2 -o o.h5", "'raw/train.txt' line 3"},
        {"kg -i raw --max-nodes 5 -o o.h5", "more than 5"},
        {"kg -i raw --kg train.txt -o o.h5", "'raw/train.txt' line 1: expected head, relation and tail"}};
    for (const auto& [words, expected] : cases) check_refused(words, 3, expected);
    CHECK(read_text("o.h5") == old);
    CHECK(std::distance(fs::directory_iterator("."), fs::directory_iterator()) == 2);
  }
}
