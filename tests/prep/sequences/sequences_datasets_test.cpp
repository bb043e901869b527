/// Real interactions, prepared by the commands of docs/datasets.md, when LOCKSTEP_DATASETS names the folder that holds
/// them.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/emulator/selection.hpp"
#include "lockstep/prep/files.hpp"
#include "lockstep/prep/sequences/sequence_set.hpp"
#include "prep/program.hpp"
#include "support/outcome.hpp"
#include "support/paths.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {
const char* const kFolder = std::getenv("LOCKSTEP_DATASETS");

/// The set that the commands under this title make from the folder; nothing when the folder is not there.
std::optional<prep::SequenceSet> prepared(const test::TempDir& dir, const char* folder, const char* title,
                                          const char* output) {
  if (kFolder == nullptr || !fs::is_directory(fs::path(kFolder) / folder)) {
    test::skip(std::string("LOCKSTEP_DATASETS names no folder with ") + folder);
    return {};
  }
  fs::copy(fs::path(kFolder) / folder, dir / "raw");
  const std::string page = read_text_file(test::source_path("docs/datasets.md"));
  const auto section = page.find(std::string("## ") + title);
  REQUIRE(section != std::string::npos);
  const auto begin = page.find("```\n", section) + 4, end = page.find("```\n", begin);
  test::write_text(dir / "commands.sh",
                   "set -e\nexport PATH=" + test::program_folder() + ":$PATH\n" + page.substr(begin, end - begin));
  const auto run = test::run_shell(dir.path(), "sh commands.sh");
  CAPTURE(run.text);
  REQUIRE(run.status == 0);
  return prep::read_sequence_set(H5File::open(dir / output));
}
}  // namespace

TEST_SUITE("prep.sequences_datasets.real") {
  TEST_CASE("ml-1m: the prefix of 2999 users has the facts that are known of it, to the last scaled time") {
    const test::TempDir dir;
    const auto set = prepared(dir, "ml-1m-users-1-2999", "ml-1m", "ml-1m.h5");
    if (!set) return;
    CHECK(set->n_users() == 2999);
    CHECK(set->n_items() == 3266);
    CHECK(set->rows() == 486907);
    CHECK(set->time_max == 73642499);
    std::int64_t shortest = set->rows(), longest = 0;
    std::ostringstream lines;
    for (std::int64_t u = 0; u < set->n_users(); ++u) {
      shortest = std::min(shortest, set->length(u));
      longest = std::max(longest, set->length(u));
      const auto items = set->items_of(u);
      const auto times = set->times_of(u);
      for (std::size_t k = 0; k < items.size(); ++k) lines << u + 1 << ' ' << items[k] << ' ' << times[k] << '\n';
    }
    CHECK(shortest == 17);
    CHECK(longest == 1841);
    test::write_text(dir / "lines.txt", lines.str());
    CHECK(prep::sha256_of(dir / "lines.txt") == "82031b4e0a61c97179010d051f04efff8c57d24b9ae3d36b997d168398766551");
    CHECK(set->source_sha256 == "1273c4edfe3c0ff9e3a0a0d55819faeb947da0ad7df3927333b51ebefbeedc3d");
    // As public code does it: no filter, ids kept.
    test::prepare(dir.path(),
                  "sequences -i raw/ratings.dat --min-user 1 --min-item 1 --keep-ids --min-split 4 "
                  "--time-scale raw -o all.h5");
    const auto all = prep::read_sequence_set(H5File::open(dir / "all.h5"));
    CHECK(all.rows() == 487650);
    CHECK(all.n_items() == 3952);
    CHECK(std::count_if(all.item_count.begin(), all.item_count.end(), [](std::int32_t n) { return n > 0; }) <= 3615);
  }

  TEST_CASE("amazon-beauty: order without times, short sequences over many items") {
    const test::TempDir dir;
    const auto set = prepared(dir, "amazon-beauty-5core", "amazon-beauty", "beauty.h5");
    if (!set) return;
    CHECK(set->n_users() == 22363);
    CHECK(set->n_items() == 12101);
    CHECK(set->rows() == 198502);
    CHECK_FALSE(set->has_time());
    CHECK(set->source_sha256 == "c362fc7848cf94a58ab3c5cecd9f001520e4cffc8dbacbff0c457ccdec4f4a25");
    CHECK(set->item[0] == 1);
    CHECK(set->item[1] == 2);
  }
}
