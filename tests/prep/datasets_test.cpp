/// Runs the commands of docs/datasets.md, read from the page, and checks the published sizes of the data sets that they
/// write. The cases with real data need LOCKSTEP_DATASETS, the folder that holds it.

#include "lockstep/base/text.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "lockstep/prep/files.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/prep/hrm/puzzle_set.hpp"
#include "lockstep/prep/kgat/kg_set.hpp"
#include "lockstep/prep/sequences/sequence_set.hpp"
#include "prep/program.hpp"
#include "support/test.hpp"

namespace {

/// Every dataset and attribute of a prepared file is in its section of data/README.md, a dataset with its type.
void check_documented(const fs::path& path) {
  const auto file = H5File::open(path);
  CAPTURE(path);
  const std::string page = read_text(source_path("data/README.md"));
  const auto begin = page.find("## `" + file.text_attribute("/", "format") + "`");
  REQUIRE(begin != std::string::npos);
  const std::string section = page.substr(begin, page.find("\n## ", begin) - begin);
  for (const auto& dataset : file.datasets_under("/")) {
    CAPTURE(dataset);
    const std::string last = dataset.substr(dataset.rfind('/') + 1);
    const H5Type type = file.info(dataset).type;
    const std::string wanted = type == H5Type::text ? "string" : name(type);
    CHECK(std::ranges::any_of(split(section, '\n'), [&](const std::string& row) {
      const bool named =
          row.find("`" + last + "`") != std::string::npos || row.find("/" + last + "`") != std::string::npos;
      return named && row.find(wanted) != std::string::npos;
    }));
  }
  for (const auto& attribute : file.attributes("/"))
    if (!is_seal(attribute)) check_mentions(section, "`" + attribute + "`");
}

/// Runs the commands in the section of docs/datasets.md whose title begins with `title`; they must succeed. Returns
/// their output.
std::string run_page(const std::string& title) {
  const std::string page = read_text(source_path("docs/datasets.md"));
  const auto begin = page.find("## " + title);
  REQUIRE(begin != std::string::npos);
  std::string commands;
  bool inside = false;
  for (const auto& line : split(std::string_view(page).substr(begin, page.find("\n## ", begin) - begin), '\n')) {
    if (line.starts_with("```")) {
      inside = !inside;
    } else if (inside) {
      commands += line + "\n";
    }
  }
  REQUIRE(commands.find("lockstep-prep") != std::string::npos);
  fs::create_directories("data");
  write_text("commands.sh", "set -e\nexport PATH=" + program_folder() + ":$PATH\n" + commands);
  const auto run = run_shell("sh commands.sh");
  CAPTURE(run.text);
  CHECK(run.status == 0);
  for (const auto& entry : fs::directory_iterator("data")) check_documented(entry.path());
  return run.text;
}

/// The same with a real data set, a folder of LOCKSTEP_DATASETS, as `raw`. Without it, skips the test case.
std::optional<std::string> run_real(const char* folder, const char* title, const std::string& raw = "raw") {
  const char* all = std::getenv("LOCKSTEP_DATASETS");
  if (all == nullptr || !fs::is_directory(fs::path(all) / folder)) {
    skip(std::string("LOCKSTEP_DATASETS names no folder with ") + folder);
    return {};
  }
  fs::create_directories(fs::path("./" + raw).parent_path());
  fs::copy(fs::path(all) / folder, raw);
  return run_page(title);
}

/// A prepared file, which passes its check.
template <auto Check, auto Read>
auto read_checked(const fs::path& path) {
  const auto file = H5File::open(path);
  std::vector<std::string> remarks;
  CHECK(Check(file, remarks).empty());
  return Read(file, nullptr);
}
constexpr auto read_columns = read_checked<prep::check_emulator_set, prep::read_emulator_set>;
constexpr auto read_windows = read_checked<prep::check_har_set, prep::read_har_set>;
constexpr auto read_graph = read_checked<prep::check_kg_set, prep::read_kg_set>;

/// Windows of each class in these parts.
std::vector<int> class_counts(const prep::HarSet& set, const std::vector<int>& parts) {
  std::vector<int> counts(set.class_names.size(), 0);
  for (std::size_t n = 0; n < set.split.size(); ++n)
    counts[to_size(set.labels[n])] += std::count(parts.begin(), parts.end(), set.split[n]) > 0;
  return counts;
}

void check_sizes(const prep::KgSet& set, const prep::KgSizes& expected, std::int64_t nodes, std::int64_t ckg_triples,
                 std::int64_t nnz) {
  CHECK((set.sizes == expected));
  CHECK(set.sizes.nodes() == nodes);
  CHECK(set.sizes.ckg_triples() == ckg_triples);
  CHECK(set.ckg.nnz() == nnz);
}

std::int64_t users_with(const prep::UserItems& part) {
  std::int64_t count = 0;
  for (std::int64_t user = 0; user < part.users(); ++user) count += !part.of(user).empty();
  return count;
}

}  // namespace

