#include <doctest/doctest.h>

#include <filesystem>
#include <utility>

#include "lockstep/io/h5.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

ProcessResult verify(const std::string& file, const std::string& how = "--no-double", int ranks = 1) {
  return test::run_lockstep({"verify", "--model", "har", "--golden", file, how}, ranks);
}

}  // namespace

TEST_SUITE("apps.har_commands") {
  TEST_CASE("verify passes on every reference file of activities, in both precisions, and on three ranks") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(test::golden_path())) {
      const std::string path = entry.path().string();
      if (!entry.path().filename().string().starts_with("har_")) continue;
      CAPTURE(path);
      ++files;
      for (const char* how : {"--no-double", "--double"}) {
        const ProcessResult r = verify(path, how);
        INFO(r.out, r.err);
        CHECK(r.exit_code == 0);
        CHECK(contains(r.out, "arrays agree"));
      }
    }
    CHECK(files == 4);
    // Without a model the file is read as one of emulators.
    const ProcessResult other = test::run_lockstep({"verify", "--golden", test::golden_path("har_accum_clip.h5")});
    CHECK(other.exit_code == 3);
    CHECK(contains(other.err, "is it a reference file of emulator? --model names another kind"));
    for (const char* how : {"--double", "--reproducible"}) {
      const ProcessResult r = verify(test::golden_path("har_accum_clip.h5"), how, 3);
      INFO(r.out, r.err);
      CHECK(r.exit_code == 0);
    }
  }

  TEST_CASE("verify fails when a weight, a gradient or a pixel of the reference is another") {
    const test::TempDir dir;
    const std::string path = (dir / "spoilt.h5").string();
    const auto spoilt = [&](const std::string& golden, const std::string& dataset) {
      const H5File from = H5File::open(test::golden_path(golden));
      H5File to = H5File::create(path);
      for (const std::string& name : from.attributes("/")) to.set_attribute("/", name, from.attribute("/", name));
      for (const std::string& name : from.datasets_under("/")) {
        if (name.starts_with("/schedule") || name.starts_with("/early_stopping")) continue;
        const H5Info info = from.info(name);
        to.create_group(name.substr(0, name.rfind('/')));
        if (info.type == H5Type::f32 || info.type == H5Type::f64) {
          std::vector<double> values = from.read<double>(name);
          if (name == dataset) values[values.size() / 2] += 0.01;
          if (info.type == H5Type::f32)
            to.write<float>(name, std::vector<float>(values.begin(), values.end()), info.shape);
          else
            to.write<double>(name, values, info.shape);
        } else {
          std::vector<std::int64_t> values = from.read<std::int64_t>(name);
          if (name == dataset) values[values.size() / 2] ^= 1;
          to.write<std::int64_t>(name, values, info.shape);
        }
      }
      to.close();
      return verify(path);
    };
    CHECK(spoilt("har_frozen.h5", "").exit_code == 0);
    for (const auto& [golden, dataset] :
         {std::pair{"har_frozen.h5", "/weights/encoder.encoder_layers.0.mha.value_dense.weight"},
          {"har_frozen.h5", "/grads_f64/pooling.attention.0.weight"},
          {"har_frozen.h5", "/after_steps_f64/classifier.head.0.weight"},
          {"har_raster.h5", "/outputs/mask"}}) {
      CAPTURE(dataset);
      const ProcessResult r = spoilt(golden, dataset);
      CHECK(r.exit_code == 1);
      CHECK(contains(r.out, "FAIL"));
    }
    CHECK(verify((dir / "missing.h5").string()).exit_code == 2);
  }

  TEST_CASE("a reference with an attribute of another kind is refused by name") {
    const test::TempDir dir;
    const std::string path = (dir / "other.h5").string();
    const H5File from = H5File::open(test::golden_path("har_frozen.h5"));
    H5File to = H5File::create(path);
    for (const std::string& name : from.attributes("/")) to.set_attribute("/", name, from.attribute("/", name));
    to.set_attribute("/", "hidden_dims", std::vector<double>{});
    for (const char* group : {"/weights", "/inputs/images"}) to.create_group(group);
    to.close();
    const ProcessResult r = verify(path);
    CAPTURE(r.err);
    CHECK(r.exit_code == 3);
    CHECK(contains(r.err, "attribute 'hidden_dims' of '/' of '" + path +
                              "': expected a list of integers, found an empty list of real numbers"));
  }
}
