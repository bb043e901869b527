#include "lockstep/ops/gemm.hpp"

#include "lockstep/base/bf16.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/op_row.hpp"
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

/// The row of one kind: sizes are rows and columns of the product, and terms.
OpRow row(Kind kind) {
  OpRow row{.sizes = {}, .run = [kind](Place& p, Int m, Int n, Int k) {
              const Product s{kind, m, n, k};
              const auto multiply = kind == Kind::nt ? ops::gemm_nt : kind == Kind::nn ? ops::gemm_nn : ops::gemm_tn;
              const Tensor a = p.in("a", s.a()), b = p.weight("b", s.b());
              multiply(p.stream, p.to("c", {m, n}), a, b);
              if (kind == Kind::tn) multiply(p.stream, p.to_sum("real", {m, n}), a, b);
            }};
  row.rows = kind != Kind::tn;
  return row;
}
Sized<Plain> definition(Kind kind) {
  return [kind](Plain& r, Int m, Int n, Int k) {
    const auto a = r.in("a"), b = r.in("b"), c = r.out("c");
    for (Int i = 0; i < m; ++i)
      for (Int j = 0; j < n; ++j)
        for (Int q = 0; q < k; ++q)
          c(i, j) += (kind == Kind::tn ? a(q, i) : a(i, q)) * (kind == Kind::nt ? b(j, q) : b(q, j));
  };
}
}  // namespace

TEST_SUITE("ops.gemm") {
  TEST_CASE("definition, bits and devices (a product has no gradient of its own) at odd and at empty sizes") {
    const std::vector<std::int64_t> sizes = {0, 1, 2, 3, 5, 7, 13, 14, 15, 16, 17, 31, 33, 50, 64, 65};
    for (const Kind kind : kKinds) {
      CAPTURE(std::string(name(kind)));
      OpRow all = row(kind);
      all.definition = definition(kind);
      all.f32 = 2e-6;
      all.f64 = 4e-15;
      // Each extent takes all sizes while the other two vary with it: 3 x 16 products.
      for (std::size_t s = 0; s < sizes.size(); ++s) {
        const Int u = sizes[s], v = sizes[(5 * s + 3) % sizes.size()], w = sizes[(7 * s + 9) % sizes.size()];
        for (const Sizes& product : {Sizes{u, v, w}, {w, u, v}, {v, w, u}}) all.cpu_sizes.push_back(product);
      }
      all.sizes = {{7, 5, 3}, {1, 1, 1}, {31, 64, 33}, {64, 1, 16}, {0, 4, 3}, {3, 4, 0}, {300, 20, 9}};
      // Beyond every block.
      const std::vector<Sizes> large =
          kind == Kind::nt   ? std::vector<Sizes>{{130, 70, 1700}, {300, 3, 530}}
          : kind == Kind::nn ? std::vector<Sizes>{{261, 35, 1024}}
                             : std::vector<Sizes>{{37, 530, 300}, {190, 200, 513}, {300, 530, 300}, {20, 33, 1500}};
      all.cpu_sizes.insert(all.cpu_sizes.end(), large.begin(), large.end());
      if (kind == Kind::nt)
        all.refused = {{{3, 4, 5}, "b", {4, 6}, "gemm_nt: c is (3, 4), a (3, 5), b (4, 6); these do not fit together"}};
      CHECK(faults(all) == "");
    }
  }

  TEST_CASE("bits depend neither on the other rows of a call nor on threads or parallel regions") {
    for (const Kind kind : kKinds) {
      CAPTURE(std::string(name(kind)));
      OpRow many = row(kind), large = many;
      many.f32_rest = large.f32_rest = 3e-6;
      for (const Sizes& columns :
           {Sizes{50, 50}, {64, 64}, {1, 64}, {3, 37}, {14, 9}, {40, 1700}, {40, 1024}, {256, 256}})
        many.cpu_sizes.push_back({150, columns[0], columns[1]});
      large.rows = false;
      large.cpu_sizes = {{500, 64, 130},  {37, 50, 2500},  {1030, 1, 4000},
                         {200, 180, 300}, {300, 530, 300}, {40, 30, 800}};
      CHECK(faults(large) == "");
      CHECK(faults(many) == "");
    }
  }

  EVERY_ISA_TEST_CASE("a column's bits do not depend on the other columns of the call") {
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
