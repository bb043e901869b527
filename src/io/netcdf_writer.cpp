#include "lockstep/io/netcdf_writer.hpp"

#include "h5_internal.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

struct NetcdfWriter::Impl {
  std::filesystem::path path;
  h5::Id file;
  std::map<std::string, std::int64_t> lengths;  ///< of the dimensions

  void check(bool good, const auto&... doing) const {
    require(good, "writing '", path.string(), "': ", doing..., ": ", h5::kReason);
  }

  h5::Id create(const std::string& name, hid_t type, const std::vector<hsize_t>& shape, const void* fill = nullptr) {
    const h5::Id space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose),
        creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation, false);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    if (fill != nullptr) H5Pset_fill_value(creation, type, fill);
    h5::Id dataset(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
    check(dataset.valid(), "variable ", name);
    return dataset;
  }

  void attribute(hid_t object, const std::string& name, hid_t type, hid_t space, const void* value) const {
    const h5::Id id(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    check(id.valid() && H5Awrite(id, type, value) >= 0, "attribute ", name);
  }
  void text(hid_t object, const std::string& name, const std::string& value) const {
    const h5::Id type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
    H5Tset_size(type, value.size() + 1);  // ends with NUL, as dimension scales require
    attribute(object, name, type, space, value.c_str());
  }

  /// Makes a dataset the scale of the latest dimension.
  void scale(hid_t dataset, const std::string& name) const {
    text(dataset, "CLASS", "DIMENSION_SCALE");
    text(dataset, "NAME", name);
    const h5::Id space(H5Screate(H5S_SCALAR), H5Sclose);
    const auto number = static_cast<int>(lengths.size()) - 1;
    attribute(dataset, "_Netcdf4Dimid", H5T_NATIVE_INT, space, &number);
  }

  /// Attaches dimensions to a variable, by an object reference to each scale.
  void attach(hid_t dataset, const std::vector<std::string>& dimensions) const {
    std::vector<hobj_ref_t> references(dimensions.size());
    std::vector<hvl_t> lists(dimensions.size());
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      check(H5Rcreate(&references[d], file, dimensions[d].c_str(), H5R_OBJECT, -1) >= 0, "dimension ", dimensions[d]);
      lists[d] = {1, &references[d]};
    }
    const hsize_t count = dimensions.size();
    const h5::Id type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose), space(H5Screate_simple(1, &count, nullptr), H5Sclose);
    attribute(dataset, "DIMENSION_LIST", type, space, lists.data());
  }

  /// The shape of a variable. errors  Error (internal): an unknown dimension, or another number of values
  std::vector<hsize_t> shape(const std::string& name, const std::vector<std::string>& dimensions,
                             std::size_t values) const {
    std::vector<hsize_t> out;
    hsize_t size = 1;
    for (const std::string& dimension : dimensions) {
      const auto found = lengths.find(dimension);
      require(found != lengths.end(), "writing '", path.string(), "': variable ", name, " has no dimension ",
              dimension);
      out.push_back(static_cast<hsize_t>(found->second));
      size *= out.back();
    }
    require(values == size, "writing '", path.string(), "': variable ", name, " has ", values, " values for ", size,
            " places");
    return out;
  }
};

NetcdfWriter::NetcdfWriter(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  const h5::LibraryLock lock;
  impl_->path = path;
  const h5::Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110);
  H5Pset_obj_track_times(creation, false);
  H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  impl_->file = h5::Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  require(impl_->file.valid(), "creating '", path.string(), "': ", h5::kReason);
}
NetcdfWriter::~NetcdfWriter() = default;

void NetcdfWriter::dimension(const std::string& name, std::int64_t length) {
  const h5::LibraryLock lock;
  impl_->lengths[name] = length;
  // A dimension without a variable is a dataset without stored values. The format prescribes its NAME.
  const h5::Id dataset = impl_->create(name, H5T_IEEE_F32BE, {static_cast<hsize_t>(length)});
  impl_->scale(dataset,
               printed("This is a netCDF dimension but not a netCDF variable.%10lld", static_cast<long long>(length)));
}

template <class T>
void NetcdfWriter::variable(const std::string& name, const std::vector<std::string>& dimensions,
                            std::span<const T> values, T fill, const std::map<std::string, std::string>& attributes) {
  const h5::LibraryLock lock;
  const bool axis = dimensions == std::vector{name};
  if (axis) impl_->lengths[name] = std::ssize(values);
  const hid_t type = h5::native_type(h5_type_of<T>::value);
  const h5::Id dataset = impl_->create(name, type, impl_->shape(name, dimensions, values.size()), &fill),
               space(H5Screate(H5S_SCALAR), H5Sclose);
  impl_->check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "variable ", name);
  if (axis)
    impl_->scale(dataset, name);
  else
    impl_->attribute(dataset, "_FillValue", type, space, &fill);
  for (const auto& [attribute, text] : attributes) impl_->text(dataset, attribute, text);
  if (!axis) impl_->attach(dataset, dimensions);
}
template void NetcdfWriter::variable<float>(const std::string&, const std::vector<std::string>&, std::span<const float>,
                                            float, const std::map<std::string, std::string>&);
template void NetcdfWriter::variable<double>(const std::string&, const std::vector<std::string>&,
                                             std::span<const double>, double,
                                             const std::map<std::string, std::string>&);

void NetcdfWriter::texts(const std::string& name, const std::string& dimension, const std::vector<std::string>& values,
                         const std::map<std::string, std::string>& attributes) {
  const std::size_t longest = h5::longest(values);
  const std::string characters = name + "_length";
  this->dimension(characters, static_cast<std::int64_t>(longest));
  const h5::LibraryLock lock;
  const h5::Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  const h5::Id dataset =
      impl_->create(name, type, impl_->shape(name, {dimension, characters}, values.size() * longest));
  impl_->check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, h5::padded(values, longest).data()) >= 0,
               "variable ", name);
  for (const auto& [attribute, text] : attributes) impl_->text(dataset, attribute, text);
  impl_->attach(dataset, {dimension, characters});
}

void NetcdfWriter::global_attribute(const std::string& name, const std::string& text) {
  const h5::LibraryLock lock;
  impl_->text(impl_->file, name, text);
}

void NetcdfWriter::close() {
  const h5::LibraryLock lock;
  const bool flushed = H5Fflush(impl_->file, H5F_SCOPE_LOCAL) >= 0;
  const std::string reason = flushed ? "" : h5::innermost_error();
  const bool closed = impl_->file.reset();
  require(flushed && closed, "writing '", impl_->path.string(), "': ", flushed ? h5::innermost_error() : reason);
}

}  // namespace lockstep
