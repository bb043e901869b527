#include <cmath>
#include <type_traits>

#include "feed_forward_states_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/activation_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kManyNodes = 64, kFewNodes = 16;

/// The values of a block's nodes in shared memory, value by value: (values, kNodes).
template <class T>
struct Values {
  T *layer, *next;  ///< of the current layer and of the one that is computed
  T* slopes;        ///< of all hidden layers
  __device__ explicit Values(const StatesNetwork<T>& net, int nodes)
      : layer(reinterpret_cast<T*>(sm_bytes)), next(layer + net.widest * nodes), slopes(next + net.widest * nodes) {}
  __device__ void advance() {
    T* const last = layer;
    layer = next;
    next = last;
    __syncthreads();
  }
};

/// put(r, node, bias_r + sum_d m_dr x_d) for r < rows, with a matrix m (depth, padded rows). A thread computes kOutputs
/// sums of one node: it loads one x and kOutputs / 4 packs of weights, which all nodes of a warp share, for kOutputs
/// multiplications.
template <int kNodes, int kOutputs, class T, class Put>
__device__ void add_products(std::int64_t depth, std::int64_t rows, const T* __restrict__ m, const T* __restrict__ bias,
                             const T* sm_x, const Put& put) {
  constexpr int kPack = 16 / sizeof(T);
  const int node = static_cast<int>(threadIdx.x) % kNodes, group = static_cast<int>(threadIdx.x) / kNodes;
  const std::int64_t stride = states_padded(rows);
  for (std::int64_t r = group * kOutputs; r < rows; r += kThreads / kNodes * kOutputs) {
    T sum[kOutputs];
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) sum[k] = bias != nullptr ? bias[r + k] : T{0};
#pragma unroll 4
    for (std::int64_t d = 0; d < depth; ++d) {
      const T x = sm_x[d * kNodes + node];
#pragma unroll
      for (int p = 0; p < kOutputs; p += kPack) {
        const gpu::Pack<T, kPack> w = gpu::load<kPack>(m + d * stride + r + p);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sum[p + k] = std::fma(w.at[k], x, sum[p + k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kOutputs; ++k)
      if (r + k < rows) put(r + k, node, sum[k]);
  }
}
template <int kNodes, class T, class Put>
__device__ void dense(std::int64_t depth, std::int64_t rows, const T* m, const T* bias, const T* sm_x, const Put& put) {
  rows > 4 ? add_products<kNodes, kStatesOutputs>(depth, rows, m, bias, sm_x, put)
           : add_products<kNodes, 4>(depth, rows, m, bias, sm_x, put);
}

/// Calls f(node, variable) for all variables of the block's nodes, so that neighbouring threads access neighbouring
/// elements of a view.
template <int kNodes, class S, class F>
__device__ void for_each(const StateView<S>& view, std::int64_t variables, std::int64_t n, const F& f) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kNodes;
  const int nodes = static_cast<int>(n - first < kNodes ? n - first : kNodes);  // mutant-equivalent: equal
  const bool variables_first = view.variable_stride != 1;
  // mutant-equivalent: several threads store the same
  for (std::int64_t e = threadIdx.x; e < nodes * variables; e += kThreads) {
    const std::int64_t fast = variables_first ? nodes : variables;
    const std::int64_t a = e % fast, b = e / fast;
    variables_first ? f(static_cast<int>(a), b) : f(static_cast<int>(b), a);
  }
}

/// Loads and normalises the block's states: NaN where that is not finite, because an activation turns an infinity into
/// a number. Nodes after the last one are 0.
template <int kNodes, class T, class S>
__device__ void load_states(const StatesNetwork<T>& net, std::int64_t n, const StateView<const S>& x, T* sm_z) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kNodes;
  // mutant-equivalent: one more zero, where the layer's results go later
  for (std::int64_t e = threadIdx.x; e < net.n_in() * kNodes; e += kThreads)
    if (first + e % kNodes >= n) sm_z[e] = 0;
  for_each<kNodes>(x, net.n_in(), n, [&](int node, std::int64_t i) {
    const S value = x.at(first + node, i);
    T z;
    if constexpr (std::is_same_v<T, S>)
      z = (value - static_cast<T>(net.input_mean[i])) / static_cast<T>(net.input_std[i]);
    else
      z = static_cast<T>((static_cast<double>(value) - net.input_mean[i]) / net.input_std[i]);
    sm_z[i * kNodes + node] = z - z == T{0} ? z : z - z;
  });
  __syncthreads();
}

