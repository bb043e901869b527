#include "lockstep/models/har/har_weights.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"
#include "support/temp_dir.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Har network(std::uint64_t seed) {
  HarArch arch;
  arch.channels = 3;
  arch.length = 20;
  arch.patch = 5;
  arch.dim = 12;
  arch.layers = 1;
  arch.heads = 2;
  arch.head_width = 8;
  arch.mlp = 10;
  return Har(arch, DType::f32, seed);
}

bool of_encoder(const Param& p) { return p.name.starts_with("encoder."); }

/// Writes the encoder's weights, named without prefix, except the parameter `except`.
void write_h5(const std::filesystem::path& path, const Har& net, const std::string& except = "") {
  H5File file = H5File::create(path);
  for (const Param& p : net.params().all()) {
    if (!of_encoder(p) || p.name == except) continue;
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < p.shape.rank(); ++axis) shape.push_back(p.shape[axis]);
    const std::string name = "/" + p.name.substr(8);
    for (std::size_t at = name.find('/', 1); at != std::string::npos; at = name.find('/', at + 1))
      file.create_group(name.substr(0, at));
    file.write<float>(name, p.value.span<float>(), shape);
  }
  file.close();
}

/// source  github.com/huggingface/safetensors, "Format"
void write_safetensors(const std::filesystem::path& path, const Har& net) {
  nlohmann::json header;
  std::string data;
  for (const Param& p : net.params().all()) {
    if (!of_encoder(p)) continue;
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < p.shape.rank(); ++axis) shape.push_back(p.shape[axis]);
    const std::size_t size = p.value.size_bytes();
    header[p.name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + size}}};
    data.append(static_cast<const char*>(p.value.raw()), size);
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  write_text(path, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

}  // namespace

TEST_SUITE("models.har_weights") {
  TEST_CASE("HDF5 and safetensors files replace the encoder's weights and no others") {
    const TempDir dir;
    Har from = network(1), untouched = network(2);
    write_h5(dir / "encoder.h5", from);
    write_safetensors(dir / "encoder.safetensors", from);
    for (const char* name : {"encoder.h5", "encoder.safetensors"}) {
      CAPTURE(name);
      Har net = network(2);
      load_encoder_weights(net, dir / name);
      for (const Param& p : net.params().all())
        CHECK(same_bits(p.value, (of_encoder(p) ? from : untouched).params().at(p.name).value));
    }
  }

  TEST_CASE("weights that are missing, unknown or of a wrong shape are an error that names them") {
    const TempDir dir;
    const auto refused = [&](const std::string& message) {
      Har net = network(2);
      CHECK_THROWS_WITH_AS(load_encoder_weights(net, dir / "encoder.h5"), doctest::Contains(message.c_str()), Error);
    };
    refused("no file");
    write_h5(dir / "encoder.h5", network(1), "encoder.output_ln.bias");
    refused("output_ln.bias (12): missing");
    HarArch other = network(1).arch();
    other.mlp = 16;
    write_h5(dir / "encoder.h5", Har(other, DType::f32, 1));
    refused("encoder_layers.0.mlp.dense1.weight (10, 12): has shape (16, 12)");
    other.mlp = 10;
    other.layers = 2;
    write_h5(dir / "encoder.h5", Har(other, DType::f32, 1));
    refused("encoder_layers.1.mha.key_dense.bias (16): not in this network");
  }
}
