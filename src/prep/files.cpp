#include "lockstep/prep/files.hpp"

#include <fnmatch.h>
#include <glob.h>
#include <openssl/evp.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

std::string sha256_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require_usage(in.good(), "reading '", path.string(), "': ", std::strerror(errno));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  require(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1, "starting SHA-256 failed");
  std::vector<char> block(1 << 20);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0)
    EVP_DigestUpdate(context.get(), block.data(), static_cast<std::size_t>(in.gcount()));
  require_usage(!in.bad(), "reading '", path.string(), "': ", std::strerror(errno));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::vector<std::filesystem::path> expand_files(const std::vector<std::string>& patterns) {
  std::vector<std::filesystem::path> files;
  for (const auto& pattern : patterns) {
    std::error_code error;
    if (std::filesystem::exists(pattern, error)) {
      files.emplace_back(pattern);
      continue;
    }
    glob_t found{};
    const int status = glob(pattern.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    globfree(&found);
    const std::string whole = listed(patterns, ",");  // it was a list if it has a comma
    require_usage(status == 0, "opening '", pattern,
                  "': ", pattern.find_first_of("*?[") == std::string::npos ? "no such file" : "no file matches",
                  std::filesystem::exists(whole, error)
                      ? join("; for the file '", whole, "' write each comma of its name as '\\,'")
                      : "");
  }
  return files;
}

bool matches_pattern(const std::filesystem::path& file, const std::string& pattern) {
  return fnmatch(pattern.c_str(), file.c_str(), 0) == 0 || fnmatch(pattern.c_str(), file.filename().c_str(), 0) == 0;
}

}  // namespace lockstep::prep
