#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// An uncompressed ZIP archive. The data of each member begin at a multiple of 64 bytes, as PyTorch writes and maps
/// them; the local header's extra field (id 0x4246, filled with 'Z') is the padding.
///
/// source  PKWARE APPNOTE.TXT 6.3.3, sections 4.3.7, 4.3.12, 4.3.16; PyTorch caffe2/serialize
class ZipWriter {
 public:
  /// errors  Error if the archive would exceed 2 GiB or 65535 members
  void add(const std::string& name, std::string_view data);
  /// Returns the archive, with its directory.
  std::string finish();

 private:
  std::string bytes_, directory_;
  int members_ = 0;
};

/// The members of a ZIP archive in memory, stored or deflated, without encryption and without the 64-bit extensions.
class ZipReader {
 public:
  /// Reads the directory. `bytes` must outlive the reader; error messages begin with `what`, such as "reading 'a.npz'".
  /// errors  data: no archive, damaged, a member twice; an archive of more than 4 GiB
  ZipReader(std::string_view bytes, std::string what);
  /// In the order of the directory.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return members_.contains(name); }
  /// The contents of a member. errors  data: no such member; damaged (its CRC-32 is checked), encrypted, another method
  std::string read(const std::string& name) const;

 private:
  struct Member {
    std::uint32_t method, flags, crc;
    std::size_t packed, size, header;  ///< bytes in the archive, unpacked bytes, offset of the local header
  };
  std::string_view bytes_;
  std::string what_;
  std::vector<std::string> names_;
  std::map<std::string, Member> members_;
};

}  // namespace lockstep
