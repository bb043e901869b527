#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::files {

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

}  // namespace lockstep::files
