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

  TEST_CASE("the graph of the reference comes out of its raw text: triples, and all three initial values") {
    check_rows(check_golden(kGolden / "kgat_graph.h5"), 14);
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

  TEST_CASE("line pictures have the reference's pixels; one that differs is noticed") {
    check_rows(check_golden(kGolden / "har_raster.h5"), 2);
    const test::TempDir dir;
    const H5File golden = H5File::open(kGolden / "har_raster.h5");
    auto mask = golden.read<std::uint8_t>("/outputs/mask");
    mask[12345] ^= 1;
    {
      H5File changed = H5File::create(dir / "changed.h5");
      changed.write<double>("/inputs/sequences", golden.read<double>("/inputs/sequences"), {66, 128});
      changed.write<std::uint8_t>("/outputs/mask", mask, {66, 224, 224});
      changed.write<std::int64_t>("/outputs/x_coords", golden.read<std::int64_t>("/outputs/x_coords"), {128});
      changed.close();
    }
    const auto rows = check_golden(dir / "changed.h5");
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].error == 1);
    CHECK_FALSE(rows[0].holds());
    CHECK(rows[1].holds());
  }

  TEST_CASE("Sudoku with the recorded draws, images, mazes and ARC fields are the reference's") {
    check_rows(check_golden(kGolden / "hrm_prep.h5"), 41);
  }

  TEST_CASE("other files are refused") {
    const test::TempDir dir;
    H5File::create(dir / "other.h5").close();
    test::check_mentions(test::error_of(Fault::data, [&] { check_golden(dir / "other.h5"); }), "no reference of");
  }
}
