#include "lockstep/ops/gemm.hpp"

#include "lockstep/base/bf16.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

namespace {
enum class Kind { nt, nn, tn };
struct Product {
  Kind kind;
  std::int64_t m, n, k;
  Shape a() const { return kind == Kind::tn ? Shape{k, m} : Shape{m, k}; }
  Shape b() const { return kind == Kind::nt ? Shape{n, k} : Shape{k, n}; }
};
void run(const Product& p, Target c, const Tensor& a, const Tensor& b) {
  Stream stream;
  (p.kind == Kind::nt ? ops::gemm_nt : p.kind == Kind::nn ? ops::gemm_nn : ops::gemm_tn)(stream, c, a, b);
}
OwnedTensor run(const Product& p, const Tensor& a, const Tensor& b) {
  OwnedTensor c(a.dtype(), {p.m, p.n});
  run(p, {c, false}, a, b);
  return c;
}
/// The definition, in f64.
OwnedTensor reference(const Product& p, const Tensor& a, const Tensor& b) {
  const OwnedTensor a64 = converted(a, DType::f64), b64 = converted(b, DType::f64);
  OwnedTensor c(DType::f64, {p.m, p.n});
  const double *pa = a64->data<double>(), *pb = b64->data<double>();
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t q = 0; q < p.k; ++q) {
        const double x = p.kind == Kind::tn ? pa[q * p.m + i] : pa[i * p.k + q];
        const double y = p.kind == Kind::nt ? pb[j * p.k + q] : pb[q * p.n + j];
        sum += x * y;
      }
      c->data<double>()[i * p.n + j] = sum;
    }
  return c;
}
/// A copy of the first columns of a matrix.
OwnedTensor first_columns(const Tensor& x, std::int64_t columns) {
  OwnedTensor out(x.dtype(), {x.rows(), columns});
  const std::size_t bytes = to_size(columns) * size_bytes(x.dtype());
  for (std::int64_t i = 0; i < x.rows(); ++i) std::memcpy(out->slice(i, 1).raw(), x.slice(i, 1).raw(), bytes);
  return out;
}
const char* name(Kind kind) { return kind == Kind::nt ? "nt" : kind == Kind::nn ? "nn" : "tn"; }
constexpr Kind kKinds[] = {Kind::nt, Kind::nn, Kind::tn};

}  // namespace

