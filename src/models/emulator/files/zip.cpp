#include "zip.hpp"

#include <zlib.h>

#include <cstdint>

#include "lockstep/base/error.hpp"

namespace lockstep::files {
namespace {

constexpr std::size_t kAlign = 64, kLocalHeaderBytes = 30, kExtraHeaderBytes = 4;
constexpr std::size_t kLargest = std::size_t{1}
                                 << 31;  ///< half the range of 32-bit offsets: leaves space for the directory
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

}  // namespace lockstep::files
