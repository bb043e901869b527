#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/lockstep.h"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"
#include "support/weight_files.hpp"

namespace {

struct Opened {
  NamedArrays file;
  std::unique_ptr<ArrayFunction> function;
  lsnet_model* m = nullptr;

  explicit Opened(NamedArrays network) : file(std::move(network)), function(function_of(file)) {
    const std::string bytes = safetensors_bytes(file);
    REQUIRE(lsnet_open_mem(bytes.data(), bytes.size(), &m) == LSEM_OK);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { lsnet_close(m); }

  /// The outputs of a case, computed through the interface.
  std::string predict(const NetworkCase& samples, std::int64_t n, lsnet_workspace* ws = nullptr) const {
    std::vector<const void*> in;
    for (const std::string& input : samples.inputs) in.push_back(input.data());
    std::string out(samples.outputs[0].size(), '\1');
    void* to = out.data();
    CHECK(lsnet_predict(m, static_cast<long>(n), in.data(), &to, ws) == LSEM_OK);
    return out;
  }
};

std::string said() { return lsem_last_error(); }

}  // namespace

TEST_SUITE("capi.networks") {
  TEST_CASE("the interface gives the results of the network, with and without a workspace") {
    for (auto& [name, file] : network_files()) {
      CAPTURE(name);
      const Opened o(file);
      const NetworkCase samples = make_case(*o.function, 40);
      CHECK(o.predict(samples, 40) == samples.outputs[0]);
      lsnet_workspace* ws = lsnet_workspace_new();
      REQUIRE(ws != nullptr);
      for (int repeat = 0; repeat < 2; ++repeat) CHECK(o.predict(samples, 40, ws) == samples.outputs[0]);
      lsnet_workspace_free(ws);
    }
  }

  TEST_CASE("threads that share a model all get the same results") {
    const Opened o(golden_sequence_file("tisasrec_sasrec"));
    const std::int64_t n = 100;
    const NetworkCase samples = make_case(*o.function, n);
    std::vector<std::string> results(6);
    std::vector<std::thread> threads;
    for (std::string& result : results) {
      threads.emplace_back([&] {
        lsnet_workspace* ws = lsnet_workspace_new();
        for (int repeat = 0; repeat < 5; ++repeat) result = o.predict(samples, n, ws);
        lsnet_workspace_free(ws);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& result : results) CHECK(result == samples.outputs[0]);
  }

  TEST_CASE("a model reports its kind, inputs and outputs") {
    const Opened o(golden_sequence_file("tisasrec_tisasrec"));
    char text[64];
    CHECK(lsnet_meta(o.m, "kind", text, sizeof text) == LSEM_OK);
    CHECK(std::string(text) == "tisasrec");
    CHECK(lsnet_meta(o.m, "nothing", text, sizeof text) == LSEM_ERR_NOT_FOUND);
    CHECK(lsnet_arrays(o.m, 0) == 2);
    CHECK(lsnet_arrays(o.m, 1) == 1);
    CHECK(lsnet_array_name(o.m, 0, 1, text, sizeof text) == LSEM_OK);
    CHECK(std::string(text) == "times");
    CHECK(lsnet_array_name(o.m, 1, 0, text, 4) == LSEM_ERR_BUFFER);
    CHECK(std::string(lsem_last_error()).starts_with("a buffer of 7 bytes is needed, not 4"));
    CHECK(std::string(text) == "sco");
    CHECK(lsnet_array_type(o.m, 0, 0) == LSNET_I64);
    CHECK(lsnet_array_type(o.m, 1, 0) == LSNET_F32);
    CHECK(lsnet_array_rank(o.m, 0, 1) == 2);
    CHECK(lsnet_array_extent(o.m, 0, 1, 0) == 0);
    CHECK(lsnet_array_extent(o.m, 0, 1, 1) == 11);
    CHECK(lsnet_array_extent(o.m, 1, 0, 1) == 41);
    CHECK(lsnet_array_extent(o.m, 1, 0, 2) == -1);
    CHECK(lsnet_array_type(o.m, 0, 2) == -1);
    CHECK(lsnet_array_rank(nullptr, 0, 0) == -1);
    CHECK(lsnet_arrays(nullptr, 0) == -1);
  }

  TEST_CASE("a setting changes the extents of inputs and outputs") {
    const Opened o(bprmf_file());
    CHECK(lsnet_array_rank(o.m, 0, 0) == 1);
    CHECK(lsnet_set(o.m, "items_per_user", 4) == LSEM_OK);
    CHECK(lsnet_array_extent(o.m, 0, 1, 1) == 4);
    CHECK(lsnet_array_extent(o.m, 1, 0, 1) == 4);
    o.function->set("items_per_user", 4);
    const NetworkCase samples = make_case(*o.function, 7);
    CHECK(o.predict(samples, 7) == samples.outputs[0]);
    CHECK(lsnet_set(o.m, "items_per_user", 0) == LSEM_ERR_ARGUMENT);
    CHECK(lsnet_set(o.m, "segments", 1) == LSEM_ERR_ARGUMENT);
    CHECK(contains(said(), "no such setting"));
    CHECK(lsnet_set(nullptr, "segments", 1) == LSEM_ERR_ARGUMENT);
  }

  TEST_CASE("wrong arguments and inputs give an error that says what is wrong") {
    const Opened o(golden_sequence_file("tisasrec_sasrec"));
    std::vector<std::int64_t> items(11, 42);
    std::vector<float> scores(41);
    const void* in = items.data();
    void* out = scores.data();
    CHECK(lsnet_predict(o.m, 1, &in, &out, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(contains(said(), "history 0, slot 0: item 42, must be 1 to 41"));
    CHECK(lsnet_predict(o.m, -1, &in, &out, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsnet_predict(o.m, 1, nullptr, &out, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsnet_predict(nullptr, 1, &in, &out, nullptr) == LSEM_ERR_ARGUMENT);
    in = nullptr;
    CHECK(lsnet_predict(o.m, 1, &in, &out, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsnet_predict(o.m, 0, &in, &out, nullptr) == LSEM_OK);
    lsnet_close(nullptr);
    lsnet_workspace_free(nullptr);
  }

  TEST_CASE("a file that cannot be used gives a code that says why, and no model") {
    NamedArrays file = golden_sequence_file("tisasrec_sasrec");
    const std::string whole = safetensors_bytes(file);
    const auto code = [&](const std::string& bytes) {
      char somewhere = 0;
      auto* m = reinterpret_cast<lsnet_model*>(&somewhere);
      write_text("model", bytes);
      const int from_file = lsnet_open("model", &m);
      if (from_file != LSEM_OK) CHECK(m == nullptr);
      lsnet_close(m);
      CHECK(lsnet_open_mem(bytes.data(), bytes.size(), &m) == from_file);
      lsnet_close(m);
      return from_file;
    };
    CHECK(code(whole) == LSEM_OK);
    CHECK(code("") == LSEM_ERR_FORMAT);
    CHECK(code(whole.substr(0, whole.size() - 9)) == LSEM_ERR_DAMAGED);
    std::string flipped = whole;
    flipped[flipped.size() - 9] ^= 1;
    CHECK(code(flipped) == LSEM_ERR_DAMAGED);
    file.metadata.at("model.num_heads") = "0";
    CHECK(code(safetensors_bytes(file)) == LSEM_ERR_DAMAGED);
    file.metadata.at(kKindEntry) = "bert";
    CHECK(code(safetensors_bytes(file)) == LSEM_ERR_FORMAT);
    CHECK(contains(said(), "does not compute models of kind 'bert'"));
    file.metadata.clear();
    CHECK(code(safetensors_bytes(file)) == LSEM_ERR_FORMAT);
    CHECK(contains(said(), "lockstep export"));

    const TrainedEmulator emulator = golden_emulator("emulator_act_tanh");
    write_emulator("emulator", EmulatorFormat::safetensors, emulator.network, emulator.metadata);
    lsnet_model* m = nullptr;
    CHECK(lsnet_open("emulator", &m) == LSEM_ERR_FORMAT);
    CHECK(contains(said(), "by lsem_open"));
    CHECK(lsnet_open("missing", &m) == LSEM_ERR_OPEN);
    CHECK(lsnet_open(nullptr, &m) == LSEM_ERR_ARGUMENT);
    CHECK(lsnet_open("model", nullptr) == LSEM_ERR_ARGUMENT);
  }
}
