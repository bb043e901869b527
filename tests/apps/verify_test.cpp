#include "support/test.hpp"

namespace {

ProcessResult verify(const std::string& kind, const std::string& file, const std::string& how = "--no-double",
                     int ranks = 1) {
  return run_lockstep({"verify", "--model", kind, "--golden", file, how}, ranks);
}

void check_agrees(const ProcessResult& r) {
  check_ended(r, 0);
  CHECK(contains(r.out, "arrays agree"));
  CHECK_FALSE(contains(r.out, "FAIL"));
}

/// Verifies a copy of a reference file, KIND_NAME.h5, in which the middle value of one dataset ("": of none) is off by
/// a thousandth of the largest. The copy lacks the attributes of groups, and the groups that need them.
ProcessResult verify_spoilt(const std::string& kind, const std::string& name, const std::string& dataset) {
  const std::string path = "spoilt.h5";
  const H5File from = H5File::open(golden_path(kind + "_" + name + ".h5"));
  H5File to = H5File::create(path);
  for (const std::string& attribute : from.attributes("/"))
    to.set_attribute("/", attribute, from.attribute("/", attribute));
  for (const std::string& each : from.datasets_under("/")) {
    if (std::ranges::any_of(std::vector{"/moments", "/schedule", "/early_stopping"},
                            [&](const char* group) { return each.starts_with(group); }))
      continue;
    const H5Info info = from.info(each);
    if (info.type == H5Type::f32 || info.type == H5Type::f64) {
      std::vector<double> values = from.read<double>(each);
      const double largest = std::ranges::max(values, {}, [](double value) { return std::abs(value); });
      if (each == dataset) values[values.size() / 2] += 0.001 * std::abs(largest);
      if (info.type == H5Type::f32)
        to.write<float>(each, std::vector<float>(values.begin(), values.end()), info.shape);
      else
        to.write<double>(each, values, info.shape);
    } else {
      std::vector<std::int64_t> values = from.read<std::int64_t>(each);
      if (each == dataset) values[values.size() / 2] ^= 1;
      to.write<std::int64_t>(each, values, info.shape);
    }
  }
  to.close();
  return verify(kind, path);
}

}  // namespace

TEST_SUITE("apps.verify") {
  TEST_CASE("verify passes on every reference file, in both precisions, and on three ranks") {
    for (const auto& [kind, files, on_ranks] : {std::tuple{"emulator", 12, "emulator_conv.h5"},
                                                {"har", 4, "har_accum_clip.h5"},
                                                {"hrm", 4, "hrm_rope_stablemax.h5"},
                                                {"kgat", 3, "kgat_bi-interaction.h5"},
                                                {"tisasrec", 14, "tisasrec_default_tisasrec_mhc.h5"}}) {
      int found = 0;
      for (const auto& entry : fs::directory_iterator(golden_path())) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with(std::string(kind) + "_") || !name.ends_with(".h5")) continue;
        CAPTURE(name);
        ++found;
        for (const char* how : {"--no-double", "--double"}) check_agrees(verify(kind, entry.path().string(), how));
      }
      CHECK(found == files);
      for (const char* how : {"--no-double", "--double", "--reproducible"}) {
        const ProcessResult r = verify(kind, golden_path(on_ranks), how, 3);
        check_agrees(r);
        CHECK(contains(r.out, "after_steps"));
      }
    }
    // Without a model the file is read as one of emulators.
    check_agrees(run_lockstep({"verify", "--golden", golden_path("emulator_conv.h5")}));
    check_ended(run_lockstep({"verify", "--golden", golden_path("har_accum_clip.h5")}), 3,
                "is it a reference file of emulator? --model names another kind");
  }

  TEST_CASE("verify fails when a single weight, gradient, loss or pixel of the reference is another") {
    for (const auto& [kind, name] : {std::pair{"emulator", "aice"}, {"har", "frozen"}})
      check_agrees(verify_spoilt(kind, name, ""));
    for (const auto& [kind, name, dataset] :
         {std::tuple{"emulator", "aice", "/weights/network.2.weight"},
          {"emulator", "aice", "/grads/network.0.bias"},
          {"emulator", "aice", "/outputs/loss_batch0"},
          {"emulator", "aice", "/after_steps/network.4.weight"},
          {"emulator", "aice", "/outputs/jac_physical"},
          {"emulator", "aice", "/opt_state/exp_avg_sq/network.6.weight"},
          {"har", "frozen", "/weights/encoder.encoder_layers.0.mha.value_dense.weight"},
          {"har", "frozen", "/grads_f64/pooling.attention.0.weight"},
          {"har", "frozen", "/after_steps_f64/classifier.head.0.weight"},
          {"har", "raster", "/outputs/mask"}}) {
      CAPTURE(std::string(dataset));
      const ProcessResult r = verify_spoilt(kind, name, dataset);
      CHECK(r.exit_code == 1);
      CHECK(contains(r.out, "FAIL"));
    }
    CHECK(verify("har", "missing.h5").exit_code == 2);
    write_text("text.h5", "not HDF5");
    CHECK(verify("emulator", "text.h5").exit_code == 3);
  }

  TEST_CASE("a reference with an attribute of another kind is refused by name") {
    const std::string path = "other.h5";
    const H5File from = H5File::open(golden_path("har_frozen.h5"));
    H5File to = H5File::create(path);
    for (const std::string& name : from.attributes("/")) to.set_attribute("/", name, from.attribute("/", name));
    to.set_attribute("/", "hidden_dims", std::vector<double>{0.5, 1.5});
    for (const char* group : {"/weights", "/inputs/images"}) to.create_group(group);
    to.close();
    const ProcessResult r = verify("har", path);
    CAPTURE(r.err);
    CHECK(r.exit_code == 3);
    CHECK(contains(r.err, "attribute 'hidden_dims' of '/' of '" + path +
                              "': expected a list of integers, found a list of 2 real numbers"));
  }
}
