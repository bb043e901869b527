#include "lockstep/io/zip.hpp"

#include <zlib.h>

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kAlign = 64, kLocalHeaderBytes = 30, kExtraHeaderBytes = 4;
constexpr std::size_t kLargest = std::size_t{1}
                                 << 31;  ///< half the range of 32-bit offsets: leaves space for the directory
constexpr std::size_t kDirectoryHeaderBytes = 46, kEndBytes = 22, kLongestComment = 0xFFFF;
constexpr std::size_t kDeflateLimit = 1032;  ///< deflate never shrinks data further
constexpr std::uint16_t kVersionNeeded = 20;
constexpr std::uint16_t kDosDate = 1 << 5 | 1;  ///< 1 January 1980; a fixed date makes archives reproducible

void u16(std::string& out, std::size_t value) { out += {static_cast<char>(value), static_cast<char>(value >> 8)}; }
void u32(std::string& out, std::size_t value) {
  u16(out, value & 0xFFFF);
  u16(out, value >> 16);
}

/// The fields that the local header and the directory entry share, from "version needed" to "extra field length".
std::string common(const std::string& name, std::string_view data, std::size_t extra) {
  std::string out;
  u16(out, kVersionNeeded);
  u16(out, 0);  // flags
  u16(out, 0);  // stored
  u16(out, 0);  // time
  u16(out, kDosDate);
  u32(out, crc32_z(0, reinterpret_cast<const unsigned char*>(data.data()), data.size()));
  u32(out, data.size());  // compressed
  u32(out, data.size());
  u16(out, name.size());
  u16(out, extra);
  return out;
}

std::size_t u16_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])) |
         static_cast<std::size_t>(static_cast<unsigned char>(bytes[at + 1])) << 8;
}
std::size_t u32_at(std::string_view bytes, std::size_t at) { return u16_at(bytes, at) | u16_at(bytes, at + 2) << 16; }

/// Unpacks raw deflate data into `out`. Returns whether they fill it exactly.
bool inflate_exactly(std::string_view packed, std::string& out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  std::size_t in = 0, made = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    constexpr std::size_t kBlock = std::size_t{1} << 30;  // zlib counts in 32 bits
    const std::size_t give = std::min(packed.size() - in, kBlock), take = std::min(out.size() - made, kBlock);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + in));
    stream.avail_in = static_cast<uInt>(give);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    stream.avail_out = static_cast<uInt>(take);
    status = inflate(&stream, Z_NO_FLUSH);
    in += give - stream.avail_in;
    made += take - stream.avail_out;
    if (status == Z_OK && give - stream.avail_in == 0 && take - stream.avail_out == 0) break;
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && made == out.size();
}

}  // namespace

void ZipWriter::add(const std::string& name, std::string_view data) {
  const std::size_t begin = bytes_.size(), fixed = begin + kLocalHeaderBytes + name.size() + kExtraHeaderBytes;
  const std::size_t padding = (kAlign - fixed % kAlign) % kAlign;
  require(fixed + padding + data.size() <= kLargest && members_ < 0xFFFF, "writing an archive: member '", name, "' of ",
          data.size(), " bytes exceeds the limits of ZIP without extensions; choose another format");
  bytes_ += "PK\x03\x04" + common(name, data, kExtraHeaderBytes + padding) + name + "FB";
  u16(bytes_, padding);
  bytes_.append(padding, 'Z');
  bytes_ += data;

  directory_ += "PK\x01\x02";
  u16(directory_, kVersionNeeded);
  directory_ += common(name, data, 0);
  u16(directory_, 0);  // comment length
  u16(directory_, 0);  // disk
  u16(directory_, 0);  // internal attributes
  u32(directory_, 0);  // external attributes
  u32(directory_, begin);
  directory_ += name;
  ++members_;
}

std::string ZipWriter::finish() {
  std::string out = std::move(bytes_);
  const std::size_t begin = out.size();
  out += directory_;
  out += "PK\x05\x06";
  u16(out, 0);                                   // this disk
  u16(out, 0);                                   // disk of the directory
  u16(out, static_cast<std::size_t>(members_));  // members on this disk
  u16(out, static_cast<std::size_t>(members_));
  u32(out, directory_.size());
  u32(out, begin);
  u16(out, 0);  // comment length
  return out;
}

