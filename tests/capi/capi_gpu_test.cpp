#include "capi/opened.hpp"
#include "support/device_array.hpp"
#include "support/random_emulator.hpp"

TEST_SUITE("capi.gpu_cuda") {
  TEST_CASE("without a GPU the copy is refused with the reason") {
    Opened model;
    auto* g = reinterpret_cast<lsem_gpu*>(1);
    CHECK(lsem_gpu_open(nullptr, -1, &g) == LSEM_ERR_ARGUMENT);
    CHECK(g == nullptr);
    CHECK(lsem_gpu_open(model.m, -2, &g) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_gpu_open(model.m, 99, &g) == LSEM_ERR_GPU);
    CHECK(std::string(lsem_last_error()).find(gpu_count() > 0 ? "this process sees" : "CUDA") != std::string::npos);
    CHECK(std::string(lsem_strerror(LSEM_ERR_GPU)).starts_with("no GPU"));
    lsem_gpu_close(nullptr);
  }

  TEST_CASE("prediction, Jacobian, tangent linear and adjoint are PyTorch's" * doctest::skip(gpu_count() == 0)) {
    Opened model;
    const long n = model.n, n_in = model.n_in, n_out = model.n_out;
    lsem_gpu* g = nullptr;
    REQUIRE_MESSAGE(lsem_gpu_open(model.m, -1, &g) == LSEM_OK, lsem_last_error());
    const test::DeviceArray<double> x(model.input<double>("x"));
    const test::DeviceArray<double> y(to_size(n * n_out)), j(to_size(n * n_out * n_in));
    REQUIRE(lsem_gpu_predict_f64(g, n, x.data(), n_in, 1, y.data(), n_out, 1, nullptr) == LSEM_OK);
    REQUIRE(lsem_gpu_jac_f64(g, n, x.data(), n_in, 1, nullptr, 1, j.data(), nullptr) == LSEM_OK);
    Stream({DeviceKind::cuda, 0}, nullptr).synchronize();
    CHECK(apart(y.read(), model.output<double>("predict")) < 1e-12);
    const std::vector<double> matrix = j.read();

    const std::vector<double> dx = test::random_values(n * n_in, 3), dy = test::random_values(n * n_out, 4);
    std::vector<double> kdx(to_size(n * n_out), 1), ktdy(to_size(n * n_in), 1);
    for (long node = 0; node < n; ++node)
      for (long o = 0; o < n_out; ++o)
        for (long i = 0; i < n_in; ++i) {
          const double k = matrix[to_size((node * n_out + o) * n_in + i)];
          kdx[to_size(node * n_out + o)] += k * dx[to_size(node * n_in + i)];
          ktdy[to_size(node * n_in + i)] += k * dy[to_size(node * n_out + o)];
        }
    const test::DeviceArray<double> from_x(dx), from_y(dy), to_y(std::vector<double>(kdx.size(), 1)),
        to_x(std::vector<double>(ktdy.size(), 1));
    REQUIRE(lsem_gpu_tl_f64(g, n, j.data(), from_x.data(), n_in, 1, to_y.data(), n_out, 1, 1, nullptr) == LSEM_OK);
    REQUIRE(lsem_gpu_ad_f64(g, n, j.data(), from_y.data(), n_out, 1, to_x.data(), n_in, 1, 1, nullptr) == LSEM_OK);
    Stream({DeviceKind::cuda, 0}, nullptr).synchronize();
    CHECK(apart(to_y.read(), kdx) < 1e-13);
    CHECK(apart(to_x.read(), ktdy) < 1e-13);

    // Matrices of more nodes than one block multiplies: each is its node's number.
    const long many = 999;
    std::vector<double> numbers(to_size(many * n_out * n_in)), wanted(to_size(many * n_out));
    for (std::size_t e = 0; e < numbers.size(); ++e) numbers[e] = static_cast<double>(e / to_size(n_out * n_in));
    for (std::size_t e = 0; e < wanted.size(); ++e) wanted[e] = static_cast<double>(e / to_size(n_out)) * double(n_in);
    const test::DeviceArray<double> matrices(numbers), ones(std::vector<double>(to_size(many * n_in), 1)),
        products(wanted.size());
    REQUIRE(lsem_gpu_tl_f64(g, many, matrices.data(), ones.data(), n_in, 1, products.data(), n_out, 1, 0, nullptr) ==
            LSEM_OK);
    Stream({DeviceKind::cuda, 0}, nullptr).synchronize();
    CHECK(products.read() == wanted);

    CHECK(lsem_gpu_predict_f64(g, 0, nullptr, 0, 0, nullptr, 0, 0, nullptr) == LSEM_OK);
    CHECK(lsem_gpu_predict_f64(g, n, nullptr, n_in, 1, y.data(), n_out, 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_gpu_predict_f64(g, n, x.data(), 0, 1, y.data(), n_out, 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_gpu_predict_f64(g, -1, x.data(), n_in, 1, y.data(), n_out, 1, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(lsem_gpu_jac_f64(g, n, x.data(), n_in, 1, nullptr, 1, nullptr, nullptr) == LSEM_ERR_ARGUMENT);
    lsem_gpu_close(g);
  }

  TEST_CASE("NaN is left out at excluded nodes and inactive inputs, and stays anywhere else" *
            doctest::skip(gpu_count() == 0)) {
    Opened model;
    const long n = model.n, n_in = model.n_in, n_out = model.n_out, masked = 2, missing = 3, infinite = 4, valid = 5;
    REQUIRE(n > valid);
    std::vector<unsigned char> active(to_size(n_in), 1);
    active[1] = 0;
    REQUIRE(lsem_set_active(model.m, active.data()) == LSEM_OK);
    REQUIRE(lsem_set_domain(model.m, 0.5, 1) == LSEM_OK);
    lsem_gpu* g = nullptr;
    REQUIRE(lsem_gpu_open(model.m, 0, &g) == LSEM_OK);
    const auto excluded = [&](long node) { return node == masked || node == missing || node == infinite; };
    std::vector<double> states = model.input<double>("x"), domain(to_size(n), 1);
    states[to_size(missing * n_in)] = std::nan("");
    states[to_size(infinite * n_in + 1)] = -HUGE_VAL;
    domain[to_size(masked)] = 0;
    const test::DeviceArray<double> x(states), mask(domain), y(to_size(n * n_out)), j(to_size(n * n_out * n_in));
    REQUIRE(lsem_gpu_predict_f64(g, n, x.data(), n_in, 1, y.data(), n_out, 1, nullptr) == LSEM_OK);
    REQUIRE(lsem_gpu_jac_f64(g, n, x.data(), n_in, 1, mask.data(), 1, j.data(), nullptr) == LSEM_OK);
    const Stream stream({DeviceKind::cuda, 0}, nullptr);
    stream.synchronize();
    const std::vector<double> predicted = y.read(), matrix = j.read();
    for (long e = 0; e < n * n_out; ++e)
      CHECK(std::isnan(predicted[to_size(e)]) == (e / n_out == missing || e / n_out == infinite));
    for (long e = 0; e < n * n_out * n_in; ++e) {
      const double value = matrix[to_size(e)];
      CHECK((value == 0 && std::signbit(value)) == (excluded(e / (n_out * n_in)) || e % n_in == 1));
    }

    std::vector<double> dx = test::random_values(n * n_in, 3), dy = test::random_values(n * n_out, 4);
    const auto products = [&](bool tangent, const std::vector<double>& from, double old) {
      const test::DeviceArray<double> in(from), to(std::vector<double>(to_size(n * (tangent ? n_out : n_in)), old));
      const auto call = tangent ? lsem_gpu_tl_f64 : lsem_gpu_ad_f64;
      REQUIRE(call(g, n, j.data(), in.data(), tangent ? n_in : n_out, 1, to.data(), tangent ? n_out : n_in, 1, old != 0,
                   nullptr) == LSEM_OK);
      stream.synchronize();
      return to.read();
    };
    const std::vector<double> kdx = products(true, dx, 0), ktdy = products(false, dy, 0);
    for (long node = 0; node < n; ++node) {
      for (long i = 0; i < n_in; ++i)
        if (excluded(node) || i == 1) dx[to_size(node * n_in + i)] = std::nan("");
      for (long o = 0; o < n_out && excluded(node); ++o) dy[to_size(node * n_out + o)] = std::nan("");
    }
    CHECK(products(true, dx, 0) == kdx);
    CHECK(products(false, dy, 0) == ktdy);
    for (const long node : {masked, missing, infinite}) {
      CHECK(kdx[to_size(node * n_out)] == 0);
      CHECK(products(true, dx, 7)[to_size(node * n_out)] == 7);
      CHECK(products(false, dy, 7)[to_size(node * n_in)] == 7);
    }
    dx[to_size(valid * n_in)] = dy[to_size(valid * n_out)] = std::nan("");
    CHECK(std::isnan(products(true, dx, 0)[to_size(valid * n_out)]));
    const std::vector<double> adjoint = products(false, dy, 0);
    for (long i = 0; i < n_in; ++i) {
      const double value = adjoint[to_size(valid * n_in + i)];
      CHECK((i == 1 ? value == 0 : std::isnan(value)));
    }
    // A derivative that happens to be 0 at a node inside the domain does not hide NaN.
    const test::DeviceArray<double> zeros(std::vector<double>(to_size(n_out * n_in), 0)),
        nan(std::vector<double>(to_size(n_in), std::nan(""))), to(to_size(n_out));
    REQUIRE(lsem_gpu_tl_f64(g, 1, zeros.data(), nan.data(), n_in, 1, to.data(), n_out, 1, 0, nullptr) == LSEM_OK);
    stream.synchronize();
    CHECK(std::isnan(to.read()[0]));
    lsem_gpu_close(g);
  }

  TEST_CASE("single precision, and a single network for double states" * doctest::skip(gpu_count() == 0)) {
    Opened model;
    REQUIRE(lsem_set_precision(model.m, LSEM_NET_F32) == LSEM_OK);
    lsem_gpu* g = nullptr;
    REQUIRE(lsem_gpu_open(model.m, 0, &g) == LSEM_OK);
    const std::vector<double> wanted = model.output<double>("predict");
    const test::DeviceArray<double> x(model.input<double>("x")), y(wanted.size());
    const test::DeviceArray<float> x32(model.input<float>("x")), y32(wanted.size());
    REQUIRE(lsem_gpu_predict_f64(g, model.n, x.data(), model.n_in, 1, y.data(), model.n_out, 1, nullptr) == LSEM_OK);
    REQUIRE(lsem_gpu_predict_f32(g, model.n, x32.data(), model.n_in, 1, y32.data(), model.n_out, 1, nullptr) ==
            LSEM_OK);
    Stream({DeviceKind::cuda, 0}, nullptr).synchronize();
    const double double_states = apart(y.read(), wanted);
    CHECK(double_states < 3e-6);
    CHECK(double_states > 1e-12);  // the network computes in single precision
    const std::vector<float> single = y32.read();
    CHECK(apart(std::vector<double>(single.begin(), single.end()), wanted) < 3e-6);
    lsem_gpu_close(g);
  }
}
