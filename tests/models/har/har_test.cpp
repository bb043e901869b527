#include "lockstep/models/har/har.hpp"

#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/samples/rasteriser.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"
#include "support/weight_files.hpp"
#include "tasks/har/har_pictures.hpp"

namespace {

HarArch small(HarArch::Input input) {
  HarArch arch = small_har(HarArch::Mode::flatten, HarArch::Pool::attention, true);
  arch.input = input;
  arch.length = 20;
  arch.image = 23;
  return arch;
}

OwnedTensor logits(const Har& net, const Tensor& patches) {
  OwnTape tape(net.params());
  return converted(net.classify(tape, net.embed(tape, patches), nullptr).value(), DType::f64);
}

}  // namespace

TEST_SUITE("models.har") {
  TEST_CASE("with the paper's sizes, the number of parameters is that of the reference") {
    HarArch arch;
    arch.input = HarArch::Input::image;
    arch.dim = 768;
    arch.layers = 12;
    arch.heads = 12;
    arch.head_width = 64;
    arch.mlp = 3072;
    arch.hidden = {512};
    arch.patch = 8;
    CHECK(arch.tokens() == 784);
    CHECK(arch.parameters() == 85807872 + 147841 + 3543558);
    arch.patch = 16;
    arch.hidden = {1024, 512, 256};
    CHECK(arch.tokens() == 196);
    CHECK(arch.parameters() == 85798656 + 147841 + 7740166);
  }

  TEST_CASE("parameters() is the number of registered parameters, in every variant") {
    for (const auto input : {HarArch::Input::image, HarArch::Input::signal})
      for (const auto pool : {HarArch::Pool::attention, HarArch::Pool::mean})
        for (const bool head : {true, false}) {
          HarArch arch = small(input);
          arch.pool = pool;
          if (!head) arch.hidden.clear();
          CHECK(Har(arch, DType::f32, 1).params().count() == arch.parameters());
        }
  }

  TEST_CASE("gradient agrees with finite differences, pre-norm and post-norm") {
    for (const bool pre_norm : {true, false})
      for (const auto pool : {HarArch::Pool::attention, HarArch::Pool::mean}) {
        HarArch arch = small(HarArch::Input::signal);
        arch.pre_norm = pre_norm;
        arch.pool = pool;
        arch.layers = 1;
        Har net(arch, DType::f64, 3);
        const OwnedTensor patches = random_tensor(DType::f64, {6, 4, 5}, "patches");
        const auto f = [&](Tape& t, const std::vector<Var>&) {
          return net.classify(t, net.embed(t, to_tape(t, patches)), nullptr);
        };
        // In bf16 and f16 a dozen roundings accumulate along the network.
        CHECK(gradcheck(f, {}, &net.params(), 1, Where::every_device, {.bf16 = 0x1p-4, .f16 = 0x1p-7}) < 2e-7);
      }
  }

  TEST_CASE("the embedding of a line picture agrees with that of its pixels, augmented or not") {
    const HarArch arch = small(HarArch::Input::image);
    const Har net(arch, DType::f64, 2);
    const std::int64_t words = line_plot::mask_words(23), side = 4, patch = 5;
    const OwnedTensor x = random_tensor(DType::f64, {3, 20}, "signals");
    for (const bool augmented : {false, true}) {
      std::vector<std::uint32_t> line(to_size(3 * words)), outside(line), scratch(line);
      std::vector<double> colours(27);
      const OwnedTensor patches(DType::f64, {3, side * side, 3 * patch * patch});
      double* out = patches->data<double>();
      for (std::int64_t n = 0; n < 3; ++n) {
        const HarPicture picture{line.data() + n * words, outside.data() + n * words, scratch.data(),
                                 colours.data() + 9 * n};
        const Philox draws(7, 1, "picture", static_cast<std::uint64_t>(n));
        draw_har_picture(x->data<double>() + 20 * n, 20, 23, augmented ? &draws : nullptr, picture);
        for (std::int64_t t = 0; t < side * side; ++t)
          for (std::size_t c = 0; c < 3; ++c)
            for (int i = 0; i < patch; ++i)
              for (int j = 0; j < patch; ++j) {
                const int px = static_cast<int>(t % side) * 5 + j, py = static_cast<int>(t / side) * 5 + i;
                const std::size_t k = line_plot::pixel(picture.line, 23, px, py)                   ? 1
                                      : augmented && line_plot::pixel(picture.outside, 23, px, py) ? 2
                                                                                                   : 0;
                *out++ = colours[to_size(9 * n) + 3 * k + c];
              }
      }
      OwnTape tape(net.params());
      const ops::LinePictures pictures{3, 23, line.data(), augmented ? outside.data() : nullptr, colours.data()};
      CHECK(difference(net.embed(tape, pictures).value(), net.embed(tape, patches).value()) < 1e-13);
    }
  }

  TEST_CASE("a window's logits have the same bits alone and in a batch") {
    const Har net(small(HarArch::Input::signal), DType::f32, 5);
    const OwnedTensor patches = random_tensor(DType::f32, {9, 4, 5}, "patches");
    const OwnedTensor all = logits(net, patches), alone = logits(net, patches->slice(3, 3));
    CHECK(same_bits(all->slice(1, 1), alone));
  }

  TEST_CASE("the mean of the channels' embeddings is the embedding of their mean") {
    HarArch arch = small(HarArch::Input::signal);
    arch.mode = HarArch::Mode::average;
    const Har average(arch, DType::f64, 5);
    arch.mode = HarArch::Mode::first;
    const Har first(arch, DType::f64, 5);
    const OwnedTensor patches = random_tensor(DType::f64, {6, 4, 5}, "patches"), mean(DType::f64, {2, 4, 5});
    for (std::int64_t i = 0; i < patches->size(); ++i)
      mean->data<double>()[i / 60 * 20 + i % 20] += patches->data<double>()[i] / 3;
    CHECK(difference(logits(average, patches), logits(first, mean)) < 1e-13);
  }

  TEST_CASE("a frozen encoder has no gradient, and the gradients of pooling and classifier keep their bits") {
    HarArch arch = small(HarArch::Input::signal);
    Har trained(arch, DType::f64, 5);
    arch.frozen = true;
    Har frozen(arch, DType::f64, 5);
    const OwnedTensor patches = random_tensor(DType::f64, {6, 4, 5}, "patches");
    const std::vector<std::int32_t> labels = {1, 3};
    Gradients all(trained.params()), part(frozen.params());
    for (const auto& [net, gradients] : {std::pair{&trained, &all}, std::pair{&frozen, &part}}) {
      OwnTape tape(DType::f64, Tape::Mode::train, gradients);
      tape.backward(
          cross_entropy(tape, net->classify(tape, net->embed(tape, patches), nullptr), Tensor::of(labels.data(), {2})));
    }
    for (const Param& p : frozen.params().all()) {
      CAPTURE(p.name);
      CHECK(p.trainable == !p.name.starts_with("encoder."));
      if (p.trainable)
        CHECK(same_bits(part.of(p), all.of(trained.params().at(p.name))));
      else
        for (const double g : part.of(p).span<double>()) CHECK(g == 0);
    }
  }

  TEST_CASE("dropout depends on the sample and the step, not on the rest of the batch") {
    HarArch arch = small(HarArch::Input::signal);
    arch.encoder_dropout = 0.3;
    arch.dropout = 0.3;
    const Har net(arch, DType::f32, 5);
    const OwnedTensor patches = random_tensor(DType::f32, {6, 4, 5}, "patches");
    const std::vector<std::int64_t> rows = {0, 1, 2, 3, 4, 5, 6};
    const std::vector<std::uint64_t> sequences = {30, 31, 32, 60, 61, 62}, numbers = {10, 20};
    const auto run = [&](std::int64_t first, std::int64_t count, std::uint64_t step) {
      const auto n = to_size(count), at = to_size(first);
      HarDraws draws;
      draws.seed = 3;
      draws.step = step;
      draws.sequences = {std::span(rows).first(3 * n + 1), std::span(sequences).subspan(3 * at, 3 * n)};
      draws.windows = {std::span(rows).first(n + 1), std::span(numbers).subspan(at, n)};
      OwnTape tape(net.params());
      return converted(net.classify(tape, net.embed(tape, patches->slice(3 * first, 3 * count)), &draws).value(),
                       DType::f64);
    };
    const OwnedTensor both = run(0, 2, 4), second = run(1, 1, 4), later = run(0, 2, 5);
    CHECK(same_bits(both->slice(1, 1), second));
    CHECK(!same_bits(both, later));
  }

  TEST_CASE("inconsistent sizes are an error that names them") {
    HarArch arch = small(HarArch::Input::signal);
    arch.patch = 21;
    CHECK_THROWS_WITH_AS(Har(arch, DType::f32, 1), "option model.patch = 21: larger than the 20 samples of a window",
                         Error);
    arch = small(HarArch::Input::image);
    arch.heads = 3;
    CHECK_THROWS_WITH_AS(Har(arch, DType::f32, 1),
                         "options model.heads = 3 and model.head_width = 8: their product must be a multiple of 16",
                         Error);
  }
}
