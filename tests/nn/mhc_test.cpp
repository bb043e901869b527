#include "lockstep/nn/mhc.hpp"

#include <map>

#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
struct Net {
  ParamStore params;
  MhcSite site;
  Net(DType dtype, std::int64_t streams, std::int64_t columns, std::int64_t iterations, std::uint64_t seed)
      : params(dtype) {
    site =
        add_mhc_site(params, "mhc", {.streams = streams, .columns = columns, .iterations = iterations, .gate = 0.3}, 1);
    params.allocate(seed);
  }
  Var forward(Tape& t, Var x, MhcResult result = MhcResult::streams, const Observer* watch = nullptr) const {
    return mhc(
        t, x, site, [&](Var u) { return activation(t, u, Activation::tanh); }, result, watch);
  }
};
double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }
double at(const Tensor& t, std::int64_t i) { return t.data<double>()[i]; }
}  // namespace

TEST_SUITE("nn.mhc") {
  TEST_CASE("maps, read and write agree with the definition for each number of streams, bit for bit for any rows") {
    Stream stream;
    for_every_isa([&] {
      for (const std::int64_t n : {1, 2, 3, 4, 5}) {
        constexpr std::int64_t kRows = 19, kColumns = 7;
        const Net net(DType::f64, n, kColumns, 20, 3);
        Arena arena;
        Tape t(stream, arena, DType::f64, Tape::Mode::forward);
        const OwnedTensor x = random_tensor(DType::f64, {kRows, n, kColumns}, "x");
        std::map<std::string, Tensor> seen;
        const Observer watch = [&](const std::string& name, const Tensor& value) { seen[name] = value; };
        const Var out = net.forward(t, t.constant(x), MhcResult::streams, &watch);
        const MhcSite& s = net.site;
        double worst = 0;
        for (std::int64_t i = 0; i < kRows; ++i) {
          const double* v = x->data<double>() + i * n * kColumns;
          double squares = 0;
          for (std::int64_t c = 0; c < n * kColumns; ++c) squares += v[c] * v[c];
          const double scale = 1 / std::sqrt(squares / static_cast<double>(n * kColumns) + 1e-8);
          const auto z = [&](const Param* alpha, const Linear& phi, std::int64_t k) {
            double sum = 0;
            for (std::int64_t c = 0; c < n * kColumns; ++c)
              sum += scale * v[c] * at(phi.weight->value, k * n * kColumns + c);
            return at(alpha->value, 0) * sum + at(phi.bias->value, k);
          };
          std::vector<double> m(to_size(n * n));
          for (std::int64_t k = 0; k < n * n; ++k)
            m[to_size(k)] = std::exp(std::clamp(z(s.alpha_res, s.phi_res, k), -10.0, 10.0));
          for (int pass = 0; pass < 40; ++pass)
            for (std::int64_t a = 0; a < n; ++a) {
              double sum = 0;
              const auto cell = [&](std::int64_t b) -> double& { return m[to_size(pass % 2 ? a * n + b : b * n + a)]; };
              for (std::int64_t b = 0; b < n; ++b) sum += cell(b);
              for (std::int64_t b = 0; b < n; ++b) cell(b) /= sum;
            }
          for (std::int64_t c = 0; c < kColumns; ++c) {
            double u = 0;
            for (std::int64_t k = 0; k < n; ++k) u += sigmoid(z(s.alpha_pre, s.phi_pre, k)) * v[k * kColumns + c];
            worst = std::max(worst, std::abs(u - at(seen["u"], i * kColumns + c)));
            for (std::int64_t a = 0; a < n; ++a) {
              double y = 2 * sigmoid(z(s.alpha_post, s.phi_post, a)) * std::tanh(u);
              for (std::int64_t b = 0; b < n; ++b) y += m[to_size(a * n + b)] * v[b * kColumns + c];
              worst = std::max(worst, std::abs(y - at(out.value(), (i * n + a) * kColumns + c)));
            }
          }
          for (std::int64_t k = 0; k < n * n; ++k)
            worst = std::max(worst, std::abs(m[to_size(k)] - at(seen["maps"], i * n * (2 + n) + 2 * n + k)));
        }
        CHECK(worst < 1e-12);

        const Net single(DType::f32, n, kColumns, 20, 3);
        Tape t32(stream, arena, DType::f32, Tape::Mode::forward);
        const OwnedTensor x32 = converted(x, DType::f32);
        const Var y32 = single.forward(t32, t32.constant(x32));
        CHECK(difference(y32.value(), out.value()) < 1e-5);
        for (const std::int64_t row : {0, 7, 18})
          CHECK(same_bits(single.forward(t32, t32.constant(x32->slice(row, 1))).value(), y32.value().slice(row, 1)));
      }
    });
  }

  TEST_CASE("gradient agrees with finite differences, through all Sinkhorn steps") {
    for (const auto& [streams, rows] : {std::pair<std::int64_t, std::int64_t>{4, 3}, {3, 2}, {1, 2}, {2, 0}}) {
      Net net(DType::f64, streams, 3, 3, 5);
      CAPTURE(streams);
      for_every_isa([&] {
        CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return net.forward(t, v[0]); }, {{rows, streams, 3}},
                        &net.params) < 1e-7);
      });
    }
  }

  TEST_CASE("equal streams as one and the sum of the streams agree with n streams, bit for bit for any rows") {
    Stream stream;
    for_every_isa([&] {
      for (const std::int64_t n : {1, 2, 3, 4, 5}) {
        CAPTURE(n);
        constexpr std::int64_t kRows = 19, kColumns = 7;
        const Net net(DType::f64, n, kColumns, 20, 3), single(DType::f32, n, kColumns, 20, 3);
        Arena arena;
        Tape t(stream, arena, DType::f64, Tape::Mode::forward), t32(stream, arena, DType::f32, Tape::Mode::forward);
        const OwnedTensor one = random_tensor(DType::f64, {kRows, kColumns}, "x"), one32 = converted(one, DType::f32);
        const OwnedTensor all = random_tensor(DType::f64, {kRows, n, kColumns}, "x"),
                          all32 = converted(all, DType::f32);
        const Var equal = net.forward(t, t.constant(one)), equal32 = single.forward(t32, t32.constant(one32));
        CHECK(difference(equal.value(), net.forward(t, copy_to_streams(t, t.constant(one), n)).value()) < 1e-13);
        CHECK(difference(equal32.value(), equal.value()) < 1e-5);
        const Var sum = net.forward(t, t.constant(all), MhcResult::sum),
                  sum32 = single.forward(t32, t32.constant(all32), MhcResult::sum);
        CHECK(difference(sum.value(), sum_streams(t, net.forward(t, t.constant(all))).value()) < 1e-13);
        CHECK(difference(sum32.value(), sum.value()) < 1e-5);
        for (const std::int64_t row : {0, 7, 18}) {
          CHECK(same_bits(single.forward(t32, t32.constant(one32->slice(row, 1))).value(),
                          equal32.value().slice(row, 1)));
          CHECK(same_bits(single.forward(t32, t32.constant(all32->slice(row, 1)), MhcResult::sum).value(),
                          sum32.value().slice(row, 1)));
        }
      }
    });
  }

  TEST_CASE("gradients of equal streams and of the sum of the streams agree with finite differences") {
    for (const auto& [streams, rows] : {std::pair<std::int64_t, std::int64_t>{4, 3}, {4, 35}, {3, 2}, {1, 2}, {2, 0}}) {
      Net net(DType::f64, streams, 3, 3, 5);
      CAPTURE(streams);
      for_every_isa([&] {
        CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return net.forward(t, v[0]); }, {{rows, 3}},
                        &net.params) < 1e-7);
        CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return net.forward(t, v[0], MhcResult::sum); },
                        {{rows, streams, 3}}, &net.params) < 1e-7);
      });
    }
  }

  TEST_CASE("copying and summing streams are each other's gradient") {
    const auto both = [](Tape& t, const std::vector<Var>& v) { return sum_streams(t, copy_to_streams(t, v[0], 3)); };
    CHECK(gradcheck(both, {{5, 2}}) < 1e-9);
  }

  TEST_CASE("too many streams or iterations are errors") {
    ParamStore params;
    CHECK_THROWS_AS(add_mhc_site(params, "a", {.streams = 9, .columns = 2}, 0), Error);
    CHECK_THROWS_AS(add_mhc_site(params, "b", {.streams = 2, .columns = 2, .iterations = 65}, 0), Error);
  }
}
