#include "lockstep/prep/netcdf.hpp"

#include "lockstep/io/netcdf_writer.hpp"
#include "prep/raw_file.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
constexpr std::pair<const char*, int> kFlavours[] = {{"classic", 0},
                                                     {"64-bit offset", NC_64BIT_OFFSET},
                                                     {"64-bit data", NC_64BIT_DATA},
                                                     {"netCDF-4", NC_NETCDF4},
                                                     {"netCDF-4 classic model", NC_NETCDF4 | NC_CLASSIC_MODEL}};

void write_sample(const fs::path& path, int flavour) {
  write_netcdf(path, flavour, {{"time", NC_UNLIMITED}, {"y", 3}, {"x", 4}},
               {{"plain", NC_DOUBLE, {"y", "x"}, counting(12, 0.5)},
                {"record", NC_FLOAT, {"time", "y", "x"}, counting(24)},
                {"record2", NC_SHORT, {"time", "x"}, counting(8)},
                {"packed",
                 NC_SHORT,
                 {"y"},
                 {-32767, 10, 20},
                 {{"_FillValue", -32767},
                  {"scale_factor", 0.25},
                  {"add_offset", 100},
                  {"units", "K"},
                  {"standard_name", "air_temperature"}}},
                {"missing", NC_INT, {"y"}, {1, -9, 3}, {{"missing_value", -9}}},
                {"never_filled", NC_FLOAT, {"y"}, {1, NC_FILL_FLOAT, 3}},
                {"bytes", NC_BYTE, {"y"}, {-127, 0, 127}}});
}
}  // namespace

