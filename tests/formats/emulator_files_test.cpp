#include "lockstep/formats/emulator_files.hpp"

#include <zlib.h>

#include "formats/files.hpp"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"

namespace {

constexpr EmulatorFormat kReadable[] = {EmulatorFormat::h5model, EmulatorFormat::lsem, EmulatorFormat::safetensors};

std::string values_of(const Emulator& network) {
  std::string out;
  for (const Param& param : network.params().all())
    out += param.name + std::string(static_cast<const char*>(param.value.raw()), param.value.size_bytes());
  return out;
}

void check_equal(const TrainedEmulator& a, const TrainedEmulator& b) {
  CHECK(a.network.arch() == b.network.arch());
  CHECK(a.network.moments() == b.network.moments());
  CHECK(a.network.dtype() == b.network.dtype());
  CHECK(values_of(a.network) == values_of(b.network));
  CHECK(a.metadata.variables == b.metadata.variables);
  CHECK(a.metadata.meta == b.metadata.meta);
  CHECK(a.metadata.mask.variable == b.metadata.mask.variable);
  CHECK(a.metadata.mask.min == b.metadata.mask.min);
  CHECK(a.metadata.mask.max == b.metadata.mask.max);
  CHECK(a.metadata.mask.mode == b.metadata.mask.mode);
}

/// The reason for which a model is refused, or "opened".
std::string refusal(const std::function<void()>& open) {
  try {
    open();
  } catch (const ModelFileError& error) {
    constexpr const char* kReasons[] = {"unreadable", "format", "damaged", "selftest"};
    return kReasons[to_size(error.reason())];
  }
  return "opened";
}

std::string refusal(const std::string& bytes) {
  return refusal([&] { read_emulator(std::as_bytes(std::span(bytes)), "test"); });
}

/// Replaces the checksum by that of the bytes before it.
std::string with_crc(std::string bytes) {
  bytes.resize(bytes.size() - 4);
  const auto crc =
      static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  return bytes.append(reinterpret_cast<const char*>(&crc), 4);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(from.size() == to.size());
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_SUITE("formats.emulator_files") {
  TEST_CASE("every readable format reproduces the same model, bit for bit") {
    for (const std::string& name : golden_emulators()) {
      for (const DType dtype : {DType::f32, DType::f64}) {
        for (const EmulatorFormat format : kReadable) {
          CAPTURE(name);
          CAPTURE(lockstep::name(format));
          const TrainedEmulator written = golden_emulator(name, dtype);
          write_emulator("model", format, written.network, written.metadata);
          EmulatorSelfTest selftest;
          check_equal(read_emulator("model", &selftest), written);
          CHECK(selftest.rows == 4);
          CHECK(selftest.y == make_selftest(written.network).y);
        }
      }
    }
  }

  TEST_CASE("infinite bounds and empty metadata survive a round trip") {
    TrainedEmulator written = golden_emulator("emulator_aice");
    written.metadata.mask = {};
    written.metadata.meta.clear();
    for (const EmulatorFormat format : kReadable) {
      write_emulator("model", format, written.network, written.metadata);
      check_equal(read_emulator("model"), written);
    }
  }

  TEST_CASE("a changed byte or a truncation is refused at any offset") {
    const TrainedEmulator model = golden_emulator("emulator_act_tanh");
    for (const EmulatorFormat format : kReadable) {
      CAPTURE(lockstep::name(format));
      write_emulator("model", format, model.network, model.metadata);
      const std::string whole = read_text("model");
      for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 700) {
        CAPTURE(at);
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
        write_text("damaged", damaged);
        CHECK(refusal([&] { read_emulator("damaged"); }) != "opened");
        write_text("damaged", whole.substr(0, at));
        CHECK(refusal([&] { read_emulator("damaged"); }) != "opened");
      }
    }
  }

  TEST_CASE("invalid contents with a valid checksum are refused") {
    const TrainedEmulator model = golden_emulator("emulator_act_tanh");
    const std::string whole = files::lsem_bytes(model.network, model.metadata);
    REQUIRE(refusal(whole) == "opened");
    const std::string n_in = join("\nn_in=", model.network.arch().n_in, "\n");
    CHECK(refusal(with_crc(replaced(whole, "activation=tanh", "activation=relu"))) == "selftest");
    CHECK(refusal(with_crc(replaced(whole, "activation=tanh", "activation=tanj"))) == "damaged");
    CHECK(refusal(with_crc(replaced(whole, n_in, "\nn_in=9\n"))) == "damaged");
    CHECK(refusal(with_crc(replaced(whole, "\nversion=1\n", "\nversion=2\n"))) == "format");
    CHECK(refusal(with_crc(replaced(whole, "format=lockstep-emulator-model", "format=lockstep-emulator-novel"))) ==
          "format");
    CHECK(refusal(with_crc(replaced(whole, "tensor.network.0.weight=f32", "tensor.network.0.weight=f64"))) ==
          "damaged");
    CHECK(refusal(with_crc(replaced(whole, "tensor.network.0.weight", "tensor.network.9.weight"))) == "damaged");
    CHECK(refusal(with_crc(replaced(whole, "tensor.network.0.weight=f32 ", "tensor.network.0.weight=f32,"))) ==
          "damaged");
    CHECK(refusal(with_crc(replaced(whole, "LSEMUL01", "LSEMUL02"))) == "format");
  }

  TEST_CASE("a header with wrong sizes is refused as damaged") {
    const TrainedEmulator model = golden_emulator("emulator_act_tanh");
    const std::string whole = files::lsem_bytes(model.network, model.metadata);
    for (const std::uint64_t length :
         {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{whole.size() - 19}}) {
      std::string lying = whole;
      std::memcpy(lying.data() + 8, &length, 8);
      CHECK(refusal(with_crc(lying)) == "damaged");
    }
    const std::size_t line = whole.find("tensor.network.0.weight=f32 ");
    const std::size_t offset = whole.find('\n', line) - 16;
    for (const char* where : {"0000000000000000", "0000000000000001", "9999999999999999", "0000000000999936"}) {
      std::string lying = whole;
      lying.replace(offset, 16, where);
      CHECK(refusal(with_crc(lying)) == "damaged");
    }
    const std::string safe = files::safetensors_bytes(model.network, model.metadata);
    for (const std::uint64_t length : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{safe.size()}}) {
      std::string lying = safe;
      std::memcpy(lying.data(), &length, 8);
      CHECK(refusal(lying) == "damaged");
    }
  }

