#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::prep {

/// Metadata of a NetCDF variable.
struct NcVariable {
  std::string name;
  std::vector<std::string> dims;
  std::vector<std::int64_t> shape;
  std::string units, standard_name;  ///< "" when the file gives none
  bool numeric = true;               ///< not text
};

/// A NetCDF file of any flavour (classic, 64-bit offset, 64-bit data, NetCDF-4), read through libnetcdf. Names may
/// include groups: `MetaData/latitude`.
///
/// errors  usage: no such file; data, naming file and variable: not NetCDF, truncated, an unsupported type or filter
class NcFile {
 public:
  static NcFile open(const std::filesystem::path& path);
  NcFile(NcFile&& other) noexcept;
  NcFile& operator=(NcFile&&) = delete;
  ~NcFile();
  const std::filesystem::path& path() const { return path_; }

  bool has(const std::string& variable) const;
  std::vector<std::string> variables() const;
  /// "; did you mean 'PRODUCT/sst'?" of a variable that the file lacks: the same name in a group, or a near one. Or "".
  std::string suggestion(const std::string& variable) const;
  /// errors  data: no such variable, with the nearest name
  NcVariable describe(const std::string& variable) const;
  std::optional<std::string> text_attribute(const std::string& variable, const std::string& attribute) const;

  /// All values in C order: raw * scale_factor + add_offset in double, with the raw integers unsigned or signed as
  /// `_Unsigned` says; NaN where the raw value equals `_FillValue` (or, without it, the format's own fill value of a
  /// type wider than a byte) or `missing_value`, or lies outside `valid_range`, `valid_min` .. `valid_max`. A double
  /// also equals a missing value that is its rounding to f32. On packed integers, valid ranges of a real type are in
  /// unpacked units, and fill values of a real type in either. Numbers may be text.
  /// errors  data: an attribute that is text other than numbers
  /// source  CF conventions 1.11, sections 2.5.1 and 8.1; NetCDF User's Guide, attribute conventions
  std::vector<double> read(const std::string& variable) const;
  /// Like read(), with a fixed index along one axis; negative indices count from the end.
  std::vector<double> read_slice(const std::string& variable, std::size_t axis, std::int64_t index) const;

 private:
  NcFile(std::filesystem::path path, int id) : path_(std::move(path)), id_(id) {}
  struct Place;
  Place find(const std::string& variable) const;
  std::vector<double> read_box(const Place& place, const NcVariable& what, std::vector<std::size_t> start,
                               std::vector<std::size_t> extent) const;

  std::filesystem::path path_;
  int id_;
};

/// The size in bytes of a classic file (CDF-1, 2, 5) by its header; nullopt for other formats. Callers compare it with
/// the file's size, because libnetcdf reads zeros beyond the end of a truncated file. errors  data: an invalid header
std::optional<std::int64_t> classic_size(const std::filesystem::path& path);

}  // namespace lockstep::prep
