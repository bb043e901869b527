#include "lockstep/ops/feed_forward_states.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/base/text.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

/// Outputs of a layer that a thread computes at once. Rows of weights are padded with zeros to a multiple of it.
inline constexpr std::int64_t kStatesOutputs = 16;
inline constexpr std::int64_t states_padded(std::int64_t n) {
  return (n + kStatesOutputs - 1) / kStatesOutputs * kStatesOutputs;
}

/// A layer in GPU memory. Both matrices hold its weights, so that a thread reads consecutive elements in either
/// direction.
template <class T>
struct StatesLayer {
  std::int64_t in, out;
  const T* by_input;   ///< (in, padded out)
  const T* by_output;  ///< (out, padded in)
  const T* bias;       ///< (padded out)
};

/// The argument of the kernels; all arrays are in GPU memory.
template <class T>
struct StatesNetwork {
  static constexpr std::int64_t kMostLayers = 16;
  StatesLayer<T> layer[kMostLayers];
  std::int64_t layers, activation;
  std::int64_t widest, hidden;  ///< values of the widest layer, and of all hidden layers
  const double *input_mean, *input_std, *output_mean, *output_std;
  const T* scale[2];  ///< StatesScaling::jacobian

  constexpr std::int64_t n_in() const { return layer[0].in; }
  constexpr std::int64_t n_out() const { return layer[layers - 1].out; }
  /// Values of a node in shared memory: two layers, and for a Jacobian the slopes of all hidden layers.
  constexpr std::int64_t values(bool slopes) const { return 2 * widest + (slopes ? hidden : 0); }
};

template <class T>
struct FeedForwardStates<T>::Impl {
  StatesNetwork<T> net = {};
  Buffer memory;  ///< of all arrays
  int nodes = 0;
};

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
  const int nodes = static_cast<int>(n - first < kNodes ? n - first : kNodes);
  const bool variables_first = view.variable_stride != 1;
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

/// `passes` passes over the layers.
template <class T>
gpu::Grid grid_of(const StatesNetwork<T>& net, std::int64_t n, int nodes, bool slopes, std::int64_t passes) {
  return {.grid = gpu::ceil_div(n, nodes),
          .block = kThreads,
          .shared_bytes = shared_bytes(net, nodes, slopes),
          .flops = products(net, n) * static_cast<double>(passes)};
}

/// Nodes of a block, 64 or 16, whose values fit in its shared memory; 0 if those of 16 do not.
template <class T>
int states_nodes(const Stream& stream, const StatesNetwork<T>& net) {
  constexpr std::size_t kStatic = kManyNodes * sizeof(int);
  for (const int nodes : {kManyNodes, kFewNodes})
    if (shared_bytes(net, nodes, true) + kStatic <= gpu::most_shared_bytes(stream)) return nodes;
  return 0;
}

