#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "train/append_file.hpp"

namespace lockstep {

/// Writes a TensorBoard event file: TFRecord frames (length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes), each an
/// `Event` message of tensorboard/compat/proto/event.proto, encoded by hand (five field kinds are all that scalars and texts need).
///
/// Every start of a run makes a file of its own, which begins with SessionLog START at the first step to come: a TensorBoard that is watching
/// then drops what an interrupted run had written past it.
/// errors  Error (internal) as AppendFile
class EventWriter {
 public:
  /// `next_step`: of the first record to come.
  EventWriter(const std::filesystem::path& directory, std::int64_t next_step);
  void scalar(std::string_view tag, double value, std::int64_t step, double wall_time_s);
  /// A PNG of this size, for TensorBoard's image tab.
  void image(std::string_view tag, std::string_view png, int width, int height, std::int64_t step, double wall_time_s);
  /// Markdown, for TensorBoard's text tab.
  void text(std::string_view tag, std::string_view markdown, std::int64_t step, double wall_time_s);
  void sync() { file_.sync(); }

 private:
  void write(const std::string& event);
  AppendFile file_;
};

/// How many leading bytes of an event file are whole frames of steps up to `last_step`.
std::uintmax_t whole_events(std::string_view bytes, std::int64_t last_step);
bool is_event_file(const std::filesystem::path& path);
/// Seconds since 1970.
double wall_time();

}  // namespace lockstep
