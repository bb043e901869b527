#include "report/tensorboard.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/io/protobuf.hpp"

namespace lockstep {

namespace {

/// Event: wall_time 1, step 2.
ProtobufMessage event(double wall_time_s, std::int64_t step) {
  return ProtobufMessage().real(1, wall_time_s).integer(2, step);
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <class T>
T read_little_endian(std::string_view bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

/// Event.step of an encoded event. Events of EventWriter begin with wall_time (9 bytes) and step.
std::int64_t step_of(std::string_view encoded) {
  if (encoded.size() < 11 || encoded[9] != (2 << 3)) return 0;
  std::uint64_t value = 0;
  unsigned shift = 0;
  for (std::size_t i = 10; i < encoded.size() && shift < 64; ++i, shift += 7) {
    value |= (static_cast<std::uint64_t>(encoded[i]) & 0x7f) << shift;
    if ((encoded[i] & 0x80) == 0) break;
  }
  return static_cast<std::int64_t>(value);
}

std::string frame(const ProtobufMessage& event) {
  const std::string& encoded = event.bytes();
  std::string frame;
  append_little_endian(frame, static_cast<std::uint64_t>(encoded.size()));
  append_little_endian(frame, masked_crc(frame));
  frame += encoded;
  append_little_endian(frame, masked_crc(encoded));
  return frame;
}

/// Of an event with one Summary.Value.
std::string summary_frame(const ProtobufMessage& value, std::int64_t step, double wall_time_s) {
  return frame(event(wall_time_s, step).message(5, ProtobufMessage().message(1, value)));
}

/// A unique file name that sorts after the files of earlier starts.
std::string fresh_name() {
  static std::atomic<int> count = 0;
  const auto ms = static_cast<std::int64_t>(wall_time() * 1000);
  return join("events.out.tfevents.", ms, ".", host_name(), ".", ::getpid(), ".", count++);
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventWriter::EventWriter(const std::filesystem::path& directory, std::int64_t next_step)
    : file_(directory / fresh_name()) {
  const ProtobufMessage source = ProtobufMessage().text(1, "lockstep " + build_info().version);
  file_.append(frame(event(wall_time(), 0).text(3, "brain.Event:2").message(10, source)));  // source_metadata.writer
  const ProtobufMessage start = ProtobufMessage().integer(1, 1);
  file_.append(frame(event(wall_time(), next_step).message(7, start)));  // SessionLog.status = START
}

void EventWriter::summary(const ProtobufMessage& value, std::int64_t step, double wall_time_s) {
  file_.append(summary_frame(value, step, wall_time_s));
}

void EventWriter::scalars(const std::vector<std::pair<std::string, double>>& values, std::int64_t step,
                          double wall_time_s) {
  std::string frames;
  for (const auto& [tag, value] : values)
    frames += summary_frame(ProtobufMessage().text(1, tag).real(2, static_cast<float>(value)), step, wall_time_s);
  file_.append(frames);
}

void EventWriter::image(std::string_view tag, std::string_view png, int width, int height, std::int64_t step,
                        double wall_time_s) {
  ProtobufMessage picture;
  picture.integer(1, height).integer(2, width).integer(3, 3).text(4, png);  // 3: red, green, blue
  summary(ProtobufMessage().text(1, tag).message(4, picture), step, wall_time_s);
}

void EventWriter::text(std::string_view tag, std::string_view markdown, std::int64_t step, double wall_time_s) {
  const ProtobufMessage metadata = ProtobufMessage().message(1, ProtobufMessage().text(1, "text"));  // the plugin
  ProtobufMessage shape, tensor;
  shape.message(2, ProtobufMessage().integer(1, 1));
  tensor.integer(1, 7).message(2, shape).text(8, markdown);  // 7: DT_STRING
  summary(ProtobufMessage().text(1, tag).message(8, tensor).message(9, metadata), step, wall_time_s);
}

void EventWriter::hyperparameters(const std::vector<std::pair<std::string, std::string>>& values, double wall_time_s) {
  ProtobufMessage start, content, plugin, shape, tensor;
  for (const auto& [name, text] : values) {
    const std::optional<double> number = number_in<double>(text);
    ProtobufMessage value;  // google.protobuf.Value
    if (number)
      value.real(2, *number);
    else
      value.text(3, text);
    start.message(1, ProtobufMessage().text(1, name).message(2, value));  // an entry of the map hparams
  }
  content.message(3, start.real(5, wall_time_s));  // HParamsPluginData.session_start_info
  plugin.text(1, "hparams").message(2, content);
  shape.message(2, ProtobufMessage().integer(1, 1));
  tensor.integer(1, 1).message(2, shape).real(5, 0.0f);  // 1: DT_FLOAT; a value that readers require and do not use
  summary(ProtobufMessage()
              .text(1, "_hparams_/session_start_info")
              .message(8, tensor)
              .message(9, ProtobufMessage().message(1, plugin)),
          0, wall_time_s);
}

std::uintmax_t whole_events(std::string_view bytes, std::int64_t last_step) {
  constexpr std::size_t kHead = 12, kTail = 4;
  std::size_t at = 0;
  while (bytes.size() - at >= kHead + kTail) {
    const auto length = read_little_endian<std::uint64_t>(bytes, at);
    if (read_little_endian<std::uint32_t>(bytes, at + 8) != masked_crc(bytes.substr(at, 8))) break;
    if (length > bytes.size() - at - kHead - kTail) break;
    const std::string_view encoded = bytes.substr(at + kHead, length);
    if (read_little_endian<std::uint32_t>(bytes, at + kHead + length) != masked_crc(encoded)) break;
    if (step_of(encoded) > last_step) break;
    at += kHead + length + kTail;
  }
  return at;
}

bool is_event_file(const std::filesystem::path& path) {
  return path.filename().string().starts_with("events.out.tfevents.");
}

}  // namespace lockstep
