// How a C++ program with one array per variable uses a trained emulator. The model is read once and passed as bytes (in
// a parallel program: read on one rank, broadcast, opened on each).
//
//   fields MODEL.lsem
#include <lockstep/lockstep.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(int status) {
  if (status != LSEM_OK) throw std::runtime_error(lsem_last_error());
}

struct Close {
  void operator()(lsem_model* m) const { lsem_close(m); }
  void operator()(lsem_lin* lin) const { lsem_lin_free(lin); }
};
using Model = std::unique_ptr<lsem_model, Close>;
using Linearisation = std::unique_ptr<lsem_lin, Close>;

Model open_bytes(const std::vector<char>& bytes) {
  lsem_model* m = nullptr;
  check(lsem_open_mem(bytes.data(), bytes.size(), &m));
  return Model(m);
}

/// One array per variable, as a forecast model keeps them.
struct Fields {
  std::vector<std::vector<float>> values;
  std::vector<float*> pointers;
  Fields(int variables, long n)
      : values(static_cast<std::size_t>(variables), std::vector<float>(static_cast<std::size_t>(n))) {
    for (auto& field : values) pointers.push_back(field.data());
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: fields MODEL.lsem");
  std::ifstream file(argv[1], std::ios::binary);
  const Model model = open_bytes(std::vector<char>(std::istreambuf_iterator<char>(file), {}));
  const int n_in = lsem_n_in(model.get()), n_out = lsem_n_out(model.get());
  const long n = 5000;

  Fields state(n_in, n), increment(n_in, n), prediction(n_out, n), response(n_out, n), shifted(n_in, n),
      jacobian(n_in * n_out, n);
  const float step = 1e-2f;
  for (int i = 0; i < n_in; ++i) {
    for (long j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const float u = std::sin(0.01f * static_cast<float>(j) + static_cast<float>(i));
      state.values[static_cast<std::size_t>(i)][at] = u;
      increment.values[static_cast<std::size_t>(i)][at] = step * std::cos(u);
      shifted.values[static_cast<std::size_t>(i)][at] = u + step * std::cos(u);
    }
  }
  check(lsem_set_threads(model.get(), 2));
  check(lsem_predict_soa_f32(model.get(), n, state.pointers.data(), nullptr, prediction.pointers.data(), nullptr,
                             nullptr));
  check(lsem_jac_soa_f32(model.get(), n, state.pointers.data(), nullptr, nullptr, 1, jacobian.pointers.data(), nullptr,
                         nullptr));
  lsem_lin* raw = nullptr;
  check(lsem_linearize_soa_f32(model.get(), n, state.pointers.data(), nullptr, nullptr, &raw));
  const Linearisation lin(raw);
  check(lsem_tl_soa_f32(lin.get(), increment.pointers.data(), nullptr, response.pointers.data(), nullptr, 0));

  // K dx by hand, from the fields of the Jacobian.
  double worst = 0, largest = 0;
  for (int o = 0; o < n_out; ++o) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
      double sum = 0;
      for (int i = 0; i < n_in; ++i) {
        sum += static_cast<double>(jacobian.values[static_cast<std::size_t>(o * n_in + i)][j]) *
               increment.values[static_cast<std::size_t>(i)][j];
      }
      worst = std::max(worst, std::abs(sum - response.values[static_cast<std::size_t>(o)][j]));
      largest = std::max(largest, std::abs(sum));
    }
  }
  std::printf("%ld nodes: prediction of node 0 is %g; tangent linear and Jacobian agree to %.1e\n", n,
              static_cast<double>(prediction.values[0][0]), worst / largest);
  return largest > 0 && worst <= 1e-5 * largest ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
