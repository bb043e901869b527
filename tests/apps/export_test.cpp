#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/lockstep.h"
#include "prep/program.hpp"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"

namespace {

ProcessResult export_to(const fs::path& from, const std::string& format, const fs::path& to) {
  return run_lockstep({"export", "--checkpoint", from, "--format", format, "--output", to});
}

}  // namespace

TEST_SUITE("apps.export") {
  TEST_CASE("a model goes through every format that reads back without a change") {
    const TrainedEmulator model = golden_emulator("emulator_conv");
    write_emulator("a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    CHECK(export_to("a.lsem", "h5model", "b.h5").exit_code == 0);
    CHECK(export_to("b.h5", "safetensors", "c.safetensors").exit_code == 0);
    const ProcessResult last = export_to("c.safetensors", "lsem", "d.lsem");
    CHECK(last.exit_code == 0);
    CHECK(last.out.find("10 inputs") != std::string::npos);
    CHECK(export_to("a.lsem", "onnx", "e.onnx").exit_code == 0);
    CHECK(export_to("a.lsem", "torchscript", "f.ts").exit_code == 0);
    for (const char* file : {"a.lsem", "b.h5", "c.safetensors", "e.onnx", "f.ts"}) {
      const auto info = run_lockstep({"info", file});
      CHECK(info.exit_code == 0);
      check_mentions(info.out, ": model file of an emulator, whole", "inputs ");
      const auto help = run_lockstep({"predict", "--checkpoint", file, "--help"});
      CHECK(help.out.find("Apply a trained emulator") != std::string::npos);
    }
    const TrainedEmulator back = read_emulator("d.lsem");
    CHECK(back.network.params().hash() == model.network.params().hash());
    CHECK(back.network.moments() == model.network.moments());
    CHECK(back.metadata.variables == model.metadata.variables);
    // The provenance stays that of the first export.
    CHECK(back.metadata.meta.size() == model.metadata.meta.size() + 2);
    CHECK(back.metadata.meta[3] == std::pair<std::string, std::string>("exported_from", "a.lsem"));
  }

  TEST_CASE("the ending of the output chooses the format, and --format may not contradict it") {
    const TrainedEmulator model = golden_emulator("emulator_aice");
    write_emulator("a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    const auto by_ending = [](const fs::path& to) {
      return run_lockstep({"export", "--checkpoint", "a.lsem", "--output", to});
    };
    for (const auto& [to, kind] : {std::pair{"b.onnx", FileKind::onnx},
                                   {"b.safetensors", FileKind::safetensors},
                                   {"b.h5model", FileKind::model},
                                   {"b.h5", FileKind::model},
                                   {"b.ts", FileKind::torchscript},
                                   {"b.pt", FileKind::torchscript},
                                   {"b.lsem", FileKind::model},
                                   {"b", FileKind::model}}) {
      CAPTURE(to);
      succeeded(by_ending(to));
      CHECK(file_kind(to) == kind);
    }
    check_ended(by_ending("b.csv"), 2, "the ending .csv names no format");
    check_ended(export_to("a.lsem", "lsem", "c.onnx"), 2, "the ending of c.onnx is that of onnx");
    check_ended(export_to("a.lsem", "torchscript", "c.h5"), 2, "the ending of c.h5 is that of h5model");
    CHECK_FALSE(fs::exists("c.onnx"));
    CHECK(export_to("a.lsem", "onnx", "c.net").exit_code == 0);
    // A file of another kind is replaced only by force.
    const std::string before = read_text("b.onnx");
    fs::rename("b.onnx", "b.other");
    check_ended(export_to("a.lsem", "lsem", "b.other"), 2, "it exists and is an ONNX file, which");
    CHECK(read_text("b.other") == before);
    succeeded(run_lockstep({"export", "--checkpoint", "a.lsem", "--format", "lsem", "--output", "b.other", "--force"}));
    CHECK(file_kind("b.other") == FileKind::model);
  }

  TEST_CASE("an export sets the mask of the model") {
    const TrainedEmulator model = golden_emulator("emulator_aice");
    write_emulator("a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    const std::string name = model.metadata.variables.input_names[1];
    const auto masked = [&](const std::string& variable, const std::string& range) {
      return run_lockstep(
          {"export", "--checkpoint", "a.lsem", "--output", "b.lsem", "--mask-variable", variable, "--domain", range});
    };
    CHECK(masked(name, "0.5,1").exit_code == 0);
    const EmulatorMask mask = read_emulator("b.lsem").metadata.mask;
    CHECK(mask.variable == name);
    CHECK(mask.min == 0.5);
    CHECK(mask.max == 1);
    CHECK(masked("nothing", "0.5,1").exit_code == 2);
    CHECK(masked(name, "2,1").exit_code == 2);
  }

  TEST_CASE("a checkpoint of a training run becomes a model, and opens as one") {
    prepare("synth-icecolumn --rows 3000 --output data.h5");
    const ProcessResult trained = run_lockstep({"train", "--config", source_path("configs/emulator-icecolumn.ini"),
                                                "--data.path", "data.h5", "--run-dir", "run", "--steps", "5"});
    CHECK_MESSAGE(trained.exit_code == 0, trained.err);
    const fs::path checkpoint = "run/checkpoints/final.h5";
    for (const char* format : {"lsem", "h5model", "safetensors", "onnx", "torchscript"}) {
      CHECK(export_to(checkpoint, format, format).exit_code == 0);
    }
    const TrainedEmulator model = read_emulator("lsem");
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
    const TrainedEmulator model = golden_emulator("emulator_aice");
    write_emulator("a.lsem", EmulatorFormat::lsem, model.network, model.metadata);
    std::string bytes = read_text("a.lsem");
    bytes[bytes.size() / 2] ^= 1;
    write_text("damaged.lsem", bytes);
    write_text("final.h5.gz", "\x1f\x8b\x08");
    write_text("weights.npy", "\x93NUMPY\x01");
    write_text("noise", "\x01\x02\x03");
    for (const auto& [from, format, code, word] : {std::tuple{"damaged.lsem", "onnx", 3, "CRC-32"},
                                                   {"missing.lsem", "onnx", 2, "no such file"},
                                                   {"final.h5.gz", "onnx", 3, "unpack it first"},
                                                   {"weights.npy", "onnx", 3, "it is a NumPy file, neither"},
                                                   {"noise", "onnx", 3, "name another file, or export the model"},
                                                   {"a.lsem", "onnxx", 2, "onnx"}}) {
      CAPTURE(from);
      const ProcessResult result = export_to(from, format, "out");
      CHECK(result.exit_code == code);
      CHECK(result.err.find(word) != std::string::npos);
      CHECK(occurrences(result.err, "\n") == 1);
      CHECK_FALSE(fs::exists("out"));
    }
    CHECK(export_to("a.lsem", "onnx", "no-such-folder/out").exit_code != 0);
  }
}
