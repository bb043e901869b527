#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/base/text.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

/// The page about a prepared file: a title, then lines of a name and values in two columns.
class Page {
 public:
  Page(std::ostream& out, const H5File& file, const std::string& title);
  void line(const std::string& name, const auto&... parts) {
    out_ << "  " << name << std::string(name.size() < width_ ? width_ - name.size() : 1, ' ');
    (out_ << ... << parts) << "\n";
  }
  /// A line as std::printf formats it.
  void print(const char* format, const auto&... values) { out_ << printed(format, values...); }
  /// Raw files with their checksums; only the first of a long list.
  void sources(const std::vector<std::string>& names, const std::vector<std::string>& sums);
  /// Those attributes of an object that are no lists.
  void attributes(const std::string& object, const DatasetNotes& some);
  std::ostream& out() { return out_; }

 private:
  std::ostream& out_;
  const H5File& file_;
  std::size_t width_ = 19;  ///< of the names
};

}  // namespace lockstep::prep