TEST_SUITE("ops.gemm") {
  TEST_CASE("every product agrees with its definition, on every instruction set, at odd and at empty sizes") {
    const std::vector<std::int64_t> sizes = {0, 1, 2, 3, 5, 7, 13, 14, 15, 16, 17, 31, 33, 50, 64, 65};
    for_every_isa([&] {
      for (const DType dtype : {DType::f32, DType::f64})
        for (const Kind kind : kKinds) {
          // Each extent takes all sizes while the other two vary with it: 3 x 16 products per kind.
          for (std::size_t s = 0; s < sizes.size(); ++s)
            for (int turn = 0; turn < 3; ++turn) {
              const std::int64_t u = sizes[s], v = sizes[(5 * s + 3) % sizes.size()],
                                 w = sizes[(7 * s + 9) % sizes.size()];
              const Product p = turn == 0   ? Product{kind, u, v, w}
                                : turn == 1 ? Product{kind, w, u, v}
                                            : Product{kind, v, w, u};
              CAPTURE(std::string(name(kind)));
              CAPTURE(p.m);
              CAPTURE(p.n);
              CAPTURE(p.k);
              const OwnedTensor a = random_tensor(dtype, p.a(), "a"), b = random_tensor(dtype, p.b(), "b");
              const OwnedTensor c = run(p, a, b), expected = reference(p, a, b);
              const Difference d = difference(c, expected);
              CAPTURE(d);
              CHECK(d < (dtype == DType::f32 ? 2e-6 : 4e-15));
            }
        }
    });
  }

  TEST_CASE("sizes beyond every block agree with the definition") {
    for_every_isa([&] {
      for (const Product p :
           {Product{Kind::nt, 130, 70, 1700}, Product{Kind::nn, 261, 35, 1024}, Product{Kind::tn, 37, 530, 300},
            Product{Kind::tn, 190, 200, 513}, Product{Kind::tn, 300, 530, 300}, Product{Kind::tn, 20, 33, 1500},
            Product{Kind::nt, 300, 3, 530}}) {
        CAPTURE(std::string(name(p.kind)));
        for (const DType dtype : {DType::f32, DType::f64}) {
          const OwnedTensor a = random_tensor(dtype, p.a(), "a"), b = random_tensor(dtype, p.b(), "b");
          const Difference d = difference(run(p, a, b), reference(p, a, b));
          CAPTURE(d);
          CHECK(d < (dtype == DType::f32 ? 2e-6 : 4e-15));
        }
      }
    });
  }

  TEST_CASE("accumulate adds to the previous values; without it they do not matter") {
    for_every_isa([&] {
      for (const Kind kind : kKinds)
        for (const Product p :
             {Product{kind, 9, 17, 21}, Product{kind, 9, 2, 21}, Product{kind, 4, 5, 0}, Product{kind, 40, 30, 800}}) {
          CAPTURE(std::string(name(kind)));
          CAPTURE(p.k);
          const OwnedTensor a = random_tensor(DType::f64, p.a(), "a"), b = random_tensor(DType::f64, p.b(), "b");
          const OwnedTensor before = random_tensor(DType::f64, {p.m, p.n}, "c");
          OwnedTensor added = converted(before, DType::f64), stored = converted(before, DType::f64);
          run(p, {added, true}, a, b);
          run(p, {stored, false}, a, b);
          OwnedTensor expected = reference(p, a, b);
          CHECK(difference(stored, expected).relative < (p.k == 0 ? 1e-300 : 1e-14));
          for (std::int64_t i = 0; i < expected->size(); ++i) expected->data<double>()[i] += before->data<double>()[i];
          CHECK(difference(added, expected) < 1e-14);
        }
    });
  }

  TEST_CASE("a row's bits do not depend on the other rows of the call") {
    for_every_isa([&] {
      for (const Kind kind : {Kind::nt, Kind::nn})
        for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{50, 50},
                                   {64, 64},
                                   {1, 64},
                                   {3, 37},
                                   {14, 9},
                                   {40, 1700},
                                   {40, 1024},
                                   {256, 256}}) {
          const Product whole{kind, 150, n, k};
          const OwnedTensor a = random_tensor(DType::f32, whole.a(), "a"),
                            b = random_tensor(DType::f32, whole.b(), "b");
          const OwnedTensor c = run(whole, a, b);
          for (const std::int64_t piece : {1, 3, 7, 31, 62, 100}) {
            CAPTURE(std::string(name(kind)));
            CAPTURE(n);
            CAPTURE(k);
            CAPTURE(piece);
            OwnedTensor pieces(DType::f32, {whole.m, n});
            for (std::int64_t first = 0; first < whole.m; first += piece) {
              const std::int64_t count = std::min(piece, whole.m - first);
              run({kind, count, n, k}, {pieces->slice(first, count), false}, a->slice(first, count), b);
            }
            CHECK(same_bits(pieces, c));
          }
        }
    });
  }

  TEST_CASE("a column's bits do not depend on the other columns of the call") {
    for_every_isa([&] {
      for (const DType dtype : {DType::f32, DType::f64})
        for (const Kind kind : kKinds)
          for (const std::int64_t rows : {7, 8, 16, 17, 33, 100})
            for (const std::int64_t columns : {17, 18, 20, 50, 100, 514})
              for (const std::int64_t k : {1, 16, 50, 83, 300})
                for (const bool accumulate : {false, true}) {
                  const Product narrow{kind, rows, columns, k}, wide{kind, rows, columns + 30, k};
                  CAPTURE(std::string(name(kind)));
                  CAPTURE(rows);
                  CAPTURE(columns);
                  CAPTURE(k);
                  CAPTURE(accumulate);
                  const OwnedTensor a = random_tensor(dtype, narrow.a(), "a"), b = random_tensor(dtype, wide.b(), "b"),
                                    c = random_tensor(dtype, {rows, wide.n}, "c");
                  const OwnedTensor b_part = kind == Kind::nt ? converted(b->slice(0, columns), dtype)
                                                              : first_columns(b, columns),
                                    c_part = first_columns(c, columns);
                  run(wide, {c, accumulate}, a, b);
                  run(narrow, {c_part, accumulate}, a, b_part);
                  CHECK(same_bits(c_part, first_columns(c, columns)));
                }
    });
  }

  TEST_CASE("bits do not depend on the number of threads, nor on whether the caller is in a parallel region") {
    for_every_isa([&] {
      for (const Kind kind : kKinds)
        for (const Product p : {Product{kind, 500, 64, 130}, Product{kind, 37, 50, 2500}, Product{kind, 1030, 1, 4000},
                                Product{kind, 200, 180, 300}, Product{kind, 300, 530, 300}}) {
          CAPTURE(std::string(name(kind)));
          CAPTURE(p.m);
          const OwnedTensor a = random_tensor(DType::f32, p.a(), "a"), b = random_tensor(DType::f32, p.b(), "b");
          const OwnedTensor before = random_tensor(DType::f32, {p.m, p.n}, "c");
          OwnedTensor inside = converted(before, DType::f32);
          const Threads two(2);
#pragma omp parallel num_threads(2)
#pragma omp single
          run(p, {inside, true}, a, b);
          for (const int threads : {1, 2, 3}) {
            const Threads now(threads);
            CAPTURE(threads);
            OwnedTensor c = converted(before, DType::f32);
            run(p, {c, true}, a, b);
            CHECK(same_bits(c, inside));
          }
        }
    });
  }

  TEST_CASE("a NaN in one row stays in that row") {
    const Product p{Kind::nt, 20, 20, 20};
    const OwnedTensor a = random_tensor(DType::f32, p.a(), "a"), b = random_tensor(DType::f32, p.b(), "b");
    a->data<float>()[7 * 20 + 3] = NAN;
    for_every_isa([&] {
      const OwnedTensor c = run(p, a, b);
      for (std::int64_t i = 0; i < 20; ++i)
        for (std::int64_t j = 0; j < 20; ++j) CHECK(std::isnan(c->data<float>()[i * 20 + j]) == (i == 7));
    });
  }

  TEST_CASE("shapes that do not fit are reported") {
    OwnedTensor c(DType::f32, {3, 4}), a(DType::f32, {3, 5}), b(DType::f32, {4, 6});
    Stream stream;
    CHECK_THROWS_WITH_AS(ops::gemm_nt(stream, {c, false}, a, b),
                         "gemm_nt: c is (3, 4), a (3, 5), b (4, 6); these do not fit together", Error);
    CHECK_THROWS_AS(ops::gemm_nn(stream, {c, false}, a, b), Error);
    CHECK_THROWS_AS(ops::gemm_tn(stream, {c, false}, a, b), Error);
  }
}

