#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/json_depth.hpp"

namespace lockstep::prep {

/// errors  usage: missing or unreadable; data: invalid or deep JSON
inline nlohmann::json read_json(const std::filesystem::path& path) {
  try {
    const std::string text = read_text_file(path);
    require_data(!nests_deeply(text), "reading '", path.string(), "': its lists and objects are nested too deeply");
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Fault::data, join("reading '", path.string(), "': ", problem.what()));
  }
}

}  // namespace lockstep::prep
