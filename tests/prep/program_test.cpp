/// lockstep-prep as users run it: what it writes, what it says, how it ends.
#include "prep/program.hpp"

#include "cuda_host/sanitizer.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "lockstep/prep/source.hpp"
#include "prep/raw_file.hpp"
#include "support/test.hpp"

namespace {
const std::string kGolden = golden_path();

prep::EmulatorSet read(const fs::path& path) { return prep::read_emulator_set(H5File::open(path)); }

/// Two tiles of 2 x 3 points without places of their own, and the files that have them.
void write_tiles() {
  for (const int tile : {1, 2}) {
    const std::string n = std::to_string(tile);
    write_netcdf("tile" + n + ".nc", NC_64BIT_OFFSET, {{"Time", 1}, {"yaxis_1", 2}, {"xaxis_1", 3}, {"zaxis_1", 4}},
                 {{"tsea", NC_DOUBLE, {"Time", "yaxis_1", "xaxis_1"}, counting(6, tile)},
                  {"t2m",
                   NC_SHORT,
                   {"Time", "yaxis_1", "xaxis_1"},
                   {0, 1, 2, 3, 4, -32767},
                   {{"scale_factor", 0.5},
                    {"add_offset", 270},
                    {"_FillValue", -32767},
                    {"units", "K"},
                    {"standard_name", "air_temperature"}}},
                  {"soil", NC_DOUBLE, {"Time", "zaxis_1", "yaxis_1", "xaxis_1"}, counting(24)},
                  {"slmsk", NC_DOUBLE, {"Time", "yaxis_1", "xaxis_1"}, {0, 1, 2, 0, 0, 0}}});
    write_netcdf(
        "place" + n + ".nc", NC_NETCDF4, {{"lat", 2}, {"lon", 3}},
        {{"geolat", NC_FLOAT, {"lat", "lon"}, counting(6, 10)}, {"geolon", NC_FLOAT, {"lat", "lon"}, counting(6, 20)}});
  }
}
}  // namespace