/// Arrays that move to a GPU in one copy, each aligned to Buffer::kAlignment.
class Arrays {
 public:
  /// Appends an array and returns its offset in bytes.
  template <class E>
  std::size_t add(std::span<const E> values, std::size_t rows, std::size_t columns, std::size_t padded) {
    const std::size_t at = bytes_.size(), row_bytes = padded * sizeof(E);
    bytes_.resize((at + rows * row_bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment);
    for (std::size_t r = 0; r < rows; ++r)
      std::copy_n(reinterpret_cast<const std::byte*>(values.data() + r * columns), columns * sizeof(E),
                  bytes_.begin() + static_cast<std::ptrdiff_t>(at + r * row_bytes));
    return at;
  }
  template <class E>
  std::size_t add(std::span<const E> values) {
    return add(values, 1, values.size(), values.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

template <class T>
FeedForwardStates<T>::FeedForwardStates(Device gpu, const FeedForward<T>& source, const StatesScaling<T>& scaling) {
  require_usage(gpu_count() > 0, "moving a network to ", name(gpu), ": ", why_no_gpu());
  require_usage(source.count <= StatesNetwork<T>::kMostLayers, "moving a network to ", name(gpu), ": it has ",
                source.count - 1, " hidden layers, more than ", StatesNetwork<T>::kMostLayers - 1);
  auto impl = std::make_unique<Impl>();
  StatesNetwork<T>& net = impl->net;
  Arrays arrays;
  std::vector<std::size_t> offsets;  // in the order in which the arrays are assigned below
  net.layers = source.count;
  net.activation = static_cast<std::int64_t>(source.activation);
  net.widest = source.widest();
  net.hidden = source.hidden_rows();
  for (std::int64_t k = 0; k < source.count; ++k) {
    const DenseLayer<T>& layer = source.layer[k];
    const auto in = static_cast<std::size_t>(layer.in), out = static_cast<std::size_t>(layer.out);
    std::vector<T> transposed(in * out);
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i) transposed[i * out + o] = layer.weight[o * in + i];
    const auto padded = [](std::size_t n) {
      return static_cast<std::size_t>(states_padded(static_cast<std::int64_t>(n)));
    };
    net.layer[k] = {layer.in, layer.out, nullptr, nullptr, nullptr};
    offsets.push_back(arrays.add(std::span<const T>(transposed), in, out, padded(out)));
    offsets.push_back(arrays.add(std::span(layer.weight, in * out), out, in, padded(in)));
    offsets.push_back(arrays.add(std::span(layer.bias, out), 1, out, padded(out)));
  }
  const std::span<const double> moments[] = {scaling.input_mean, scaling.input_std, scaling.output_mean,
                                             scaling.output_std};
  for (const auto& values : moments) offsets.push_back(arrays.add(values));
  for (const auto& values : scaling.jacobian) offsets.push_back(arrays.add(values));

  const CurrentGpu current(gpu);
  const Stream stream(gpu);
  impl->memory = Buffer(gpu, arrays.bytes().size(), MemoryUse::parameters);
  copy_bytes(stream, impl->memory.data(), arrays.bytes().data(), arrays.bytes().size());
  stream.synchronize();
  auto next = offsets.begin();
  const auto assign = [&]<class E>(const E*& array) {
    array = reinterpret_cast<const E*>(impl->memory.data() + *next++);
  };
  for (std::int64_t k = 0; k < source.count; ++k) {
    assign(net.layer[k].by_input);
    assign(net.layer[k].by_output);
    assign(net.layer[k].bias);
  }
  assign(net.input_mean);
  assign(net.input_std);
  assign(net.output_mean);
  assign(net.output_std);
  for (const T*& array : net.scale) assign(array);
  on_gpu(stream, [&](const auto& of_gpu) { impl->nodes = states_nodes<T>(of_gpu, net); });
  require_usage(impl->nodes > 0, "moving a network to ", name(gpu), ": the ", net.values(true), " values of a node in ",
                8 * sizeof(T), " bits do not fit 16 times in the shared memory of a block; use the CPU",
                sizeof(T) == 8 ? ", or single precision" : "");
  impl_ = std::move(impl);
}

template <class T>
FeedForwardStates<T>::FeedForwardStates(FeedForwardStates&&) noexcept = default;
template <class T>
FeedForwardStates<T>::~FeedForwardStates() = default;

template <class T>
template <class S>
void FeedForwardStates<T>::predict(const Stream& stream, std::int64_t n, StateView<const S> x, StateView<S> y) const {
  on_gpu(stream, [&](const auto& of_gpu) {
    visit_nodes(impl_->nodes, [&]<int kNodes>() {
      gpu::launch(of_gpu, grid_of(impl_->net, n, kNodes, false, 1), predict_states_kernel<kNodes, T, S>, impl_->net, n,
                  x, y);
    });
  });
}

template <class T>
template <class S>
void FeedForwardStates<T>::jacobian(const Stream& stream, std::int64_t n, StateView<const S> x,
                                    const StatesMask<S>& mask, int units, S* j) const {
  const StatesNetwork<T>& net = impl_->net;
  const std::int64_t passes = std::min(net.n_out(), net.n_in());
  on_gpu(stream, [&](const auto& of_gpu) {
    visit_nodes(impl_->nodes, [&]<int kNodes>() {
      gpu::launch(of_gpu, grid_of(net, n, kNodes, true, 1 + passes), jacobian_states_kernel<kNodes, T, S>, net, n, x,
                  mask, std::int64_t{units}, j);
    });
  });
}

template <class S>
void multiply_states(const Stream& stream, std::int64_t n, std::int64_t n_out, std::int64_t n_in, const S* k,
                     StateView<const S> from, StateView<S> to, Transposed transposed, bool accumulate) {
  const std::int64_t results = n * (transposed == Transposed::yes ? n_in : n_out);
  on_gpu(stream, [&](const auto& of_gpu) {
    gpu::launch(of_gpu, gpu::thread_per_element(results, kThreads), multiply_states_kernel<S>, n, n_out, n_in, k, from,
                to, std::int64_t{transposed == Transposed::yes}, std::int64_t{accumulate});
  });
}

template class FeedForwardStates<float>;
template class FeedForwardStates<double>;
#define LOCKSTEP_STATES(T, S)                                                                                         \
  template void FeedForwardStates<T>::predict(const Stream&, std::int64_t, StateView<const S>, StateView<S>) const;   \
  template void FeedForwardStates<T>::jacobian(const Stream&, std::int64_t, StateView<const S>, const StatesMask<S>&, \
                                               int, S*) const;
LOCKSTEP_STATES(float, float)
LOCKSTEP_STATES(float, double)
LOCKSTEP_STATES(double, double)
#undef LOCKSTEP_STATES
#define LOCKSTEP_MULTIPLY(S)                                                                                           \
  template void multiply_states(const Stream&, std::int64_t, std::int64_t, std::int64_t, const S*, StateView<const S>, \
                                StateView<S>, Transposed, bool);
LOCKSTEP_MULTIPLY(float)
LOCKSTEP_MULTIPLY(double)
#undef LOCKSTEP_MULTIPLY

}  // namespace lockstep::ops
