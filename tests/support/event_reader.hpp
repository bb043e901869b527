#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::test {

/// The fields of a TensorBoard event that lockstep writes.
struct EventRecord {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version, tag, plugin, text, image;
  bool has_value = false;
  float value = 0;
  int session_status = 0;
  std::map<std::string, double> numbers;     ///< hyperparameters
  std::map<std::string, std::string> texts;  ///< the same
};

/// Reads TFRecord frames and their protobuf messages of all event files of a directory, in the order of their names.
/// Written from the formats' descriptions, independently of the writer; the CRC is the bitwise definition.
/// errors  Error: a wrong checksum, a truncated frame, an unknown wire type
std::vector<EventRecord> read_event_directory(const std::filesystem::path& directory);

}  // namespace lockstep::test
