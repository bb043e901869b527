#include "lockstep/base/csv.hpp"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
/// Compressed formats by their first bytes, and the commands that unpack them.
struct Packed {
  std::string_view magic;
  const char *name, *unpack;
};
constexpr Packed kPacked[] = {{"\x1F\x8B", "gzip", "gzip -dk"},
                              {"\xFD"
                               "7zXZ",
                               "xz", "xz -dk"},
                              {"BZh", "bzip2", "bzip2 -dk"},
                              {"\x28\xB5\x2F\xFD", "zstandard", "zstd -d"},
                              {"PK\x03\x04", "zip", "unzip"}};
}  // namespace

std::ifstream open_text(const std::string& path) {
  std::error_code error;
  require_usage(!std::filesystem::is_directory(path, error), "opening '", path, "': it is a directory");
  std::ifstream in(path, std::ios::binary);
  require_usage(in.good(), "opening '", path, "': no such file, or not readable");
  return in;
}

bool next_line(std::istream& in, std::string& line, std::int64_t& number, const std::string& path) {
  if (!std::getline(in, line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  if (++number == 1) clean_first_line(line, path);
  return true;
}

void clean_first_line(std::string& line, const std::string& path) {
  for (const Packed& packed : kPacked)
    require_data(!line.starts_with(packed.magic), "reading '", path, "': it is compressed with ", packed.name,
                 "; unpack it first: ", packed.unpack, " '", path, "'");
  require_data(!line.starts_with("\xFF\xFE") && !line.starts_with("\xFE\xFF") && line.find('\0') == std::string::npos,
               "reading '", path, "': it is UTF-16 text or no text at all; iconv -f UTF-16 -t UTF-8 '", path,
               "' converts it");
  require_data(line.find('\r') == std::string::npos, "reading '", path,
               "': its lines end with carriage returns alone; write line feeds: tr '\\r' '\\n' < '", path, "'");
  if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
}

bool split_csv(std::string_view line, std::vector<std::string>& fields, char separator) {
  const auto past_blanks = [&](std::size_t at) { return std::min(line.find_first_not_of(" \t", at), line.size()); };
  std::size_t used = 0;
  for (std::size_t at = 0;; ++at) {
    if (used == fields.size()) fields.emplace_back();
    std::string& field = fields[used++];
    const std::size_t quote = past_blanks(at);
    if (quote < line.size() && line[quote] == '"') {
      field.clear();
      for (at = quote + 1;; ++at) {
        if (at >= line.size()) return false;
        if (line[at] == '"' && (++at >= line.size() || line[at] != '"')) break;
        field += line[at];
      }
      at = past_blanks(at);
      if (at < line.size() && line[at] != separator) return false;
    } else {
      const std::size_t end = std::min(line.find(separator, at), line.size());
      field.assign(line.substr(at, end - at));
      at = end;
    }
    if (at >= line.size()) break;
  }
  fields.resize(used);
  return true;
}

}  // namespace lockstep
