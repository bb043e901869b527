#pragma once
#include <netcdf.h>

#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::test {

/// A text, or numbers of a type: without one, that of the variable if they mark missing values, else double.
struct RawAttribute {
  RawAttribute(const char* key, std::string_view value) : name(key), text(value) {}
  RawAttribute(const char* key, double value, nc_type as = NC_NAT) : name(key), numbers{value}, type(as) {}
  RawAttribute(const char* key, std::vector<double> values, nc_type as = NC_NAT)
      : name(key), numbers(std::move(values)), type(as) {}
  std::string name, text;
  std::vector<double> numbers;
  nc_type type = NC_NAT;
};

struct RawVariable {
  std::string name;  ///< of a group of its own: "PRODUCT/sst"
  nc_type type;
  std::vector<std::string> dims;
  std::vector<double> values;  ///< as they are stored, before any scale; of the first axis as many records as it takes
  std::vector<RawAttribute> attributes = {};
};

/// Writes a small NetCDF file.
inline void write_netcdf(const std::filesystem::path& path, int flavour,
                         const std::vector<std::pair<std::string, std::size_t>>& dims,
                         const std::vector<RawVariable>& variables) {
  const auto check = [&](int status) {
    require(status == NC_NOERR, "writing '", path.string(), "': ", nc_strerror(status));
  };
  int file = -1;
  check(nc_create(path.c_str(), flavour | NC_CLOBBER, &file));
  const std::map<std::string, std::size_t> lengths(dims.begin(), dims.end());
  std::map<std::string, int> numbers;
  for (const auto& [name, length] : dims) check(nc_def_dim(file, name.c_str(), length, &numbers[name]));
  std::vector<std::pair<int, int>> made;  // group and variable
  for (const RawVariable& v : variables) {
    auto& [group, id] = made.emplace_back(file, -1);
    const auto slash = v.name.find('/');
    if (slash != std::string::npos) check(nc_def_grp(file, v.name.substr(0, slash).c_str(), &group));
    std::vector<int> axes;
    for (const std::string& name : v.dims) axes.push_back(numbers.at(name));
    check(nc_def_var(group, v.name.substr(slash + 1).c_str(), v.type, static_cast<int>(axes.size()), axes.data(), &id));
    for (const RawAttribute& a : v.attributes) {
      const bool missing = a.name == "_FillValue" || a.name == "missing_value";
      const nc_type type = a.type != NC_NAT ? a.type : missing ? v.type : NC_DOUBLE;
      check(a.numbers.empty() ? nc_put_att_text(group, id, a.name.c_str(), a.text.size(), a.text.data())
                              : nc_put_att_double(group, id, a.name.c_str(), type, a.numbers.size(), a.numbers.data()));
    }
  }
  check(nc_enddef(file));
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const RawVariable& v = variables[i];
    if (v.values.empty()) continue;
    std::vector<std::size_t> start(v.dims.size(), 0), count;
    for (const std::string& name : v.dims) count.push_back(lengths.at(name));
    count[0] = v.values.size() / std::accumulate(count.begin() + 1, count.end(), std::size_t{1}, std::multiplies<>());
    check(nc_put_vara_double(made[i].first, made[i].second, start.data(), count.data(), v.values.data()));
  }
  check(nc_close(file));
}

/// 0, 1, 2, ... times a factor.
inline std::vector<double> counting(std::size_t n, double factor = 1) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<double>(i) * factor;
  return values;
}

}  // namespace lockstep::test
