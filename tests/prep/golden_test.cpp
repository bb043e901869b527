#include <doctest/doctest.h>

#include "lockstep/io/h5.hpp"
#include "lockstep/prep/golden_checks.hpp"
#include "prep/errors.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using namespace lockstep::prep;
namespace fs = std::filesystem;

namespace {
const fs::path kGolden = LOCKSTEP_TEST_GOLDEN;

void check_rows(const std::vector<GoldenRow>& rows, std::size_t expected) {
  CHECK(rows.size() == expected);
  for (const auto& row : rows) {
    CAPTURE(row.tensor);
    CAPTURE(row.error);
    CAPTURE(row.note);
    CHECK(row.holds());
  }
}
}  // namespace

TEST_SUITE("prep.golden") {
  TEST_CASE("readers give the reference's rows in its order, and its moments") {
    check_rows(check_golden(kGolden / "emulator_prep.h5"), 160);
  }

  TEST_CASE("generators give the reference's values, Jacobians, tangents and adjoints") {
    check_rows(check_golden(kGolden / "emulator_synth.h5"), 8);
  }

  TEST_CASE("a difference in a companion is noticed, a missing one is named") {
    const test::TempDir dir;
    for (const char* name :
         {"emulator_prep.h5", "emulator_prep_cice.nc", "emulator_prep_atm.nc", "emulator_prep_ocn.nc"})
      fs::copy(kGolden / name, dir / name);
    fs::remove(dir / "emulator_prep_ocn.nc");
    test::check_mentions(test::error_of(Fault::usage, [&] { check_golden(dir / "emulator_prep.h5"); }),
                         "emulator_prep_ocn.nc");
    fs::copy(kGolden / "emulator_prep_atm.nc", dir / "emulator_prep_ocn.nc");
    CHECK(test::error_of(Fault::data, [&] { check_golden(dir / "emulator_prep.h5"); }) != "no error");
  }

  TEST_CASE("the moments of a network's reference rows are found") {
    const auto rows = check_golden(kGolden / "emulator_aice.h5");
    REQUIRE(rows.size() == 2);
    for (const auto& row : rows) CHECK(row.holds());
  }

  TEST_CASE("other files are refused") {
    const test::TempDir dir;
    H5File::create(dir / "other.h5").close();
    test::check_mentions(test::error_of(Fault::data, [&] { check_golden(dir / "other.h5"); }), "no reference of");
  }
}
