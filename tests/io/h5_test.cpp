#include "lockstep/io/h5.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "io/h5_internal.hpp"
#include "io/variable_strings.hpp"
#include "support/test.hpp"

namespace {

template <class T>
std::vector<T> counting(std::size_t n) {
  std::vector<T> values(n);
  std::iota(values.begin(), values.end(), T{});
  return values;
}

template <class T>
void write_vector(H5File& file, const std::string& name, const std::vector<T>& values, const H5Layout& layout = {}) {
  file.write<T>(name, std::span<const T>(values), {std::ssize(values)}, layout);
}

/// A file with n numbers, /f.
void write_numbers(const fs::path& path, std::size_t n) {
  H5File file = H5File::create(path);
  write_vector(file, "/f", counting<float>(n));
  file.close();
}

}  // namespace

TEST_SUITE("io.h5") {
  TEST_CASE("every type, layout and shape reads back as written") {
    const fs::path path = "a.h5";
    const std::vector<std::uint8_t> bytes = {0, 1, 255};
    const std::vector<std::int64_t> big = {std::numeric_limits<std::int64_t>::min(), -1,
                                           std::numeric_limits<std::int64_t>::max()};
    const auto floats = counting<float>(35);
    {
      auto file = H5File::create(path);
      write_vector(file, "bytes", bytes);
      write_vector(file, "/deep/down/big", big);
      file.write<float>("/chunked", std::span<const float>(floats), {7, 5}, {{4, 5}, 6});
      file.write<float>("/plain", std::span<const float>(floats), {7, 5});
      file.write<double>("/scalar", std::span<const double>(std::vector<double>{0.1}), {});
      file.write<std::int32_t>("/empty", {}, {0, 3}, {{16, 3}, 4});
      file.write_text("/names", {"sst", "", "température"});
      file.create_group("/nothing/here");
      file.close();
    }
    const auto file = H5File::open(path);
    CHECK(file.read<std::uint8_t>("/bytes") == bytes);
    CHECK(file.read<std::int32_t>("bytes") == std::vector<std::int32_t>{0, 1, 255});
    CHECK(file.read<std::int64_t>("/deep/down/big") == big);
    CHECK(file.read<float>("/chunked") == floats);
    CHECK(file.read<double>("/plain") == counting<double>(35));
    CHECK(file.read<double>("/scalar") == std::vector<double>{0.1});
    CHECK(file.read<std::int32_t>("/empty").empty());
    CHECK(file.read_text("/names") == std::vector<std::string>{"sst", "", "température"});
    CHECK(file.info("/chunked").shape == std::vector<std::int64_t>{7, 5});
    CHECK(file.info("/chunked").type == H5Type::f32);
    CHECK(file.info("/scalar").shape.empty());
    CHECK(file.list("/deep") == std::vector<std::string>{"down"});
    CHECK(file.datasets_under("/deep") == std::vector<std::string>{"/deep/down/big"});
    CHECK(file.datasets_under("/").size() == 7);
    CHECK(file.is_group("/nothing/here"));
    CHECK_FALSE(file.is_group("/names"));
    CHECK(file.has("/names"));
    CHECK_FALSE(file.has("/names/x"));
  }

  TEST_CASE("rows are written and read at the right place") {
    const H5Layout layouts[] = {{}, {{2, 3}, 0}, {{2, 3}, 3}};
    for (const auto& layout : layouts) {
      {
        auto file = H5File::create("rows.h5");
        file.create_dataset("/x", H5Type::i32, {5, 3}, layout);
        const auto values = counting<std::int32_t>(15);
        file.write_rows<std::int32_t>("/x", 2, 3, std::span(values).subspan(6));
        file.write_rows<std::int32_t>("/x", 0, 2, std::span(values).first(6));
        file.write_rows<std::int32_t>("/x", 5, 0, {});
        CHECK(error_of(Fault::internal,
                       [&] { file.write_rows<std::int32_t>("/x", 4, 2, std::span(values).first(6)); }) != "no error");
        file.close();
      }
      const auto file = H5File::open("rows.h5");
      CHECK(file.read<std::int32_t>("/x") == counting<std::int32_t>(15));
      std::vector<std::int64_t> two(6);
      file.read_rows<std::int64_t>("/x", 3, 2, two);
      CHECK(two == std::vector<std::int64_t>{9, 10, 11, 12, 13, 14});
      check_mentions(error_of(Fault::data, [&] { file.read_rows<std::int64_t>("/x", 4, 2, two); }), "(5, 3)");
    }
  }

  TEST_CASE("rows of strings are written at the right place; a longer string than announced is refused") {
    auto file = H5File::create("rows.h5");
    file.create_text("/t", {3, 2}, 4);
    const std::vector<std::string> values = {"a", "", "four", "d", "e", "f"}, longer = {"fives", "x"};
    file.write_text_rows("/t", 1, 2, std::span(values).subspan(2));
    file.write_text_rows("/t", 0, 1, std::span(values).first(2));
    check_mentions(error_of(Fault::internal, [&] { file.write_text_rows("/t", 0, 1, longer); }), "at most 4");
    error_of(Fault::internal, [&] { file.write_text_rows("/t", 2, 2, std::span(values).first(4)); });
    file.close();
    CHECK(H5File::open("rows.h5").read_text("/t") == values);
  }

  TEST_CASE("an attribute of another kind, rank or length is refused: file, attribute, expected and found are named") {
    {
      auto file = H5File::create("a.h5");
      file.set_attribute("/", "integer", std::int64_t{7});
      file.set_attribute("/", "real", 0.5);
      file.set_attribute("/", "text", std::string("words"));
      file.set_attribute("/", "integers", std::vector<std::int64_t>{1, 2});
      file.set_attribute("/", "reals", std::vector<double>{0.5});
      file.set_attribute("/", "texts", std::vector<std::string>{"a", "b"});
      file.set_attribute("/", "empty", std::vector<double>{});
      check_mentions(error_of(Fault::internal, [&] { file.set_attribute("/none", "real", 0.5); }), "/none", "a.h5");
      file.close();
      const h5::Id raw(H5Fopen("a.h5", H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
      const hsize_t extent[] = {2, 3};
      const h5::Id table(H5Screate_simple(2, extent, nullptr), H5Sclose), nothing(H5Screate(H5S_NULL), H5Sclose);
      const std::int64_t values[6] = {};
      for (const auto& [name, space] : {std::pair{"table", hid_t{table}}, {"nothing", hid_t{nothing}}}) {
        const h5::Id id(H5Acreate2(raw, name, H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
        if (space == table) H5Awrite(id, H5T_NATIVE_INT64, values);
      }
    }
    const auto file = H5File::open("a.h5");
    struct Read {
      std::string expected;
      std::vector<std::string> takes;
      std::function<void(const std::string&)> read;
    };
    const std::vector<Read> reads = {
        {"an integer", {"integer"}, [&](const auto& name) { file.int_attribute("/", name); }},
        {"a real number", {"integer", "real"}, [&](const auto& name) { file.real_attribute("/", name); }},
        {"a string", {"text"}, [&](const auto& name) { file.text_attribute("/", name); }},
        {"a list of integers", {"integers", "empty"}, [&](const auto& name) { file.int_list("/", name); }},
        {"a list of real numbers", {"integers", "reals", "empty"}, [&](const auto& n) { file.real_list("/", n); }},
        {"a list of strings", {"texts", "empty"}, [&](const auto& name) { file.text_list("/", name); }},
        {"a list of 2 integers", {"integers"}, [&](const auto& name) { file.int_list("/", name, 2); }},
        {"a list of 3 real numbers", {}, [&](const auto& name) { file.real_list("/", name, 3); }},
    };
    const std::pair<const char*, const char*> attributes[] = {{"integer", "an integer"},
                                                              {"real", "a real number"},
                                                              {"text", "a string"},
                                                              {"integers", "a list of 2 integers"},
                                                              {"reals", "a list of 1 real numbers"},
                                                              {"texts", "a list of 2 strings"},
                                                              {"empty", "an empty list of real numbers"},
                                                              {"table", "integers of shape (2, 3)"},
                                                              {"nothing", "it holds no data"}};
    for (const auto& read : reads) {
      for (const auto& [name, found] : attributes) {
        CAPTURE(read.expected);
        CAPTURE(name);
        if (std::ranges::find(read.takes, name) != read.takes.end()) {
          CHECK_NOTHROW(read.read(name));
          continue;
        }
        const std::string message = error_of(Fault::data, [&, at = name] { read.read(at); });
        for (const std::string& part : {"expected " + read.expected, std::string(found), std::string("a.h5"),
                                        std::string("attribute '") + name + "' of '/'"})
          check_mentions(message, part);
      }
    }
  }

  TEST_CASE("attributes keep their kind: scalars, arrays, empty ones and long ones") {
    const std::string long_text(200000, 'x');
    for (const bool variable : {false, true}) {
      {
        auto file = H5File::create("a.h5");
        file.create_group("/g");
        write_vector(file, "/g/x", counting<float>(3));
        file.set_attribute("/", "n", std::int64_t{-5});
        file.set_attribute("/", "n", std::int64_t{7});
        file.set_attribute("/g", "lr", 1e-3);
        file.set_attribute("/g", "text", std::string("größer"));
        file.set_attribute("/g", "empty", std::string());
        file.set_attribute("/g/x", "ints", std::vector<std::int64_t>{1, 2});
        file.set_attribute("/g/x", "reals", std::vector<double>{0.5});
        file.set_attribute("/g/x", "words", std::vector<std::string>{"a", "", "long one"});
        file.set_attribute("/g/x", "none", std::vector<double>{});
        file.set_attribute("/g/x", "config", long_text);
        file.close();
      }
      if (variable) {
        for (const char* name : {"text", "empty"}) make_variable("a.h5", "/g", name);
        for (const char* name : {"words", "config"}) make_variable("a.h5", "/g/x", name);
      }
      const auto file = H5File::open("a.h5");
      CHECK(file.int_attribute("/", "n") == 7);
      CHECK(file.real_attribute("/g", "lr") == 1e-3);
      CHECK(file.real_attribute("/", "n") == 7.0);
      CHECK(file.text_attribute("/g", "text") == "größer");
      CHECK(file.text_attribute("/g", "empty").empty());
      CHECK(std::get<std::vector<std::int64_t>>(file.attribute("/g/x", "ints")) == std::vector<std::int64_t>{1, 2});
      CHECK(std::get<std::vector<double>>(file.attribute("/g/x", "reals")) == std::vector<double>{0.5});
      CHECK(std::get<std::vector<std::string>>(file.attribute("/g/x", "words")) ==
            std::vector<std::string>{"a", "", "long one"});
      CHECK(std::get<std::vector<double>>(file.attribute("/g/x", "none")).empty());
      CHECK(file.text_attribute("/g/x", "config") == long_text);
      CHECK(file.attributes("/g") == std::vector<std::string>{"empty", "lr", "text"});
      CHECK(file.has_attribute("/g", "lr"));
      CHECK_FALSE(file.has_attribute("/g", "rl"));
      CHECK_FALSE(file.has_attribute("/missing", "lr"));
      CHECK(file.int_list("/g/x", "ints", 2) == std::vector<std::int64_t>{1, 2});
      CHECK(file.real_list("/g/x", "ints") == std::vector<double>{1, 2});
      CHECK(file.real_list("/g/x", "none").empty());
      CHECK(file.text_list("/g/x", "words").size() == 3);
      check_mentions(error_of(Fault::data, [&] { file.text_attribute("/g", "absent"); }),
                     "attribute \'absent\' of \'/g\'");
    }
  }

  TEST_CASE("equal contents make equal bytes") {
    for (const char* name : {"1.h5", "2.h5"}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1050));  // time stamps would count seconds
      auto file = H5File::create(name);
      write_vector(file, "/g/h/x", counting<float>(100), {{10}, 5});
      file.set_attribute("/g", "a", 0.5);
      file.close();
    }
    CHECK(read_text("1.h5") == read_text("2.h5"));
  }

  TEST_CASE("an error names the problem of the dataset") {
    {
      auto file = H5File::create("a.h5");
      write_vector(file, "/f", counting<float>(6));
      write_vector(file, "/i", std::vector<std::int64_t>{1, std::int64_t{1} << 40});
      file.write_text("/t", {"x"});
      file.close();
    }
    const auto file = H5File::open("a.h5");
    const auto message = error_of(Fault::data, [&] { file.read<float>("/g/absent"); });
    check_mentions(message, "'/g/absent'", "a.h5");
    check_mentions(error_of(Fault::data, [&] { file.read<std::int32_t>("/f"); }), "expected integers, found f32");
    check_mentions(error_of(Fault::data, [&] { file.read<float>("/i"); }), "floating-point");
    CHECK(error_of(Fault::data, [&] { file.read<std::int32_t>("/i"); }) != "no error");  // 2^40 does not fit
    CHECK(error_of(Fault::data, [&] { file.read<float>("/t"); }) != "no error");
    CHECK(error_of(Fault::data, [&] { file.read_text("/f"); }) != "no error");
    std::vector<float> wrong(6);
    const auto read_table = [&] { file.read_into<float>("/f", wrong, {2, 3}); };
    check_mentions(error_of(Fault::data, read_table), "expected shape (2, 3), found (6)");
    CHECK_NOTHROW(file.read_into<float>("/f", wrong, {6}));
  }

  TEST_CASE("a dataset too large for its file system is refused before it is written; a compressed one may fit") {
    auto file = H5File::create("a.h5");
    CHECK_THROWS_WITH_AS(file.create_dataset("/x", H5Type::f64, {std::int64_t{1} << 52}),
                         doctest::Contains("it needs at least 32.0 PiB, but its file system has only"), Error);
    file.create_dataset("/y", H5Type::f64, {std::int64_t{1} << 45}, {{std::int64_t{1} << 28}, 1});
    CHECK(file.has("/y"));
  }

  TEST_CASE("missing, foreign and truncated files have different errors") {
    CHECK(error_of(Fault::usage, [&] { H5File::open("absent.h5"); }) != "no error");
    CHECK(error_of(Fault::usage, [&] { H5File::open("."); }) != "no error");
    write_text("text.h5", "this is not HDF5, but it is long enough to look for a signature in it");
    check_mentions(error_of(Fault::data, [&] { H5File::open("text.h5"); }), "signature");
    write_text("empty.h5", "");
    CHECK(error_of(Fault::data, [&] { H5File::open("empty.h5"); }) != "no error");
    write_numbers("a.h5", 6000);
    fs::resize_file("a.h5", 5000);
    check_mentions(error_of(Fault::data, [&] { H5File::open("a.h5"); }), "truncated");
  }

  TEST_CASE("a file locked by another program is an error with advice") {
    write_numbers("a.h5", 10);
    const int fd = open("a.h5", O_RDWR);
    REQUIRE(flock(fd, LOCK_EX) == 0);
    check_mentions(error_of(Fault::data, [&] { H5File::open("a.h5"); }), "another program holds its lock");
    close(fd);
    CHECK_NOTHROW(H5File::open("a.h5"));
  }

  TEST_CASE("a file whose writer was killed is an error") {
    const pid_t child = fork();
    if (child == 0) {
      auto file = H5File::create("a.h5");
      write_vector(file, "/f", counting<float>(100000));
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
    CHECK(fs::exists("a.h5"));
    CHECK(error_of(Fault::data, [&] { H5File::open("a.h5"); }) != "no error");
  }
}
