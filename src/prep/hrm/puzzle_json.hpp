#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep::prep {

/// errors  usage: missing or unreadable; data: invalid JSON
inline nlohmann::json read_json(const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(read_text_file(path));
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Fault::data, join("reading '", path.string(), "': ", problem.what()));
  }
}

}  // namespace lockstep::prep
