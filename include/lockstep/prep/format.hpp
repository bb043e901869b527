#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

/// A kind of prepared file.
struct Format {
  DatasetFormat format;
  /// Problems of a file, one line each, and remarks that are not errors.
  std::vector<std::string> (*check)(const H5File& file, std::vector<std::string>& remarks);
  /// Prints a page about the file: sizes, splits, contents, origin.
  void (*describe)(const H5File& file, std::ostream& out);
};
/// The kind of a file by its attribute `format`. errors  data: the attribute is missing or unknown
const Format& format_of(const H5File& file);

}  // namespace lockstep::prep
