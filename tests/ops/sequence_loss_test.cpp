#include "lockstep/ops/sequence_loss.hpp"

#include "support/test.hpp"

TEST_SUITE("ops.sequence_loss") {
  TEST_CASE("losses and gradients equal the reference's at each position") {
    const H5File file = H5File::open(golden_path("hrm_optim.h5"));
    const std::vector<std::int32_t> labels = file.read<std::int32_t>("/losses/labels");
    const auto shape = file.info("/losses/logits").shape;
    const std::vector<double> values = file.read<double>("/losses/logits");
    Stream stream;
    for (const std::string name : {"stablemax", "softmax"})
      for (const DType dtype : {DType::f64, DType::f32}) {
        CAPTURE(name);
        // One sequence per position: the loss of the sequence is then that of the position.
        const auto positions = static_cast<std::int64_t>(labels.size());
        const OwnedTensor logits = converted(Tensor::of(values.data(), {positions, 1, shape[2]}), dtype);
        const OwnedTensor dlogits(dtype, logits->shape());
        std::vector<ops::SequenceScore> scores(labels.size());
        ops::sequence_loss(stream, dlogits, scores, logits, Tensor::of(labels.data(), {positions, 1}),
                           ops::parse_token_loss(name));
        std::vector<double> loss;
        for (const auto& score : scores) loss.push_back(score.loss);
        const std::vector<double> expected = file.read<double>("/losses/" + name + "_cross_entropy"),
                                  gradient = file.read<double>("/losses/" + name + "_cross_entropy_dlogits");
        const double tolerance = dtype == DType::f64 ? 1e-13 : 1e-6;
        CHECK(difference(Tensor::of(loss.data(), {positions}), Tensor::of(expected.data(), {positions})) < tolerance);
        CHECK(difference(dlogits, Tensor::of(gradient.data(), logits->shape())) < tolerance);
      }
  }

  TEST_CASE("a loss is the mean over labelled positions; ties go to the lowest index; no labels count as exact") {
    const std::vector<double> x = {1, 1, 0, /**/ 0, 2, 1, /**/ 3, 0, 0, /**/ 5, 5, 5};
    const std::vector<std::int32_t> labels = {1, 1, -100, -100};
    const OwnedTensor dx(DType::f64, {2, 2, 3});
    std::array<ops::SequenceScore, 2> scores;
    Stream stream;
    ops::sequence_loss(stream, dx, scores, Tensor::of(x.data(), {2, 2, 3}), Tensor::of(labels.data(), {2, 2}),
                       ops::TokenLoss::softmax);
    CHECK(scores[0].labelled == 2);
    CHECK(scores[0].correct == 1);
    CHECK_FALSE(scores[0].exact());
    const double first = std::log(2 * std::exp(1.0) + 1) - 1, second = std::log(1 + std::exp(2.0) + std::exp(1.0)) - 2;
    CHECK(scores[0].loss == Approx((first + second) / 2).epsilon(1e-14));
    CHECK(scores[1].labelled == 0);
    CHECK(scores[1].exact());
    CHECK(scores[1].loss == 0);
    for (std::int64_t i = 6; i < 12; ++i) CHECK(dx->data<double>()[i] == 0);
  }

  TEST_CASE("stablemax has the right loss and derivative at logits of exactly zero and one") {
    const std::vector<double> x = {1, 0, -2};
    const std::vector<std::int32_t> labels = {0};
    const OwnedTensor dx(DType::f64, {1, 1, 3});
    std::array<ops::SequenceScore, 1> scores;
    Stream stream;
    ops::sequence_loss(stream, dx, scores, Tensor::of(x.data(), {1, 1, 3}), Tensor::of(labels.data(), {1, 1}),
                       ops::TokenLoss::stablemax);
    const double sum = 2 + 1 + 1.0 / 3;
    CHECK(scores[0].loss == Approx(std::log(sum / 2)).epsilon(1e-14));
    CHECK(dx->data<double>()[0] == Approx(1 / sum - 0.5).epsilon(1e-14));
    CHECK(dx->data<double>()[1] == Approx(1 / sum).epsilon(1e-14));
    CHECK(dx->data<double>()[2] == Approx(1 / sum / 9).epsilon(1e-14));
  }

  TEST_CASE("a label beyond the classes is an error") {
    const OwnedTensor x(DType::f32, {1, 1, 3});
    const std::vector<std::int32_t> labels = {3};
    std::array<ops::SequenceScore, 1> scores;
    Stream stream;
    CHECK_THROWS_WITH_AS(
        ops::sequence_loss(stream, {}, scores, x, Tensor::of(labels.data(), {1, 1}), ops::TokenLoss::softmax),
        "sequence_loss: label 3 of sequence 0, position 0: there are 3 classes", Error);
  }

  TEST_CASE("binary cross-entropy keeps its digits far from zero") {
    CHECK(ops::binary_cross_entropy(800, 0).loss == 800);
    CHECK(ops::binary_cross_entropy(-800, 0).loss == 0);
    CHECK(ops::binary_cross_entropy(0.3, 0.25).loss ==
          Approx(-0.25 * std::log(ops::logistic(0.3)) - 0.75 * std::log(1 - ops::logistic(0.3))).epsilon(1e-14));
    CHECK(ops::binary_cross_entropy(0.3, 0.25).derivative == Approx(1 / (1 + std::exp(-0.3)) - 0.25));
    CHECK(ops::logistic(-1000) == 0);
  }
}
