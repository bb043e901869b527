#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "prep/program.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using test::ProcessResult;

TEST_SUITE("apps.info_dataset") {
  TEST_CASE("info describes each of the five formats as lockstep-prep does") {
    const test::TempDir dir;
    const std::string file = (dir / "data.h5").string();
    for (const auto& [format, source] : {std::pair{"lockstep-seqrec", "synth-sequences --users 50"},
                                         {"lockstep-kgat", "synth-kg"},
                                         {"lockstep-emulator-data", "synth-icecolumn --rows 50"},
                                         {"hrm-puzzles", "synth-sudoku --order 2 --train 5 --test 2"},
                                         {"lockstep-har", "synth-har"}}) {
      CAPTURE(format);
      test::prepare(dir.path(), std::string(source) + " --output data.h5 --quiet");
      const ProcessResult page = test::run_lockstep({"info", file});
      CAPTURE(page.err);
      CHECK(page.exit_code == 0);
      CHECK(page.out.starts_with(file + ": "));
      CHECK(page.out == test::prepare(dir.path(), "info " + file));
      const auto json = nlohmann::json::parse(test::run_lockstep({"info", file, "--json"}).out, nullptr, false);
      REQUIRE(json.is_object());
      CHECK(json["format"] == format);
      CHECK(json["attributes"]["version"] == 1);
      CHECK_FALSE(json["datasets"].empty());
    }
  }
}