TEST_SUITE("prep.netcdf") {
  TEST_CASE("the netCDF library reads what NetcdfWriter writes, and equal contents make equal bytes") {
    const std::vector<float> values = {1, 2, 3, 4, 9.96921e36f, 6};
    const auto write = [&](const std::string& name) {
      NetcdfWriter file(name);
      file.dimension("y", 2);
      file.dimension("x", 3);
      file.variable<float>("ice", {"y", "x"}, values, 9.96921e36f, {{"units", "1"}, {"standard_name", "fraction"}});
      file.variable<double>("depth", {"x"}, std::vector<double>{0.5, 1.5, 2.5}, -1.0, {});
      file.texts("who", "y", {"a.nc", "other.nc"}, {});
      file.variable<double>("level", {"level"}, std::vector<double>{10, 20}, 0, {{"units", "m"}});
      file.global_attribute("Conventions", "CF-1.8");
      file.close();
      return read_text(name);
    };
    CHECK(write("a.nc") == write("b.nc"));
    const auto file = NcFile::open("a.nc");
    const NcVariable ice = file.describe("ice");
    CHECK(ice.dims == std::vector<std::string>{"y", "x"});
    CHECK(ice.shape == std::vector<std::int64_t>{2, 3});
    CHECK(ice.units == "1");
    CHECK(ice.standard_name == "fraction");
    const auto read = file.read("ice");
    CHECK(read[3] == 4);
    CHECK(std::isnan(read[4]));
    CHECK(file.read("depth") == std::vector<double>{0.5, 1.5, 2.5});
    CHECK(file.describe("level").dims == std::vector<std::string>{"level"});
    CHECK(file.describe("level").units == "m");
    CHECK(file.read("level") == std::vector<double>{10, 20});
    CHECK(file.describe("who").dims == std::vector<std::string>{"y", "who_length"});
    CHECK(file.describe("who").shape == std::vector<std::int64_t>{2, 8});
  }

  TEST_CASE("NetcdfWriter refuses values that do not fill the dimensions of their variable") {
    NetcdfWriter file("a.nc");
    file.dimension("y", 2);
    const std::vector<float> three = {1, 2, 3};
    const auto refusal = [&](const std::vector<std::string>& dimensions) {
      return error_of(Fault::internal, [&] { file.variable<float>("ice", dimensions, three, -1, {}); });
    };
    check_mentions(refusal({"y"}), "a.nc", "variable ice has 3 values for 2 places");
    check_mentions(refusal({"y", "y"}), "variable ice has 3 values for 4 places");
    check_mentions(refusal({"x"}), "variable ice has no dimension x");
    check_mentions(error_of(Fault::internal, [&] { file.texts("who", "y", {"a.nc"}, {}); }), "variable who has");
  }

  TEST_CASE("every flavour reads alike: packing, fill values, records") {
    for (const auto& [name, flavour] : kFlavours) {
      CAPTURE(name);
      write_sample("a.nc", flavour);
      const auto file = NcFile::open("a.nc");
      CHECK(file.read("plain") == counting(12, 0.5));
      CHECK(file.read("record") == counting(24));
      CHECK(file.read("record2") == counting(8));
      const auto packed = file.read("packed");
      CHECK(std::isnan(packed[0]));  // the raw value is compared, before it is unpacked
      CHECK(packed[1] == 102.5);
      CHECK(packed[2] == 105);
      CHECK(std::isnan(file.read("missing")[1]));
      CHECK(file.read("missing")[2] == 3);
      CHECK(std::isnan(file.read("never_filled")[1]));
      CHECK(file.read("bytes") == std::vector<double>{-127, 0, 127});
      CHECK(file.read_slice("record", 0, -1) == [] {
        auto last = counting(24);
        return std::vector<double>(last.begin() + 12, last.end());
      }());
      CHECK(file.read_slice("record", 2, 1) == std::vector<double>{1, 5, 9, 13, 17, 21});
      const auto what = file.describe("packed");
      CHECK(what.units == "K");
      CHECK(what.standard_name == "air_temperature");
      CHECK(file.describe("record").shape == std::vector<std::int64_t>{2, 3, 4});
      check_mentions(error_of(Fault::usage, [&] { file.read_slice("record", 0, 2); }), "time", "2 entries");
    }
  }

  TEST_CASE("fill values of another type, valid ranges and unsigned integers are honoured") {
    const auto read = [&](nc_type type, const std::vector<double>& values,
                          const std::vector<RawAttribute>& attributes) {
      write_netcdf("a.nc", type == NC_UBYTE ? NC_NETCDF4 : 0, {{"n", values.size()}},
                   {{"v", type, {"n"}, values, attributes}});
      std::string text;
      for (const double value : NcFile::open("a.nc").read("v")) text += (std::isnan(value) ? "-" : join(value)) + " ";
      return text;
    };
    const RawAttribute scale("scale_factor", 0.5), offset("add_offset", 100);
    CHECK(read(NC_FLOAT, {1, -999.9, 3, 4}, {{"missing_value", {-999.9, 4}, NC_DOUBLE}}) == "1 - 3 - ");
    CHECK(read(NC_SHORT, {1, 2, -30000, 4}, {scale, offset, {"missing_value", 101, NC_DOUBLE}}) ==
          "100.5 - -14900 102 ");
    CHECK(read(NC_SHORT, {1, 2, -9999, 4}, {scale, offset, {"missing_value", -9999, NC_DOUBLE}}) == "100.5 101 - 102 ");
    CHECK(read(NC_SHORT, {1, 2, 3, 4}, {scale, offset, {"valid_range", {2, 3}, NC_SHORT}}) == "- 101 101.5 - ");
    CHECK(read(NC_SHORT, {1, 2, 3, 4}, {scale, offset, {"valid_range", {101, 101.5}}}) == "- 101 101.5 - ");
    CHECK(read(NC_FLOAT, {-1, 0, 1, 2}, {{"valid_min", 0.0}, {"valid_max", 1}}) == "- 0 1 - ");
    CHECK(read(NC_BYTE, {1, -1, -128, 127},
               {{"scale_factor", 2}, {"_Unsigned", "true"}, {"missing_value", -1}, {"valid_max", -128, NC_BYTE}}) ==
          "2 - 256 254 ");
    CHECK(read(NC_FLOAT, {1, NC_FILL_FLOAT, -999, 4}, {{"missing_value", -999}}) == "1 - - 4 ");
    CHECK(read(NC_DOUBLE, {1, -999.99, 3, 4}, {{"missing_value", static_cast<double>(-999.99f)}}) == "1 - 3 4 ");
    CHECK(read(NC_SHORT, {1, -9, 100, 4},
               {{"scale_factor", " 0.5"}, {"add_offset", "+1e1"}, {"missing_value", "-9"}, {"valid_range", "0, 20"}}) ==
          "10.5 - - 12 ");
    check_mentions(error_of(Fault::data,
                            [&] {
                              read(NC_SHORT, {1, 2, 3, 4}, {{"scale_factor", "0,005 K"}});
                            }),
                   "'v' of 'a.nc'", "scale_factor is the text '0,005 K', not a number");
    check_mentions(error_of(Fault::data,
                            [&] {
                              read(NC_SHORT, {1, 2, 3, 4}, {{"scale_factor", "0.1 0.2"}});
                            }),
                   "scale_factor has 2 numbers");
    CHECK(read(NC_UBYTE, {1, 255, 128}, {scale, {"_Unsigned", "False"}}) == "0.5 -0.5 -64 ");
  }

  TEST_CASE("variables in groups are found by their path") {
    write_netcdf("g.nc", NC_NETCDF4, {{"n", 2}}, {{"MetaData/latitude", NC_FLOAT, {"n"}, {60, 70}}});
    const auto file = NcFile::open("g.nc");
    CHECK(file.read("MetaData/latitude") == std::vector<double>{60, 70});
    CHECK(file.variables() == std::vector<std::string>{"MetaData/latitude"});
    CHECK_FALSE(file.has("MetaData/nothing"));
    CHECK_FALSE(file.has("NoGroup/latitude"));
  }

  TEST_CASE("a truncated file of any flavour is refused, wherever it ends") {
    for (const auto& [name, flavour] : kFlavours) {
      CAPTURE(name);
      write_sample("a.nc", flavour);
      const std::string whole = read_text("a.nc");
      for (const std::size_t lost :
           {std::size_t{4}, std::size_t{8}, std::size_t{40}, whole.size() / 2, whole.size() - 20, whole.size() - 5}) {
        CAPTURE(lost);
        write_text("t.nc", std::string_view(whole).substr(0, whole.size() - lost));
        check_mentions(error_of(Fault::data, [&] { NcFile::open("t.nc").read("record2"); }), "t.nc");
      }
    }
  }

  TEST_CASE("the size that a classic header promises is the file's size") {
    for (const int flavour : {0, NC_64BIT_OFFSET, NC_64BIT_DATA}) {
      write_sample("a.nc", flavour);
      const auto promised = classic_size("a.nc");
      REQUIRE(promised.has_value());
      const auto size = static_cast<std::int64_t>(fs::file_size("a.nc"));
      CHECK(*promised <= size);
      CHECK(*promised > size - 4);  // only the padding of the last value may follow
    }
    std::string damaged = read_text("a.nc");
    damaged.replace(damaged.find("plain") + 56, 8, "\x7f" + std::string(7, '\xff'));  // where its values begin
    write_text("d.nc", damaged);
    check_mentions(error_of(Fault::data, [] { classic_size("d.nc"); }), "header is damaged");
    write_sample("a.nc", 0);
    damaged = read_text("a.nc");
    damaged.replace(damaged.find("plain") - 4, 4, "\xff\xff\xff\xff");  // bytes of its name: the library allocates them
    write_text("d.nc", damaged);
    check_mentions(error_of(Fault::data, [] { classic_size("d.nc"); }), "header is damaged");
    write_sample("a.nc", NC_NETCDF4);
    CHECK_FALSE(classic_size("a.nc").has_value());
  }

  TEST_CASE("foreign files and foreign variables are named") {
    check_mentions(error_of(Fault::usage, [&] { NcFile::open("absent.nc"); }), "absent.nc", "no such file");
    write_text("text.nc", "temperature,salinity\n1,2\n");
    check_mentions(error_of(Fault::data, [&] { NcFile::open("text.nc"); }), "text.nc", "NetCDF");
    write_text("magic.nc", std::string("CDF\x01") + "garbage");
    check_mentions(error_of(Fault::data, [&] { NcFile::open("magic.nc"); }), "header");
    write_netcdf("a.nc", NC_NETCDF4, {{"n", 3}},
                 {{"temperature", NC_FLOAT, {"n"}, {1, 2, 3}}, {"label", NC_CHAR, {"n"}, {}}});
    const auto file = NcFile::open("a.nc");
    check_mentions(error_of(Fault::data, [&] { file.read("temprature"); }), "'temprature'",
                   "did you mean 'temperature'?");
    check_mentions(error_of(Fault::data, [&] { file.read("label"); }), "only numbers");
  }
}
