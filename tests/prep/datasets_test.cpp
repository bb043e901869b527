/// The standard tasks on real data (docs/datasets.md); LOCKSTEP_DATASETS names the folder that holds them.
#include <cstdlib>

#include "lockstep/io/h5.hpp"
#include "lockstep/prep/emulator_set.hpp"
#include "prep/errors.hpp"
#include "prep/program.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using lockstep::test::run_prep;

namespace {
const char* const kFolder = std::getenv("LOCKSTEP_DATASETS");

bool skipped(const char* name) {
  if (kFolder != nullptr && std::filesystem::is_directory(std::filesystem::path(kFolder) / name)) return false;
  MESSAGE("skipped: LOCKSTEP_DATASETS names no folder with " << name);
  return true;
}

/// Runs a preparation script of the documentation's commands and reads what it wrote.
prep::EmulatorSet prepare(const test::TempDir& dir, const std::string& unpack, const std::string& words) {
  const auto run = run_prep(dir.path(), words + " -o out.h5", unpack + " &&");
  CAPTURE(run.text);
  REQUIRE(run.status == 0);
  CHECK(run_prep(dir.path(), "check out.h5").status == 0);
  return prep::read_emulator_set(H5File::open(dir / "out.h5"));
}
}  // namespace

TEST_SUITE("prep.datasets") {
  TEST_CASE("arctic20: sea ice and ocean, days 1-4 for training, day 5 for the test") {
    if (skipped("arctic20_roms")) return;
    const test::TempDir dir;
    const auto set = prepare(
        dir, std::string("xz -dkc '") + kFolder + "/arctic20_roms/Arctic20_1to5Feb_2016.nc.xz' > arctic.nc",
        "netcdf --input arctic.nc --inputs sst=temperature@0,sss=salinity@0,hice,u=u@0,v=v@0,zeta --outputs aice "
        "--mask 'mask == 1' --test-days 2016-02-05");
    CHECK(set.rows_in(0) == 15401);
    CHECK(set.rows_in(1) == 1711);
    CHECK(set.rows_in(2) == 4278);
    CHECK(set.sha256[0] == "555f21671d30e4c3f7cc7f110d4942aceea6ca369aa1d966d166ebf1ef2354cb");
    std::int64_t icy = 0;
    for (const float aice : set.y) icy += aice > 0.01f;
    CHECK(icy == 3090);
  }

  TEST_CASE("ufs_c48: sea surface of six tiles, a random fifth for the test") {
    if (skipped("ufs_c48_surface")) return;
    const test::TempDir dir;
    const auto set =
        prepare(dir, std::string("tar xJf '") + kFolder + "/ufs_c48_surface/ufs_c48_surface.tar.xz'",
                "netcdf --input 'sfc_data.tile?.nc' --inputs tsea,tisfc,fice,hice,snwdph,uustar,f10m,ffmm,zorl "
                "--outputs t2m,q2m --mask 'slmsk != 1' --test-split 0.2");
    CHECK(set.rows_in(0) == 7061);
    CHECK(set.rows_in(1) == 784);
    CHECK(set.rows_in(2) == 1961);
    CHECK(set.sources.size() == 6);
  }
}