TEST_SUITE("prep.program") {
  TEST_CASE("tiles with their places, levels, units and masks become rows in list order") {
    write_tiles();
    check_mentions(
        prepare(
            "netcdf --input 'tile?.nc' --geolocation place1.nc,place2.nc --inputs tsea,deep=soil@3*2+1 --outputs t2m "
            "--mask 'slmsk != 1' --val-fraction 0.2 -o out.h5"),
        "points read        12", "masked out         2  (not: slmsk != 1)", "dropped            2", "t2m 2",
        "pairing tile1.nc with place1.nc, (Time = 1, yaxis_1 = 2, xaxis_1 = 3) and (lat = 2, lon = 3) and 1 more: by "
        "index",
        "deep=soil@3        37 to 45, unit unknown", "rows               8 = 7 train + 1 validation + 0 test");
    const auto set = read("out.h5");
    CHECK(set.x == std::vector<float>{0, 37, 2, 41, 3, 43, 4, 45, 0, 37, 4, 41, 6, 43, 8, 45});
    CHECK(set.y == std::vector<float>{270, 271, 271.5, 272, 270, 271, 271.5, 272});
    CHECK(set.lat == std::vector<float>{0, 20, 30, 40, 0, 20, 30, 40});
    CHECK(set.cell == std::vector<std::int64_t>{0, 2, 3, 4, 0, 2, 3, 4});
    CHECK(set.source == std::vector<std::int32_t>{0, 0, 0, 0, 1, 1, 1, 1});
    CHECK(set.inputs.names == std::vector<std::string>{"tsea", "deep"});
    CHECK(set.inputs.level == std::vector<std::int32_t>{0, 3});
    CHECK(set.outputs.units == std::vector<std::string>{"K"});
    CHECK(set.outputs.cf == std::vector<std::string>{"air_temperature"});
    prepare("check out.h5");
    check_mentions(run_prep("info out.h5").text, "tile1.nc", "air_temperature", "deep");
  }

  TEST_CASE("units are the files' own or the user's, never guessed; files with different ones are refused") {
    const auto write = [&](const char* name, const std::string& units) {
      std::vector<RawAttribute> attributes;
      if (!units.empty()) attributes.emplace_back("units", units);
      write_netcdf(
          name, NC_64BIT_OFFSET, {{"n", 4}},
          {{"sst", NC_DOUBLE, {"n"}, {270, 271, 272, 273}, attributes}, {"aice", NC_DOUBLE, {"n"}, {0, 0.5, 0.25, 1}}});
    };
    write("none.nc", "");
    write("a.nc", "K");
    write("b.nc", "kelvin");
    write("c.nc", "degC");
    const std::string words = "--outputs aice --val-fraction 0.25 -o out.h5 ";
    const auto units = [&](const std::string& input, const char* unknown) {
      check_mentions(prepare("netcdf --input " + input + " " + words),
                     std::string("unknown units      ") + unknown + "  (--units");
      return read("out.h5").inputs.units.front();
    };
    CHECK(units("none.nc --inputs sst", "sst, aice") == "");
    CHECK(units("none.nc --inputs sst --units sst=K", "aice") == "K");
    CHECK(units("none.nc,a.nc,b.nc --inputs sst", "aice") == "K");
    CHECK(units("a.nc --inputs sst=sst*1-273.15", "sst, aice") == "");
    CHECK(units("a.nc --inputs sst=sst*1-273.15 --units sst=degC", "aice") == "degC");
    check_mentions(prepare("netcdf --input a.nc,c.nc --inputs sst " + words, 3),
                   "c.nc': sst is in degC, in the files before it in K");
    check_mentions(prepare("netcdf --input a.nc --inputs sst --units tair=K " + words, 2),
                   "'tair' is neither an input nor an output");
  }

  TEST_CASE("a range of levels becomes one column each") {
    write_netcdf("a.nc", NC_64BIT_OFFSET, {{"lev", 3}, {"n", 4}},
                 {{"temp", NC_DOUBLE, {"lev", "n"}, counting(12)}, {"aice", NC_DOUBLE, {"n"}, {0, 0.5, 0.25, 1}}});
    prepare("netcdf --input a.nc --inputs t=temp@0:2 --outputs aice --val-fraction 0.25 -o out.h5");
    const auto set = read("out.h5");
    CHECK(set.inputs.names == std::vector<std::string>{"t_0", "t_1", "t_2"});
    CHECK(set.inputs.level == std::vector<std::int32_t>{0, 1, 2});
    CHECK(std::vector<float>(set.x.begin(), set.x.begin() + 3) == std::vector<float>{0, 4, 8});
  }

  TEST_CASE("positions come from the columns' coordinates, then from the variables with the most dimensions") {
    for (const bool attribute : {false, true})
      write_netcdf(
          attribute ? "cf.nc" : "tile.nc", NC_64BIT_OFFSET, {{"lat", 2}, {"lon", 2}},
          {{"lat", NC_DOUBLE, {"lat"}, {1, 2}},
           {"lon", NC_DOUBLE, {"lon"}, {1, 2}},
           {"geolat", NC_DOUBLE, {"lat", "lon"}, {50, 51, 60, 61}},
           {"geolon", NC_DOUBLE, {"lat", "lon"}, {10, 20, 11, 21}},
           {"phi", NC_DOUBLE, {"lat", "lon"}, {-50, -51, -60, -61}, {{"standard_name", "latitude"}}},
           {"lambda", NC_DOUBLE, {"lat", "lon"}, {5, 6, 7, 8}, {{"standard_name", "longitude"}}},
           {"a", NC_DOUBLE, {"lat", "lon"}, counting(4), {{"coordinates", attribute ? "lambda phi" : "absent"}}},
           {"b", NC_DOUBLE, {"lat", "lon"}, counting(4)}});
    check_mentions(prepare("netcdf --input tile.nc --inputs a --outputs b --val-fraction 0.25 -o tile.h5"),
                   "positions          geolat, geolon\n");
    CHECK(read("tile.h5").lat == std::vector<float>{50, 51, 60, 61});
    CHECK(read("tile.h5").lon == std::vector<float>{10, 20, 11, 21});
    check_mentions(prepare("netcdf --input cf.nc --inputs a --outputs b --val-fraction 0.25 -o cf.h5"),
                   "positions          phi, lambda\n");
    CHECK(read("cf.h5").lat == std::vector<float>{-50, -51, -60, -61});
    prepare("netcdf --input cf.nc --inputs a --outputs b --lat lat --val-fraction 0.25 -o own.h5");
    CHECK(read("own.h5").lat == std::vector<float>{1, 1, 2, 2});
  }

  TEST_CASE("a history file made of ice columns gives the columns back") {
    prepare("synth-icecolumn --rows 200 --seed 3 --history h.nc -o a.h5");
    prepare("cice-history -i h.nc --inputs sst,sss,tair,uatm,qref,flwdn,fswdn,hi,hs --outputs aice,tsfc,fcond -o b.h5");
    const auto a = read("a.h5"), b = read("b.h5");
    CHECK(a.x == b.x);
    CHECK(a.y == b.y);
    CHECK(a.jac.size() == 200 * 27);
    CHECK(b.time[0] == 1454328000);
    CHECK(b.lat[199] > 60);
    prepare("check a.h5 b.h5");
    prepare("cice-history -i h.nc --inputs sst --outputs aice --mask-mode sea_ice --min-ice 0.3 -o ice.h5");
    for (const float aice : read("ice.h5").y) CHECK(aice > 0.3f);
  }

  TEST_CASE("a pair of files takes the last level of the air and the first of the sea") {
    prepare("cf-pair --atmosphere " + kGolden + "/emulator_prep_atm.nc --ocean " + kGolden +
            "/emulator_prep_ocn.nc -o p.h5");
    const auto set = read("p.h5");
    CHECK(set.rows() == 383);
    CHECK(set.inputs.level == std::vector<std::int32_t>{0, 0, 2, 0, 0, 2, 2, 2, 2});
    CHECK(set.input_source == "ocean,ocean,atmosphere,ocean,ocean,atmosphere,atmosphere,atmosphere,atmosphere");
    CHECK(set.sources == std::vector<std::string>{"emulator_prep_ocn.nc", "emulator_prep_atm.nc"});
    const std::string missing = "cf-pair --atmosphere " + kGolden + "/emulator_prep_atm.nc --ocean " + kGolden +
                                "/emulator_prep_ocn.nc --inputs sst,sice -o q.h5";
    check_mentions(prepare(missing, 3), "sea_ice_salinity", "'sice'", "--missing zero");
    prepare(missing + " --missing zero");
    const auto zeros = read("q.h5");
    CHECK(zeros.input_std[1] == 1);
    for (std::size_t i = 1; i < zeros.x.size(); i += 2) CHECK(zeros.x[i] == 0);
  }

  TEST_CASE("an INI file gives the options, the command line wins") {
    prepare("synth-icecolumn --rows 100 --history h.nc -o a.h5");
    write_text("p.ini",
               "[variables]\ninput_variables = sst,hi\n[domain]\nmask_mode = ocean\nmin_ice_concentration = "
               "0.5\n[rows]\nmax_patterns = 10\n");
    prepare("cice-history -i h.nc --config p.ini --max-patterns 8 --val-fraction 0.25 -o b.h5");
    const auto set = read("b.h5");
    CHECK(set.rows() == 8);
    CHECK(set.inputs.names == std::vector<std::string>{"sst", "hi"});
    for (const float aice : set.y) CHECK(aice < 0.5f);
  }

  TEST_CASE("generated sets pass the check, and equal seeds make equal bytes") {
    const std::pair<const char*, const char*> made[] = {
        {"ice.h5", "synth-icecolumn --rows 50"},
        {"har.h5", "synth-har --subjects 4 --seconds 10"},
        {"kg.h5", "synth-kg --users 50"},
        {"gaps.h5", "synth-sequences --users 30"},
        {"l96.h5", "synth-lorenz96 --members 2 --steps 10 --size 12"},
        {"two.h5", "synth-lorenz96-two-scale --members 1 --steps 10 --spin-up 50"},
        {"step.h5",
         "synth-lorenz96-two-scale --task forecast --members 1 --steps 4 --spin-up 50 --jacobian --val-fraction "
         "0.25"}};
    for (const auto& [name, words] : made) {
      CAPTURE(std::string(words));
      prepare(std::string(words) + " -o " + name);
      prepare(std::string("check ") + name);
      prepare(std::string(words) + " -o again.h5");
      CHECK(read_text(name) == read_text("again.h5"));
      prepare(std::string(words) + " --seed 1 -o again.h5");
      CHECK(read_text(name) != read_text("again.h5"));
    }
    const auto step = read("step.h5");
    CHECK(step.n_in() == 264);
    CHECK(step.jac.size() == 4u * 264 * 264);
    const auto l96 = read("l96.h5");
    // One row's true Jacobian takes it, to first order, to the next state of its neighbour in time.
    double worst = 0;
    for (std::size_t o = 0; o < 12; ++o) {
      double y = static_cast<double>(l96.y[o]);
      for (std::size_t i = 0; i < 12; ++i)
        y += static_cast<double>(l96.jac[o * 12 + i]) * static_cast<double>(l96.x[12 + i] - l96.x[i]);
      worst = std::max(worst, std::abs(y - static_cast<double>(l96.y[12 + o])));
    }
    CHECK(worst < 0.5);
  }

  TEST_CASE("wrong usage is reported in one line, with exit code 2") {
    write_tiles();
    write_text("plain", "");
    write_text("table.csv", "a,b\n");
    const std::pair<std::string, std::string> cases[] = {
        {"netcdf --input tile1.nc --inputs tsea --outputs t2n -o o.h5", "did you mean 't2m'?"},
        {"netcdf --input tile1.nc --inputs soil --outputs t2m -o o.h5", "choose a level"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m --mask 'slmks == 1' -o o.h5", "did you mean 'slmsk'?"},
        {"netcdf --input tile1.nc --inputs tsea --outputs tsea -o o.h5", "both an input and an output"},
        {"netcdf --input tile9.nc --inputs tsea --outputs t2m -o o.h5", "tile9.nc"},
        {"netcdf --input 'tile?.nc' --geolocation place1.nc,place2.nc,place1.nc --inputs tsea --outputs t2m -o o.h5",
         "3 files for 2"},
        {"netcdf --input 'tile?.nc' --inputs tsea --outputs t2m -o tile2.nc", "it is the input 'tile2.nc'"},
        {"netcdf --input tile1.nc --geolocation place1.nc --inputs tsea --outputs t2m -o ./place1.nc",
         "it is the input 'place1.nc'"},
        {"cice-history --input tile1.nc --inputs sst -o tile1.nc", "it is the input 'tile1.nc'"},
        {"cf-pair --atmosphere tile1.nc --ocean tile2.nc -o tile2.nc", "it is the input 'tile2.nc'"},
        {"sudoku --train table.csv -o table.csv", "it is the input 'table.csv'"},
        {"har table.csv --rate 50 --window 2 -o table.csv", "it is the input 'table.csv'"},
        {"sequences --input table.csv -o table.csv", "it is the input 'table.csv'"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m -o /dev/null", "it is a device"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m -o no/such/o.h5", "no/such"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m -o plain/o.h5", "plain"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m", "output"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m --subsmple first -o o.h5", "subsample"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m --thin-fraction 0 -o o.h5", "thin"},
        {"cice-history --input tile1.nc --inputs ssst -o o.h5", "did you mean 'sst'?"},
        {"cice-histry --input tile1.nc -o o.h5", "did you mean cice-history?"},
        {"synth-icecolumn --rows 2 -o o.h5", "rows"},
        {"synth-icecolumn --history o.h5 -o ./o.h5", "the same file"},
        {"synth-sequences --raw o.h5 -o o.h5", "the same file"},
        {"synth-lorenz96 --dt 0.5 --spin-up 0 -o o.h5", "explodes"},
        {"synth-lorenz96 --members 9223372036854775807 --steps 2 -o o.h5", "members = 9223372036854775807"},
        {"synth-lorenz96-two-scale --dt 0.5 --spin-up 0 -o o.h5", "explodes"},
        {"synth-icecolumn --rows 1000000000000000 -o o.h5", "1000000000000000 rows need 164.3 PiB, but "},
        {"synth-lorenz96 --size 100000 -o o.h5", "12000 rows need 436.6 TiB, but "},
        {"synth-lorenz96-two-scale --members 1e9 --steps 1e9 -o o.h5", "; lower members or steps"},
        {"synth-har --subjects 100000 --seconds 1e6 -o o.h5", "; lower subjects or seconds"},
        {"synth-maze --side 64 --train 1e9 -o o.h5", "1000000200 puzzles need 18.6 TiB, but "},
        {"synth-sudoku --train 1e9 --test 1e9 --val 1e9 --num-aug 1000000 -o o.h5", "3000000000 puzzles need"},
        {"synth-sequences --users 268435456 --min-length 1000000 --max-length 1e6 --members 65536 -o o.h5",
         "about 2.68435456e+14 interactions need 4.8 PiB, but "},
        {"synth-kg --users 1e8 --items 1e8 --tastes 2 --train-items 1e7 -o o.h5", "interactions and triples need"},
        {"synth-kg --test-items 9223372036854775807 -o o.h5", "must be 1..100000000"},
        {"synth-har --seconds 1e300 -o o.h5", "seconds = 1e300"},
        {"synth-har --noise 1e300 -o o.h5", "noise = 1e300"},
        {"synth-sudoku --train 9223372036854775807 --test 9223372036854775807 -o o.h5", "1..1000000000"},
        {"synth-icecolumn --val-fraction 0.6 --test-fraction 0.6 -o o.h5", "leave nothing"},
        {"check absent.h5", "absent.h5"},
        {"verify --golden absent.h5", "absent.h5"}};
    const auto before = names_in(".");
    for (const auto& [words, expected] : cases) check_refused(words, 2, expected);
    CHECK(names_in(".") == before);
  }

  TEST_CASE("a program without NetCDF refuses a NetCDF file with the build option") {
    write_tiles();
    const auto run =
        run_shell(program_path("prep_without_netcdf") + " netcdf --input tile1.nc --inputs tsea --outputs t2m -o o.h5");
    CHECK(run.status == 2);
    check_mentions(run.text, "'tile1.nc'", "LOCKSTEP_NETCDF=ON");
  }

  TEST_CASE("bad data is reported in one line, with exit code 3, and no output is left") {
    write_tiles();
    fs::copy("tile1.nc", "cut.nc");
    fs::resize_file("cut.nc", fs::file_size("cut.nc") - 100);
    fs::copy(kGolden + "/emulator_prep_cice.nc", "cut4.nc");
    fs::resize_file("cut4.nc", fs::file_size("cut4.nc") / 2);
    write_text("foreign.nc", "PNG or whatever else");
    write_netcdf("nan.nc", NC_NETCDF4, {{"n", 4}},
                 {{"a", NC_DOUBLE, {"n"}, {1, 2, 3, 4}}, {"b", NC_DOUBLE, {"n"}, {NAN, NAN, NAN, INFINITY}}});
    prepare("synth-icecolumn --rows 100 -o good.h5");
    fs::copy("good.h5", "cut.h5");
    fs::resize_file("cut.h5", fs::file_size("cut.h5") - 1000);
    const std::pair<std::string, std::string> cases[] = {
        {"netcdf --input cut.nc --inputs tsea --outputs t2m -o o.h5", "truncated"},
        {"netcdf --input cut4.nc --inputs sst_h --outputs aice_h -o o.h5", "cut4.nc"},
        {"netcdf --input foreign.nc --inputs a --outputs b -o o.h5", "foreign.nc"},
        {"netcdf --input nan.nc --inputs a --outputs b -o o.h5", "b missing in 4"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m --mask 'slmsk == 7' -o o.h5",
         "none of 6 points passes the mask"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m --pole north -o o.h5", "no latitude"},
        {"netcdf --input tile1.nc --inputs tsea --outputs t2m --test-days 2016-02-05 -o o.h5",
         "the files give no dates: no variable counts time"},
        {"cice-history --input tile1.nc --inputs sst -o o.h5", "ULAT, lat, latitude, TLAT"},
        {"check cut.h5", "truncated"},
        {"check foreign.nc", "foreign.nc"},
        {"info " + kGolden + "/emulator_aice.h5", "format"},
        {"verify --golden good.h5", "has no part that lockstep-prep can recompute"}};
    const auto before = names_in(".");
    for (const auto& [words, expected] : cases) check_refused(words, 3, expected);
    CHECK(names_in(".") == before);
  }

  TEST_CASE("a full disk ends with one line, exit code 1 and the old file untouched") {
    prepare("synth-icecolumn --rows 50 -o a.h5");
    const std::string old = read_text("a.h5");
    const auto run = run_prep("synth-icecolumn --rows 20000 -o a.h5", "ulimit -f 600;");
    CHECK(run.status == 1);
    check_mentions(run.text, "a.h5", "File too large");
    CHECK(std::count(run.text.begin(), run.text.end(), '\n') == 1);
    CHECK(read_text("a.h5") == old);
    const auto history = run_prep("synth-icecolumn --rows 20000 --history h.nc -o b.h5", "ulimit -f 600;");
    CHECK(history.status == 1);
    CHECK(names_in(".") == std::vector<std::string>{"a.h5"});
  }

  // AddressSanitizer reserves terabytes.
  TEST_CASE("a data set that does not fit into the memory is not called damaged" *
            doctest::skip(cuda_host::kAddressSanitizer)) {
    prepare("synth-icecolumn --rows 50 -o a.h5");
    constexpr std::int64_t kValues = 16'000'000;
    H5File large = H5File::create("large.h5");
    large.set_attribute("/", "format", std::string("lockstep-emulator"));
    large.create_dataset("/x", H5Type::f64, {kValues}, {.chunk = {1'000'000}, .deflate = 1});
    for (std::int64_t first = 0; first < kValues; first += 1'000'000)
      large.write_rows<double>("/x", first, 1'000'000, std::vector<double>(1'000'000));
    large.close();
    for (const std::string command : {"check", "info"}) {
      const auto run = run_prep(command + " large.h5", "ulimit -v 100000;");
      CHECK(run.status == 2);
      check_mentions(run.text, "reading 'large.h5': its arrays need 122.1 MiB, but ulimit -v allows 97.7 MiB; ",
                     "more memory");
      CHECK(run_prep(command + " a.h5", "ulimit -v 100000;").status == 0);
    }
  }

  TEST_CASE("a constant input is kept with deviation 1 and reported, a constant output is refused unless it is kept") {
    write_netcdf("a.nc", NC_64BIT_DATA, {{"n", 20}},
                 {{"a", NC_DOUBLE, {"n"}, std::vector<double>(20, 5.0)}, {"b", NC_DOUBLE, {"n"}, counting(20)}});
    check_mentions(prepare("netcdf --input a.nc --inputs a --outputs b -o a.h5"),
                   "constant inputs in the training rows: a;");
    check_mentions(prepare("netcdf --input a.nc --inputs b --outputs a -o b.h5", 3), "the output column a is constant",
                   "--variables.constant_outputs keep");
    prepare("netcdf --input a.nc --inputs b --outputs a --variables.constant_outputs keep -o b.h5");
    CHECK(read("a.h5").input_std == std::vector<double>{1});
    check_mentions(prepare("check a.h5"), "a is constant");
  }

  TEST_CASE("help is complete: an overview, and for every source its options with examples") {
    const std::string overview = prepare("--help");
    std::vector<std::string> names = {"check", "info", "verify"};
    for (const auto& source : prep::sources()) names.emplace_back(source.name);
    for (const std::string& name : names) {
      CAPTURE(name);
      check_mentions(overview, name);
      check_mentions(prepare(name + " --help"), "lockstep-prep " + name, "xample");
    }
    check_mentions(run_prep("help netcdf").text, "--mask");
    check_mentions(run_prep("help --markdown").text, "# Options of lockstep-prep", "synth-lorenz96",
                   "domain.mask_mode");
    prepare("help --man pages");
    CHECK(names_in("pages").size() == names.size());
    prepare("", 2);
    prepare("--version");
  }

  TEST_CASE("verify prints a row per array and succeeds on the reference") {
    check_mentions(prepare("verify --golden " + kGolden + "/emulator_synth.h5"), "lorenz96_two_scale/ad",
                   "8 of 8 arrays agree");
  }
}
