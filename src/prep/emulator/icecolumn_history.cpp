#include <cmath>
#include <functional>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/netcdf_writer.hpp"
#include "lockstep/prep/emulator/icecolumn.hpp"

namespace lockstep::prep::icecolumn {

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
    constexpr float kFill = 1e30f;
    NetcdfWriter file(temporary);
    const double noon = 1454328000;  // 2016-02-01 12:00
    file.variable<double>("time", {"time"}, {&noon, 1}, 0, {{"units", "seconds since 1970-01-01 00:00:00"}});
    file.dimension("nj", static_cast<std::int64_t>(nj));
    file.dimension("ni", static_cast<std::int64_t>(ni));
    std::vector<float> values(ni * nj);
    const auto write = [&](const char* name, const std::vector<std::string>& dims, const char* units,
                           const auto& value) {
      for (std::size_t cell = 0; cell < values.size(); ++cell) values[cell] = static_cast<float>(value(cell));
      file.variable<float>(name, dims, values, kFill, {{"units", units}});
    };
    write("ULAT", {"nj", "ni"}, "degrees_north",
          [&](std::size_t cell) { return 60 + 30.0 * static_cast<double>(cell / ni) / static_cast<double>(nj); });
    write("ULON", {"nj", "ni"}, "degrees_east",
          [&](std::size_t cell) { return 360.0 * static_cast<double>(cell % ni) / static_cast<double>(ni); });
    write("umask", {"nj", "ni"}, "1", [&](std::size_t cell) { return cell < n ? 1 : 0; });
    for (const auto& field : fields)
      write(field.name, {"time", "nj", "ni"}, field.units,
            [&](std::size_t cell) { return cell < n ? field.value(cell) : static_cast<double>(kFill); });
    file.close();
  });
}

}  // namespace lockstep::prep::icecolumn
