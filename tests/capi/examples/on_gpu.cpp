// How a CUDA program uses a trained emulator on states that are in GPU memory: a prediction and a Jacobian on its own
// stream, then tangent linear and adjoint. Nothing but the results is copied to the host.
//
//   on_gpu MODEL.lsem
#include <cuda_runtime.h>
#include <lockstep/lockstep.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(int status) {
  if (status != LSEM_OK) throw std::runtime_error(std::string(lsem_strerror(status)) + ": " + lsem_last_error());
}
void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// An array in GPU memory.
class Field {
 public:
  explicit Field(long size) : size_(static_cast<std::size_t>(size)) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(double)));
  }
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;
  ~Field() { cudaFree(data_); }
  void fill(cudaStream_t stream, const std::vector<double>& values) {
    check(cudaMemcpyAsync(data_, values.data(), size_ * sizeof(double), cudaMemcpyDefault, stream));
  }
  std::vector<double> read(cudaStream_t stream) const {
    std::vector<double> values(size_);
    check(cudaMemcpyAsync(values.data(), data_, size_ * sizeof(double), cudaMemcpyDefault, stream));
    check(cudaStreamSynchronize(stream));
    return values;
  }
  double* data() const { return data_; }

 private:
  std::size_t size_;
  double* data_ = nullptr;
};

std::vector<double> wave(long size, double step) {
  std::vector<double> values;
  for (long i = 0; i < size; ++i) values.push_back(std::sin(step * static_cast<double>(i)));
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: on_gpu MODEL.lsem");
  lsem_model* model = nullptr;
  check(lsem_open(argv[1], &model));
  const long n = 1000, n_in = lsem_n_in(model), n_out = lsem_n_out(model);
  lsem_gpu* gpu = nullptr;
  check(lsem_gpu_open(model, -1, &gpu));  // the current GPU
  lsem_close(model);                      // the copy remains usable
  {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Field x(n * n_in), dx(n * n_in), ktdy(n * n_in), y(n * n_out), dy(n * n_out), kdx(n * n_out),
        jacobian(n * n_out * n_in);
    const std::vector<double> increments = wave(n * n_in, 0.61), forcing = wave(n * n_out, 1.7);
    x.fill(stream, wave(n * n_in, 0.37));
    dx.fill(stream, increments);
    dy.fill(stream, forcing);
    check(lsem_gpu_predict_f64(gpu, n, x.data(), n_in, 1, y.data(), n_out, 1, stream));
    check(lsem_gpu_jac_f64(gpu, n, x.data(), n_in, 1, nullptr, 1, jacobian.data(), stream));
    check(lsem_gpu_tl_f64(gpu, n, jacobian.data(), dx.data(), n_in, 1, kdx.data(), n_out, 1, 0, stream));
    check(lsem_gpu_ad_f64(gpu, n, jacobian.data(), dy.data(), n_out, 1, ktdy.data(), n_in, 1, 0, stream));
    const double left = dot(kdx.read(stream), forcing), right = dot(increments, ktdy.read(stream));
    std::printf("node 0: %g; <K dx, dy> = %.15g, <dx, K' dy> = %.15g\n", y.read(stream)[0], left, right);
    if (!(left != 0 && std::abs(left - right) <= 1e-10 * std::abs(left)))
      throw std::runtime_error("the adjoint is not the transpose of the tangent linear");
    check(cudaStreamDestroy(stream));
  }
  lsem_gpu_close(gpu);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
