/// Damaged and hostile files must cause neither a crash nor a hang. Forked children read the variants.

#include "io/h5_internal.hpp"
#include "io/variable_strings.hpp"
#include "lockstep/io/seal.hpp"
#include "support/forked_cases.hpp"
#include "support/test.hpp"

namespace {

/// Reads everything in a file.
void read_everything(const fs::path& path) {
  const auto file = H5File::open(path);
  const auto objects = file.datasets_under("/");
  for (const auto& attribute : file.attributes("/")) file.attribute("/", attribute);
  for (const auto& dataset : objects) {
    for (const auto& attribute : file.attributes(dataset)) file.attribute(dataset, attribute);
    switch (file.info(dataset).type) {
      case H5Type::f32:
      case H5Type::f64:
        file.read<float>(dataset);
        break;
      case H5Type::text:
        file.read_text(dataset);
        break;
      default:
        file.read<std::int64_t>(dataset);
    }
  }
}

CaseOutcomes read_variants(std::int64_t n, const std::function<std::string(std::int64_t)>& variant) {
  return run_forked(0, n, [&](std::int64_t number) {
    const fs::path path = "variant.h5";
    write_text(path, variant(number));
    read_everything(path);
    return Ending::accepted;
  });
}

std::string sample(bool variable_strings = false) {
  auto file = H5File::create("sample.h5");
  std::vector<float> values(60);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.37f;
  file.write<float>("/x", std::span<const float>(values), {20, 3}, {{8, 3}, 0});
  file.write<float>("/z", std::span<const float>(values), {60}, {{32}, 4});
  file.write<float>("/g/plain", std::span<const float>(values), {60});
  file.write_text("/vars/names", {"sst", "sss", "a longer name"});
  file.set_attribute("/", "format", std::string("sample"));
  file.set_attribute("/", "sources", std::vector<std::string>{"a.nc", "b.nc"});
  file.set_attribute("/x", "n", std::vector<std::int64_t>{1, 2, 3});
  file.close();
  if (variable_strings) {
    make_variable("sample.h5", "/vars/names");
    for (const char* name : {"format", "sources"}) make_variable("sample.h5", "/", name);
  }
  return read_text("sample.h5");
}

}  // namespace

