#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"

namespace lockstep {

/// Writes a netCDF-4 file: HDF5 whose dimensions are dimension scales, so that netCDF, ncdump and xarray read it. Files
/// with equal contents are equal byte for byte.
///
/// errors  Error (internal): the library fails, as on a full disk
/// source  NetCDF-4 format specification (Unidata); HDF5 dimension scale specification, appendix
class NetcdfWriter {
 public:
  explicit NetcdfWriter(const std::filesystem::path& path);
  NetcdfWriter(const NetcdfWriter&) = delete;
  NetcdfWriter& operator=(const NetcdfWriter&) = delete;
  ~NetcdfWriter();

  /// Adds a dimension that has no variable of the same name.
  void dimension(const std::string& name, std::int64_t length);
  /// Adds a variable over existing dimensions. `fill` marks missing values (attribute _FillValue). A variable whose only
  /// dimension has its name is a new dimension with these coordinates, none of which is missing.
  template <class T>
  void variable(const std::string& name, const std::vector<std::string>& dimensions, std::span<const T> values, T fill,
                const std::map<std::string, std::string>& attributes);
  /// Adds a text variable, of characters: (dimension, longest text).
  void texts(const std::string& name, const std::string& dimension, const std::vector<std::string>& values,
             const std::map<std::string, std::string>& attributes);
  void global_attribute(const std::string& name, const std::string& text);
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
