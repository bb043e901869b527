#include "capi/opened.hpp"
#include "support/random_emulator.hpp"

namespace {

template <class T>
constexpr auto either(auto f32, auto f64) {
  if constexpr (std::is_same_v<T, float>)
    return f32;
  else
    return f64;
}
/// The interface for states of type T, so that one test text covers both.
template <class T>
struct Api {
  static constexpr auto predict = either<T>(lsem_predict_f32, lsem_predict_f64);
  static constexpr auto jac = either<T>(lsem_jac_f32, lsem_jac_f64);
  static constexpr auto linearize = either<T>(lsem_linearize_f32, lsem_linearize_f64);
  static constexpr auto tl = either<T>(lsem_tl_f32, lsem_tl_f64);
  static constexpr auto ad = either<T>(lsem_ad_f32, lsem_ad_f64);
  static constexpr auto predict_soa = either<T>(lsem_predict_soa_f32, lsem_predict_soa_f64);
  static constexpr auto jac_soa = either<T>(lsem_jac_soa_f32, lsem_jac_soa_f64);
  static constexpr auto linearize_soa = either<T>(lsem_linearize_soa_f32, lsem_linearize_soa_f64);
  static constexpr auto tl_soa = either<T>(lsem_tl_soa_f32, lsem_tl_soa_f64);
  static constexpr auto ad_soa = either<T>(lsem_ad_soa_f32, lsem_ad_soa_f64);
  static constexpr int predict_ws = either<T>(LSEM_WS_PREDICT_F32, LSEM_WS_PREDICT_F64);
  static constexpr int jac_ws = either<T>(LSEM_WS_JAC_F32, LSEM_WS_JAC_F64);
  static constexpr double tolerance = either<T>(3e-6, 1e-12), adjoint = either<T>(1e-6, 1e-13);
};

double dot(const auto& a, const auto& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Variables in separate arrays, field i with stride i + 1 at an irregular offset.
template <class T>
struct Scattered {
  std::vector<std::vector<T>> memory;
  std::vector<T*> pointers;
  std::vector<long> strides;
  Scattered(const std::vector<T>& dense, long n, long columns) {
    for (long i = 0; i < columns; ++i) {
      strides.push_back(i + 1);
      memory.emplace_back(to_size(n * (i + 1) + 3 * i), T(-77));
      for (long j = 0; j < n; ++j) memory.back()[to_size(j * (i + 1))] = dense[to_size(j * columns + i)];
    }
    for (auto& field : memory) pointers.push_back(field.data());
  }
  std::vector<T> dense(long n) const {
    std::vector<T> out;
    for (long j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < memory.size(); ++i) out.push_back(memory[i][to_size(j * strides[i])]);
    }
    return out;
  }
};

}  // namespace