TEST_SUITE("io.h5_hostile") {
  TEST_CASE("no flipped byte crashes a reader") {
    for (const bool variable : {false, true}) {
      const std::string good = sample(variable);
      // All bytes except those deep inside runs of zeros, which are padding and free space.
      std::vector<std::size_t> bytes;
      for (std::size_t at = 0; at < good.size(); ++at) {
        const auto near = good.substr(at < 16 ? 0 : at - 16, 33);
        if (near.find_first_not_of('\0') != std::string::npos) bytes.push_back(at);
      }
      constexpr int kMasks[] = {0x01, 0x80, 0xFF};
      const auto outcome = read_variants(std::ssize(bytes), [&](std::int64_t variant) {
        const std::size_t at = bytes[to_size(variant)];
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ kMasks[at % 3]);
        return bad;
      });
      for (const auto& [number, what] : outcome.failures) FAIL_CHECK("variant ", number, ": ", what);
      CHECK(outcome.refused > 100);
      CHECK(outcome.accepted > 100);
    }
  }

  TEST_CASE("a truncated file is an error at every length") {
    const std::string good = sample();
    const std::int64_t step = 7;
    const std::int64_t n = std::ssize(good) / step;
    const auto outcome = read_variants(n, [&](std::int64_t i) { return good.substr(0, to_size(i) * step); });
    for (const auto& [number, what] : outcome.failures) FAIL_CHECK("length ", number * step, ": ", what);
    CHECK(outcome.refused == n);
  }

  TEST_CASE("links, virtual and external storage, unsupported types and impossible sizes are errors that name them") {
    const fs::path path = "hostile.h5";
    {
      const h5::Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
      const auto dataset = [&](const char* name, hid_t type, std::vector<hsize_t> dims, hid_t plist) {
        const h5::Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
        CHECK(h5::Id(H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT), H5Dclose).valid());
      };
      H5Lcreate_soft("/elsewhere", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
      H5Lcreate_external("/etc/passwd", "/x", file, "external", H5P_DEFAULT, H5P_DEFAULT);
      h5::Id plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
      H5Pset_external(plist, "/etc/hostname", 0, 16);
      dataset("external_storage", H5T_NATIVE_FLOAT, {4}, plist);
      plist = h5::Id(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
      const hsize_t chunk = 1024;
      H5Pset_chunk(plist, 1, &chunk);
      H5Pset_deflate(plist, 1);
      dataset("bomb", H5T_NATIVE_DOUBLE, {hsize_t{1} << 50}, plist);
      dataset("unwritten", H5T_NATIVE_DOUBLE, {hsize_t{1} << 20}, H5P_DEFAULT);
      plist = h5::Id(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
      const hsize_t four = 4;
      H5Pset_chunk(plist, 1, &four);
      H5Pset_scaleoffset(plist, H5Z_SO_INT, 2);
      dataset("filtered", H5T_NATIVE_INT, {4}, plist);
      const h5::Id compound(H5Tcreate(H5T_COMPOUND, 8), H5Tclose);
      H5Tinsert(compound, "a", 0, H5T_NATIVE_INT);
      H5Tinsert(compound, "b", 4, H5T_NATIVE_INT);
      dataset("compound", compound, {1}, H5P_DEFAULT);
    }
    const auto file = H5File::open(path);
    const std::pair<const char*, const char*> cases[] = {{"soft", "soft or external link"},
                                                         {"external", "soft or external link"},
                                                         {"external_storage", "external storage"},
                                                         {"bomb", "claims"},
                                                         {"unwritten", "claims"},
                                                         {"filtered", "filter 6"},
                                                         {"compound", "compound"}};
    for (const auto& [name, reason] : cases) {
      check_mentions(error_of(Fault::data, [&] { file.read<double>(name); }), name, reason);
    }
    // One that a program looks for must not count as absent: it may be a mask.
    check_mentions(error_of(Fault::data, [&] { file.has("soft"); }), "'/soft'", "store the data itself");
    CHECK_THROWS_AS(file.datasets_under("/"), Error);
  }

  TEST_CASE("a reference that promises fewer bytes than its heap holds is an error, wherever it stands") {
    const std::vector<std::string> objects = {"attribute", "compact", "chunked", "contiguous"};
    const fs::path path = "good.h5";
    {
      const h5::Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose),
          type(H5Tcopy(H5T_C_S1), H5Tclose);
      H5Tset_size(type, H5T_VARIABLE);
      const hsize_t one = 1;
      const h5::Id space(H5Screate_simple(1, &one, nullptr), H5Sclose);
      for (std::size_t i = 0; i < objects.size(); ++i) {
        const std::string text(100000 + i, 'x');
        const char* row = text.c_str();
        const h5::Id plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        if (objects[i] == "compact") H5Pset_layout(plist, H5D_COMPACT);
        if (objects[i] == "chunked") H5Pset_chunk(plist, 1, &one);
        const bool attribute = objects[i] == "attribute";
        const h5::Id id(attribute ? H5Acreate2(file, "attribute", type, space, H5P_DEFAULT, H5P_DEFAULT)
                                  : H5Dcreate2(file, objects[i].c_str(), type, space, H5P_DEFAULT, plist, H5P_DEFAULT),
                        attribute ? H5Aclose : H5Dclose);
        CHECK((attribute ? H5Awrite(id, type, &row) : H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &row)) >= 0);
      }
    }
    const auto file = H5File::open(path);
    CHECK(file.text_list("/", "attribute").front().size() == 100000);
    CHECK(file.read_text("/chunked").front().size() == 100002);
    const std::string good = read_text(path);
    const auto outcome = read_variants(std::ssize(objects), [&](std::int64_t i) {
      std::string bad = good;
      const auto length = static_cast<std::uint32_t>(100000 + i);
      // The length occurs in the reference, with 4 bytes, and in the heap, with 8. This finds the reference.
      std::string bytes(reinterpret_cast<const char*>(&length), 4);
      std::size_t at = bad.find(bytes);
      while (at != std::string::npos && bad.compare(at + 4, 4, std::string(4, '\0')) == 0) at = bad.find(bytes, at + 1);
      REQUIRE(at != std::string::npos);
      bad.replace(at, 4, std::string("\1\0\0\0", 4));
      return bad;
    });
    for (const auto& [number, what] : outcome.failures) FAIL_CHECK(objects[to_size(number)], ": ", what);
    CHECK(outcome.refused == std::ssize(objects));
  }

  TEST_CASE("reading strings does not read the rest of the file") {
    const fs::path path = "large.h5";
    {
      H5File file = H5File::create(path);
      file.set_attribute("/", "format", std::string("sample"));
      file.write_text("/names", {"sst", "sss"});
      file.close();
      make_variable(path, "/", "format");
      make_variable(path, "/names");
      const h5::Id id(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose),
          plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
      H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
      H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
      const hsize_t n = hsize_t{1} << 40;  // a hole: no disk is used
      const h5::Id space(H5Screate_simple(1, &n, nullptr), H5Sclose),
          rows(H5Dcreate2(id, "rows", H5T_NATIVE_CHAR, space, H5P_DEFAULT, plist, H5P_DEFAULT), H5Dclose);
    }
    REQUIRE(fs::file_size(path) > std::uintmax_t{1} << 40);
    alarm(120);  // to read 1 TiB takes longer
    const auto file = H5File::open(path);
    CHECK(file.text_attribute("/", "format") == "sample");
    CHECK(file.read_text("/names") == std::vector<std::string>{"sst", "sss"});
    alarm(0);
  }

  TEST_CASE("groups that contain themselves end in an error") {
    const fs::path path = "loop.h5";
    const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(id, "/", id, "self", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(id);
    CHECK_THROWS_AS(H5File::open(path).datasets_under("/"), Error);
  }

  TEST_CASE("checking the checksums of a file whose groups contain themselves twice ends with a defect") {
    const fs::path path = "loop.h5";
    H5File file = H5File::create(path);
    file.create_group("/a");
    seal_contents(file);
    file.close();
    CHECK(contents_defect(H5File::open(path)) == "");
    const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Lcreate_hard(id, "/a", id, "/a/one", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(id, "/a", id, "/a/two", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(id);
    CHECK(contents_defect(H5File::open(path)).find("'/a/one'") != std::string::npos);
  }
}