/// The hidden layers. Keeps their slopes if `slopes` is not null.
template <int kNodes, class T>
__device__ void forward(const StatesNetwork<T>& net, Values<T>& sm, T* slopes) {
  const auto activation = static_cast<Activation>(net.activation);
  for (std::int64_t k = 0; k + 1 < net.layers; ++k) {
    const StatesLayer<T>& l = net.layer[k];
    dense<kNodes>(l.in, l.out, l.by_input, l.bias, sm.layer, [&](std::int64_t r, int node, T a) {
      T y, slope;
      gpu::activate(activation, a, y, slope);
      sm.next[r * kNodes + node] = y;
      if (slopes != nullptr) slopes[r * kNodes + node] = slope;
    });
    if (slopes != nullptr) slopes += l.out * kNodes;
    sm.advance();
  }
}

/// A block computes kNodes nodes. Compute bound: weights come from the caches, and all other values stay in shared
/// memory. Traffic: reads x, writes y.
template <int kNodes, class T, class S>
__global__ void __launch_bounds__(kThreads)
    predict_states_kernel(gpu::Earlier earlier, StatesNetwork<T> net, std::int64_t n, StateView<const S> x,
                          StateView<S> y) {
  earlier.wait();
  Values<T> sm(net, kNodes);
  load_states<kNodes>(net, n, x, sm.layer);
  forward<kNodes>(net, sm, static_cast<T*>(nullptr));
  const StatesLayer<T>& l = net.layer[net.layers - 1];
  dense<kNodes>(l.in, l.out, l.by_input, l.bias, sm.layer,
                [&](std::int64_t r, int node, T value) { sm.next[r * kNodes + node] = value; });
  sm.advance();
  using Wide = std::common_type_t<S, T>;
  for_each<kNodes>(y, net.n_out(), n, [&](int node, std::int64_t o) {
    y.at(std::int64_t{blockIdx.x} * kNodes + node, o) =
        static_cast<S>(static_cast<Wide>(sm.layer[o * kNodes + node]) * static_cast<Wide>(net.output_std[o]) +
                       static_cast<Wide>(net.output_mean[o]));
  });
}

