#include "support/event_reader.hpp"

#include <cstring>
#include <map>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

namespace {

std::uint32_t bitwise_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}
std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = bitwise_crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
T take(std::string_view& bytes) {
  require(bytes.size() >= sizeof(T), "event file: cut off");
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}
std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = take<unsigned char>(bytes);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

struct Field {
  std::uint64_t integer = 0;
  std::string_view bytes;
};
std::multimap<unsigned, Field> fields(std::string_view message) {
  std::multimap<unsigned, Field> found;
  while (!message.empty()) {
    const auto key = take_varint(message);
    Field field;
    switch (key & 7) {
      case 0:
        field.integer = take_varint(message);
        break;
      case 1:
        field.integer = take<std::uint64_t>(message);
        break;
      case 5:
        field.integer = take<std::uint32_t>(message);
        break;
      case 2: {
        const auto length = take_varint(message);
        require(length <= message.size(), "event file: a field longer than its message");
        field.bytes = message.substr(0, length);
        message.remove_prefix(length);
        break;
      }
      default:
        throw Error(Fault::data, "event file: unknown wire type");
    }
    found.emplace(static_cast<unsigned>(key >> 3), field);
  }
  return found;
}
std::string_view bytes_of(const std::multimap<unsigned, Field>& message, unsigned number) {
  const auto found = message.find(number);
  return found == message.end() ? std::string_view() : found->second.bytes;
}

EventRecord decode(std::string_view message) {
  EventRecord event;
  const auto top = fields(message);
  for (const auto& [number, field] : top) {
    if (number == 1) std::memcpy(&event.wall_time, &field.integer, sizeof event.wall_time);
    if (number == 2) event.step = static_cast<std::int64_t>(field.integer);
    if (number == 3) event.file_version = field.bytes;
    if (number == 7) event.session_status = static_cast<int>(fields(field.bytes).find(1)->second.integer);
    if (number == 5) {
      const auto value = fields(bytes_of(fields(field.bytes), 1));
      event.tag = bytes_of(value, 1);
      if (const auto simple = value.find(2); simple != value.end()) {
        const auto bits = static_cast<std::uint32_t>(simple->second.integer);
        std::memcpy(&event.value, &bits, sizeof bits);
        event.has_value = true;
      }
      event.text = bytes_of(fields(bytes_of(value, 8)), 8);
      event.image = bytes_of(fields(bytes_of(value, 4)), 4);
      const auto plugin = fields(bytes_of(fields(bytes_of(value, 9)), 1));
      event.plugin = bytes_of(plugin, 1);
      const auto start = fields(bytes_of(fields(bytes_of(plugin, 2)), 3));
      for (auto [at, end] = start.equal_range(1); at != end; ++at) {
        const auto entry = fields(at->second.bytes), of = fields(bytes_of(entry, 2));
        const std::string key(bytes_of(entry, 1));
        if (const auto real = of.find(2); real != of.end())
          std::memcpy(&event.numbers[key], &real->second.integer, sizeof(double));
        else
          event.texts[key] = bytes_of(of, 3);
      }
    }
  }
  return event;
}

/// Adds the events of a file.
void read_events(const std::string& content, std::vector<EventRecord>& events) {
  for (std::string_view bytes = content; !bytes.empty();) {
    const std::string_view head = bytes.substr(0, 8);
    const auto length = take<std::uint64_t>(bytes);
    require(take<std::uint32_t>(bytes) == masked(head), "event file: wrong checksum of a length");
    require(length <= bytes.size(), "event file: cut off");
    const std::string_view message = bytes.substr(0, length);
    bytes.remove_prefix(length);
    require(take<std::uint32_t>(bytes) == masked(message), "event file: wrong checksum of an event");
    events.push_back(decode(message));
  }
}

}  // namespace

std::vector<EventRecord> read_event_directory(const std::filesystem::path& directory) {
  std::vector<EventRecord> events;
  for (const std::string& name : names_in(directory))
    if (name.find("tfevents") != std::string::npos) read_events(read_text(directory / name), events);
  return events;
}

}  // namespace lockstep::test