  TEST_CASE("files that are not readable models are refused for the right reason") {
    CHECK(refusal("") == "format");
    CHECK(refusal("a text file\n") == "format");
    CHECK(refusal([&] { read_emulator("missing"); }) == "unreadable");
    CHECK(refusal([&] { read_emulator("."); }) == "unreadable");
    CHECK(refusal([&] { read_emulator(golden_path("emulator_aice.h5")); }) == "format");
  }

  TEST_CASE("weights that are not finite are not written, and the old file is kept") {
    TrainedEmulator model = golden_emulator("emulator_aice");
    for (const EmulatorFormat format : {EmulatorFormat::h5model, EmulatorFormat::lsem, EmulatorFormat::safetensors,
                                        EmulatorFormat::onnx, EmulatorFormat::torchscript}) {
      TrainedEmulator broken = golden_emulator("emulator_aice");
      write_emulator("model", format, model.network, model.metadata);
      const std::string before = read_text("model");
      broken.network.params().at("network.2.weight").value.data<float>()[3] = NAN;
      CHECK_THROWS_WITH_AS(write_emulator("model", format, broken.network, broken.metadata),
                           doctest::Contains("network.2.weight"), Error);
      CHECK(read_text("model") == before);
      CHECK(std::distance(fs::directory_iterator("."), {}) == 1);
    }
  }

  TEST_CASE("an unknown format gets the list of formats") {
    CHECK_THROWS_WITH_AS(named<EmulatorFormat>("keras", "model format"),
                         "model format 'keras': unknown; choose one of h5model, lsem, onnx, torchscript, safetensors",
                         Error);
  }
}