TEST_SUITE("ops.gemm.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("a long sum of halves is rounded once") {
    const Device gpu{DeviceKind::cuda, 0};
    const Product p{Kind::nn, 3, 5, 4096};
    OwnedTensor a(DType::bf16, p.a()), b(DType::bf16, p.b()), a64(DType::f64, p.a()), b64(DType::f64, p.b());
    for (const auto& [to, wide] : {std::pair{&a, &a64}, std::pair{&b, &b64}})
      for (std::int64_t i = 0; i < (*to)->size(); ++i) {
        const float value = static_cast<float>(1 + i * 37 % 101) / 64;
        (*to)->data<bf16>()[i] = {to_bf16(value)};
        (*wide)->data<double>()[i] = from_bf16((*to)->data<bf16>()[i].bits);
      }
    const OwnedTensor there_a = on_device(a, gpu), there_b = on_device(b, gpu), c(DType::bf16, {p.m, p.n}, gpu);
    Stream stream(gpu);
    ops::gemm_nn(stream, {c, false}, there_a, there_b);
    const OwnedTensor got = on_cpu(c), expected = reference(p, a64, b64);
    for (std::int64_t i = 0; i < p.m * p.n; ++i) {
      const double sum = expected->data<double>()[i];
      // Half a unit of the last of 8 bits, and roundings of the sum in f32.
      const double half_unit = std::exp2(std::floor(std::log2(sum))) / 256;
      CHECK(std::abs(from_bf16(got->data<bf16>()[i].bits) - sum) <= half_unit + sum * 1e-5);
    }
  }

  TEST_CASE("row counts that share an algorithm give right products, also where the algorithm does not fit") {
    const Device gpu{DeviceKind::cuda, 0};
    Stream stream(gpu);
    for (const Kind kind : kKinds)
      for (const std::int64_t rows : {512, 514, 515, 576, 1000, 514}) {
        CAPTURE(std::string(name(kind)));
        CAPTURE(rows);
        const Product p = kind == Kind::tn ? Product{kind, 6, 4, rows} : Product{kind, rows, 6, 4};
        const OwnedTensor a = random_tensor(DType::f32, p.a(), "a"), b = random_tensor(DType::f32, p.b(), "b");
        const OwnedTensor there_a = on_device(a, gpu), there_b = on_device(b, gpu), c(DType::f32, {p.m, p.n}, gpu);
        (kind == Kind::nt   ? ops::gemm_nt
         : kind == Kind::nn ? ops::gemm_nn
                            : ops::gemm_tn)(stream, {c, false}, there_a, there_b);
        CHECK(difference(on_cpu(c), reference(p, a, b)) < 2e-6);
      }
  }
}
