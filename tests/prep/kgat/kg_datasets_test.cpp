/// The commands of docs/datasets.md for knowledge graphs, taken from the page itself, and what is known of the real data. Real data are
/// used when LOCKSTEP_DATASETS names the folder that holds them.

#include "lockstep/io/h5.hpp"
#include "lockstep/prep/kgat/kg_set.hpp"
#include "prep/datasets_page.hpp"
#include "support/errors.hpp"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {
prep::KgSet read_checked(const fs::path& path) {
  const auto file = H5File::open(path);
  std::vector<std::string> remarks;
  CHECK(prep::check_kg_set(file, remarks).empty());
  return prep::read_kg_set(file);
}

void check_sizes(const prep::KgSet& set, const prep::KgSizes& expected, std::int64_t nodes, std::int64_t ckg_triples,
                 std::int64_t nnz) {
  const prep::KgSizes& sizes = set.sizes;
  CHECK(sizes.users == expected.users);
  CHECK(sizes.items == expected.items);
  CHECK(sizes.entities == expected.entities);
  CHECK(sizes.kg_relations == expected.kg_relations);
  CHECK(sizes.kg_triples == expected.kg_triples);
  CHECK(sizes.train == expected.train);
  CHECK(sizes.test == expected.test);
  CHECK(sizes.nodes() == nodes);
  CHECK(sizes.ckg_triples() == ckg_triples);
  CHECK(set.ckg.nnz() == nnz);
}

std::int64_t users_with(const prep::UserItems& part) {
  std::int64_t count = 0;
  for (std::int64_t user = 0; user < part.users(); ++user) count += !part.of(user).empty();
  return count;
}

/// The folder's name inside `raw/`, as the page's commands want it.
void copy_raw(const test::TempDir& dir, const char* name) {
  fs::create_directories(dir / "raw");
  fs::copy(fs::path(test::datasets_folder()) / name, (dir / "raw") / name);
}
}  // namespace

TEST_SUITE("prep.kg_datasets") {
  TEST_CASE("the page's commands for planted preferences work") {
    const test::TempDir dir;
    test::run_commands(dir, test::commands_under("Planted preferences"));
    CHECK(read_checked(dir / "planted.h5").sizes.users == 600);
    const auto large = read_checked(dir / "planted-large.h5"), text = read_checked(dir / "planted-from-text.h5");
    CHECK(large.sizes.train == 2000 * 20);
    CHECK(large.train.item == text.train.item);
  }
}

TEST_SUITE("prep.kg_datasets.real") {
  TEST_CASE("kgat-ml1m: sizes, parallel edges, self loops and isolated items are those that are known") {
    if (test::dataset_skipped("kgat-ml1m")) return;
    const test::TempDir dir;
    copy_raw(dir, "kgat-ml1m");
    const std::string said = test::run_commands(dir, test::commands_under("kgat-ml1m"));
    const auto set = read_checked(dir / "ml1m.h5");
    check_sizes(set, {6040, 3193, 7954, 8, 112040, 750509, 190786}, 13994, 1725098, 1722064);
    CHECK(set.sizes.relations() == 18);
    test::check_mentions(said, "120 repeated triples",  // of 112160 lines
                         "30 items without triples",    // 3163 of the 3193 have some
                         "2 triples from an entity to itself", "1.35 %", "3193 item ids that the list names, of 3193");
    CHECK(users_with(set.train) == 6040);
    CHECK(set.sha256[0] == "c02b1f87d604403bcd72b33c09fdbcf0eb9ba43d17b24a0a9fc9c08d6cc9dd75");
  }

  TEST_CASE("kgat-book-crossing: sizes and the many parallel edges are those that are known") {
    if (test::dataset_skipped("kgat-book-crossing")) return;
    const test::TempDir dir;
    copy_raw(dir, "kgat-book-crossing");
    const std::string said = test::run_commands(dir, test::commands_under("kgat-book-crossing"));
    const auto set = read_checked(dir / "book-crossing.h5");
    check_sizes(set, {17860, 14967, 77903, 25, 151500, 61123, 8750}, 95763, 425246, 292204);
    CHECK(set.sizes.relations() == 52);
    CHECK(users_with(set.test) == 2483);
    test::check_mentions(said, "43.91 %");
  }

  TEST_CASE("kgat-amazon-book-cf: interactions alone, and with a graph of the real one's size") {
    if (test::dataset_skipped("kgat-amazon-book-cf")) return;
    const test::TempDir dir;
    copy_raw(dir, "kgat-amazon-book-cf");
    test::run_commands(dir, test::commands_under("kgat-amazon-book-cf"));
    const auto cf = prep::read_kg_set(H5File::open(dir / "amazon-book-cf.h5"));
    check_sizes(cf, {70679, 24915, 24915, 0, 0, 652514, 193920}, 95594, 1305028, 1305028);
    CHECK(users_with(cf.test) == 70591);
    const auto sized = prep::read_kg_set(H5File::open(dir / "amazon-book-sized.h5"));
    check_sizes(sized, {70679, 24915, 113487, 39, 2557746, 652514, 193920}, 184166, 6420520, 6284935);
    CHECK(sized.sizes.relations() == 80);
  }
}