TEST_SUITE("capi.emulator") {
  TEST_CASE_TEMPLATE("predictions and Jacobians are those of PyTorch, for every activation and shape", T, float,
                     double) {
    for (const std::string& name : golden_emulators()) {
      CAPTURE(name);
      const Opened o(name);
      const auto x = o.input<T>("x");
      std::vector<T> y(to_size(o.n * o.n_out)), j(y.size() * to_size(o.n_in)), k(j.size());
      REQUIRE(Api<T>::predict(o.m, o.n, x.data(), o.n_in, y.data(), o.n_out, nullptr) == LSEM_OK);
      CHECK(apart(y, o.output<T>("predict")) < Api<T>::tolerance);
      REQUIRE(Api<T>::jac(o.m, o.n, x.data(), o.n_in, nullptr, 1, j.data(), nullptr) == LSEM_OK);
      CHECK(apart(j, o.output<T>("jac_physical")) < Api<T>::tolerance);
      REQUIRE(Api<T>::jac(o.m, o.n, x.data(), o.n_in, nullptr, 0, k.data(), nullptr) == LSEM_OK);
      CHECK(apart(k, o.output<T>("jac")) < Api<T>::tolerance);
    }
  }

  TEST_CASE_TEMPLATE("tangent linear and adjoint are those of PyTorch and each other's transpose", T, float, double) {
    for (const std::string& name : golden_emulators()) {
      CAPTURE(name);
      const Opened o(name);
      const auto x = o.input<T>("x"), dx = o.input<T>("dx"), dy = o.input<T>("dy");
      lsem_lin* lin = nullptr;
      REQUIRE(Api<T>::linearize(o.m, o.n, x.data(), o.n_in, nullptr, &lin) == LSEM_OK);
      CHECK(lsem_lin_nodes(lin) == o.n);
      CHECK(lsem_lin_bytes(lin) > 0);
      std::vector<T> kdx(dy.size()), ktdy(dx.size());
      REQUIRE(Api<T>::tl(lin, dx.data(), o.n_in, kdx.data(), o.n_out, 0) == LSEM_OK);
      REQUIRE(Api<T>::ad(lin, dy.data(), o.n_out, ktdy.data(), o.n_in, 0) == LSEM_OK);
      CHECK(apart(kdx, o.output<T>("jvp_physical")) < 2 * Api<T>::tolerance);
      CHECK(apart(ktdy, o.output<T>("vjp_physical")) < 2 * Api<T>::tolerance);
      // Node by node: over all nodes the largest would hide the others.
      for (long node = 0; node < o.n; ++node) {
        double left = 0, right = 0, size = 0;
        for (long i = 0; i < o.n_out; ++i) {
          const auto at = to_size(node * o.n_out + i);
          left += static_cast<double>(kdx[at]) * dy[at], size += std::abs(static_cast<double>(kdx[at]) * dy[at]);
        }
        for (long i = 0; i < o.n_in; ++i) {
          const auto at = to_size(node * o.n_in + i);
          right += static_cast<double>(dx[at]) * ktdy[at], size += std::abs(static_cast<double>(dx[at]) * ktdy[at]);
        }
        CHECK(std::abs(left - right) <= Api<T>::adjoint * size);
      }
      std::vector<T> twice = kdx, back = ktdy;
      REQUIRE(Api<T>::tl(lin, dx.data(), o.n_in, twice.data(), o.n_out, 1) == LSEM_OK);
      REQUIRE(Api<T>::ad(lin, dy.data(), o.n_out, back.data(), o.n_in, 1) == LSEM_OK);
      for (T& value : kdx) value += value;
      for (T& value : ktdy) value += value;
      CHECK(apart(twice, kdx) < Api<T>::tolerance);
      CHECK(apart(back, ktdy) < Api<T>::tolerance);
      lsem_lin_free(lin);
    }
  }

  TEST_CASE_TEMPLATE("gaps between rows are left alone, and a workspace and threads change nothing", T, float, double) {
    const Opened o("emulator_multi");
    const auto x = o.input<T>("x");
    const long ldx = o.n_in + 3, ldy = o.n_out + 2;
    std::vector<T> wide(to_size(o.n * ldx), std::numeric_limits<T>::quiet_NaN()), y(to_size(o.n * ldy), T(-7));
    for (long j = 0; j < o.n; ++j) std::copy_n(&x[to_size(j * o.n_in)], o.n_in, &wide[to_size(j * ldx)]);
    std::vector<T> dense(to_size(o.n * o.n_out));
    REQUIRE(Api<T>::predict(o.m, o.n, x.data(), o.n_in, dense.data(), o.n_out, nullptr) == LSEM_OK);
    std::vector<std::max_align_t> ws(lsem_workspace_bytes(o.m, o.n, Api<T>::predict_ws) / sizeof(std::max_align_t) + 1);
    REQUIRE(lsem_set_threads(o.m, 3) == LSEM_OK);
    ws.resize(lsem_workspace_bytes(o.m, o.n, Api<T>::predict_ws) / sizeof(std::max_align_t) + 1);
    REQUIRE(Api<T>::predict(o.m, o.n, wide.data(), ldx, y.data(), ldy, ws.data()) == LSEM_OK);
    for (long j = 0; j < o.n; ++j) {
      for (long i = 0; i < ldy; ++i) {
        CHECK(y[to_size(j * ldy + i)] == (i < o.n_out ? dense[to_size(j * o.n_out + i)] : T(-7)));
      }
    }
    constexpr long kFar = std::numeric_limits<long>::max();  // the work does not grow with a gap
    REQUIRE(Api<T>::predict(o.m, 1, x.data(), kFar, y.data(), kFar, nullptr) == LSEM_OK);
    CHECK(y[0] == dense[0]);
  }

  TEST_CASE_TEMPLATE("fields in arrays of their own give the same bits as rows", T, float, double) {
    for (const char* name : {"emulator_multi", "emulator_conv"}) {
      const Opened o(name);
      // More nodes than one tile of the conversion holds.
      const auto once = o.input<T>("x"), dx_once = o.input<T>("dx"), dy_once = o.input<T>("dy");
      std::vector<T> x, dx, dy;
      for (int i = 0; i < 50; ++i) {
        x.insert(x.end(), once.begin(), once.end());
        dx.insert(dx.end(), dx_once.begin(), dx_once.end());
        dy.insert(dy.end(), dy_once.begin(), dy_once.end());
      }
      const long n = 50 * o.n;
      REQUIRE(n > 1024);
      std::vector<T> y(dy.size()), j(dy.size() * to_size(o.n_in)), kdx(dy.size(), T(1)), ktdy(dx.size(), T(1)),
          mask(to_size(n));
      for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<T>(i % 7) - 4;
      lsem_lin* lin = nullptr;
      REQUIRE(Api<T>::predict(o.m, n, x.data(), o.n_in, y.data(), o.n_out, nullptr) == LSEM_OK);
      REQUIRE(Api<T>::jac(o.m, n, x.data(), o.n_in, mask.data(), 1, j.data(), nullptr) == LSEM_OK);
      REQUIRE(Api<T>::linearize(o.m, n, x.data(), o.n_in, mask.data(), &lin) == LSEM_OK);
      REQUIRE(Api<T>::tl(lin, dx.data(), o.n_in, kdx.data(), o.n_out, 1) == LSEM_OK);
      REQUIRE(Api<T>::ad(lin, dy.data(), o.n_out, ktdy.data(), o.n_in, 1) == LSEM_OK);
      lsem_lin_free(lin);

      const Scattered<T> xs(x, n, o.n_in), dxs(dx, n, o.n_in), dys(dy, n, o.n_out);
      Scattered<T> ys(std::vector<T>(dy.size()), n, o.n_out), js(std::vector<T>(j.size()), n, o.n_out * o.n_in);
      Scattered<T> kdxs(std::vector<T>(dy.size(), T(1)), n, o.n_out), ktdys(std::vector<T>(dx.size(), T(1)), n, o.n_in);
      std::vector<std::max_align_t> ws(lsem_workspace_bytes(o.m, n, Api<T>::jac_ws) / sizeof(std::max_align_t) + 1);
      REQUIRE(Api<T>::predict_soa(o.m, n, xs.pointers.data(), xs.strides.data(), ys.pointers.data(), ys.strides.data(),
                                  nullptr) == LSEM_OK);
      CHECK(ys.dense(n) == y);
      REQUIRE(Api<T>::jac_soa(o.m, n, xs.pointers.data(), xs.strides.data(), mask.data(), 1, js.pointers.data(),
                              js.strides.data(), ws.data()) == LSEM_OK);
      CHECK(js.dense(n) == j);
      REQUIRE(Api<T>::linearize_soa(o.m, n, xs.pointers.data(), xs.strides.data(), mask.data(), &lin) == LSEM_OK);
      REQUIRE(Api<T>::tl_soa(lin, dxs.pointers.data(), dxs.strides.data(), kdxs.pointers.data(), kdxs.strides.data(),
                             1) == LSEM_OK);
      REQUIRE(Api<T>::ad_soa(lin, dys.pointers.data(), dys.strides.data(), ktdys.pointers.data(), ktdys.strides.data(),
                             1) == LSEM_OK);
      CHECK(apart(kdxs.dense(n), kdx) < Api<T>::tolerance);
      CHECK(apart(ktdys.dense(n), ktdy) < Api<T>::tolerance);
      // Memory between the elements stays unchanged.
      CHECK(ys.memory[1][1] == T(-77));
      lsem_lin_free(lin);

      // Variables first in one array, x(n, n_in), without a copy.
      std::vector<T> columns(x.size());
      std::vector<const T*> pointers;
      for (long i = 0; i < o.n_in; ++i) {
        for (long node = 0; node < n; ++node) columns[to_size(i * n + node)] = x[to_size(node * o.n_in + i)];
        pointers.push_back(&columns[to_size(i * n)]);
      }
      std::vector<T> y_first(y.size());
      std::vector<T*> y_pointers;
      for (long i = 0; i < o.n_out; ++i) y_pointers.push_back(&y_first[to_size(i * n)]);
      REQUIRE(Api<T>::predict_soa(o.m, n, pointers.data(), nullptr, y_pointers.data(), nullptr, nullptr) == LSEM_OK);
      for (long node = 0; node < n; ++node) CHECK(y_first[to_size(n + node)] == y[to_size(node * o.n_out + 1)]);

      // A result without an array is not written.
      std::fill(ys.memory[0].begin(), ys.memory[0].end(), T(5));
      ys.pointers[0] = nullptr;
      REQUIRE(Api<T>::predict_soa(o.m, n, xs.pointers.data(), xs.strides.data(), ys.pointers.data(), ys.strides.data(),
                                  nullptr) == LSEM_OK);
      CHECK(ys.memory[0][0] == T(5));
    }
  }

  TEST_CASE_TEMPLATE("nodes outside the domain, inactive inputs and states that are not finite have no sensitivity", T,
                     float, double) {
    const Opened o("emulator_multi");
    auto x = o.input<T>("x");
    std::vector<T> mask(to_size(o.n), T(0.5));
    mask[1] = T(0.1), mask[2] = T(0.9), mask[3] = T(0.0999), mask[4] = T(0.9001),
    mask[5] = std::numeric_limits<T>::quiet_NaN();
    x[to_size(6 * o.n_in + 2)] = std::numeric_limits<T>::quiet_NaN();
    std::vector<unsigned char> active(to_size(o.n_in), 1);
    active[3] = 0;
    REQUIRE(lsem_set_domain(o.m, static_cast<double>(T(0.1)), static_cast<double>(T(0.9))) == LSEM_OK);
    REQUIRE(lsem_set_active(o.m, active.data()) == LSEM_OK);
    std::vector<T> j(to_size(o.n * o.n_out * o.n_in));
    REQUIRE(Api<T>::jac(o.m, o.n, x.data(), o.n_in, mask.data(), 1, j.data(), nullptr) == LSEM_OK);
    lsem_lin* lin = nullptr;
    REQUIRE(Api<T>::linearize(o.m, o.n, x.data(), o.n_in, mask.data(), &lin) == LSEM_OK);
    const std::vector<T> dy(to_size(o.n * o.n_out), T(1));
    std::vector<T> dx(to_size(o.n * o.n_in));
    REQUIRE(Api<T>::ad(lin, dy.data(), o.n_out, dx.data(), o.n_in, 0) == LSEM_OK);
    lsem_lin_free(lin);
    for (long node = 0; node < o.n; ++node) {
      CAPTURE(node);
      const bool dead = node == 3 || node == 4 || node == 5 || node == 6;
      for (long i = 0; i < o.n_in; ++i) {
        for (long out = 0; out < o.n_out; ++out)
          CHECK((j[to_size((node * o.n_out + out) * o.n_in + i)] == 0) == (dead || i == 3));
        CHECK((dx[to_size(node * o.n_in + i)] == 0) == (dead || i == 3));
      }
    }
    REQUIRE(lsem_set_active(o.m, nullptr) == LSEM_OK);
    REQUIRE(Api<T>::jac(o.m, o.n, x.data(), o.n_in, mask.data(), 1, j.data(), nullptr) == LSEM_OK);
    CHECK(j[3] != 0);
  }

  TEST_CASE_TEMPLATE("a state that is not finite has no sensitivity, whatever the activation", T, float, double) {
    for (const std::string& name : golden_emulators()) {
      CAPTURE(name);
      const Opened o(name);
      const auto row = to_size(o.n_out * o.n_in);
      std::vector<T> clean(to_size(o.n) * row), j(clean.size());
      auto x = o.input<T>("x");
      REQUIRE(Api<T>::jac(o.m, o.n, x.data(), o.n_in, nullptr, 1, clean.data(), nullptr) == LSEM_OK);
      x[0] = std::numeric_limits<T>::quiet_NaN();
      x[to_size(o.n_in)] = std::numeric_limits<T>::infinity();
      x[to_size(2 * o.n_in)] = -std::numeric_limits<T>::infinity();
      REQUIRE(Api<T>::jac(o.m, o.n, x.data(), o.n_in, nullptr, 1, j.data(), nullptr) == LSEM_OK);
      for (std::size_t i = 0; i < j.size(); ++i) CHECK(j[i] == (i < 3 * row ? T(0) : clean[i]));
    }
  }

  // Networks whose linearisation stores K, and the slopes; nodes of one group, and of tiles and groups.
  TEST_CASE_TEMPLATE("one rule for masks and values that are not finite, in both forms of a linearisation", T, float,
                     double) {
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN(), kInfinity = std::numeric_limits<T>::infinity();
    for (const std::int64_t hidden : {2, 32})
      for (const long n : {4L, 70L}) {
        CAPTURE(hidden);
        CAPTURE(n);
        constexpr long kIn = 4, kOut = 3, kMasked = 1, kMissing = 2, kInactive = 3;
        const Moments moments = {{1, 2, 3, 4}, {0.5, 2, 20, 3}, {10, 20, 30}, {3, 0.3, 30}};
        const Emulator network(
            {.n_in = kIn, .n_out = kOut, .hidden = hidden, .layers = 1, .activation = ops::Activation::tanh}, moments,
            DType::f64, 1, BiasInit::torch);
        EmulatorVariables v;
        v.input_names = {"a", "b", "c", "d"}, v.output_names = {"o", "p", "q"};
        v.input_cf = v.input_units = std::vector<std::string>(kIn), v.input_level.resize(kIn);
        v.output_cf = v.output_units = std::vector<std::string>(kOut), v.output_level.resize(kOut);
        EmulatorMetadata metadata;
        metadata.variables = v;
        write_emulator("ruled", EmulatorFormat::lsem, network, metadata);
        lsem_model* m = nullptr;
        REQUIRE_MESSAGE(lsem_open("ruled", &m) == LSEM_OK, lsem_last_error());
        REQUIRE(lsem_set_domain(m, 0.5, 1) == LSEM_OK);
        const unsigned char active[kIn] = {1, 1, 1, 0};
        REQUIRE(lsem_set_active(m, active) == LSEM_OK);
        const auto values = [](const std::vector<double>& from) { return std::vector<T>(from.begin(), from.end()); };
        auto x = values(test::random_states(network, n));
        const std::vector<T> dx = values(test::random_values(n * kIn, 3)),
                             dy = values(test::random_values(n * kOut, 4));
        std::vector<T> mask(to_size(n), 1);
        mask[kMasked] = 0;
        const auto row = [](std::vector<T>& of, long node, long width) {
          return std::span(of).subspan(to_size(node * width), to_size(width));
        };
        row(x, kMissing, kIn)[1] = kInfinity;

        std::vector<T> y(to_size(n * kOut)), j(to_size(n * kOut * kIn));
        REQUIRE(Api<T>::predict(m, n, x.data(), kIn, y.data(), kOut, nullptr) == LSEM_OK);
        for (long node = 0; node < n; ++node)
          for (const T value : row(y, node, kOut)) CHECK(std::isnan(value) == (node == kMissing));
        REQUIRE(Api<T>::jac(m, n, x.data(), kIn, mask.data(), 1, j.data(), nullptr) == LSEM_OK);
        for (long e = 0; e < std::ssize(j); ++e) {
          const long node = e / (kOut * kIn);
          CHECK((j[to_size(e)] == 0) == (node == kMasked || node == kMissing || e % kIn == kInactive));
        }

        lsem_lin* lin = nullptr;
        REQUIRE(Api<T>::linearize(m, n, x.data(), kIn, mask.data(), &lin) == LSEM_OK);
        const auto tl = [&](const std::vector<T>& from, std::vector<T>& to, int accumulate) {
          return Api<T>::tl(lin, from.data(), kIn, to.data(), kOut, accumulate);
        };
        const auto ad = [&](const std::vector<T>& from, std::vector<T>& to, int accumulate) {
          return Api<T>::ad(lin, from.data(), kOut, to.data(), kIn, accumulate);
        };
        std::vector<T> tangent(y.size()), adjoint(x.size());
        REQUIRE(tl(dx, tangent, 0) == LSEM_OK);
        REQUIRE(ad(dy, adjoint, 0) == LSEM_OK);
        // NaN at excluded nodes and inactive inputs changes no bit.
        std::vector<T> dx_nan = dx, dy_nan = dy;
        for (const long node : {kMasked, kMissing}) {
          std::ranges::fill(row(dx_nan, node, kIn), kNaN);
          std::ranges::fill(row(dy_nan, node, kOut), kNaN);
        }
        for (long node = 0; node < n; ++node) row(dx_nan, node, kIn)[kInactive] = node % 2 ? kNaN : kInfinity;
        std::vector<T> to_y(y.size(), 7), to_x(x.size(), 7);
        REQUIRE_MESSAGE(tl(dx_nan, to_y, 0) == LSEM_OK, lsem_last_error());
        REQUIRE_MESSAGE(ad(dy_nan, to_x, 0) == LSEM_OK, lsem_last_error());
        CHECK(to_y == tangent);
        CHECK(to_x == adjoint);
        for (const long node : {kMasked, kMissing}) {
          for (const T value : row(to_y, node, kOut)) CHECK(value == 0);
          for (const T value : row(to_x, node, kIn)) CHECK(value == 0);
        }
        std::fill(to_y.begin(), to_y.end(), T(7)), std::fill(to_x.begin(), to_x.end(), T(7));
        row(to_x, 0, kIn)[kInactive] = kNaN;
        REQUIRE(tl(dx_nan, to_y, 1) == LSEM_OK);
        REQUIRE(ad(dy_nan, to_x, 1) == LSEM_OK);
        for (std::size_t e = 0; e < to_y.size(); ++e) CHECK(to_y[e] == 7 + tangent[e]);
        for (std::size_t e = 0; e < to_x.size(); ++e)
          CHECK((e == kInactive ? std::isnan(to_x[e]) : to_x[e] == 7 + adjoint[e]));

        // At any other node it is an error, never 0.
        const long valid = n - 1;
        const auto names = [&](long node) {
          return std::string(lsem_last_error()).find(join("of node ", node, ",")) != std::string::npos;
        };
        for (const T bad : {kNaN, kInfinity, -kInfinity})
          for (const int accumulate : {0, 1}) {
            std::vector<T> dx_bad = dx_nan, dy_bad = dy_nan;
            row(dx_bad, valid, kIn)[2] = row(dy_bad, valid, kOut)[1] = bad;
            CHECK(tl(dx_bad, to_y, accumulate) == LSEM_ERR_NOT_FINITE);
            CHECK(names(valid));
            for (const T value : row(to_y, valid, kOut)) CHECK_FALSE(std::isfinite(value));
            CHECK(ad(dy_bad, to_x, accumulate) == LSEM_ERR_NOT_FINITE);
            CHECK(names(valid));
            for (long i = 0; i < kInactive; ++i) CHECK_FALSE(std::isfinite(row(to_x, valid, kIn)[to_size(i)]));
          }
        lsem_lin_free(lin);

        row(x, valid, kIn)[0] = std::numeric_limits<T>::max();  // finite, but not when it is normalised
        CHECK(Api<T>::jac(m, n, x.data(), kIn, mask.data(), 1, j.data(), nullptr) == LSEM_ERR_NOT_FINITE);
        CHECK(names(valid));
        lsem_close(m);
      }
  }

  TEST_CASE("double states around a single-precision network lose no digits of the state") {
    for (const std::string& name : golden_emulators()) {
      const Opened o(name);
      REQUIRE(lsem_set_precision(o.m, LSEM_NET_F32) == LSEM_OK);
      const auto x = o.input<double>("x");
      std::vector<double> y(to_size(o.n * o.n_out));
      REQUIRE(lsem_predict_f64(o.m, o.n, x.data(), o.n_in, y.data(), o.n_out, nullptr) == LSEM_OK);
      const double difference = apart(y, o.output<double>("predict"));
      CHECK(difference < 3e-6);
      CHECK(difference > 0);
    }
  }

  TEST_CASE("a linearisation outlives changes of its model and the model itself") {
    const Opened o("emulator_multi");
    lsem_model* m = nullptr;
    REQUIRE(lsem_open("model", &m) == LSEM_OK);
    const auto x = o.input<double>("x"), dx = o.input<double>("dx");
    lsem_lin* lin = nullptr;
    REQUIRE(lsem_linearize_f64(m, o.n, x.data(), o.n_in, nullptr, &lin) == LSEM_OK);
    const std::vector<unsigned char> none(to_size(o.n_in), 0);
    REQUIRE(lsem_set_active(m, none.data()) == LSEM_OK);
    lsem_close(m);
    std::vector<double> dy(to_size(o.n * o.n_out));
    REQUIRE(lsem_tl_f64(lin, dx.data(), o.n_in, dy.data(), o.n_out, 0) == LSEM_OK);
    CHECK(apart(dy, o.output<double>("jvp_physical")) < 1e-12);
    lsem_lin_free(lin);
  }

  TEST_CASE("threads that share a model and a linearisation all get the same bits") {
    const Opened o("emulator_default");
    const auto x = o.input<float>("x"), dx = o.input<float>("dx");
    lsem_lin* lin = nullptr;
    REQUIRE(lsem_linearize_f32(o.m, o.n, x.data(), o.n_in, nullptr, &lin) == LSEM_OK);
    std::vector<std::vector<float>> results(4);
    std::vector<std::thread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] {
        const auto rows = to_size(o.n * o.n_out);
        result.resize(2 * rows);
        for (int repeat = 0; repeat < 20; ++repeat) {
          lsem_predict_f32(o.m, o.n, x.data(), o.n_in, result.data(), o.n_out, nullptr);
          lsem_tl_f32(lin, dx.data(), o.n_in, result.data() + rows, o.n_out, 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : results) CHECK(result == results[0]);
    CHECK(dot(results[0], results[0]) > 0);
    lsem_lin_free(lin);
  }

  TEST_CASE("a model reports its sizes, names, units, levels, mask and metadata") {
    for (const EmulatorFormat format : {EmulatorFormat::lsem, EmulatorFormat::h5model, EmulatorFormat::safetensors,
                                        EmulatorFormat::onnx, EmulatorFormat::torchscript}) {
      if (format == EmulatorFormat::h5model && !LOCKSTEP_CAPI_HDF5) continue;
      const Opened o("emulator_aice", format);
      CHECK(lsem_abi_version() == LSEM_ABI_VERSION);
      CHECK(lsem_n_in(o.m) == 7);
      CHECK(lsem_n_out(o.m) == 1);
      char text[40];
      CHECK(lsem_name(o.m, 0, 3, text, sizeof text) == LSEM_OK);
      CHECK(std::string(text) == "in3");
      CHECK(lsem_name(o.m, 1, 0, text, sizeof text) == LSEM_OK);
      CHECK(std::string(text) == "out0");
      CHECK(lsem_cf_name(o.m, 0, 0, text, sizeof text) == LSEM_OK);
      CHECK(std::string(text) == "sea_water_temperature");
      CHECK(lsem_units(o.m, 0, 0, text, sizeof text) == LSEM_OK);
      CHECK(std::string(text) == "degC");
      CHECK(lsem_level(o.m, 0, 5) == 5);
      CHECK(lsem_mask_name(o.m, text, sizeof text) == LSEM_OK);
      CHECK(std::string(text) == "in1");
      double lo = 0, hi = 0;
      CHECK(lsem_get_domain(o.m, &lo, &hi) == LSEM_OK);
      CHECK(lo == -2.5);
      CHECK(hi == 1e30);
      CHECK(lsem_meta(o.m, "note", text, sizeof text) == LSEM_OK);
      CHECK(std::string(text) == "two lines\nand a \\ and an = sign");
      CHECK(lsem_selftest(o.m) == LSEM_OK);
      CHECK(lsem_meta(o.m, "nothing", text, sizeof text) == LSEM_ERR_NOT_FOUND);
      CHECK(lsem_cf_name(o.m, 0, 0, text, 4) == LSEM_ERR_BUFFER);
      CHECK(std::string(text) == "sea");
    }
  }

  TEST_CASE("a file that cannot be used gives a code that says why, and no model") {
    const TrainedEmulator model = golden_emulator("emulator_act_tanh");
    write_emulator("model", EmulatorFormat::lsem, model.network, model.metadata);
    const std::string whole = read_text("model");
    const auto code = [&](const std::string& bytes) {
      char somewhere = 0;
      lsem_model* m = reinterpret_cast<lsem_model*>(&somewhere);
      write_text("other", bytes);
      const int from_file = lsem_open("other", &m);
      if (from_file != LSEM_OK) CHECK(m == nullptr);
      lsem_close(m);
      CHECK(lsem_open_mem(bytes.data(), bytes.size(), &m) == from_file);
      lsem_close(m);
      return from_file;
    };
    CHECK(code(whole) == LSEM_OK);
    CHECK(code("") == LSEM_ERR_FORMAT);
    CHECK(code("not a model") == LSEM_ERR_FORMAT);
    CHECK(code(whole.substr(0, whole.size() / 2)) == LSEM_ERR_DAMAGED);
    std::string flipped = whole;
    flipped[flipped.size() / 2] ^= 1;
    CHECK(code(flipped) == LSEM_ERR_DAMAGED);
    CHECK(std::string(lsem_last_error()).find("CRC-32") != std::string::npos);
    lsem_model* m = nullptr;
    CHECK(lsem_open("missing", &m) == LSEM_ERR_OPEN);
    CHECK(std::string(lsem_last_error()).find("missing") != std::string::npos);
    CHECK(lsem_open(nullptr, &m) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_open("model", nullptr) == LSEM_ERR_ARGUMENT);
    write_emulator("h5", EmulatorFormat::h5model, model.network, model.metadata);
    const std::string h5 = read_text("h5");
    CHECK(lsem_open_mem(h5.data(), h5.size(), &m) == LSEM_ERR_FORMAT);
    for (int status = LSEM_OK; status <= LSEM_ERR_INTERNAL + 1; ++status) CHECK(std::strlen(lsem_strerror(status)) > 5);
  }

  TEST_CASE("wrong arguments give an error and touch nothing") {
    const Opened o;
    const auto x = o.input<float>("x");
    std::vector<float> y(to_size(o.n), -1);
    lsem_lin* lin = nullptr;
    char text[8];
    double bound;
    CHECK(lsem_predict_f32(nullptr, o.n, x.data(), o.n_in, y.data(), 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_predict_f32(o.m, -1, x.data(), o.n_in, y.data(), 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_predict_f32(o.m, o.n, nullptr, o.n_in, y.data(), 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_predict_f32(o.m, o.n, x.data(), o.n_in - 1, y.data(), 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(std::string(lsem_last_error()).find("ldx") != std::string::npos);
    CHECK(lsem_predict_f32(o.m, o.n, x.data(), o.n_in, y.data(), 0, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_jac_f32(o.m, o.n, x.data(), o.n_in, nullptr, 1, nullptr, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_linearize_f32(o.m, o.n, x.data(), o.n_in, nullptr, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_tl_f32(nullptr, x.data(), o.n_in, y.data(), 1, 0) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_predict_soa_f32(o.m, o.n, nullptr, nullptr, nullptr, nullptr, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_name(o.m, 0, 7, text, sizeof text) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_name(o.m, 1, -1, text, sizeof text) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_level(o.m, 1, 1) == -1);
    CHECK(lsem_n_in(nullptr) == -1);
    CHECK(lsem_get_domain(o.m, nullptr, &bound) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_set_domain(o.m, 1, 0) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_set_domain(o.m, NAN, 0) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_set_threads(o.m, 0) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_set_precision(o.m, 7) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_workspace_bytes(o.m, o.n, 9) == 0);
    CHECK(lsem_selftest(nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(std::all_of(y.begin(), y.end(), [](float value) { return value == -1; }));
    // A linearisation belongs to its precision.
    REQUIRE(lsem_linearize_f32(o.m, o.n, x.data(), o.n_in, nullptr, &lin) == LSEM_OK);
    const auto dx = o.input<double>("dx");
    std::vector<double> dy(to_size(o.n));
    CHECK(lsem_tl_f64(lin, dx.data(), o.n_in, dy.data(), 1, 0) == LSEM_ERR_ARGUMENT);
    lsem_lin_free(lin);
    lsem_close(nullptr);
    lsem_lin_free(nullptr);
  }

  TEST_CASE_TEMPLATE("widths that fit no vector, a few rows, unaligned arrays and denormal states", T, float, double) {
    for (const std::int64_t width : {1, 3, 17, 50, 257}) {
      // Means 0 and deviations 1, so that a denormal state stays denormal in the network.
      const EmulatorArch arch{.n_in = width % 7 + 1, .n_out = width % 3 + 1, .hidden = width, .layers = 2};
      const auto in = to_size(arch.n_in), out = to_size(arch.n_out);
      const Moments moments{.input_mean = std::vector<double>(in, 0),
                            .input_std = std::vector<double>(in, 1),
                            .output_mean = std::vector<double>(out, 0),
                            .output_std = std::vector<double>(out, 1)};
      const Emulator network(arch, moments, DType::f64, 5, BiasInit::torch);
      write_emulator("model", EmulatorFormat::lsem, network, {});
      lsem_model* m = nullptr;
      REQUIRE_MESSAGE(lsem_open("model", &m) == LSEM_OK, lsem_last_error());
      for (const long n : {0L, 1L, 2L, 3L, 5L, 29L, 100L}) {
        CAPTURE(width);
        CAPTURE(n);
        const auto rows = to_size(n);
        // One element past an aligned address, and one more to see that nothing else changes.
        std::vector<T> x(rows * in + 1), y(rows * out + 2, T(-7)), j(rows * out * in + 2, T(-7));
        for (std::size_t i = 1; i < x.size(); ++i)
          x[i] = i % 5 == 0 ? std::numeric_limits<T>::denorm_min() * static_cast<T>(i)
                            : static_cast<T>(std::sin(0.7 * static_cast<double>(i)));
        REQUIRE(Api<T>::predict(m, n, x.data() + 1, arch.n_in, y.data() + 1, arch.n_out, nullptr) == LSEM_OK);
        REQUIRE(Api<T>::jac(m, n, x.data() + 1, arch.n_in, nullptr, 1, j.data() + 1, nullptr) == LSEM_OK);
        CHECK((y.front() == T(-7) && y.back() == T(-7) && j.front() == T(-7) && j.back() == T(-7)));
        std::vector<T> expected, alone_y(out), alone_j(out * in), all_y, all_j;
        for (std::size_t node = 0; node < rows; ++node) {
          const T* state = x.data() + 1 + node * in;
          REQUIRE(Api<T>::predict(m, 1, state, arch.n_in, alone_y.data(), arch.n_out, nullptr) == LSEM_OK);
          REQUIRE(Api<T>::jac(m, 1, state, arch.n_in, nullptr, 1, alone_j.data(), nullptr) == LSEM_OK);
          all_y.insert(all_y.end(), alone_y.begin(), alone_y.end());
          all_j.insert(all_j.end(), alone_j.begin(), alone_j.end());
          std::vector<double> h(state, state + in);
          for (std::int64_t k = 0; k <= arch.layers; ++k) {
            const std::span<const double> w = network.weight(k).value.span<double>(),
                                          b = network.bias(k).value.span<double>();
            std::vector<double> next(b.begin(), b.end());
            for (std::size_t o = 0; o < next.size(); ++o) {
              for (std::size_t i = 0; i < h.size(); ++i) next[o] += w[o * h.size() + i] * h[i];
              if (k < arch.layers) next[o] *= 0.5 * std::erfc(-next[o] / std::sqrt(2.0));
            }
            h = next;
          }
          expected.insert(expected.end(), h.begin(), h.end());
        }
        CHECK(std::equal(all_y.begin(), all_y.end(), y.begin() + 1));
        CHECK(std::equal(all_j.begin(), all_j.end(), j.begin() + 1));
        if (n > 0) CHECK(apart(all_y, expected) < Api<T>::tolerance);
      }
      lsem_close(m);
    }
  }

  TEST_CASE("zero nodes are valid and need no arrays") {
    const Opened o;
    CHECK(lsem_predict_f32(o.m, 0, nullptr, o.n_in, nullptr, 1, nullptr) == LSEM_OK);
    CHECK(lsem_jac_f64(o.m, 0, nullptr, o.n_in, nullptr, 1, nullptr, nullptr) == LSEM_OK);
    CHECK(lsem_predict_soa_f64(o.m, 0, nullptr, nullptr, nullptr, nullptr, nullptr) == LSEM_OK);
    lsem_lin* lin = nullptr;
    REQUIRE(lsem_linearize_f32(o.m, 0, nullptr, o.n_in, nullptr, &lin) == LSEM_OK);
    CHECK(lsem_tl_f32(lin, nullptr, o.n_in, nullptr, 1, 0) == LSEM_OK);
    lsem_lin_free(lin);
  }
}
