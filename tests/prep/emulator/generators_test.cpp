#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/emulator/icecolumn.hpp"
#include "lockstep/prep/emulator/lorenz96.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

TEST_SUITE("prep.generators") {
  TEST_CASE("the ice column's Jacobian agrees with finite differences away from melting") {
    int compared = 0;
    for (std::uint64_t row = 0; row < 200; ++row) {
      const auto x = icecolumn::draw(3, row);
      icecolumn::Jacobian jacobian;
      icecolumn::evaluate(x, &jacobian);
      for (std::size_t i = 0; i < icecolumn::kInputs; ++i) {
        const double scale = i == 4 ? 1e-3 : i == 5 || i == 6 ? 100 : 1, h = 1e-4 * scale;
        auto up = x, down = x, up2 = x, down2 = x;
        up[i] += h, down[i] -= h, up2[i] += 2 * h, down2[i] -= 2 * h;
        const auto a = icecolumn::evaluate(up), b = icecolumn::evaluate(down), c = icecolumn::evaluate(up2),
                   d = icecolumn::evaluate(down2);
        if (down2[7] < 0 || down2[3] < 0 || c[1] == 0 || d[1] == 0) continue;
        for (std::size_t o = 0; o < icecolumn::kOutputs; ++o) {
          const double slope = (8 * (a[o] - b[o]) - (c[o] - d[o])) / (12 * h);
          const double tolerance = 1e-6 * (std::abs(slope) + 1 / scale);
          CAPTURE(row);
          CAPTURE(i);
          CAPTURE(o);
          CHECK(std::abs(jacobian[o][i] - slope) < tolerance);
          ++compared;
        }
      }
    }
    CHECK(compared > 3000);
  }

  TEST_CASE("more warmth or salt means less ice, thicker ice more cover, and melting stops at zero") {
    int melting = 0;
    for (std::uint64_t row = 0; row < 2000; ++row) {
      const auto x = icecolumn::draw(11, row);
      icecolumn::Jacobian jacobian;
      const auto y = icecolumn::evaluate(x, &jacobian);
      CHECK(jacobian[0][0] <= 0);
      CHECK(jacobian[0][1] <= 0);
      CHECK(jacobian[0][7] >= 0);
      CHECK(y[1] <= 0);
      CHECK(y[0] >= 0);
      CHECK(y[0] <= 1);
      if (y[1] == 0) {
        ++melting;
        CHECK(jacobian[1] == icecolumn::Input{});
      }
    }
    CHECK(melting > 10);
  }

  TEST_CASE("a row depends on its seed and number alone") {
    CHECK(icecolumn::draw(1, 5) == icecolumn::draw(1, 5));
    CHECK(icecolumn::draw(1, 5) != icecolumn::draw(1, 6));
    CHECK(icecolumn::draw(1, 5) != icecolumn::draw(2, 5));
  }

  TEST_CASE("gamma draws have the mean and variance of the distribution") {
    Draws draws(5, 0, "gamma");
    const int n = 40000;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; ++i) {
      const double v = draws.gamma(2, 0.75);
      CHECK(v > 0);
      sum += v, squares += v * v;
    }
    CHECK(sum / n == Approx(1.5).epsilon(0.02));
    CHECK(squares / n - sum / n * (sum / n) == Approx(1.125).epsilon(0.05));
  }

  TEST_CASE_TEMPLATE("a step's tangent and Jacobian belong together and to the step", Model, Lorenz96,
                     TwoScaleLorenz96) {
    const Model model;
    const double dt = 0.004;
    std::vector<double> x(model.size()), dx(model.size()), w(model.size());
    Draws draws(9, 0, "state");
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * draws.normal(), dx[i] = draws.normal(), w[i] = draws.normal();
    const auto tl = rk4_tangent(model, dt, x, dx);
    const auto dot = [](const auto& a, const auto& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    std::vector<double> ad;
    rk4_columns(model, dt, x, [&](std::size_t, const auto& column) { ad.push_back(dot(column, w)); });
    CHECK(std::abs(dot(tl, w) - dot(dx, ad)) < 1e-13 * std::sqrt(dot(tl, tl) * dot(w, w)));
    auto up = x, down = x;
    const double h = 1e-5;
    for (std::size_t i = 0; i < x.size(); ++i) up[i] += h * dx[i], down[i] -= h * dx[i];
    rk4_step(model, dt, std::span<double>(up));
    rk4_step(model, dt, std::span<double>(down));
    for (std::size_t i = 0; i < x.size(); ++i) CHECK((up[i] - down[i]) / (2 * h) == Approx(tl[i]).epsilon(1e-6));
  }

  TEST_CASE("the integration step of lorenz96 is of order four") {
    const Lorenz96 model;
    const auto integrate = [&](int steps) {
      std::vector<double> x(40, 8.0);
      x[0] = 8.5;
      for (int i = 0; i < steps; ++i) rk4_step(model, 0.4 / steps, std::span<double>(x));
      return x;
    };
    const auto fine = integrate(256), a = integrate(8), b = integrate(16);
    double ea = 0, eb = 0;
    for (std::size_t i = 0; i < 40; ++i)
      ea = std::max(ea, std::abs(a[i] - fine[i])), eb = std::max(eb, std::abs(b[i] - fine[i]));
    CHECK(ea / eb > 12);  // 2^4 = 16, up to terms of higher order
    CHECK(ea / eb < 22);
  }

  TEST_CASE("subsets are uniform, without repetition, and fixed by the seed") {
    std::vector<int> hits(20, 0);
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
      const auto chosen = draw_subset(20, 5, seed, "t");
      CHECK(chosen.size() == 5);
      for (std::size_t i = 1; i < 5; ++i) CHECK(chosen[i - 1] < chosen[i]);
      for (const auto c : chosen) ++hits[to_size(c)];
    }
    for (const int h : hits) CHECK(std::abs(h - 500) < 5 * 20);  // five standard deviations
    CHECK(draw_subset(100, 50, 7, "t") == draw_subset(100, 50, 7, "t"));
    CHECK(draw_subset(100, 50, 7, "t") != draw_subset(100, 50, 8, "t"));
    CHECK(draw_subset(3, 3, 0, "t") == std::vector<std::int64_t>{0, 1, 2});
    CHECK(draw_subset(3, 0, 0, "t").empty());
  }
}
