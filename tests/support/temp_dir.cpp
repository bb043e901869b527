#include "support/temp_dir.hpp"

#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.hpp"

namespace lockstep::test {

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr, "making a temporary directory ", name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), "opening ", path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  require(out.flush().good(), "writing ", path.string());
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace lockstep::test
