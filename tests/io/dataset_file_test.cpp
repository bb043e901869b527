#include "lockstep/io/dataset_file.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "prep/errors.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using test::check_mentions;
using test::error_of;

namespace {
using Offsets = std::vector<std::int64_t>;
}

TEST_SUITE("io.dataset_file") {
  TEST_CASE("a file of another format or version is refused, with what to do") {
    const test::TempDir dir;
    const auto refusal = [&](const std::function<void(H5File&)>& fill) {
      H5File made = H5File::create(dir / "a.h5");
      fill(made);
      made.close();
      const H5File file = H5File::open(dir / "a.h5");
      return error_of(Fault::data, [&] { DatasetFile(file, kHarFormat); });
    };
    const auto format = [](H5File& f, const std::string& name, std::int64_t version) {
      f.set_attribute("/", "format", name);
      f.set_attribute("/", "version", version);
    };
    check_mentions(refusal([](H5File&) {}), "opening data set", "a.h5", "no attribute 'format'", "lockstep-prep");
    check_mentions(refusal([](H5File& f) { f.set_attribute("/", "format", std::string("lockstep-har")); }),
                   "no attribute 'version'");
    check_mentions(refusal([&](H5File& f) { format(f, "lockstep-kgat", 1); }),
                   "its format is 'lockstep-kgat', expected 'lockstep-har'", "synth-har");
    check_mentions(refusal([&](H5File& f) { format(f, "lockstep-har", 2); }), "version 2, this program reads version 1",
                   "rebuild");
    CHECK(refusal([&](H5File& f) { format(f, "lockstep-har", 1); }) == "no error");
  }

  TEST_CASE("sizes, datasets and ids that do not fit are named with both values") {
    const test::TempDir dir;
    H5File made = H5File::create(dir / "a.h5");
    made.set_attribute("/", "format", std::string(kKgatFormat.name));
    made.set_attribute("/", "version", kKgatFormat.version);
    made.set_attribute("/", "n", std::int64_t{3});
    made.write<float>("/x", std::vector<float>(6), {3, 2});
    made.write_text("/names", {"a", "b"});
    made.close();
    const H5File file = H5File::open(dir / "a.h5");
    const DatasetFile set(file, kKgatFormat);
    const auto refusal = [&](const auto& action) { return error_of(Fault::data, action); };

    CHECK(set.size("n", 3, 3) == 3);
    check_mentions(refusal([&] { set.size("n", 4, 5); }), "attribute n = 3: must be 4 .. 5");
    CHECK(set.expect("/x", {H5Type::f64, H5Type::f32}, {-1, 2}) == Offsets{3, 2});
    CHECK(set.read<float>("/x", {3, -1}).size() == 6);
    CHECK(set.read_text("/names", 2).size() == 2);
    check_mentions(refusal([&] { set.read<float>("/y", {3}); }), "reading dataset '/y' of '", "no such dataset");
    check_mentions(refusal([&] { set.read<double>("/x", {3, 2}); }), "elements are f32, expected f64");
    check_mentions(refusal([&] { set.read<float>("/x", {-1, 3}); }), "the shape is (3, 2), expected (any, 3)");
    check_mentions(refusal([&] { set.read<float>("/x", {6}); }), "the shape is (3, 2), expected (6)");
    check_mentions(refusal([&] { set.read_text("/names", 3); }), "the shape is (2), expected (3)");

    const std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, -1};
    CHECK_NOTHROW(set.require_ids("/ids", std::span(ids).first(5), 5, "item"));
    check_mentions(refusal([&] { set.require_ids("/ids", std::span(ids).first(5), 4, "item", 2); }), "'/ids'",
                   "item 4 in row 2 is not in 0 .. 3");
    check_mentions(refusal([&] { set.require_ids("/ids", std::span(ids), 5, "item"); }), "item -1 in row 5");
    check_mentions(refusal([&] {
                     set.require_offsets("/o", Offsets{0, 1}, 2, Rise::weak);
                   }),
                   "'/o'", "it runs from 0 to 1, expected 0 to 2");
  }

  TEST_CASE("offsets run from 0 to the end without falling") {
    CHECK(offsets_defect(Offsets{0, 2, 2, 5}, 5, Rise::weak).empty());
    CHECK(offsets_defect(Offsets{0, 2, 2, 5}, 5, Rise::strict) == "does not rise at row 2: 2 after 2");
    CHECK(offsets_defect(Offsets{0, 3, 2, 5}, 5, Rise::weak) == "falls at row 2: 2 after 3");
    CHECK(offsets_defect(Offsets{1, 5}, 5, Rise::weak) == "runs from 1 to 5, expected 0 to 5");
    CHECK(offsets_defect(Offsets{0}, 0, Rise::strict).empty());
    CHECK(offsets_defect(Offsets{}, 0, Rise::weak) == "is empty");
  }
}
