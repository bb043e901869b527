#include "lockstep/prep/reference.hpp"

#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
const fs::path kGolden = golden_path();

ReferenceReport verify(const fs::path& path) { return verify_reference(H5File::open(path)); }

void check_rows(const char* golden, std::size_t expected) {
  const ReferenceReport report = verify(kGolden / golden);
  CAPTURE(report.text());
  CHECK(report.rows().size() == expected);
  CHECK(report.passed());
}
}  // namespace

TEST_SUITE("prep.reference") {
  TEST_CASE("readers give the reference's rows in its order, and its moments") { check_rows("emulator_prep.h5", 160); }

  TEST_CASE("generators give the reference's values, Jacobians, tangents and adjoints") {
    check_rows("emulator_synth.h5", 8);
  }

  TEST_CASE("the graph of the reference comes out of its raw text: triples, and all three initial values") {
    check_rows("kgat_graph.h5", 20);
  }

  TEST_CASE("sequences are the reference's, windows and relations included") { check_rows("tisasrec_data.h5", 109); }

  TEST_CASE("a difference in a companion is noticed, a missing one is named") {
    for (const char* name :
         {"emulator_prep.h5", "emulator_prep_cice.nc", "emulator_prep_atm.nc", "emulator_prep_ocn.nc"})
      fs::copy(kGolden / name, name);
    fs::remove("emulator_prep_ocn.nc");
    check_mentions(error_of(Fault::usage, [&] { verify("emulator_prep.h5"); }), "emulator_prep_ocn.nc");
    fs::copy(kGolden / "emulator_prep_atm.nc", "emulator_prep_ocn.nc");
    CHECK(error_of(Fault::data, [&] { verify("emulator_prep.h5"); }) != "no error");
  }

  TEST_CASE("the moments of a network's reference rows are found") { check_rows("emulator_aice.h5", 2); }

  TEST_CASE("line pictures have the reference's pixels; one that differs is noticed") {
    check_rows("har_raster.h5", 2);
    const H5File golden = H5File::open(kGolden / "har_raster.h5");
    auto mask = golden.read<std::uint8_t>("/outputs/mask");
    mask[12345] ^= 1;
    {
      H5File changed = H5File::create("changed.h5");
      changed.write<double>("/inputs/sequences", golden.read<double>("/inputs/sequences"), {66, 128});
      changed.write<std::uint8_t>("/outputs/mask", mask, {66, 224, 224});
      changed.write<std::int64_t>("/outputs/x_coords", golden.read<std::int64_t>("/outputs/x_coords"), {128});
      changed.close();
    }
    const ReferenceReport report = verify("changed.h5");
    REQUIRE(report.rows().size() == 2);
    CHECK(report.rows()[0].worst == 12345);
    CHECK_FALSE(report.rows()[0].passed());
    CHECK(report.rows()[1].passed());
  }

  TEST_CASE("Sudoku with the recorded draws, images, mazes and ARC fields are the reference's") {
    check_rows("hrm_prep.h5", 41);
  }

  TEST_CASE("other files have no part to recompute") {
    H5File::create("other.h5").close();
    CHECK(verify("other.h5").rows().empty());
  }
}
