#include "train/tensorboard.hpp"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"

namespace lockstep {

namespace {

// The wire format: key = field << 3 | kind; kind 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.

void varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
template <class T>
void little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}
void integer_field(std::string& out, unsigned field, std::int64_t value) {
  varint(out, field << 3);
  varint(out, static_cast<std::uint64_t>(value));
}
void double_field(std::string& out, unsigned field, double value) {
  varint(out, field << 3 | 1);
  little_endian(out, std::bit_cast<std::uint64_t>(value));
}
void float_field(std::string& out, unsigned field, float value) {
  varint(out, field << 3 | 5);
  little_endian(out, std::bit_cast<std::uint32_t>(value));
}
void bytes_field(std::string& out, unsigned field, std::string_view bytes) {
  varint(out, field << 3 | 2);
  varint(out, bytes.size());
  out += bytes;
}

/// Event: wall_time 1, step 2.
std::string event(double wall_time_s, std::int64_t step) {
  std::string out;
  double_field(out, 1, wall_time_s);
  integer_field(out, 2, step);
  return out;
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

/// Event.step of an encoded event; our own events begin with wall_time (9 bytes) and step.
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

/// Sorts after the files of earlier starts, and is nobody else's.
std::string fresh_name() {
  static std::atomic<int> count = 0;
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto ms = static_cast<std::int64_t>(wall_time() * 1000);
  return join("events.out.tfevents.", ms, ".", host, ".", ::getpid(), ".", count++);
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventWriter::EventWriter(const std::filesystem::path& directory, std::int64_t next_step)
    : file_(directory / fresh_name()) {
  std::string version = event(wall_time(), 0), source;
  bytes_field(version, 3, "brain.Event:2");
  bytes_field(source, 1, "lockstep " + build_info().version);
  bytes_field(version, 10, source);  // source_metadata.writer
  write(version);
  std::string start = event(wall_time(), next_step), session;
  integer_field(session, 1, 1);  // SessionLog.status = START
  bytes_field(start, 7, session);
  write(start);
}

void EventWriter::write(const std::string& encoded) {
  std::string frame;
  little_endian(frame, static_cast<std::uint64_t>(encoded.size()));
  little_endian(frame, masked_crc(frame));
  frame += encoded;
  little_endian(frame, masked_crc(encoded));
  file_.append(frame);
}

void EventWriter::scalar(std::string_view tag, double value, std::int64_t step, double wall_time_s) {
  std::string entry, summary, out = event(wall_time_s, step);
  bytes_field(entry, 1, tag);
  float_field(entry, 2, static_cast<float>(value));  // Summary.Value.simple_value
  bytes_field(summary, 1, entry);
  bytes_field(out, 5, summary);
  write(out);
}

void EventWriter::image(std::string_view tag, std::string_view png, int width, int height, std::int64_t step,
                        double wall_time_s) {
  std::string picture, entry, summary, out = event(wall_time_s, step);
  integer_field(picture, 1, height);
  integer_field(picture, 2, width);
  integer_field(picture, 3, 3);  // red, green, blue
  bytes_field(picture, 4, png);
  bytes_field(entry, 1, tag);
  bytes_field(entry, 4, picture);  // Summary.Value.image
  bytes_field(summary, 1, entry);
  bytes_field(out, 5, summary);
  write(out);
}

void EventWriter::text(std::string_view tag, std::string_view markdown, std::int64_t step, double wall_time_s) {
  std::string plugin, metadata, dim, shape, tensor, entry, summary, out = event(wall_time_s, step);
  bytes_field(plugin, 1, "text");
  bytes_field(metadata, 1, plugin);
  integer_field(dim, 1, 1);
  bytes_field(shape, 2, dim);
  integer_field(tensor, 1, 7);  // DT_STRING
  bytes_field(tensor, 2, shape);
  bytes_field(tensor, 8, markdown);
  bytes_field(entry, 1, tag);
  bytes_field(entry, 8, tensor);
  bytes_field(entry, 9, metadata);
  bytes_field(summary, 1, entry);
  bytes_field(out, 5, summary);
  write(out);
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
