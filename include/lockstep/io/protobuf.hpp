#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Appends an integer to `out`, its least significant byte first.
template <class T>
void append_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

/// A protobuf message, encoded field by field. Each function appends one field.
///
/// source   protobuf.dev, "Encoding": key = field << 3 | wire type
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, std::int64_t value) {
    varint(key(field, 0));
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  ProtobufMessage& real(int field, float value) {
    varint(key(field, 5));
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  ProtobufMessage& real(int field, double value) {
    varint(key(field, 1));
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  ProtobufMessage& text(int field, std::string_view value) {
    varint(key(field, 2));
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return text(field, value.bytes_); }
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

}  // namespace lockstep
