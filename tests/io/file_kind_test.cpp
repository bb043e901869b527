#include "lockstep/io/file_kind.hpp"

#include <map>

#include "lockstep/io/seal.hpp"
#include "support/test.hpp"

TEST_SUITE("io.file_kind") {
  TEST_CASE("a file is recognised by its first bytes") {
    const auto zip = [](const std::string& member) {
      return std::string("PK\x03\x04") + std::string(22, '\0') + static_cast<char>(member.size()) +
             std::string(3, '\0') + member;
    };
    const std::pair<std::string, FileKind> files[] = {
        {zip("archive/data.pkl"), FileKind::pytorch},
        {zip("weights.npy"), FileKind::numpy},
        {"\x80\x02\x8a\x0al", FileKind::pytorch},
        {"\x93NUMPY\x01", FileKind::numpy},
        {"CDF\x02", FileKind::netcdf},
        {std::string("\x40\0\0\0\0\0\0\0{\"a\": 1}", 16), FileKind::safetensors},
        {"LSEMUL01", FileKind::model},
        {"[optim]\nlr = 1\n" + std::string(5000, '#') + "\n", FileKind::configuration},
        {"just words\n", FileKind::text},
        {"\x01\x02\x03", FileKind::unknown},
        {"", FileKind::empty},
        {"\x1f\x8b\x08", FileKind::compressed},
        {"\xfd\x37zXZ", FileKind::compressed},
        {"BZh9", FileKind::compressed},
        {"\x28\xb5\x2f\xfd", FileKind::compressed},
        {"\x89HDF\r\n\x1a\n and no more", FileKind::damaged_hdf5}};
    for (const auto& [bytes, kind] : files) {
      CAPTURE(name(kind));
      write_text("file", bytes);
      CHECK(file_kind("file") == kind);
      // So does the error of a program that expects HDF5.
      const std::string message = error_of(Fault::data, [&] { H5File::open("file"); });
      CAPTURE(message);
      CHECK((kind == FileKind::damaged_hdf5 || message.ends_with(std::string("; it is ") + name(kind))));
    }
    CHECK(file_kind(golden_path("emulator_aice.onnx")) == FileKind::onnx);
    CHECK(file_kind(golden_path("emulator_aice.ts")) == FileKind::torchscript);
    CHECK_THROWS_AS(file_kind("missing"), Error);
    CHECK_THROWS_AS(file_kind("."), Error);
  }

  TEST_CASE("an output replaces a file of its own kind, and only that, unless it is forced") {
    const auto h5 = [](const fs::path& path, const std::map<std::string, std::string>& attributes) {
      H5File file = H5File::create(path);
      for (const auto& [name, value] : attributes) file.set_attribute("/", name, value);
      file.close();
    };
    fs::create_directories("run/checkpoints");
    h5("old-checkpoint", {{"format", "lockstep-checkpoint"}});
    h5("old-model", {{"format", "lockstep-emulator-model"}});
    h5("old-set", {{"format", "lockstep-har"}});
    h5("old-predictions", {{"lockstep", "1.2"}, {"command", "lockstep predict"}});
    h5("theirs", {{"command", "ncks"}});
    write_text("notes", "words\n");
    write_text("settings", "[optim]\nlr = 1\n");
    write_text("unknown", "\x01\x02");
    write_text("nothing", "");
    h5("run/checkpoints/final.h5", {{"format", "lockstep-checkpoint"}});
    const std::vector<std::string> present = {"old-checkpoint", "old-model", "old-set",  "old-predictions",
                                              "theirs",         "notes",     "settings", "unknown"};
    for (const std::string& path : present)
      for (const FileKind kind : {FileKind::checkpoint, FileKind::model, FileKind::data_set, FileKind::predictions,
                                  FileKind::text, FileKind::onnx}) {
        CAPTURE(path);
        CAPTURE(name(kind));
        require_replaceable(path, kind, true);
        if (file_kind(path) == kind) {
          require_replaceable(path, kind, false);
        } else {
          CHECK(contains(error_of(Fault::usage, [&] { require_replaceable(path, kind, false); }),
                         join("it exists and is ", name(file_kind(path)), ", which ", name(kind), " would replace")));
          CHECK(
              error_of(Fault::usage, [&] { require_replaceable(path, kind, {}); }).ends_with("remove that file first"));
        }
      }
    CHECK(file_kind("old-predictions") == FileKind::predictions);
    for (const char* path : {"nothing", "new", "run/checkpoints/new.h5"})
      require_replaceable(path, FileKind::checkpoint, false);
    fs::create_symlink("run/checkpoints/final.h5", "link");
    for (const char* path : {"run/checkpoints/final.h5", "link", "run/checkpoints/../checkpoints/final.h5"})
      CHECK(contains(error_of(Fault::usage, [&] { require_replaceable(path, FileKind::checkpoint, false); }),
                     "it exists in a folder of checkpoints"));
    require_replaceable("link", FileKind::checkpoint, true);
    CHECK_THROWS_AS(require_replaceable("notes", FileKind::text, true, {"notes"}), Error);  // --force spares no input
  }

  TEST_CASE("an HDF5 file is recognised by its format, and a wrong end mark before it is opened") {
    for (const auto& [format, kind] : {std::pair{"lockstep-checkpoint", FileKind::checkpoint},
                                       {"lockstep-checkpoint-part", FileKind::checkpoint_part},
                                       {"lockstep-har", FileKind::data_set},
                                       {"lockstep-emulator-model", FileKind::model},
                                       {"climate", FileKind::hdf5}}) {
      CAPTURE(format);
      const fs::path path = format;
      H5File file = H5File::create(path);
      file.set_attribute("/", "format", std::string(format));
      file.close();
      CHECK(file_kind(path) == kind);
      append_end_mark(path);
      CHECK(file_kind(path) == kind);
      std::string bytes = read_text(path);
      bytes[bytes.size() / 2] ^= 1;
      write_text(path, bytes);
      CHECK(file_kind(path) == FileKind::damaged_hdf5);
    }
  }
}
