#include "lockstep/models/array_function.hpp"

#include "lockstep/models/hrm/hrm_weights.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "support/test.hpp"
#include "support/weight_files.hpp"

namespace {

std::vector<float> scores(const ArrayFunction& function, std::int64_t n, const std::vector<const void*>& inputs) {
  std::vector<float> out(to_size(n * function.outputs()[0].count()));
  void* const to = out.data();
  Arena arena;
  function.predict(n, inputs, {&to, 1}, arena);
  return out;
}

/// All values in double, so that results can be compared closely.
NamedArrays widened(NamedArrays file) {
  for (NamedArray& array : file.arrays) {
    const auto values = std::get<std::vector<float>>(array.values);
    array.values = std::vector<double>(values.begin(), values.end());
  }
  return file;
}

}  // namespace

TEST_SUITE("models.array_function") {
  TEST_CASE("SASRec and TiSASRec score candidates as PyTorch does") {
    for (const char* name :
         {"tisasrec_sasrec", "tisasrec_sasrec_postln", "tisasrec_sasrec_mhc", "tisasrec_sasrec_mhc_prenorm",
          "tisasrec_tisasrec", "tisasrec_tisasrec_mhc", "tisasrec_tisasrec_noffnres", "tisasrec_default_sasrec",
          "tisasrec_default_tisasrec", "tisasrec_default_tisasrec_mhc"}) {
      CAPTURE(name);
      const H5File golden = H5File::open(golden_path(std::string(name) + ".h5"));
      const auto function = function_of(widened(golden_sequence_file(name)));
      const auto items = golden.read<std::int64_t>("/inputs/batch0/seq");
      const auto candidates = golden.read<std::int64_t>("/inputs/candidates");
      const auto expected = golden.read<double>("/outputs64/predict");
      std::vector<const void*> inputs = {items.data()};
      std::vector<std::int64_t> times;
      if (function->inputs().size() == 2) {
        times = golden.read<std::int64_t>("/inputs/batch0/time");
        inputs.push_back(times.data());
      }
      const std::int64_t slots = function->inputs()[0].count(), all = function->outputs()[0].count(),
                         n = std::ssize(items) / slots, each = std::ssize(candidates) / n;
      double largest = 0, worst = 0;
      for (std::int64_t b = 0; b < n; ++b) {
        std::vector<const void*> one;
        for (const void* input : inputs) one.push_back(static_cast<const std::int64_t*>(input) + b * slots);
        if (items[to_size((b + 1) * slots - 1)] == 0) {
          CHECK(contains(error_of(Fault::usage, [&] { scores(*function, 1, one); }), "has no items"));
          continue;
        }
        const std::vector<float> found = scores(*function, 1, one);
        CHECK(found.size() == to_size(all));
        for (std::int64_t k = b * each; k < (b + 1) * each; ++k) {
          const double wanted = expected[to_size(k)];
          const auto item = to_size(candidates[to_size(k)]);
          worst = std::max(worst, std::abs(static_cast<double>(found.at(item - 1)) - wanted));
          largest = std::max(largest, std::abs(wanted));
        }
      }
      CHECK(largest > 0);
      CHECK(worst <= 1e-6 * largest);
    }
  }

  TEST_CASE("HAR gives the logits of its network, or the mean of its channels' log-probabilities") {
    using Mode = HarArch::Mode;
    for (const Mode mode : {Mode::flatten, Mode::independent, Mode::average, Mode::first}) {
      const HarArch arch = small_har(mode, HarArch::Pool::attention, true);
      const HarMetadata data = har_data(arch);
      const NamedArrays file = har_file(arch);
      const std::int64_t n = 3, channels = mode == Mode::first ? 1 : arch.channels;
      std::vector<float> x(to_size(n * arch.channels * arch.length)), patches;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(0.1f * static_cast<float>(i));
      for (std::int64_t w = 0; w < n; ++w)
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t t = 0; t < 25; ++t) {  // the 23 samples of a window, and zeros
            const double value = t < 23 ? x[to_size((w * arch.channels + c) * arch.length + t)] : 0;
            const auto at = to_size(c);
            patches.push_back(t < 23 ? static_cast<float>((value - data.channel_mean[at]) / data.channel_std[at])
                                     : 0.0f);
          }
      Har network(arch, DType::f32, 0);
      load_arrays(network.params(), file, {}, "test");
      OwnTape tape(DType::f32);
      const Var logits = network.classify(
          tape, network.embed(tape, Tensor::of(patches.data(), {n * channels, arch.tokens(), arch.patch})), nullptr);
      const std::vector<float> found = scores(*function_of(file), n, {x.data()});
      REQUIRE(found.size() == to_size(n * arch.classes));
      for (std::int64_t i = 0; i < n * arch.classes; ++i) {
        const std::int64_t w = i / arch.classes, k = i % arch.classes, each = logits.rows() / n;
        double wanted = 0;
        for (std::int64_t r = w * each; r < (w + 1) * each; ++r) {
          const float* row = logits.value().data<float>() + r * arch.classes;
          double sum = 0;
          for (std::int64_t c = 0; c < arch.classes; ++c) sum += std::exp(static_cast<double>(row[c]));
          wanted += each == 1 ? row[k] : (row[k] - std::log(sum)) / static_cast<double>(each);
        }
        CHECK(std::abs(found[to_size(i)] - wanted) < 2e-6);
      }
    }
  }

  TEST_CASE("BPRMF gives the inner products of rows, for any number of items per user") {
    const NamedArrays file = bprmf_file();
    const auto function = function_of(file);
    const auto &users = std::get<std::vector<float>>(file.at("user_embed.weight").values),
               &items = std::get<std::vector<float>>(file.at("item_embed.weight").values);
    CHECK(function->inputs()[1].extents == std::vector<std::int64_t>{1});
    function->set("items_per_user", 9);
    CHECK(function->outputs()[0].extents == std::vector<std::int64_t>{9});
    std::vector<std::int64_t> who = {5, 0, 3}, what(27);
    for (std::size_t i = 0; i < what.size(); ++i) what[i] = static_cast<std::int64_t>(8 - i % 9);
    const std::vector<float> found = scores(*function, 3, {who.data(), what.data()});
    for (std::size_t i = 0; i < what.size(); ++i) {
      double wanted = 0;
      for (std::size_t c = 0; c < 5; ++c)
        wanted += static_cast<double>(users[to_size(who[i / 9]) * 5 + c]) *
                  static_cast<double>(items[to_size(what[i]) * 5 + c]);
      CHECK(static_cast<double>(found[i]) == Approx(wanted).epsilon(1e-6));
    }
    const auto said = [&] { return error_of(Fault::usage, [&] { scores(*function, 3, {who.data(), what.data()}); }); };
    what[20] = 9;
    CHECK(contains(said(), "sample 2, place 2: item 9, must be 0 to 8"));
    who[1] = -1;
    CHECK(contains(said(), "sample 1: user -1, must be 0 to 5"));
    CHECK(contains(error_of(Fault::usage, [&] { function->set("items_per_user", 0); }), "must be 1 to"));
    CHECK(contains(error_of(Fault::usage, [&] { function->set("slots", 3); }), "no such setting"));
    NamedArrays wrong = file;
    wrong.metadata["data.items"] = "0";
    CHECK(contains(error_of(Fault::data, [&] { function_of(wrong); }), "0 items"));
  }

  TEST_CASE("HRM gives the answers and halting logits after its segments") {
    const NamedArrays file = hrm_file();
    const auto function = function_of(file);
    Hrm network(parse_hrm(file.metadata, "test"), DType::f32, 0);
    load_arrays(network.params(), file, {}, "test");
    const std::int64_t n = 5, cells = 7, vocab = 6;
    std::vector<std::int64_t> tokens(to_size(n * cells)), ids = {0, 2, 1, 1, 0};
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i * i % 6);
    std::vector<std::int64_t> answers(tokens.size());
    std::vector<float> halt(5), go(5), earlier;
    const auto predict = [&](const ArrayFunction& of) {
      const void* in[] = {tokens.data(), ids.data()};
      void* out[] = {answers.data(), halt.data(), go.data()};
      Arena arena;
      of.predict(n, in, out, arena);
    };
    for (const std::int64_t segments : {4, 1, 3}) {
      if (segments != 4) function->set("segments", segments);
      predict(*function);
      CHECK(halt != earlier);
      earlier = halt;
      OwnTape tape(DType::f32);
      std::vector<std::int32_t> in(tokens.begin(), tokens.end()), who(ids.begin(), ids.end());
      const Tensor z_h = tape.keep({n, network.arch().length(), 8}), z_l = tape.keep(z_h.shape());
      network.reset(tape, z_h, z_l);
      const Var x = network.embed(tape, Tensor::of(in.data(), {n, cells}), {Tensor::of(who.data(), {n}), {}});
      Hrm::Output wanted = network.inner(tape, z_h, z_l, x);
      for (std::int64_t s = 1; s < segments; ++s) {
        copy(tape.stream(), z_h, wanted.z_h.value());
        copy(tape.stream(), z_l, wanted.z_l.value());
        wanted = network.inner(tape, z_h, z_l, x);
      }
      for (std::size_t b = 0; b < 5; ++b) {
        CHECK(halt[b] == wanted.q.value().data<float>()[2 * b]);
        CHECK(go[b] == wanted.q.value().data<float>()[2 * b + 1]);
      }
      for (std::size_t i = 0; i < answers.size(); ++i) {
        const float* logits = wanted.logits.value().data<float>() + i * vocab;
        CHECK(answers[i] == std::max_element(logits, logits + vocab) - logits);
      }
    }
    tokens[8] = 6;
    CHECK(contains(error_of(Fault::usage, [&] { predict(*function); }), "sample 1, place 1: token 6, must be 0 to 5"));
    tokens[8] = 0;
    ids[2] = 3;
    CHECK(contains(error_of(Fault::usage, [&] { predict(*function); }),
                   "sample 2, place 0: identifier 3, must be 0 to 2"));
    CHECK(contains(error_of(Fault::usage, [&] { function->set("segments", 0); }), "must be >= 1"));
    NamedArrays silent = file;
    silent.metadata.erase(kSegmentsEntry);
    CHECK(contains(error_of(Fault::usage, [&] { predict(*function_of(silent)); }), "set 'segments' first"));
  }

  TEST_CASE("a sample's result does not depend on the batch") {
    for (const auto& [name, file] : network_files()) {
      CAPTURE(name);
      const auto function = function_of(file);
      const std::int64_t n = 4000;  // several blocks
      const NetworkCase batch = make_case(*function, n);
      const auto& array = function->outputs()[0];
      std::vector<const void*> one;
      for (std::size_t i = 0; i < batch.inputs.size(); ++i)
        one.push_back(batch.inputs[i].data() + batch.inputs[i].size() / to_size(n) * 3777);
      const std::vector<float> alone = scores(*function, 1, one);
      std::vector<float> together(alone.size());
      std::memcpy(together.data(), batch.outputs[0].data() + 3777 * array.count() * 4, together.size() * 4);
      float worst = 0;
      for (std::size_t i = 0; i < alone.size(); ++i) worst = std::max(worst, std::abs(alone[i] - together[i]));
      CHECK(worst < 1e-5f);
    }
  }

  TEST_CASE("an input without meaning is refused, naming its sample") {
    const auto function = function_of(golden_sequence_file("tisasrec_tisasrec"));
    const std::size_t slots = 11;
    std::vector<std::int64_t> items(2 * slots, 3), times(2 * slots, 5);
    const auto said = [&] {
      return error_of(Fault::usage, [&] { scores(*function, 2, {items.data(), times.data()}); });
    };
    CHECK(said() == "no error");
    items[slots + 4] = 42;
    CHECK(contains(said(), "history 1, slot 4: item 42, must be 1 to 41"));
    items[slots + 4] = 0;
    CHECK(contains(said(), "history 1, slot 4: item 0"));
    items[slots + 4] = 1;
    times[7] = 4;
    CHECK(contains(said(), "history 0, slot 7: time 4"));
  }

  TEST_CASE("a file that does not describe its arrays is refused") {
    const NamedArrays whole = golden_sequence_file("tisasrec_sasrec");
    const auto said = [&](const auto& change) {
      NamedArrays file = whole;
      change(file);
      return error_of(Fault::data, [&] { function_of(file); });
    };
    CHECK(said([](NamedArrays&) {}) == "no error");
    CHECK(contains(said([](NamedArrays& f) { f.metadata.erase("model.items"); }), "no entry 'model.items'"));
    CHECK(contains(said([](NamedArrays& f) { f.metadata["model.items"] = "2000000000"; }), "values"));
    CHECK(contains(said([](NamedArrays& f) { f.arrays[0].shape = {3, 4}; }), "shape"));
    HarArch pictures = small_har(HarArch::Mode::flatten, HarArch::Pool::mean, true);
    pictures.input = HarArch::Input::image;
    CHECK(contains(error_of(Fault::usage, [&] { function_of(har_file(pictures)); }), "model.input = image"));
  }
}
