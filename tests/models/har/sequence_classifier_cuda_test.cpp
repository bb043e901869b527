#include "lockstep/models/har/har.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/ops/sequence_classifier.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

HarArch arch_with(std::int64_t tokens) {
  HarArch arch = {.channels = 3, .length = 8 * tokens, .patch = 8};
  arch.dim = 20;  // fills neither a warp nor a tile
  arch.layers = 2;
  arch.heads = 2;
  arch.head_width = 16;
  arch.mlp = 36;
  arch.hidden = {13, 6};
  arch.classes = 5;
  return arch;
}

enum class Way : std::uint8_t { whole, by_layers };
struct Results {
  OwnedTensor logits, gradient;
};
/// Logits of some windows and the gradient of all parameters, for a gradient of the logits from N(0, 1).
Results run(const HarArch& arch, DType storage, Way way, std::int64_t windows, double dropout) {
  Har net(arch, real_dtype(storage), 3);
  if (arch.hidden.empty()) {  // the classifier passes the pooled vectors on
    Param& last = net.params().at("classifier.head.0.weight");
    visit_float(net.params().dtype(), [&]<class T>() {
      for (std::int64_t i = 0; i < last.value.size(); ++i)
        last.value.data<T>()[i] = static_cast<T>(i / last.shape[1] == i % last.shape[1] ? 1 : 0);
    });
  }
  for (Param& p : net.params().all()) {
    if (arch.hidden.empty() && p.name.starts_with("classifier.")) continue;
    const OwnedTensor noise = random_tensor(p.value.dtype(), p.shape, Site(p.name));
    visit_float(p.value.dtype(), [&]<class T>() {
      for (std::int64_t i = 0; i < p.value.size(); ++i) p.value.data<T>()[i] += noise->data<T>()[i] / 8;
    });
  }
  net.params().move_to(kGpu);
  if (is_half(storage)) net.params().store_as(storage);
  Gradients gradients(net.params());
  Stream stream(kGpu);
  net.params().refresh(stream);
  gradients.zero();
  Arena arena(kGpu);
  Tape tape(stream, arena, storage, Tape::Mode::train, &gradients);
  const std::int64_t sequences = windows * arch.sequences();
  HarArch drawn = arch;
  drawn.dropout = dropout;
  std::vector<std::int64_t> offsets(to_size(sequences) + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  std::vector<std::uint64_t> samples(to_size(sequences));
  std::iota(samples.begin(), samples.end(), 1000000007u);
  HarDraws draws;
  draws.seed = 5, draws.step = 6;
  draws.sequences = on_tape(tape, SampleRows{offsets, samples});
  draws.windows = on_tape(
      tape, SampleRows{std::span(offsets).first(to_size(windows) + 1), std::span(samples).first(to_size(windows))});
  const Tensor patches =
      to_tape(tape, random_tensor(real_dtype(storage), {sequences, arch.tokens(), arch.patch}, "patches"));
  const HarDraws* keys = dropout > 0 ? &draws : nullptr;
  const Var logits =
      way == Way::whole ? net.classify(tape, patches, keys) : net.classify(tape, net.embed(tape, patches), keys);
  tape.backward(logits, on_device(random_tensor(storage, logits.shape(), "dlogits"), kGpu));
  Results results{on_cpu(logits.value()), on_cpu(gradients.flat())};
  return results;
}

Tensor part(const Results& of, const Param& p) {
  return {static_cast<std::byte*>(of.gradient->raw()) + to_size(p.offset) * size_bytes(of.gradient->dtype()),
          of.gradient->dtype(), p.shape};
}

/// Compares both ways. Gradients that vanish but for rounding are compared with the largest gradient.
void compare(const HarArch& arch, DType storage, std::int64_t windows, double dropout, double tolerance) {
  CAPTURE(std::string(name(storage)));
  CAPTURE(arch.tokens());
  CAPTURE(dropout);
  const Results whole = run(arch, storage, Way::whole, windows, dropout);
  const Results layers = run(arch, storage, Way::by_layers, windows, dropout);
  const LastFirst order;
  const Results again = run(arch, storage, Way::whole, windows, dropout);
  CHECK(difference(whole.logits, layers.logits) < tolerance);
  CHECK(same_bits(whole.logits, again.logits));
  CHECK(same_bits(whole.gradient, again.gradient));
  const Har net(arch, real_dtype(storage), 3);
  for (const Param& p : net.params().all()) {
    CAPTURE(p.name);
    const bool attends = p.name.find("query") != std::string::npos || p.name.find("key") != std::string::npos;
    const bool vanishes =
        p.name.ends_with("key_dense.bias") || p.name == "pooling.attention.2.bias" || (attends && arch.tokens() == 1);
    if (!vanishes) CHECK(difference(part(whole, p), part(layers, p)) < tolerance);
  }
  CHECK(difference(whole.gradient, layers.gradient) < tolerance);
}

}  // namespace

