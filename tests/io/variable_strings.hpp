#pragma once
#include <variant>

#include "io/h5_internal.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// Stores the texts of a dataset, or of one of its attributes, again as strings of variable length, as h5py does.
inline void make_variable(const std::filesystem::path& path, const std::string& object,
                          const std::string& attribute = "") {
  std::vector<std::string> texts;
  bool scalar = false;
  {
    const H5File file = H5File::open(path);
    if (attribute.empty()) {
      texts = file.read_text(object);
    } else {
      const H5Value value = file.attribute(object, attribute);
      scalar = std::holds_alternative<std::string>(value);
      texts = scalar ? std::vector{std::get<std::string>(value)} : std::get<std::vector<std::string>>(value);
    }
  }
  std::vector<const char*> rows;
  for (const std::string& text : texts) rows.push_back(text.c_str());
  const h5::Id file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose), type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const hsize_t n = rows.size();
  const h5::Id space(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &n, nullptr), H5Sclose);
  if (attribute.empty()) {
    H5Ldelete(file, object.c_str(), H5P_DEFAULT);
    const h5::Id id(H5Dcreate2(file, object.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
    H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data());
  } else {
    const h5::Id owner(H5Oopen(file, object.c_str(), H5P_DEFAULT), H5Oclose);
    H5Adelete(owner, attribute.c_str());
    const h5::Id id(H5Acreate2(owner, attribute.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    H5Awrite(id, type, rows.data());
  }
}

}  // namespace lockstep::test
