#include <doctest/doctest.h>

#include <algorithm>

#include "lockstep/io/h5.hpp"
#include "lockstep/lockstep.h"
#include "lockstep/models/emulator/emulator_files.hpp"
#include "prep/program.hpp"
#include "support/golden_emulator.hpp"
#include "support/paths.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;

namespace {

test::ProcessResult export_to(const std::filesystem::path& from, const std::string& format,
                              const std::filesystem::path& to) {
  return test::run_lockstep({"export", "--checkpoint", from, "--format", format, "--output", to});
}

}  // namespace

TEST_SUITE("apps.export") {
  TEST_CASE("a model goes through every format that reads back without a change") {
    const test::TempDir dir;
    const TrainedEmulator model = test::golden_emulator("emulator_conv");
    write_emulator(dir / "a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    CHECK(export_to(dir / "a.lsem", "h5model", dir / "b.h5").exit_code == 0);
    CHECK(export_to(dir / "b.h5", "safetensors", dir / "c.safetensors").exit_code == 0);
    const test::ProcessResult last = export_to(dir / "c.safetensors", "lsem", dir / "d.lsem");
    CHECK(last.exit_code == 0);
    CHECK(last.out.find("10 inputs") != std::string::npos);
    CHECK(export_to(dir / "a.lsem", "onnx", dir / "e.onnx").exit_code == 0);
    CHECK(export_to(dir / "a.lsem", "torchscript", dir / "f.ts").exit_code == 0);
    for (const char* file : {"a.lsem", "b.h5", "c.safetensors", "e.onnx", "f.ts"}) {
      const auto info = test::run_lockstep({"info", dir / file});
      CHECK(info.exit_code == 0);
      test::check_mentions(info.out, ": model file of an emulator, whole", "inputs ");
      const auto help = test::run_lockstep({"predict", "--checkpoint", dir / file, "--help"});
      CHECK(help.out.find("Apply a trained emulator") != std::string::npos);
    }
    const TrainedEmulator back = read_emulator(dir / "d.lsem");
    CHECK(back.network.params().hash() == model.network.params().hash());
    CHECK(back.network.moments() == model.network.moments());
    CHECK(back.metadata.variables == model.metadata.variables);
    // The provenance stays that of the first export.
    CHECK(back.metadata.meta.size() == model.metadata.meta.size() + 2);
    CHECK(back.metadata.meta[3] == std::pair<std::string, std::string>("exported_from", "a.lsem"));
  }

  TEST_CASE("an export sets the mask of the model") {
    const test::TempDir dir;
    const TrainedEmulator model = test::golden_emulator("emulator_aice");
    write_emulator(dir / "a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    const std::string name = model.metadata.variables.input_names[1];
    const auto masked = [&](const std::string& variable, const std::string& range) {
      return test::run_lockstep({"export", "--checkpoint", dir / "a.lsem", "--output", dir / "b.lsem",
                                 "--mask-variable", variable, "--domain", range});
    };
    CHECK(masked(name, "0.5,1").exit_code == 0);
    const EmulatorMask mask = read_emulator(dir / "b.lsem").metadata.mask;
    CHECK(mask.variable == name);
    CHECK(mask.min == 0.5);
    CHECK(mask.max == 1);
    CHECK(masked("nothing", "0.5,1").exit_code == 2);
    CHECK(masked(name, "2,1").exit_code == 2);
  }

  TEST_CASE("a checkpoint of a training run becomes a model, and opens as one") {
    const test::TempDir dir;
    test::prepare(dir.path(), "synth-icecolumn --rows 3000 --output data.h5");
    const test::ProcessResult trained =
        test::run_lockstep({"train", "--config", test::source_path("configs/emulator-icecolumn.ini"), "--data.path",
                            dir / "data.h5", "--run-dir", dir / "run", "--steps", "5"});
    CHECK_MESSAGE(trained.exit_code == 0, trained.err);
    const std::filesystem::path checkpoint = dir / "run/checkpoints/final.h5";
    for (const char* format : {"lsem", "h5model", "safetensors", "onnx", "torchscript"}) {
      CHECK(export_to(checkpoint, format, dir / format).exit_code == 0);
    }
    const TrainedEmulator model = read_emulator(dir / "lsem");
    const H5File file = H5File::open(checkpoint);
    for (const Param& param : model.network.params().all()) {
      const auto expected = file.read<float>("/model/" + param.name);
      const auto found = param.value.span<float>();
      CHECK_MESSAGE(std::equal(expected.begin(), expected.end(), found.begin(), found.end()), param.name);
    }
    CHECK(model.network.moments().input_mean == file.read<double>("/norm/input_mean"));
    CHECK(model.metadata.variables.output_names == std::vector<std::string>{"aice", "tsfc", "fcond"});
    if (!LOCKSTEP_CAPI_HDF5) return;
    lsem_model* opened = nullptr;
    CHECK(lsem_open(checkpoint.c_str(), &opened) == LSEM_OK);
    CHECK(lsem_n_in(opened) == 9);
    CHECK(lsem_selftest(opened) == LSEM_OK);
    lsem_close(opened);
  }

  TEST_CASE("a failed export prints one line, exits with a code and leaves no file") {
    const test::TempDir dir;
    const TrainedEmulator model = test::golden_emulator("emulator_aice");
    write_emulator(dir / "a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    std::string bytes = test::read_text(dir / "a.lsem");
    bytes[bytes.size() / 2] ^= 1;
    test::write_text(dir / "damaged.lsem", bytes);
    test::write_text(dir / "final.h5.gz", "\x1f\x8b\x08");
    test::write_text(dir / "weights.npy", "\x93NUMPY\x01");
    test::write_text(dir / "noise", "\x01\x02\x03");
    for (const auto& [from, format, code, word] : {std::tuple{"damaged.lsem", "onnx", 3, "CRC-32"},
                                                   {"missing.lsem", "onnx", 2, "no such file"},
                                                   {"final.h5.gz", "onnx", 3, "unpack it first"},
                                                   {"weights.npy", "onnx", 3, "it is a NumPy file, neither"},
                                                   {"noise", "onnx", 3, "name another file, or export the model"},
                                                   {"a.lsem", "onnxx", 2, "onnx"}}) {
      CAPTURE(from);
      const test::ProcessResult result = export_to(dir / from, format, dir / "out");
      CHECK(result.exit_code == code);
      CHECK(result.err.find(word) != std::string::npos);
      CHECK(test::occurrences(result.err, "\n") == 1);
      CHECK_FALSE(std::filesystem::exists(dir / "out"));
    }
    CHECK(export_to(dir / "a.lsem", "onnx", dir / "no-such-folder" / "out").exit_code != 0);
  }
}
