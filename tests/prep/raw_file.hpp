#pragma once
#include <netcdf.h>

#include "support/test.hpp"

namespace lockstep::test {

/// A small NetCDF file for tests: dimensions, then variables with their values and attributes.
class RawFile {
 public:
  struct Variable {
    std::string name;
    nc_type type;
    std::vector<std::string> dims;
    std::vector<double> values;
    std::vector<std::pair<std::string, double>> numbers = {};
    std::vector<std::pair<std::string, std::string>> texts = {};
  };
  RawFile(const std::filesystem::path& path, int flavour,
          const std::vector<std::pair<std::string, std::size_t>>& dims = {},
          const std::vector<Variable>& variables = {}) {
    check(nc_create(path.c_str(), flavour | NC_CLOBBER, &id_));
    std::map<std::string, int> number;
    for (const auto& [name, length] : dims) number[name] = dim(name, length);
    for (const Variable& v : variables) {
      std::vector<int> axes;
      for (const std::string& name : v.dims) axes.push_back(number.at(name));
      variable(v.name, v.type, axes, v.values, v.numbers, v.texts);
    }
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile() { check(nc_close(id_)); }

  int dim(const std::string& name, std::size_t length) {
    int dim = 0;
    check(nc_def_dim(id_, name.c_str(), length, &dim));
    lengths_.push_back(length);
    return dim;
  }
  /// A variable of a type; its values are stored unconverted, those of an unlimited axis as `records` of them.
  int variable(const std::string& name, nc_type type, const std::vector<int>& dims, const std::vector<double>& values,
               const std::vector<std::pair<std::string, double>>& numbers = {},
               const std::vector<std::pair<std::string, std::string>>& texts = {}) {
    int variable = 0;
    check(nc_redef_if_needed());
    check(nc_def_var(id_, name.c_str(), type, static_cast<int>(dims.size()), dims.data(), &variable));
    for (const auto& [key, value] : numbers) {
      const bool of_type = key == "_FillValue" || key == "missing_value";
      check(nc_put_att_double(id_, variable, key.c_str(), of_type ? type : NC_DOUBLE, 1, &value));
    }
    for (const auto& [key, value] : texts)
      check(nc_put_att_text(id_, variable, key.c_str(), value.size(), value.c_str()));
    check(nc_enddef(id_));
    defining_ = false;
    std::vector<std::size_t> start(dims.size(), 0), extent;
    std::size_t rest = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) rest *= lengths_[to_size(dims[i])];
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::size_t length = lengths_[to_size(dims[i])];
      extent.push_back(length == NC_UNLIMITED ? values.size() / rest : length);
    }
    check(nc_put_vara_double(id_, variable, start.data(), extent.data(), values.data()));
    return variable;
  }
  int id() const { return id_; }

 private:
  static void check(int status) { REQUIRE_MESSAGE(status == NC_NOERR, nc_strerror(status)); }
  int nc_redef_if_needed() {
    if (defining_) return NC_NOERR;
    defining_ = true;
    return nc_redef(id_);
  }
  int id_ = -1;
  bool defining_ = true;
  std::vector<std::size_t> lengths_;
};

/// 0, 1, 2, ... times a factor.
inline std::vector<double> counting(std::size_t n, double factor = 1) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<double>(i) * factor;
  return values;
}

}  // namespace lockstep::test
