#include "lockstep/ops/sequence_loss.hpp"

#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.sequence_loss") {
  TEST_CASE("definition, gradients, bits and devices, hits included") {
    for (const ops::TokenLoss kind : {ops::TokenLoss::stablemax, ops::TokenLoss::softmax}) {
      CAPTURE(std::string(name(kind)));
      const auto run = [&](Place& p, Int batch, Int positions, Int classes) {
        std::vector<std::int32_t> labels;
        for (Int i = 0; i < batch * positions; ++i)  // the first sequence has no labels
          labels.push_back(i < positions && batch > 1 ? -100 : static_cast<std::int32_t>(i * 7 % (classes + 1)) - 1);
        const Shape shape{batch, positions, classes};
        const auto scores = p.host(std::vector<ops::SequenceScore>(to_size(batch)));
        ops::sequence_loss(p.stream, p.real_out("dlogits", shape),
                           {const_cast<ops::SequenceScore*>(scores.data()), scores.size()}, p.in("logits", shape),
                           p.ints("labels", labels, {batch, positions}), kind);
        p.stream.synchronize();
        std::vector<double> loss, labelled, correct;
        for (const ops::SequenceScore& s : scores) {
          loss.push_back(s.loss);
          labelled.push_back(static_cast<double>(s.labelled));
          correct.push_back(static_cast<double>(s.correct));
        }
        p.out_values("loss", loss);
        p.out_values("labelled", labelled, 1e-300);
        p.out_values("correct", correct, 1e-300);
      };
      const auto definition = [&](Plain& r, Int batch, Int positions, Int classes) {
        const auto x = r.in("logits"), loss = r.out("loss"), labelled = r.out("labelled"), correct = r.out("correct");
        const std::vector<std::int32_t> labels = r.list("labels");
        for (Int b = 0; b < batch; ++b) {
          for (Int t = 0; t < positions; ++t) {
            const Int label = labels[to_size(b * positions + t)];
            if (label < 0) continue;
            double sum = 0;
            const auto s = [&](Int k) {
              const double z = x(b, t, k);
              return kind == ops::TokenLoss::softmax ? std::exp(z) : z >= 0 ? z + 1 : 1 / (1 - z);
            };
            bool largest = true;
            for (Int k = 0; k < classes; ++k) {
              sum += s(k);
              largest = largest && x(b, t, k) <= x(b, t, label);
            }
            loss(b) -= std::log(s(label) / sum);
            labelled(b) += 1;
            correct(b) += largest;
          }
          if (labelled(b) > 0) loss(b) /= labelled(b);
        }
      };
      CHECK(faults(run, definition, {{3, 7, 5}, {1, 2, 1}, {2, 129, 33}, {0, 3, 2}},
                   {.f32 = 1e-12, .f64 = 1e-12, .gpu_sizes = {{2, 300, 12}}}) == "");
    }
  }

  TEST_CASE("losses and gradients equal the reference's at each position") {
    const H5File file = H5File::open(golden_path("hrm_optim.h5"));
    const std::vector<std::int32_t> labels = file.read<std::int32_t>("/losses/labels");
    const auto shape = file.info("/losses/logits").shape;
    const std::vector<double> values = file.read<double>("/losses/logits");
    Stream stream;
    for (const ops::TokenLoss kind : {ops::TokenLoss::stablemax, ops::TokenLoss::softmax})
      for (const DType dtype : {DType::f64, DType::f32}) {
        const std::string name = lockstep::name(kind);
        CAPTURE(name);
        // One sequence per position: the loss of the sequence is then that of the position.
        const auto positions = std::ssize(labels);
        const OwnedTensor logits = converted(Tensor::of(values.data(), {positions, 1, shape[2]}), dtype);
        const OwnedTensor dlogits(dtype, logits->shape());
        std::vector<ops::SequenceScore> scores(labels.size());
        ops::sequence_loss(stream, dlogits, scores, logits, Tensor::of(labels.data(), {positions, 1}), kind);
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