TEST_SUITE("prep.datasets") {
  TEST_CASE("the page's commands for synthetic data work") {
    run_page("Synthetic data");
    CHECK(read_columns("data/icecolumn.h5").rows() == 24000);
    CHECK(read_columns("data/lorenz96.h5").jac.size() == 12000u * 1600);
    CHECK(read_columns("data/two-scale.h5").rows() == 16000);
    CHECK(read_columns("data/seaice.h5").rows() > 500);
    CHECK(read_windows("data/activities.h5").windows() == 1584);
    const auto sessions = H5File::open("data/sessions.h5");
    CHECK(sessions.real_attribute("/synth", "ideal_test_hr10_gap") == Approx(0.911).epsilon(0.001));
  }

  TEST_CASE("the page's commands for puzzles work") {
    run_page("Puzzles");
    const auto file = H5File::open("data/sudoku.h5");
    CHECK(prep::read_puzzle_set(file).train[0].rows == 400);
  }

  TEST_CASE("the page's commands for planted preferences work") {
    run_page("Planted preferences");
    CHECK(read_graph("data/kgat-synth.h5").sizes.users == 600);
    const auto large = read_graph("data/planted-large.h5"), text = read_graph("data/planted-from-text.h5");
    CHECK(large.sizes.train == 2000 * 20);
    CHECK(large.train.item == text.train.item);
  }
}

