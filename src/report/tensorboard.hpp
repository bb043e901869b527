#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/report/append_file.hpp"

namespace lockstep {

class ProtobufMessage;

/// Writes a TensorBoard event file: TFRecord frames (length, masked CRC-32C of the length, bytes, masked CRC-32C of the
/// bytes), each of them an `Event` message of tensorboard/compat/proto/event.proto.
///
/// Every start of a run creates a new file. It begins with SessionLog START at `next_step`, so a running TensorBoard
/// drops the events that an interrupted run wrote past that step.
/// errors  Error (internal) if the file cannot be created
class EventWriter {
 public:
  /// next_step  the step of the first record
  EventWriter(const std::filesystem::path& directory, std::int64_t next_step);
  /// Tags and values of a record, written at once.
  void scalars(const std::vector<std::pair<std::string, double>>& values, std::int64_t step, double wall_time_s);
  /// A PNG of this size, for TensorBoard's image tab.
  void image(std::string_view tag, std::string_view png, int width, int height, std::int64_t step, double wall_time_s);
  /// Markdown, for TensorBoard's text tab.
  void text(std::string_view tag, std::string_view markdown, std::int64_t step, double wall_time_s);
  /// Names and values of a trial, for TensorBoard's HParams tab.
  /// source  tensorboard/plugins/hparams/plugin_data.proto
  void hyperparameters(const std::vector<std::pair<std::string, std::string>>& values, double wall_time_s);
  std::string sync() const { return file_.sync(); }
  const std::string& failure() const { return file_.failure(); }

 private:
  /// Writes an event with one Summary.Value.
  void summary(const ProtobufMessage& value, std::int64_t step, double wall_time_s);
  AppendFile file_;
};

/// The length of the longest prefix of an event file that holds only complete frames of steps up to `last_step`. Units:
/// bytes.
std::uintmax_t whole_events(std::string_view bytes, std::int64_t last_step);
bool is_event_file(const std::filesystem::path& path);
/// Seconds since 1970.
double wall_time();

}  // namespace lockstep
