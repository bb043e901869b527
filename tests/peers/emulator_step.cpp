// emulator_step: the training step of the emulator by libtorch, as an expert writes it into a model in C++: the closed
// form of gradient_manual in emulator_peer.py on retained buffers, in chunks that stay in cache where that is faster,
// and one fused Adam over a flat vector. One thread. tests/bench/compare_session.sh builds and runs it.
//
//   emulator_step BATCH SECONDS [HIDDEN LAYERS]     the default is 64 3, with 14 inputs and 1 output
//
// Prints one JSON line: milliseconds of processor time of a step, from columns in the model's memory.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

constexpr std::int64_t kIn = 14, kOut = 1;

struct Step {
  Step(std::int64_t batch, std::int64_t chunk, std::int64_t hidden, std::int64_t layers)
      : batch(batch), chunk(chunk), layers(static_cast<std::size_t>(layers)) {
    std::vector<std::int64_t> width = {kIn};
    width.insert(width.end(), this->layers, hidden);
    width.push_back(kOut);
    std::int64_t size = 0;
    for (std::size_t k = 0; k <= this->layers; ++k) size += width[k + 1] * (width[k] + 1);
    values = at::randn({size}).mul_(0.1);
    for (at::Tensor* t : {&gradient, &first, &second}) *t = at::zeros({size});
    std::int64_t offset = 0;
    for (std::size_t k = 0; k <= this->layers; ++k) {
      const std::int64_t in = width[k], out = width[k + 1];
      w.push_back(values.narrow(0, offset, in * out).view({out, in}));
      gw.push_back(gradient.narrow(0, offset, in * out).view({out, in}));
      b.push_back(values.narrow(0, offset += in * out, out));
      gb.push_back(gradient.narrow(0, offset, out));
      offset += out;
      a.push_back(at::zeros({chunk, out}));
      h.push_back(at::zeros({chunk, out}));
      d.push_back(at::zeros({chunk, out}));
    }
    z = at::zeros({chunk, kIn});
    t = at::zeros({chunk, kOut});
  }

  void operator()(float* x, float* y) {
    gradient.zero_();
    loss.zero_();
    for (std::int64_t at = 0; at < batch; at += chunk) {
      at::sub_out(z, at::from_blob(x + at * kIn, {chunk, kIn}), mean_x).mul_(scale_x);
      at::sub_out(t, at::from_blob(y + at * kOut, {chunk, kOut}), mean_y).mul_(scale_y);
      for (std::size_t k = 0; k <= layers; ++k) {
        at::addmm_out(a[k], b[k], k == 0 ? z : h[k - 1], w[k].t());
        if (k < layers) at::gelu_out(h[k], a[k]);
      }
      at::sub_out(d[layers], a[layers], t);
      const at::Tensor error = d[layers].view({-1});
      loss.add_(at::dot(error, error));
      d[layers].mul_(2.0 / static_cast<double>(batch * kOut));
      for (std::size_t k = layers;; --k) {
        at::addmm_out(gw[k], gw[k], d[k].t(), k == 0 ? z : h[k - 1]);
        gb[k].add_(d[k].sum(0));
        if (k == 0) break;
        at::mm_out(d[k - 1], d[k], w[k]);
        at::gelu_backward_out(d[k - 1], d[k - 1], a[k - 1]);
      }
    }
    norm = at::linalg_vector_norm(gradient);
    at::_fused_adam_({values}, {gradient}, {first}, {second}, {}, {steps.add_(1)}, 1e-4, 0.9, 0.999, 0, 1e-8, false,
                     false);
  }

  std::int64_t batch, chunk;
  std::size_t layers;
  at::Tensor values, gradient, first, second, z, t, norm, loss = at::zeros({}), steps = at::zeros({});
  at::Tensor mean_x = at::full({kIn}, 0.1), scale_x = at::full({kIn}, 2), mean_y = at::full({kOut}, 0.1),
             scale_y = at::full({kOut}, 2);
  std::vector<at::Tensor> w, b, gw, gb, a, h, d;
};

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::int64_t batch = std::atoll(argv[1]);
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  std::vector<float> x(static_cast<std::size_t>(batch * kIn), 0.3F), y(static_cast<std::size_t>(batch * kOut), 0.2F);
  double best = 1e9;
  for (const std::int64_t chunk : {batch, std::min<std::int64_t>(batch, 1000), std::min<std::int64_t>(batch, 500)}) {
    Step step(batch, chunk, argc > 4 ? std::atoll(argv[3]) : 64, argc > 4 ? std::atoll(argv[4]) : 3);
    for (int i = 0; i < 5; ++i) step(x.data(), y.data());
    std::int64_t steps = 0;
    const double begin = processor_s();
    for (; processor_s() - begin < std::atof(argv[2]); ++steps) step(x.data(), y.data());
    best = std::min(best, 1e3 * (processor_s() - begin) / static_cast<double>(steps));
  }
  std::printf("{\"batch\": %lld, \"libtorch_ms\": %.3f}\n", static_cast<long long>(batch), best);
}
