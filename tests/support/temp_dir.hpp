#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

/// A temporary directory, removed at the end of the scope.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);
/// The names of a directory's entries, sorted.
std::vector<std::string> names_in(const std::filesystem::path& directory);

}  // namespace lockstep::test
