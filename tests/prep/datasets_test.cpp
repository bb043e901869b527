/// The commands of docs/datasets.md, taken from the page itself. Real data are used when LOCKSTEP_DATASETS names the folder that
/// holds them.
#include <algorithm>
#include <cstdlib>

#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/emulator_set.hpp"
#include "prep/errors.hpp"
#include "prep/program.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {
const char* const kFolder = std::getenv("LOCKSTEP_DATASETS");

bool skipped(const char* name) {
  if (kFolder != nullptr && fs::is_directory(fs::path(kFolder) / name)) return false;
  MESSAGE("skipped: LOCKSTEP_DATASETS names no folder with " << std::string(name));
  return true;
}

/// The command lines in the section of this title.
std::string commands_under(const std::string& title) {
  const std::string page = read_text_file(fs::path(LOCKSTEP_SOURCE_DIR) / "docs/datasets.md");
  const auto begin = page.find("## " + title);
  REQUIRE(begin != std::string::npos);
  std::string commands;
  bool inside = false;
  for (const auto& line : split(std::string_view(page).substr(begin, page.find("\n## ", begin) - begin), '\n')) {
    if (line == "```") {
      inside = !inside;
    } else if (inside) {
      commands += line + "\n";
    }
  }
  REQUIRE(commands.find("lockstep-prep") != std::string::npos);
  return commands;
}

void run_commands(const test::TempDir& dir, const std::string& commands) {
  test::write_text(dir / "commands.sh", "set -e\nexport PATH=" LOCKSTEP_BIN_DIR ":$PATH\n" + commands);
  const auto run = test::run_shell(dir.path(), "sh commands.sh");
  CAPTURE(run.text);
  CHECK(run.status == 0);
}

prep::EmulatorSet read_checked(const fs::path& path) {
  const auto file = H5File::open(path);
  std::vector<std::string> remarks;
  CHECK(prep::check_emulator_set(file, remarks).empty());
  return prep::read_emulator_set(file);
}
}  // namespace

TEST_SUITE("prep.datasets") {
  TEST_CASE("the page's commands for made-up data work") {
    const test::TempDir dir;
    run_commands(dir, commands_under("Made-up data"));
    CHECK(read_checked(dir / "icecolumn.h5").rows() == 24000);
    CHECK(read_checked(dir / "lorenz96.h5").jac.size() == 12000u * 1600);
    CHECK(read_checked(dir / "two-scale.h5").rows() == 16000);
    CHECK(read_checked(dir / "seaice.h5").rows() > 500);
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
}
