#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::files {

/// A protobuf message, written field by field. source  protobuf.dev, "Encoding": key = field << 3 | wire type
class Message {
 public:
  Message& integer(int field, std::int64_t value) {
    varint(key(field, 0));
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(int field, float value) {
    varint(key(field, 5));
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    varint(key(field, 2));
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  static std::uint64_t key(int field, int wire) {
    return static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire);
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace lockstep::files
