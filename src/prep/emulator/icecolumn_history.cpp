#include <netcdf.h>

#include <cmath>
#include <functional>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/emulator/icecolumn.hpp"

namespace lockstep::prep::icecolumn {

namespace {
constexpr float kFill = 1e30f;

/// A file being written, which the destructor closes.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : path_(path) {
    check(nc_create(path.c_str(), NC_NETCDF4 | NC_CLASSIC_MODEL | NC_CLOBBER, &id_));
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    if (id_ >= 0) nc_close(id_);
  }
  void check(int status) const { require(status == NC_NOERR, "writing '", path_.string(), "': ", nc_strerror(status)); }
  int dim(const char* name, std::size_t length) {
    int dim = 0;
    check(nc_def_dim(id_, name, length, &dim));
    return dim;
  }
  int variable(const char* name, nc_type type, const std::vector<int>& dims, const char* units) {
    int variable = 0;
    check(nc_def_var(id_, name, type, static_cast<int>(dims.size()), dims.data(), &variable));
    check(nc_put_att_text(id_, variable, "units", std::char_traits<char>::length(units), units));
    if (type == NC_FLOAT) check(nc_def_var_fill(id_, variable, NC_FILL, &kFill));
    return variable;
  }
  int id() const { return id_; }
  void close() {
    const int id = id_;
    id_ = -1;
    check(nc_close(id));
  }

 private:
  const std::filesystem::path& path_;
  int id_ = -1;
};
}  // namespace

void write_history(const std::filesystem::path& path, const std::vector<Input>& inputs,
                   const std::vector<Output>& outputs) {
  require(inputs.size() == outputs.size() && !inputs.empty(), "writing a history file of ", inputs.size(), " columns");
  const std::size_t n = inputs.size(), ni = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(n)))),
                    nj = (n + ni - 1) / ni;
  struct Field {
    const char* name;
    const char* units;
    std::function<double(std::size_t)> value;
  };
  const auto in = [&](std::size_t c) { return [&inputs, c](std::size_t i) { return inputs[i][c]; }; };
  const auto out = [&](std::size_t c) { return [&outputs, c](std::size_t i) { return outputs[i][c]; }; };
  const std::vector<Field> fields = {{"sst_h", "degC", in(0)},
                                     {"sss_h", "1e-3", in(1)},
                                     {"Tair_h", "degC", in(2)},
                                     {"uatm_h", "m s-1", in(3)},
                                     {"vatm_h", "m s-1", [](std::size_t) { return 0.0; }},
                                     {"Qref_h", "kg kg-1", in(4)},
                                     {"flwdn_h", "W m-2", in(5)},
                                     {"fswdn_h", "W m-2", in(6)},
                                     {"hi_h", "m", in(7)},
                                     {"hs_h", "m", in(8)},
                                     {"aice_h", "1", out(0)},
                                     {"Tsfc_h", "degC", out(1)},
                                     {"fcond_h", "W m-2", out(2)}};
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    Writer file(temporary);
    const int time = file.dim("time", NC_UNLIMITED), j = file.dim("nj", nj), i = file.dim("ni", ni);
    const int when = file.variable("time", NC_DOUBLE, {time}, "seconds since 1970-01-01 00:00:00");
    const int lat = file.variable("ULAT", NC_FLOAT, {j, i}, "degrees_north"),
              lon = file.variable("ULON", NC_FLOAT, {j, i}, "degrees_east"),
              mask = file.variable("umask", NC_FLOAT, {j, i}, "1");
    std::vector<int> ids;
    for (const auto& field : fields) ids.push_back(file.variable(field.name, NC_FLOAT, {time, j, i}, field.units));
    file.check(nc_enddef(file.id()));

    const std::size_t first = 0, one = 1;
    const double noon = 1454328000;  // 2016-02-01 12:00
    file.check(nc_put_vara_double(file.id(), when, &first, &one, &noon));
    std::vector<float> values(ni * nj);
    const auto fill = [&](const auto& value) {
      for (std::size_t cell = 0; cell < values.size(); ++cell) values[cell] = static_cast<float>(value(cell));
    };
    fill([&](std::size_t cell) { return 60 + 30.0 * static_cast<double>(cell / ni) / static_cast<double>(nj); });
    file.check(nc_put_var_float(file.id(), lat, values.data()));
    fill([&](std::size_t cell) { return 360.0 * static_cast<double>(cell % ni) / static_cast<double>(ni); });
    file.check(nc_put_var_float(file.id(), lon, values.data()));
    fill([&](std::size_t cell) { return cell < n ? 1 : 0; });
    file.check(nc_put_var_float(file.id(), mask, values.data()));
    const std::size_t start[] = {0, 0, 0}, extent[] = {1, nj, ni};
    for (std::size_t f = 0; f < fields.size(); ++f) {
      fill([&](std::size_t cell) { return cell < n ? fields[f].value(cell) : static_cast<double>(kFill); });
      file.check(nc_put_vara_float(file.id(), ids[f], start, extent, values.data()));
    }
    file.close();
  });
}

}  // namespace lockstep::prep::icecolumn
