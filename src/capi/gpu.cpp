#include "capi.hpp"

using namespace lockstep;        // NOLINT: the functions themselves are C's
using namespace lockstep::capi;  // NOLINT

/// The networks for both kinds of states. With LSEM_NET_F32 the one for double states computes in single precision.
struct lsem_gpu {
  Device device;
  int n_in = 0, n_out = 0;
  double mask_min = 0, mask_max = 0;
  ops::FeedForwardStates<float> f32;
  std::unique_ptr<const ops::FeedForwardStates<double>> f64;  ///< null: double states use f32

  /// Calls f with the network that computes for states of type S.
  template <class S, class F>
  void with_network(const F& f) const {
    if constexpr (std::is_same_v<S, double>)
      if (f64) return f(*f64);
    f(f32);
  }
};

namespace {

/// Checks the arguments of a call, and runs it on the caller's stream unless there are no nodes.
int call(const lsem_gpu* g, long n, void* native, const auto& body) noexcept {
  return on_gpu([&] {
    require_argument(g, "the model is null");
    require_argument(n >= 0, n, " nodes");
    if (n == 0) return;
    const CurrentGpu current(g->device);
    body(Stream(g->device, native));
  });
}

template <class S>
int predict(const lsem_gpu* g, long n, const S* x, long x_node, long x_variable, S* y, long y_node, long y_variable,
            void* native) noexcept {
  return call(g, n, native, [&](const Stream& stream) {
    const StateView<const S> in = gpu_view("x", x, x_node, x_variable);
    const StateView<S> out = gpu_view("y", y, y_node, y_variable);
    g->with_network<S>([&](const auto& network) { network.template predict<S>(stream, n, in, out); });
  });
}

template <class S>
int jacobian(const lsem_gpu* g, long n, const S* x, long x_node, long x_variable, const S* mask, int physical, S* j,
             void* native) noexcept {
  return call(g, n, native, [&](const Stream& stream) {
    const StateView<const S> in = gpu_view("x", x, x_node, x_variable);
    require_argument(j, "J is null");
    const JacobianUnits units = physical ? JacobianUnits::physical : JacobianUnits::normalised;
    g->with_network<S>([&](const auto& network) {
      network.template jacobian<S>(stream, n, in, {mask, g->mask_min, g->mask_max}, static_cast<int>(units), j);
    });
  });
}

template <class S>
int multiply(const lsem_gpu* g, long n, const S* j, StateView<const S> from, StateView<S> to,
             ops::Transposed transposed, int accumulate, void* native) noexcept {
  return call(g, n, native, [&](const Stream& stream) {
    const bool tangent = transposed == ops::Transposed::no;
    require_argument(j, "J is null");
    gpu_view(tangent ? "dx" : "dy", from.data, from.node_stride, from.variable_stride);
    gpu_view(tangent ? "dy" : "dx", to.data, to.node_stride, to.variable_stride);
    ops::multiply_states<S>(stream, n, g->n_out, g->n_in, j, from, to, transposed, accumulate != 0);
  });
}

}  // namespace

int lsem_gpu_open(const lsem_model* m, int device, lsem_gpu** g) {
  if (g) *g = nullptr;
  return on_gpu([&] {
    require_argument(g, "the pointer for the copy is null");
    require_argument(m, "the model is null");
    require_argument(device >= -1, "device ", device, ", must be >= 0, or -1 for the current GPU");
    const Device gpu = device < 0 ? current_gpu() : Device{DeviceKind::cuda, device};
    std::unique_ptr<const ops::FeedForwardStates<double>> f64;
    if (m->precision == LSEM_NET_F64) f64 = std::make_unique<const ops::FeedForwardStates<double>>(m->f64->on_gpu(gpu));
    *g = new lsem_gpu{
        gpu, m->n_in(), m->n_out(), m->options.mask_min, m->options.mask_max, m->f32->on_gpu(gpu), std::move(f64)};
  });
}

void lsem_gpu_close(lsem_gpu* g) { delete g; }

#define LSEM_GPU_FUNCTIONS(S, suffix)                                                                                 \
  int lsem_gpu_predict_##suffix(const lsem_gpu* g, long n, const S* x, long x_node, long x_variable, S* y,            \
                                long y_node, long y_variable, void* stream) {                                         \
    return predict(g, n, x, x_node, x_variable, y, y_node, y_variable, stream);                                       \
  }                                                                                                                   \
  int lsem_gpu_jac_##suffix(const lsem_gpu* g, long n, const S* x, long x_node, long x_variable, const S* mask,       \
                            int physical, S* J, void* stream) {                                                       \
    return jacobian(g, n, x, x_node, x_variable, mask, physical, J, stream);                                          \
  }                                                                                                                   \
  int lsem_gpu_tl_##suffix(const lsem_gpu* g, long n, const S* J, const S* dx, long dx_node, long dx_variable, S* dy, \
                           long dy_node, long dy_variable, int accumulate, void* stream) {                            \
    return multiply<S>(g, n, J, {dx, dx_node, dx_variable}, {dy, dy_node, dy_variable}, ops::Transposed::no,          \
                       accumulate, stream);                                                                           \
  }                                                                                                                   \
  int lsem_gpu_ad_##suffix(const lsem_gpu* g, long n, const S* J, const S* dy, long dy_node, long dy_variable, S* dx, \
                           long dx_node, long dx_variable, int accumulate, void* stream) {                            \
    return multiply<S>(g, n, J, {dy, dy_node, dy_variable}, {dx, dx_node, dx_variable}, ops::Transposed::yes,         \
                       accumulate, stream);                                                                           \
  }
LSEM_GPU_FUNCTIONS(float, f32)
LSEM_GPU_FUNCTIONS(double, f64)
#undef LSEM_GPU_FUNCTIONS
