#include "lockstep/io/dataset_file.hpp"

#include <chrono>

#include "io/h5_internal.hpp"
#include "io/variable_strings.hpp"
#include "lockstep/prep/format.hpp"
#include "lockstep/tasks/emulator/emulator_data.hpp"
#include "lockstep/tasks/har/har_data.hpp"
#include "lockstep/tasks/hrm/puzzle_data.hpp"
#include "lockstep/tasks/kgat/kgat_data.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "prep/program.hpp"
#include "support/test.hpp"

namespace {
using Offsets = std::vector<std::int64_t>;

/// The five kinds: a command that makes a small set, what training reads of it, and the datasets that it does not read.
struct Kind {
  std::string command;
  std::function<std::uint64_t(const fs::path&, DataMemory&)> hash;
  std::vector<std::string> unread;
};
const std::vector<Kind> kKinds = {
    {"synth-lorenz96 --members 3 --steps 20 --size 5",
     [](const auto& path, DataMemory& p) { return EmulatorData::read(path, p).hash; },
     {"/cell", "/lat", "/lon", "/source", "/time"}},
    {"synth-har --subjects 3 --seconds 3",
     [](const auto& path, DataMemory& p) { return HarData::read(path, p).hash; },
     {"/test/subject", "/train/subject", "/val/subject"}},
    {"synth-kg --users 30 --items 80 --tastes 4 --train-items 6 --val-fraction 0.1",
     [](const auto& path, DataMemory& p) { return KgData::read(path, p).hash; },
     {"/adj/random_walk", "/adj/symmetric", "/kg/triple", "/node/degree"}},
    {"synth-sudoku --order 2 --train 6 --test 3",
     [](const auto& path, DataMemory& p) { return PuzzleData::open(path, p).hash; },
     {}},
    {"synth-sequences --users 10",
     [](const auto& path, DataMemory& p) { return SequenceData::read(path, p).hash; },
     {"/inter/time_raw", "/items/count", "/synth/category", "/synth/cluster", "/users/raw_id"}},
};

/// Flips a bit of the values of a dataset as a disk does: the checksums stay.
void flip_bit(const fs::path& path, const std::string& dataset) {
  const h5::Id file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose),
      id(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT), H5Dclose), type(H5Dget_type(id), H5Tclose),
      space(H5Dget_space(id), H5Sclose);
  std::vector<char> bytes(to_size(H5Sget_simple_extent_npoints(space)) * H5Tget_size(type));
  CHECK(H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0);
  bytes[bytes.size() / 2] ^= 1;
  CHECK(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0);
}

std::string refusal(const std::function<void()>& read) { return error_of(Fault::data, read); }

std::vector<std::string> problems_of(const fs::path& path) {
  const H5File file = H5File::open(path);
  std::vector<std::string> remarks;
  return prep::format_of(file).check(file, remarks);
}
}  // namespace

