/// The commands of docs/datasets.md, taken from the page itself. Real data are used when LOCKSTEP_DATASETS names the folder that
/// holds them.
#include <algorithm>

#include "lockstep/io/h5.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/prep/hrm/puzzle_set.hpp"
#include "prep/datasets_page.hpp"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {
const std::string kFolder = test::datasets_folder();
using namespace lockstep::test;

bool skipped(const char* name) { return test::dataset_skipped(name); }

prep::EmulatorSet read_checked(const fs::path& path) {
  const auto file = H5File::open(path);
  std::vector<std::string> remarks;
  CHECK(prep::check_emulator_set(file, remarks).empty());
  return prep::read_emulator_set(file);
}

prep::HarSet read_checked_har(const fs::path& path) {
  const auto file = H5File::open(path);
  std::vector<std::string> remarks;
  CHECK(prep::check_har_set(file, remarks).empty());
  return prep::read_har_set(file);
}

/// Windows of each class in these parts.
std::vector<int> class_counts(const prep::HarSet& set, const std::vector<int>& parts) {
  std::vector<int> counts(set.class_names.size(), 0);
  for (std::size_t n = 0; n < set.split.size(); ++n)
    counts[static_cast<std::size_t>(set.labels[n])] += std::count(parts.begin(), parts.end(), set.split[n]) > 0;
  return counts;
}
}  // namespace

TEST_SUITE("prep.datasets") {
  TEST_CASE("the page's commands for synthetic data work") {
    const test::TempDir dir;
    run_commands(dir, commands_under("Synthetic data"));
    CHECK(read_checked(dir / "icecolumn.h5").rows() == 24000);
    CHECK(read_checked(dir / "lorenz96.h5").jac.size() == 12000u * 1600);
    CHECK(read_checked(dir / "two-scale.h5").rows() == 16000);
    CHECK(read_checked(dir / "seaice.h5").rows() > 500);
    CHECK(read_checked_har(dir / "activities.h5").windows() == 1584);
    CHECK(H5File::open(dir / "sessions.h5").real_attribute("/synth", "ideal_test_hr10_gap") ==
          doctest::Approx(0.911).epsilon(0.001));
  }

  TEST_CASE("the page's commands for puzzles work") {
    const test::TempDir dir;
    run_commands(dir, commands_under("Puzzles"));
    const auto file = H5File::open(dir / "sudoku.h5");
    CHECK(prep::read_puzzle_set(file).train[0].rows == 400);
  }
}

TEST_SUITE("prep.datasets.real") {
  TEST_CASE("sudoku-hard-mix: a thousand of 45000 puzzles, the whole test table") {
    if (skipped("sudoku-hard-mix")) return;
    const test::TempDir dir;
    fs::copy(fs::path(kFolder) / "sudoku-hard-mix", dir / "raw");
    run_commands(dir, commands_under("sudoku-hard-mix"));
    const auto file = H5File::open(dir / "sudoku-1k.h5");
    CHECK(prep::read_puzzle_set(file).train[0].groups() == 1000);
    CHECK(prep::read_puzzle_set(file).test[0].groups() == 5000);
  }

  TEST_CASE("arc-agi-1: 960 tasks, of which 400 are tested") {
    if (skipped("arc-agi-1")) return;
    const test::TempDir dir;
    fs::copy(fs::path(kFolder) / "arc-agi-1", dir / "raw");
    run_commands(dir, commands_under("arc-agi-1"));
    const auto file = H5File::open(dir / "arc1.h5");
    std::vector<std::string> remarks;
    CHECK(prep::check_puzzle_set(file, remarks).empty());
    CHECK(prep::read_puzzle_set(file).train[0].groups() == 960);
    CHECK(prep::read_puzzle_set(file).test[0].groups() == 400);
    CHECK(prep::read_puzzle_set(file).identifiers.size() > 20000);
  }

  TEST_CASE("arctic20: sea ice and ocean, days 1-4 for training, day 5 for the test") {
    if (skipped("arctic20_roms")) return;
    const test::TempDir dir;
    fs::copy(fs::path(kFolder) / "arctic20_roms", dir / "raw");
    run_commands(dir, commands_under("arctic20"));
    const auto set = read_checked(dir / "arctic20.h5");
    CHECK(set.rows_in(0) == 15401);
    CHECK(set.rows_in(1) == 1711);
    CHECK(set.rows_in(2) == 4278);
    CHECK(set.sha256[0] == "555f21671d30e4c3f7cc7f110d4942aceea6ca369aa1d966d166ebf1ef2354cb");
    CHECK(std::count_if(set.y.begin(), set.y.end(), [](float aice) { return aice > 0.01f; }) == 3090);
  }

  TEST_CASE("ufs_c48: sea surface of six tiles, a random fifth for the test") {
    if (skipped("ufs_c48_surface")) return;
    const test::TempDir dir;
    fs::copy(fs::path(kFolder) / "ufs_c48_surface", dir / "raw");
    run_commands(dir, commands_under("ufs_c48"));
    const auto set = read_checked(dir / "ufs_c48.h5");
    CHECK(set.rows_in(0) == 7061);
    CHECK(set.rows_in(1) == 784);
    CHECK(set.rows_in(2) == 1961);
    CHECK(set.sources.size() == 6);
  }

  TEST_CASE("hapt: raw recordings become the windows of the official subjects") {
    if (skipped("har_hapt_raw")) return;
    const test::TempDir dir;
    fs::copy(fs::path(kFolder) / "har_hapt_raw", dir / "raw");
    run_commands(dir, commands_under("hapt"));
    const auto set = read_checked_har(dir / "hapt.h5");
    CHECK(set.windows() == 10411);
    CHECK(set.windows_in(1) == 1484);
    CHECK(class_counts(set, {0, 1}) == std::vector<int>{1226, 1073, 987, 1293, 1423, 1413});
    CHECK(class_counts(set, {2}) == std::vector<int>{496, 471, 420, 508, 556, 545});
  }

  TEST_CASE("uci_har: the published layout, a part of it without subjects") {
    if (skipped("har_uci_subset")) return;
    const test::TempDir dir;
    fs::copy(fs::path(kFolder) / "har_uci_subset", dir / "raw");
    run_commands(dir, commands_under("uci_har"));
    const auto set = read_checked_har(dir / "uci-har.h5");
    CHECK(set.windows_in(0) == 1920);
    CHECK(set.windows_in(1) == 480);
    CHECK(class_counts(set, {0, 1}) == std::vector<int>{400, 350, 322, 420, 449, 459});
    CHECK(class_counts(set, {2}) == std::vector<int>{160, 152, 135, 158, 172, 173});
    CHECK(set.window(0)[6 * 128] == 1.016);  // total_acc_x, the first number of its file
  }
}
