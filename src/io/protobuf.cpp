#include "lockstep/io/protobuf.hpp"

#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep {
namespace {

std::uint64_t take_varint(std::string_view& bytes, const std::string& what) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    require_data(!bytes.empty(), what, ": it ends within a number; the file is damaged");
    const auto byte = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  throw Error(Fault::data, what + ": a number of more than ten bytes; the file is damaged");
}

}  // namespace

std::vector<ProtobufField> protobuf_fields(std::string_view message, const std::string& what) {
  std::vector<ProtobufField> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message, what);
    ProtobufField field;
    field.number = static_cast<int>(key >> 3 & 0xFFFFFF);
    field.wire = static_cast<int>(key & 7);
    if (field.wire == 0) {
      field.value = take_varint(message, what);
    } else {
      require_data(field.wire == 1 || field.wire == 2 || field.wire == 5, what, ": a field of wire type ", field.wire,
                   "; the file is damaged");
      const std::uint64_t size = field.wire == 2 ? take_varint(message, what) : field.wire == 1 ? 8 : 4;
      require_data(size <= message.size(), what, ": a field of ", size, " bytes, where ", message.size(),
                   " are left; the file is damaged");
      field.bytes = message.substr(0, size);
      message.remove_prefix(field.bytes.size());
      if (field.wire != 2) std::memcpy(&field.value, field.bytes.data(), field.bytes.size());
    }
    fields.push_back(field);
  }
  return fields;
}

std::vector<std::int64_t> protobuf_integers(const ProtobufField& field, const std::string& what) {
  if (field.wire != 2) return {static_cast<std::int64_t>(field.value)};
  std::vector<std::int64_t> out;
  for (std::string_view rest = field.bytes; !rest.empty();)
    out.push_back(static_cast<std::int64_t>(take_varint(rest, what)));
  return out;
}

}  // namespace lockstep