/// A block computes the Jacobians of kNodes nodes, one row (or column) after another: a pass through the layers with
/// the slopes of the forward pass. Compute bound. Traffic: reads x, writes j.
template <int kNodes, class T, class S>
__global__ void __launch_bounds__(kThreads)
    jacobian_states_kernel(gpu::Earlier earlier, StatesNetwork<T> net, std::int64_t n, StateView<const S> x,
                           StatesMask<S> mask, std::int64_t units, S* __restrict__ j) {
  earlier.wait();
  enum : int { excluded, included, overflowed };  // nodes by their derivatives: 0, computed, NaN
  __shared__ int sm_node[kNodes];
  Values<T> sm(net, kNodes);
  const std::int64_t first = std::int64_t{blockIdx.x} * kNodes, in = net.n_in(), out = net.n_out();
  load_states<kNodes>(net, n, x, sm.layer);
  for (int node = static_cast<int>(threadIdx.x); node < kNodes; node += kThreads) {
    bool in_domain = true, normal = true;
    if (mask.mask != nullptr && first + node < n) {
      const auto value = static_cast<double>(mask.mask[first + node]);
      in_domain = value >= mask.min && value <= mask.max;
    }
    for (std::int64_t i = 0; i < in; ++i) {
      const T z = sm.layer[i * kNodes + node];
      if (z - z == T{0}) continue;
      const S value = x.at(first + node, i);
      normal = false;
      in_domain = in_domain && value - value == S{0};  // false for infinities and NaN
    }
    sm_node[node] = !in_domain ? excluded : normal ? included : overflowed;
  }
  forward<kNodes>(net, sm, sm.slopes);
  const bool by_rows = out <= in;
  const std::int64_t last = net.layers - 1, end_slopes = net.hidden;
  // Seeds a pass with row `index` of the first matrix of the pass, times the slopes that follow it.
  const auto seed = [&](std::int64_t rows, const T* row, const T* slopes) {
    for (std::int64_t e = threadIdx.x; e < rows * kNodes; e += kThreads)
      sm.layer[e] = slopes != nullptr ? row[e / kNodes] * slopes[e] : row[e / kNodes];
    __syncthreads();
  };
  const auto times = [&](const T* slopes) {
    return [slopes, next = sm.next](std::int64_t r, int node, T sum) {
      next[r * kNodes + node] = slopes != nullptr ? sum * slopes[r * kNodes + node] : sum;
    };
  };
  const auto put = [&](int node, std::int64_t o, std::int64_t i, T value) {
    const T scale = net.scale[units][o * in + i];
    T scaled = sm_node[node] == overflowed ? T(NAN) : scale * value;
    if (scaled == 0) scaled = 0;  // -0 marks what is excluded
    if (sm_node[node] == excluded || scale == 0) scaled = T(-0.0);
    j[((first + node) * out + o) * in + i] = static_cast<S>(scaled);
  };
  const StateView<S> row_view = {nullptr, in, 1}, column_view = {nullptr, out * in, 1};
  for (std::int64_t index = 0; index < (by_rows ? out : in); ++index) {
    __syncthreads();  // the previous pass has been stored
    if (by_rows) {
      const T* slopes = sm.slopes + end_slopes * kNodes;
      const auto before = [&](std::int64_t k) -> const T* {  // the slopes of the inputs of layer k
        return k == 0 ? nullptr : slopes -= net.layer[k].in * kNodes;
      };
      seed(net.layer[last].in, net.layer[last].by_output + index * states_padded(net.layer[last].in), before(last));
      for (std::int64_t k = last - 1; k >= 0; --k) {
        const StatesLayer<T>& l = net.layer[k];
        dense<kNodes>(l.out, l.in, l.by_output, static_cast<const T*>(nullptr), sm.layer, times(before(k)));
        sm.advance();
      }
      for_each<kNodes>(row_view, in, n,
                       [&](int node, std::int64_t i) { put(node, index, i, sm.layer[i * kNodes + node]); });
    } else {
      const T* slopes = sm.slopes;
      seed(net.layer[0].out, net.layer[0].by_input + index * states_padded(net.layer[0].out),
           last > 0 ? slopes : nullptr);
      for (std::int64_t k = 1; k <= last; ++k) {
        const StatesLayer<T>& l = net.layer[k];
        slopes += l.in * kNodes;
        dense<kNodes>(l.in, l.out, l.by_input, static_cast<const T*>(nullptr), sm.layer,
                      times(k < last ? slopes : nullptr));
        sm.advance();
      }
      for_each<kNodes>(column_view, out, n,
                       [&](int node, std::int64_t o) { put(node, o, index, sm.layer[o * kNodes + node]); });
    }
  }
}

/// One thread per element of `to`. Entries -0 of the matrix are left out.
template <class S>
__global__ void __launch_bounds__(kThreads)
    multiply_states_kernel(gpu::Earlier earlier, std::int64_t n, std::int64_t n_out, std::int64_t n_in,
                           const S* __restrict__ k, StateView<const S> from, StateView<S> to, std::int64_t transposed,
                           std::int64_t accumulate) {
  earlier.wait();
  const std::int64_t results = transposed ? n_in : n_out, terms = transposed ? n_out : n_in;
  const std::int64_t e = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= n * results) return;
  const std::int64_t node = e / results, r = e % results;
  const S* matrix = k + node * n_out * n_in + (transposed ? r : r * n_in);
  const std::int64_t step = transposed ? n_in : 1;
  S sum = 0;
  for (std::int64_t t = 0; t < terms; ++t) {
    const S factor = matrix[t * step];
    if (factor != 0 || !std::signbit(factor)) sum = std::fma(factor, from.at(node, t), sum);
  }
  S& result = to.at(node, r);
  result = accumulate ? result + sum : sum;
}

