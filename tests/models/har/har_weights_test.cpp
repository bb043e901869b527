#include "lockstep/models/har/har_weights.hpp"

#include "support/test.hpp"
#include "support/weight_files.hpp"

namespace {

Har network(std::uint64_t seed) {
  return Har(small_har(HarArch::Mode::flatten, HarArch::Pool::attention, true), DType::f32, seed);
}

bool of_encoder(const std::string& name) { return name.starts_with("encoder."); }

NamedArrays encoder_of(const Har& net) {
  NamedArrays arrays = arrays_of(net.params());
  std::erase_if(arrays.arrays, [](const NamedArray& array) { return !of_encoder(array.name); });
  return arrays;
}

/// Writes the encoder's weights, named without prefix, except the parameter `except`.
void write_h5(const fs::path& path, const Har& net, const std::string& except = "") {
  H5File file = H5File::create(path);
  for (const NamedArray& array : encoder_of(net).arrays) {
    if (array.name == except) continue;
    const std::string name = "/" + array.name.substr(8);
    for (std::size_t at = name.find('/', 1); at != std::string::npos; at = name.find('/', at + 1))
      file.create_group(name.substr(0, at));
    file.write<float>(name, std::get<std::vector<float>>(array.values), array.shape);
  }
  file.close();
}

}  // namespace

TEST_SUITE("models.har_weights") {
  TEST_CASE("HDF5 and safetensors files replace the encoder's weights and no others") {
    Har from = network(1), untouched = network(2);
    write_h5("encoder.h5", from);
    write_text("encoder.safetensors", safetensors_bytes(encoder_of(from)));
    for (const char* name : {"encoder.h5", "encoder.safetensors"}) {
      CAPTURE(name);
      Har net = network(2);
      load_encoder_weights(net, name);
      for (const Param& p : net.params().all())
        CHECK(same_bits(p.value, (of_encoder(p.name) ? from : untouched).params().at(p.name).value));
    }
  }

  TEST_CASE("weights that are missing, unknown or of a wrong shape are an error that names them") {
    const auto refused = [&](const std::string& message) {
      Har net = network(2);
      CHECK_THROWS_WITH_AS(load_encoder_weights(net, "encoder.h5"), doctest::Contains(message.c_str()), Error);
    };
    refused("no file");
    write_h5("encoder.h5", network(1), "encoder.output_ln.bias");
    refused("output_ln.bias (12): missing");
    HarArch other = network(1).arch();
    other.mlp = 16;
    write_h5("encoder.h5", Har(other, DType::f32, 1));
    refused("encoder_layers.0.mlp.dense1.weight (10, 12): has shape (16, 12)");
    other.mlp = 10;
    other.layers = 3;
    write_h5("encoder.h5", Har(other, DType::f32, 1));
    refused("encoder_layers.2.mha.key_dense.bias (16): not in this network");
  }
}
