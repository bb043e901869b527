#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

/// A field of an encoded message.
struct ProtobufField {
  int number = 0;
  int wire = 0;             ///< 0 varint · 1 eight bytes · 2 text, message or packed numbers · 5 four bytes
  std::uint64_t value = 0;  ///< of wire types 0, 1 and 5
  std::string_view bytes;   ///< of wire type 2
};
/// The fields of a message in their order. errors  data, beginning with `what`: damaged
std::vector<ProtobufField> protobuf_fields(std::string_view message, const std::string& what);
/// The integers of a packed field, or the only integer of a field. errors as protobuf_fields()
std::vector<std::int64_t> protobuf_integers(const ProtobufField& field, const std::string& what);

}  // namespace lockstep