ZipReader::ZipReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {
  const auto damaged = [&](const auto&... why) {
    throw Error(Fault::data, join(what_, ": ", why..., "; the archive is damaged or truncated"));
  };
  if (bytes.size() < kEndBytes) damaged("only ", bytes.size(), " bytes");
  const std::size_t last = bytes.size() - kEndBytes, first = last - std::min(last, kLongestComment);
  const std::size_t end = bytes.rfind("PK\x05\x06", last);
  if (end == std::string_view::npos || end < first) damaged("no end of a ZIP directory");
  const std::size_t count = u16_at(bytes, end + 10), size = u32_at(bytes, end + 12), begin = u32_at(bytes, end + 16);
  require_data(begin != 0xFFFFFFFF && size != 0xFFFFFFFF && count != 0xFFFF, what_,
               ": an archive of more than 4 GiB or 65534 members; save the weights as .safetensors");
  if (begin > end || size > end - begin) damaged("its directory lies outside of its ", bytes.size(), " bytes");
  std::size_t at = begin;
  for (std::size_t i = 0; i < count; ++i) {
    if (end - at < kDirectoryHeaderBytes || bytes.substr(at, 4) != "PK\x01\x02")
      damaged("entry ", i + 1, " of its directory");
    const std::size_t name_size = u16_at(bytes, at + 28),
                      whole = kDirectoryHeaderBytes + name_size + u16_at(bytes, at + 30) + u16_at(bytes, at + 32);
    if (end - at < whole) damaged("entry ", i + 1, " of its directory");
    const std::string name(bytes.substr(at + kDirectoryHeaderBytes, name_size));
    const Member member = {static_cast<std::uint32_t>(u16_at(bytes, at + 10)),
                           static_cast<std::uint32_t>(u16_at(bytes, at + 8)),
                           static_cast<std::uint32_t>(u32_at(bytes, at + 16)),
                           u32_at(bytes, at + 20),
                           u32_at(bytes, at + 24),
                           u32_at(bytes, at + 42)};
    require_data(members_.emplace(name, member).second, what_, ": member '", name, "' occurs twice");
    names_.push_back(name);
    at += whole;
  }
}

std::string ZipReader::read(const std::string& name) const {
  const auto found = members_.find(name);
  require_data(found != members_.end(), what_, ": no member '", name, "'");
  const Member& member = found->second;
  const std::string reading = join(what_, ": member '", name, "'");
  require_data((member.flags & 1) == 0, reading, " is encrypted");
  require_data(member.method == 0 || member.method == Z_DEFLATED, reading, " is packed by method ", member.method,
               ", expected 0 (stored) or 8 (deflated)");
  const std::size_t at = member.header;
  const bool whole = bytes_.size() >= kLocalHeaderBytes && at <= bytes_.size() - kLocalHeaderBytes &&
                     bytes_.substr(at, 4) == "PK\x03\x04";
  const std::size_t begin = whole ? at + kLocalHeaderBytes + u16_at(bytes_, at + 26) + u16_at(bytes_, at + 28) : 0;
  require_data(whole && begin <= bytes_.size() && member.packed <= bytes_.size() - begin &&
                   bytes_.substr(at + kLocalHeaderBytes, u16_at(bytes_, at + 26)) == name,
               reading, " lies outside of the archive; it is damaged or truncated");
  const std::string_view packed = bytes_.substr(begin, member.packed);
  std::string out;
  bool good = member.size / kDeflateLimit <= member.packed;
  if (member.method == 0) {
    good = member.size == member.packed;
    out = packed;
  } else if (good) {
    out.resize(member.size);
    good = inflate_exactly(packed, out);
  }
  require_data(good && crc32_z(0, reinterpret_cast<const unsigned char*>(out.data()), out.size()) == member.crc,
               reading, " does not fit its size and checksum; it is damaged");
  return out;
}

}  // namespace lockstep
