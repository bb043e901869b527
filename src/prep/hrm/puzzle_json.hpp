#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep::prep {

/// errors  usage: missing or unreadable; data: invalid or deep JSON
inline nlohmann::json read_json(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  require_data(!nests_deeply(text), "reading '", path.string(), "': its lists and objects are nested too deeply");
  std::string problem;
  nlohmann::json json = parse_json(text, &problem);
  require_data(problem.empty(), "reading '", path.string(), "': ", problem);
  return json;
}

}  // namespace lockstep::prep