TEST_SUITE("prep.datasets.real") {
  TEST_CASE("sudoku-hard-mix: 45000 + 5000 puzzles with one solution each; a thousand, and the whole test table") {
    if (!run_real("sudoku-hard-mix", "sudoku-hard-mix")) return;
    const auto thousand = H5File::open("data/sudoku-1k.h5");
    CHECK(prep::read_puzzle_set(thousand).train[0].groups() == 1000);
    CHECK(prep::read_puzzle_set(thousand).test[0].groups() == 5000);
    prepare(
        "sudoku --train raw/train.csv --test raw/test.csv --require-unique --num-aug 1000 --augment online "
        "-o all.h5");
    prepare("check all.h5");
    const auto file = H5File::open("all.h5");
    const prep::PuzzleSet set = prep::read_puzzle_set(file);
    CHECK(set.train[0].rows == 45000);
    CHECK(set.test[0].rows == 5000);
    CHECK(set.source_names.size() == 4);
    CHECK(set.sha256[0] == "8911cf389a2d2311d8fceca0d397b186a59cc3da22ed96ec6bef634220d64909");
    check_mentions(prepare("info all.h5"), "mean 22.9", "mean 23.2", "puzzles2_17_clue: 28530");
  }

  TEST_CASE("arc-agi-1: 960 tasks, of which 400 are tested") {
    if (!run_real("arc-agi-1", "arc-agi-1")) return;
    const auto file = H5File::open("data/arc1.h5");
    std::vector<std::string> remarks;
    CHECK(prep::check_puzzle_set(file, remarks).empty());
    CHECK(prep::read_puzzle_set(file).train[0].groups() == 960);
    CHECK(prep::read_puzzle_set(file).test[0].groups() == 400);
    CHECK(prep::read_puzzle_set(file).identifiers.size() > 20000);
  }

  TEST_CASE("arctic20: sea ice and ocean, days 1-4 for training, day 5 for the test") {
    if (!run_real("arctic20_roms", "arctic20")) return;
    const auto set = read_columns("data/arctic20.h5");
    CHECK(set.rows_in(0) == 15401);
    CHECK(set.rows_in(1) == 1711);
    CHECK(set.rows_in(2) == 4278);
    CHECK(set.sha256[0] == "555f21671d30e4c3f7cc7f110d4942aceea6ca369aa1d966d166ebf1ef2354cb");
    CHECK(std::count_if(set.y.begin(), set.y.end(), [](float aice) { return aice > 0.01f; }) == 3090);
  }

  TEST_CASE("ufs_c48: sea surface of six tiles, a random fifth for the test") {
    if (!run_real("ufs_c48_surface", "ufs_c48")) return;
    const auto set = read_columns("data/ufs.h5");
    CHECK(set.rows_in(0) == 7061);
    CHECK(set.rows_in(1) == 784);
    CHECK(set.rows_in(2) == 1961);
    CHECK(set.sources.size() == 6);
  }

  TEST_CASE("hapt: raw recordings become the windows of the official subjects") {
    if (!run_real("har_hapt_raw", "hapt")) return;
    const auto set = read_windows("data/hapt.h5");
    CHECK(set.windows() == 10411);
    CHECK(set.windows_in(1) == 1484);
    CHECK(class_counts(set, {0, 1}) == std::vector<int>{1226, 1073, 987, 1293, 1423, 1413});
    CHECK(class_counts(set, {2}) == std::vector<int>{496, 471, 420, 508, 556, 545});
  }

  TEST_CASE("uci_har: the published layout, a part of it without subjects") {
    if (!run_real("har_uci_subset", "uci_har")) return;
    const auto set = read_windows("data/uci-har.h5");
    CHECK(set.windows_in(0) == 1920);
    CHECK(set.windows_in(1) == 480);
    CHECK(class_counts(set, {0, 1}) == std::vector<int>{400, 350, 322, 420, 449, 459});
    CHECK(class_counts(set, {2}) == std::vector<int>{160, 152, 135, 158, 172, 173});
    CHECK(set.window(0)[6 * 128] == 1.016);  // total_acc_x, the first number of its file
  }

  TEST_CASE("kgat-ml1m: published sizes, parallel edges, self loops and isolated items") {
    const auto said = run_real("kgat-ml1m", "kgat-ml1m", "raw/kgat-ml1m");
    if (!said) return;
    const auto set = read_graph("data/kgat-ml1m.h5");
    check_sizes(set, {6040, 3193, 7954, 8, 112040, 750509, 190786}, 13994, 1725098, 1722064);
    CHECK(set.sizes.relations() == 18);
    check_mentions(*said, "120 repeated triples",  // of 112160 lines
                   "30 items without triples",     // 3163 of the 3193 have some
                   "2 triples from an entity to itself", "1.35 %", "3193 item ids that the list names, of 3193");
    CHECK(users_with(set.train) == 6040);
    CHECK(set.sha256[0] == "c02b1f87d604403bcd72b33c09fdbcf0eb9ba43d17b24a0a9fc9c08d6cc9dd75");
  }

  TEST_CASE("kgat-book-crossing: published sizes and the many parallel edges") {
    const auto said = run_real("kgat-book-crossing", "kgat-book-crossing", "raw/kgat-book-crossing");
    if (!said) return;
    const auto set = read_graph("data/kgat-book-crossing.h5");
    check_sizes(set, {17860, 14967, 77903, 25, 151500, 61123, 8750}, 95763, 425246, 292204);
    CHECK(set.sizes.relations() == 52);
    CHECK(users_with(set.test) == 2483);
    check_mentions(*said, "43.91 %");
  }

  TEST_CASE("kgat-amazon-book-cf: interactions alone, and with a graph of the real one's size") {
    if (!run_real("kgat-amazon-book-cf", "kgat-amazon-book-cf", "raw/kgat-amazon-book-cf")) return;
    const auto cf = prep::read_kg_set(H5File::open("data/amazon-book-cf.h5"));
    check_sizes(cf, {70679, 24915, 24915, 0, 0, 652514, 193920}, 95594, 1305028, 1305028);
    CHECK(users_with(cf.test) == 70591);
    const auto sized = prep::read_kg_set(H5File::open("data/amazon-book-sized.h5"));
    check_sizes(sized, {70679, 24915, 113487, 39, 2557746, 652514, 193920}, 184166, 6420520, 6284935);
    CHECK(sized.sizes.relations() == 80);
  }

  TEST_CASE("ml-1m: the first 2999 users, to the last scaled time") {
    if (!run_real("ml-1m-users-1-2999", "ml-1m")) return;
    const auto set = prep::read_sequence_set(H5File::open("data/ml-1m.h5"));
    CHECK(set.n_users() == 2999);
    CHECK(set.n_items() == 3266);
    CHECK(set.rows() == 486907);
    CHECK(set.time_max == 73642499);
    std::int64_t shortest = set.rows(), longest = 0;
    std::ostringstream lines;
    for (std::int64_t u = 0; u < set.n_users(); ++u) {
      shortest = std::min(shortest, set.length(u));
      longest = std::max(longest, set.length(u));
      const auto items = set.items_of(u);
      const auto times = set.times_of(u);
      for (std::size_t k = 0; k < items.size(); ++k) lines << u + 1 << ' ' << items[k] << ' ' << times[k] << '\n';
    }
    CHECK(shortest == 17);
    CHECK(longest == 1841);
    write_text("lines.txt", lines.str());
    CHECK(prep::sha256_of("lines.txt") == "82031b4e0a61c97179010d051f04efff8c57d24b9ae3d36b997d168398766551");
    CHECK(set.source_sha256 == "1273c4edfe3c0ff9e3a0a0d55819faeb947da0ad7df3927333b51ebefbeedc3d");
    // As public code does it: no filter, ids kept.
    prepare(
        "sequences -i raw/ratings.dat --min-user 1 --min-item 1 --keep-ids --min-split 4 "
        "--time-scale raw -o all.h5");
    const auto all = prep::read_sequence_set(H5File::open("all.h5"));
    CHECK(all.rows() == 487650);
    CHECK(all.n_items() == 3952);
    CHECK(std::count_if(all.item_count.begin(), all.item_count.end(), [](std::int32_t n) { return n > 0; }) <= 3615);
  }

  TEST_CASE("amazon-beauty: order without times, short sequences over many items") {
    if (!run_real("amazon-beauty-5core", "amazon-beauty")) return;
    const auto set = prep::read_sequence_set(H5File::open("data/beauty.h5"));
    CHECK(set.n_users() == 22363);
    CHECK(set.n_items() == 12101);
    CHECK(set.rows() == 198502);
    CHECK_FALSE(set.has_time());
    CHECK(set.source_sha256 == "c362fc7848cf94a58ab3c5cecd9f001520e4cffc8dbacbff0c457ccdec4f4a25");
    CHECK(set.item[0] == 1);
    CHECK(set.item[1] == 2);
  }
}
