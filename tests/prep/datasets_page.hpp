#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "prep/program.hpp"
#include "support/outcome.hpp"
#include "support/paths.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

/// The folder of real data sets, "" when the environment names none.
inline std::string datasets_folder() {
  const char* folder = std::getenv("LOCKSTEP_DATASETS");
  return folder != nullptr ? folder : "";
}

/// Whether a real data set is absent; says so.
inline bool dataset_skipped(const std::string& name) {
  const std::string folder = datasets_folder();
  if (!folder.empty() && std::filesystem::is_directory(std::filesystem::path(folder) / name)) return false;
  skip("LOCKSTEP_DATASETS names no folder with " + name);
  return true;
}

/// The command lines in the section of docs/datasets.md whose title begins so.
inline std::string commands_under(const std::string& title) {
  const std::string page = read_text_file(source_path("docs/datasets.md"));
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

/// Runs them in a directory; they must succeed. What they print.
inline std::string run_commands(const TempDir& dir, const std::string& commands) {
  write_text(dir / "commands.sh", "set -e\nexport PATH=" + program_folder() + ":$PATH\n" + commands);
  const auto run = run_shell(dir.path(), "sh commands.sh");
  CAPTURE(run.text);
  CHECK(run.status == 0);
  return run.text;
}

}  // namespace lockstep::test
