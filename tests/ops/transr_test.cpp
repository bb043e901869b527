#include "lockstep/ops/transr.hpp"

#include "ops/every_isa.hpp"
#include "ops/on_both.hpp"

namespace {

/// The gradient of f by 4th-order central differences in x.
OwnedTensor numeric(const Tensor& x, const std::function<double()>& f) {
  constexpr double h = 1e-3;
  OwnedTensor gradient(DType::f64, x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    double& at = x.data<double>()[i];
    const double before = at;
    const auto moved = [&](double by) {
      at = before + by;
      return f();
    };
    gradient->data<double>()[i] = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    at = before;
  }
  return gradient;
}

}  // namespace

TEST_SUITE("ops.transr") {
  EVERY_ISA_TEST_CASE("gradients agree with finite differences") {
    const std::vector<std::int32_t> head = {0, 3, 0, 5}, tail = {1, 4, 2, 5}, other = {2, 0, 1, 6};
    // The first sample has relation 1, the others relation 0.
    const std::vector<ops::RelationChunk> chunks = {{1, 0, 1}, {0, 1, 3}};
    const OwnedTensor table = random_tensor(DType::f64, {7, 9}, "table"),
                      matrices = random_tensor(DType::f64, {2, 9, 5}, "matrices"),
                      translations = random_tensor(DType::f64, {2, 5}, "translations");
    const OwnedTensor projected(DType::f64, {12, 5}), score(DType::f64, {8}), drows(DType::f64, {12, 9}),
        drelations(DType::f64, {2, 50});
    constexpr double kL2 = 0.1;
    const auto run = [&] {
      Stream stream;
      std::array<ops::RankingSums, 2> sums;
      ops::transr(stream, {chunks, head, tail, other}, table, matrices, translations, kL2, 4,
                  {projected, score, drows, drelations}, sums);
      return (sums[0].loss + sums[1].loss + kL2 * (sums[0].half_square + sums[1].half_square)) / 4;
    };
    run();
    const OwnedTensor dtable(DType::f64, table->shape());
    const OwnedTensor dmatrices(DType::f64, matrices->shape()), dtranslations(DType::f64, translations->shape());
    const std::vector<std::int32_t>* roles[] = {&head, &tail, &other};
    for (std::size_t chunk = 0; chunk < 2; ++chunk) {
      const auto [relation, first, count] = chunks[chunk];
      for (std::int64_t role = 0; role < 3; ++role)
        for (std::int64_t b = 0; b < count; ++b)
          for (std::int64_t c = 0; c < 9; ++c)
            dtable->data<double>()[(*roles[role])[to_size(first + b)] * 9 + c] +=
                drows->data<double>()[(3 * first + role * count + b) * 9 + c];
      const double* of_relation = drelations->data<double>() + 50 * chunk;
      std::copy_n(of_relation, 45, dmatrices->data<double>() + 45 * relation);
      std::copy_n(of_relation + 45, 5, dtranslations->data<double>() + 5 * relation);
    }
    CHECK(difference(dtable, numeric(table, run)) < 1e-8);
    CHECK(difference(dmatrices, numeric(matrices, run)) < 1e-8);
    CHECK(difference(dtranslations, numeric(translations, run)) < 1e-8);
  }
}

TEST_SUITE("ops.transr.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("transr agrees with the CPU for long chunks, several relations and matrices of any shape") {
    // 37 samples of relation 2, one of relation 0.
    std::vector<std::int32_t> head, tail, other;
    for (std::int32_t i = 0; i < 38; ++i) {
      head.push_back(i % 20);
      tail.push_back((i + 5) % 23);
      other.push_back((7 * i) % 23);
    }
    const std::vector<ops::RelationChunk> chunks = {{2, 0, 37}, {0, 37, 1}};
    for (const auto& [d, k] : {std::pair{9, 5}, std::pair{64, 64}, std::pair{3, 40}, std::pair{130, 100}}) {
      CAPTURE(d);
      agrees_on_both(
          [&, d = d, k = k](Place& p) {
            auto* sums = static_cast<ops::RankingSums*>(p.arena.host().allocate(2 * sizeof(ops::RankingSums)));
            ops::transr(p.stream, {p.host(chunks), p.host(head), p.host(tail), p.host(other)}, p.in("table", {23, d}),
                        p.in("matrices", {3, d, k}), p.in("translations", {3, k}), 0.1, 38,
                        {p.out("projected", {3 * 38, k}), p.out("score", {2 * 38}), p.out("drows", {3 * 38, d}),
                         p.out("drelations", {2, d * k + k})},
                        {sums, 2});
            p.stream.synchronize();
            p.out_values("sums", {sums[0].loss, sums[0].half_square, sums[1].loss, sums[1].half_square}, 1e-13);
          },
          2e-6, 1e-13);
    }
  }
}
