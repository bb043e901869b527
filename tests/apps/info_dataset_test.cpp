#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "support/paths.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using test::ProcessResult;

namespace {
ProcessResult prep(const std::vector<std::string>& words) {
  std::vector<std::string> command = {test::program_path("lockstep-prep")};
  command.insert(command.end(), words.begin(), words.end());
  return test::run_process(command);
}
ProcessResult info(const std::vector<std::string>& words) {
  std::vector<std::string> command = {test::program_path("lockstep"), "info"};
  command.insert(command.end(), words.begin(), words.end());
  return test::run_process(command);
}
}  // namespace

TEST_SUITE("apps.info_dataset") {
  TEST_CASE("info describes each of the five formats as lockstep-prep does") {
    const test::TempDir dir;
    const std::string file = (dir / "data.h5").string();
    const std::vector<std::pair<std::string, std::vector<std::string>>> sources = {
        {"lockstep-seqrec", {"synth-sequences", "--users", "50"}},
        {"lockstep-kgat", {"synth-kg"}},
        {"lockstep-emulator-data", {"synth-icecolumn", "--rows", "50"}},
        {"hrm-puzzles", {"synth-sudoku", "--order", "2", "--train", "5", "--test", "2"}},
        {"lockstep-har", {"synth-har"}}};
    for (const auto& [format, words] : sources) {
      CAPTURE(format);
      std::vector<std::string> command = words;
      for (const char* word : {"--output", file.c_str(), "--quiet"}) command.emplace_back(word);
      const ProcessResult made = prep(command);
      CAPTURE(made.err);
      REQUIRE(made.exit_code == 0);
      const ProcessResult page = info({file});
      CAPTURE(page.err);
      CHECK(page.exit_code == 0);
      CHECK(page.out.starts_with(file + ": "));
      CHECK(page.out == prep({"info", file}).out);
      const auto json = nlohmann::json::parse(info({file, "--json"}).out, nullptr, false);
      REQUIRE(json.is_object());
      CHECK(json["format"] == format);
      CHECK(json["attributes"]["version"] == 1);
      CHECK_FALSE(json["datasets"].empty());
    }
  }
}
