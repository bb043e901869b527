#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::test {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A .npy file of version 1. type: such as "<f4"; shape: the extents, such as "2, 3" or "2,".
template <class T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values, bool fortran = false) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': (" + shape + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  return "\x93NUMPY" + std::string{1, 0, static_cast<char>(header.size()), 0} + header + bytes_of(values);
}

}  // namespace lockstep::test
