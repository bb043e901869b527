#include <nlohmann/json.hpp>

#include "prep/program.hpp"
#include "support/test.hpp"

TEST_SUITE("apps.info_dataset") {
  TEST_CASE("info describes each of the five formats as lockstep-prep does") {
    const std::string file = "data.h5";
    for (const auto& [format, source] : {std::pair{"lockstep-seqrec", "synth-sequences --users 50"},
                                         {"lockstep-kgat", "synth-kg"},
                                         {"lockstep-emulator-data", "synth-icecolumn --rows 50"},
                                         {"hrm-puzzles", "synth-sudoku --order 2 --train 5 --test 2"},
                                         {"lockstep-har", "synth-har"}}) {
      CAPTURE(format);
      prepare(std::string(source) + " --output data.h5 --quiet");
      const ProcessResult page = run_lockstep({"info", file});
      CAPTURE(page.err);
      CHECK(page.exit_code == 0);
      CHECK(page.out.starts_with(file + ": "));
      CHECK(page.out == prepare("info " + file));
      const auto json = nlohmann::json::parse(run_lockstep({"info", file, "--json"}).out, nullptr, false);
      REQUIRE(json.is_object());
      CHECK(json["format"] == format);
      CHECK(json["attributes"]["version"] == 1);
      CHECK_FALSE(json["datasets"].empty());
    }
  }
}