TEST_SUITE("models.sequence_classifier_cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("one operation computes what the layers compute, with the same draws") {
    for (const std::int64_t tokens : {1, 5, 8, 24}) {
      HarArch arch = arch_with(tokens);
      arch.pre_norm = tokens != 5;
      if (tokens == 8) arch.pool = HarArch::Pool::mean, arch.mode = HarArch::Mode::independent;
      for (const double dropout : {0.0, 0.3}) {
        arch.encoder_dropout = arch.dropout = dropout;
        // The last block of the encoder's kernels has fewer sequences. In f32 sums of a hundred terms in other orders.
        // The layers round each result to 8 or 11 bits, the operation rounds the logits. Two types each, alternately.
        if ((dropout > 0) == (tokens % 2 == 0)) {
          compare(arch, DType::f32, 5, dropout, 2e-5);
          compare(arch, DType::bf16, 5, dropout, 0x1p-4);
        } else {
          compare(arch, DType::f64, 5, dropout, 1e-12);
          compare(arch, DType::f16, 5, dropout, 0x1p-7);
        }
      }
    }
  }

  TEST_CASE("a network without layers, scores or hidden layers agrees with the layers, too") {
    HarArch arch = arch_with(4);
    arch.layers = 0;
    arch.pool = HarArch::Pool::mean;
    arch.hidden = {};
    arch.classes = arch.channels * arch.dim;
    compare(arch, DType::f64, 3, 0, 1e-12);
  }

  TEST_CASE("gradients that several blocks sum agree with those of the layers") {
    for (const bool pre_norm : {true, false}) {
      HarArch arch = arch_with(8);
      arch.pre_norm = pre_norm;
      arch.encoder_dropout = 0.3;
      compare(arch, DType::f64, 11, 0.3, 1e-12);  // 264 rows
    }
  }

  TEST_CASE("tokens of more columns than a lane loads ahead agree with those of the layers") {
    for (const bool pre_norm : {true, false}) {
      HarArch arch = arch_with(5);
      arch.dim = 100;  // a lane has up to four columns
      arch.pre_norm = pre_norm;
      arch.encoder_dropout = 0.3;
      compare(arch, DType::f64, 3, 0.3, 1e-12);
      compare(arch, DType::bf16, 3, 0.3, 0x1p-4);
    }
  }

  TEST_CASE("gradient agrees with finite differences") {
    for (const bool pre_norm : {true, false}) {
      HarArch arch = arch_with(3);
      arch.pre_norm = pre_norm;
      arch.dim = pre_norm ? 8 : 4;  // 4: one column of scores
      arch.mlp = 12, arch.heads = 1, arch.head_width = 16, arch.layers = 1, arch.hidden = {5};
      arch.patch = 4, arch.length = 12;
      Har net(arch, DType::f64, 3);
      const OwnedTensor patches = random_tensor(DType::f64, {6, 3, 4}, "patches");
      const auto f = [&](Tape& t, const std::vector<Var>&) { return net.classify(t, to_tape(t, patches), nullptr); };
      // In bf16 and f16 the logits are rounded, and the differences of other roundings accumulate.
      CHECK(gradcheck(f, {}, &net.params(), 1, Where::every_device, {.bf16 = 0x1p-4, .f16 = 0x1p-7}) < 2e-7);
    }
  }

  TEST_CASE("sizes beyond the limits take the layers") {
    const Stream stream(kGpu);
    const auto has = [&](const auto& change) {
      ops::ClassifierSizes s{.windows = 4,
                             .sequences = 9,
                             .time = 8,
                             .patch = 16,
                             .dim = 64,
                             .layers = 3,
                             .heads = 4,
                             .head_width = 16,
                             .mlp = 128,
                             .scores = 16,
                             .hidden_layers = 1,
                             .hidden = {64},
                             .classes = 6};
      change(s);
      return ops::has_sequence_classifier(stream, DType::f32, s);
    };
    CHECK(has([](auto&) {}));
    CHECK(!has([](auto& s) { s.windows = 0; }));
    CHECK(!has([](auto& s) { s.time = 25; }));
    CHECK(!has([](auto& s) { s.dim = 516; }));
    CHECK(!has([](auto& s) { s.mlp = 126; }));
    CHECK(!has([](auto& s) { s.layers = 9; }));
    CHECK(!has([](auto& s) { s.hidden[0] = 1028; }));
    CHECK(!has([](auto& s) { s.dim = 256, s.mlp = 512; }));  // two matrices of 512 KiB
    CHECK(!ops::has_sequence_classifier(Stream(Device{}), DType::f32, {.windows = 1, .sequences = 1, .time = 1}));
  }
}
