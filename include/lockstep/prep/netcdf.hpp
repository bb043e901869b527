#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::prep {

/// What a variable of a NetCDF file is, without reading it.
struct NcVariable {
  std::string name;
  std::vector<std::string> dims;
  std::vector<std::int64_t> shape;
  std::string units, standard_name;  ///< "" when the file does not say
};

/// A NetCDF file of any flavour (classic, 64-bit offset, 64-bit data, NetCDF-4), read through libnetcdf; a name may carry groups:
/// `MetaData/latitude`.
///
/// errors  usage: no such file; data: not NetCDF, truncated, a type or filter that is not read. Each names file and variable
class NcFile {
 public:
  static NcFile open(const std::filesystem::path& path);
  NcFile(NcFile&& other) noexcept;
  NcFile& operator=(NcFile&&) = delete;
  ~NcFile();
  const std::filesystem::path& path() const { return path_; }

  bool has(const std::string& variable) const;
  std::vector<std::string> variables() const;
  /// errors  data: no such variable, with the nearest name
  NcVariable describe(const std::string& variable) const;
  std::optional<std::string> text_attribute(const std::string& variable, const std::string& attribute) const;

  /// All values in C order: raw * scale_factor + add_offset in double; NaN where the raw value equals `_FillValue` or
  /// `missing_value` (or, without such an attribute, the format's own fill value of a type wider than a byte).
  std::vector<double> read(const std::string& variable) const;
  /// The same with one index fixed along one axis; a negative index counts from the end.
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

/// Size that a classic file (CDF-1, 2, 5) must have for its header's promises; nothing for other formats. libnetcdf reads zeros
/// beyond the end of a truncated classic file. Units: bytes. errors  data: a header that makes no sense
std::optional<std::int64_t> classic_size(const std::filesystem::path& path);

}  // namespace lockstep::prep
