#include "lockstep/io/seal.hpp"

#include "lockstep/base/hash.hpp"
#include "support/test.hpp"

TEST_SUITE("io.seal") {
  const auto write_sealed = [](const fs::path& path) {
    H5File file = H5File::create(path);
    const std::vector<double> numbers = {1, 2, 3, 4, 5, 6};
    file.write<double>("/a/numbers", numbers, {2, 3});
    file.write_text("/a/names", {"one", std::string("cut\0off", 7)});
    file.create_group("/a.b");  // between '/a' and its members in the order of characters
    file.set_attribute("/", "version", std::int64_t{1});
    file.set_attribute("/a", "note", std::string("cut\0off", 7));
    file.set_attribute("/a.b", "note", std::string("replaced"));
    file.set_attribute("/a.b", "note", std::vector<std::string>());
    seal_contents(file);
    file.close();
    append_end_mark(path);
  };

  TEST_CASE("an unchanged file has no defect") {
    write_sealed("x.h5");
    CHECK(end_mark_defect("x.h5") == "");
    CHECK(contents_defect(H5File::open("x.h5")) == "");
  }

  TEST_CASE("every flipped byte and every truncation is a defect") {
    write_sealed("x.h5");
    const std::string whole = read_text("x.h5");
    for (std::size_t at = 0; at < whole.size(); at += at < whole.size() - 80 ? 97 : 1) {
      CAPTURE(at);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      write_text("y.h5", damaged);
      CHECK(end_mark_defect("y.h5") != "");
      write_text("y.h5", whole.substr(0, at));
      CHECK(end_mark_defect("y.h5") != "");
    }
  }

  TEST_CASE("a dataset has the hash of its values, written at once, row after row or in another order") {
    std::vector<float> numbers(5 << 20);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{5 << 20}, {5 << 10, 1 << 10}, {1, 5 << 20}}) {
      H5File file = H5File::create("x.h5");
      file.write<float>("/whole", numbers, shape);
      const std::int64_t rows = shape[0], half = rows / 2, width = std::ssize(numbers) / rows;
      const std::span<const float> all(numbers), first = all.first(static_cast<std::size_t>(half * width)),
                                                 second = all.subspan(first.size());
      for (const char* name : {"/ascending", "/descending"}) file.create_dataset(name, H5Type::f32, shape);
      file.write_rows<float>("/ascending", 0, half, first);
      file.write_rows<float>("/ascending", half, rows - half, second);
      file.write_rows<float>("/descending", half, rows - half, second);
      file.write_rows<float>("/descending", 0, half, first);
      seal_contents(file);
      file.close();
      const H5File sealed = H5File::open("x.h5");
      CHECK(contents_defect(sealed) == "");
      for (const char* name : {"/whole", "/ascending", "/descending"})
        CHECK(sealed.text_attribute(name, "xxh3") == hex64(hash64(numbers.data(), numbers.size() * sizeof(float))));
    }
  }

  TEST_CASE("a dataset changed by another program is a defect") {
    const auto build = [&](double last, const std::string& note, const std::string& name, bool again) {
      H5File file = H5File::create("x.h5");
      const std::vector<double> numbers = {1, 2, last};
      file.write<double>("/numbers", numbers, {3});
      file.write_text("/names", {"one", name});
      file.set_attribute("/", "note", note);
      if (again) {
        // Checksums of other contents.
        const H5File sealed = H5File::open("sealed.h5");
        file.set_attribute("/", "structure_xxh3", sealed.attribute("/", "structure_xxh3"));
        for (const char* dataset : {"/numbers", "/names"})
          file.set_attribute(dataset, "xxh3", sealed.attribute(dataset, "xxh3"));
      } else {
        seal_contents(file);
      }
      file.close();
    };
    build(3, "n", "two", false);
    fs::rename("x.h5", "sealed.h5");
    build(3, "n", "two", true);
    CHECK(contents_defect(H5File::open("x.h5")) == "");
    build(4, "n", "two", true);
    CHECK(contents_defect(H5File::open("x.h5")).find("'/numbers'") != std::string::npos);
    build(3, "n", "three", true);
    CHECK(contents_defect(H5File::open("x.h5")).find("'/names'") != std::string::npos);
    build(3, "m", "two", true);
    CHECK(contents_defect(H5File::open("x.h5")).find("attributes") != std::string::npos);
  }
}
