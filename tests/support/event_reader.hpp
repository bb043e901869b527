#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::test {

/// One event of a TensorBoard file, as far as we write them.
struct EventRecord {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version, tag, plugin, text, image;
  bool has_value = false;
  float value = 0;
  int session_status = 0;
};

/// Reads TFRecord frames and the protobuf inside, written from the formats' descriptions and independently of the writer: its CRC is the bit-wise
/// definition. Throws Error at the first wrong checksum, cut frame or unknown wire type.
std::vector<EventRecord> read_events(const std::filesystem::path& path);
/// All event files of a directory, in the order of their names.
std::vector<EventRecord> read_event_directory(const std::filesystem::path& directory);

}  // namespace lockstep::test