TEST_SUITE("io.dataset_file") {
  TEST_CASE("a file of another format or version is refused, with what to do") {
    const auto refusal = [&](const std::function<void(H5File&)>& fill) {
      H5File made = H5File::create("a.h5");
      fill(made);
      made.close();
      const H5File file = H5File::open("a.h5");
      return error_of(Fault::data, [&] { DatasetFile(file, kHarFormat); });
    };
    const auto format = [](H5File& f, const std::string& name, std::int64_t version) {
      f.set_attribute("/", "format", name);
      f.set_attribute("/", "version", version);
    };
    check_mentions(refusal([](H5File&) {}), "opening data set", "a.h5", "no attribute 'format'",
                   "make one with lockstep-prep uci-har");
    check_mentions(refusal([](H5File& f) { f.set_attribute("/", "format", std::string("lockstep-har")); }),
                   "no attribute 'version'");
    check_mentions(refusal([&](H5File& f) { format(f, "lockstep-kgat", 1); }),
                   "its format is 'lockstep-kgat', expected 'lockstep-har'", "synth-har");
    check_mentions(refusal([&](H5File& f) { format(f, "lockstep-har", 2); }), "version 2, this program reads version 1",
                   "rebuild");
    CHECK(refusal([&](H5File& f) { format(f, "lockstep-har", 1); }) == "no error");
  }

  TEST_CASE("sizes, datasets and ids that do not fit are named with both values") {
    H5File made = H5File::create("a.h5");
    made.set_attribute("/", "format", std::string(kKgatFormat.name));
    made.set_attribute("/", "version", kKgatFormat.version);
    made.set_attribute("/", "n", std::int64_t{3});
    made.write<float>("/x", std::vector<float>(6), {3, 2});
    made.write_text("/names", {"a", "b"});
    made.close();
    const H5File file = H5File::open("a.h5");
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

  TEST_CASE("the check and every reader refuse a flipped bit in any dataset of any kind") {
    for (const Kind& kind : kKinds) {
      CAPTURE(kind.command);
      const fs::path good = "good.h5", bad = "bad.h5";
      prepare(kind.command + " -o good.h5");
      CHECK(problems_of(good).empty());
      LocalDataMemory data_memory;
      const std::uint64_t hash = kind.hash(good, data_memory);
      std::vector<std::string> unread;
      for (const std::string& dataset : H5File::open(good).datasets_under("/")) {
        if (H5File::open(good).info(dataset).shape.front() == 0) continue;
        CAPTURE(dataset);
        fs::copy_file(good, bad, fs::copy_options::overwrite_existing);
        fs::last_write_time(bad, fs::file_time_type::clock::now() - std::chrono::minutes(1));
        CHECK(kind.hash(bad, data_memory) == hash);  // known to be whole, as long as it does not change
        flip_bit(bad, dataset);
        const std::string where = "dataset '" + dataset + "' is damaged";
        check_mentions(refusal([&] { problems_of(bad); }), "bad.h5", where, "copy it again, or rebuild it");
        std::uint64_t found = 0;
        const std::string training = refusal([&] { found = kind.hash(bad, data_memory); });
        if (training == "no error") {
          unread.push_back(dataset);
          CHECK(found == hash);
        } else {
          check_mentions(training, "bad.h5", where, "copy it again, or rebuild it");
        }
      }
      CHECK(unread == kind.unread);
      // The programs say so, too.
      prepare("check good.h5");
      check_mentions(prepare("check bad.h5", 3), "is damaged (checksum");
    }
  }

  TEST_CASE("a changed attribute of any kind is refused") {
    for (const Kind& kind : kKinds) {
      CAPTURE(kind.command);
      prepare(kind.command + " -o a.h5");
      const hid_t file = H5Fopen("a.h5", H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
      H5Aclose(H5Acreate2(file, "note", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT));
      H5Sclose(space);
      H5Fclose(file);
      LocalDataMemory data_memory;
      for (const std::string& message :
           {refusal([&] { problems_of("a.h5"); }), refusal([&] { kind.hash("a.h5", data_memory); })})
        check_mentions(message, "a.h5", "names, shapes or attributes are damaged", "copy it again, or rebuild it");
    }
  }

  TEST_CASE("a data set that exceeds the memory is refused before it is loaded") {
    LocalDataMemory data_memory;
    const std::string message = test::error_of(Fault::usage, [&] {
      data_memory.place(DType::f64, {1 << 20, 1 << 20, 9}, [](const Tensor&) { FAIL("it is loaded"); });
    });
    check_mentions(message, "an array (1048576, 1048576, 9) needs", "choose a smaller data set");
  }

  TEST_CASE("older files, without checksums and with strings of variable length, are read") {
    for (const Kind& kind : kKinds) {
      CAPTURE(kind.command);
      const fs::path path = "a.h5";
      prepare(kind.command + " -o a.h5");
      CHECK(read_text(path).find("GCOL") == std::string::npos);  // a heap: strings of variable length
      LocalDataMemory data_memory;
      const std::uint64_t hash = kind.hash(path, data_memory);
      std::vector<std::string> datasets = H5File::open(path).datasets_under("/");
      for (const std::string& dataset : datasets)
        if (H5File::open(path).info(dataset).type == H5Type::text) make_variable(path, dataset);
      make_variable(path, "/", "format");
      const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
      H5Adelete(file, "structure_xxh3");
      for (const std::string& dataset : datasets)
        if (H5Aexists_by_name(file, dataset.c_str(), "xxh3", H5P_DEFAULT) > 0)
          H5Adelete_by_name(file, dataset.c_str(), "xxh3", H5P_DEFAULT);
      H5Fclose(file);
      CHECK(kind.hash(path, data_memory) == hash);
      check_mentions(prepare("check a.h5"), "no checksums", "prepare it again", "a.h5: good");
    }
  }

  TEST_CASE("offsets that do not run from 0 to the end, or that fall, are named") {
    CHECK(offsets_defect(Offsets{0, 2, 2, 5}, 5, Rise::weak).empty());
    CHECK(offsets_defect(Offsets{0, 2, 2, 5}, 5, Rise::strict) == "does not rise at row 2: 2 after 2");
    CHECK(offsets_defect(Offsets{0, 3, 2, 5}, 5, Rise::weak) == "falls at row 2: 2 after 3");
    CHECK(offsets_defect(Offsets{1, 5}, 5, Rise::weak) == "runs from 1 to 5, expected 0 to 5");
    CHECK(offsets_defect(Offsets{0}, 0, Rise::strict).empty());
    CHECK(offsets_defect(Offsets{}, 0, Rise::weak) == "is empty");
  }
}