template <class T>
std::size_t shared_bytes(const StatesNetwork<T>& net, int nodes, bool slopes) {
  return static_cast<std::size_t>(net.values(slopes) * nodes) * sizeof(T);
}

/// Calls f.template operator()<kNodes>().
template <class F>
void visit_nodes(int nodes, const F& f) {
  nodes == kManyNodes ? f.template operator()<kManyNodes>() : f.template operator()<kFewNodes>();
}

template <class T>
double products(const StatesNetwork<T>& net, std::int64_t n) {
  double weights = 0;
  for (std::int64_t k = 0; k < net.layers; ++k) weights += static_cast<double>(net.layer[k].in * net.layer[k].out);
  return 2 * weights * static_cast<double>(n);
}

}  // namespace

template <class T>
int states_nodes(const Stream& stream, const StatesNetwork<T>& net) {
  constexpr std::size_t kStatic = kManyNodes * sizeof(int);
  for (const int nodes : {kManyNodes, kFewNodes})
    if (shared_bytes(net, nodes, true) + kStatic <= gpu::most_shared_bytes(stream)) return nodes;
  return 0;
}

template <class T, class S>
void predict_states(const Stream& stream, int nodes, const StatesNetwork<T>& net, std::int64_t n, StateView<const S> x,
                    StateView<S> y) {
  visit_nodes(nodes, [&]<int kNodes>() {
    gpu::launch(stream,
                {.grid = gpu::ceil_div(n, kNodes),
                 .block = kThreads,
                 .shared_bytes = shared_bytes(net, kNodes, false),
                 .flops = products(net, n)},
                predict_states_kernel<kNodes, T, S>, net, n, x, y);
  });
}

template <class T, class S>
void jacobian_states(const Stream& stream, int nodes, const StatesNetwork<T>& net, std::int64_t n, StateView<const S> x,
                     const StatesMask<S>& mask, int units, S* j) {
  const std::int64_t passes = net.n_out() < net.n_in() ? net.n_out() : net.n_in();
  visit_nodes(nodes, [&]<int kNodes>() {
    gpu::launch(stream,
                {.grid = gpu::ceil_div(n, kNodes),
                 .block = kThreads,
                 .shared_bytes = shared_bytes(net, kNodes, true),
                 .flops = products(net, n) * static_cast<double>(1 + passes)},
                jacobian_states_kernel<kNodes, T, S>, net, n, x, mask, std::int64_t{units}, j);
  });
}

template <class S>
void multiply_states(const Stream& stream, std::int64_t n, std::int64_t n_out, std::int64_t n_in, const S* k,
                     StateView<const S> from, StateView<S> to, bool transposed, bool accumulate) {
  gpu::launch(stream, gpu::thread_per_element(n * (transposed ? n_in : n_out), kThreads), multiply_states_kernel<S>, n,
              n_out, n_in, k, from, to, std::int64_t{transposed}, std::int64_t{accumulate});
}

template int states_nodes(const Stream&, const StatesNetwork<float>&);
template int states_nodes(const Stream&, const StatesNetwork<double>&);
#define INSTANTIATE(T, S)                                                                                      \
  template void predict_states(const Stream&, int, const StatesNetwork<T>&, std::int64_t, StateView<const S>,  \
                               StateView<S>);                                                                  \
  template void jacobian_states(const Stream&, int, const StatesNetwork<T>&, std::int64_t, StateView<const S>, \
                                const StatesMask<S>&, int, S*);
INSTANTIATE(float, float)
INSTANTIATE(float, double)
INSTANTIATE(double, double)
#undef INSTANTIATE
LOCKSTEP_EACH_FLOAT(multiply_states)

}  // namespace lockstep::ops::cuda
