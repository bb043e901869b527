#include "lockstep/ops/feed_forward_states.hpp"

#include <algorithm>

#include "feed_forward_states_kernels.hpp"
#include "lockstep/base/text.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

template <class T>
struct FeedForwardStates<T>::Impl {
  StatesNetwork<T> net = {};
  Buffer memory;  ///< of all arrays
  int nodes = 0;
};

namespace {

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
  for (const auto& values : {scaling.input_mean, scaling.input_std, scaling.output_mean, scaling.output_std})
    offsets.push_back(arrays.add(values));
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
  for (const double** array : {&net.input_mean, &net.input_std, &net.output_mean, &net.output_std}) assign(*array);
  for (const T*& array : net.scale) assign(array);
  on_gpu(gpu, [&] { impl->nodes = cuda::states_nodes<T>(stream, net); });
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
  on_gpu(stream.device(), [&] { cuda::predict_states<T, S>(stream, impl_->nodes, impl_->net, n, x, y); });
}

template <class T>
template <class S>
void FeedForwardStates<T>::jacobian(const Stream& stream, std::int64_t n, StateView<const S> x,
                                    const StatesMask<S>& mask, int units, S* j) const {
  on_gpu(stream.device(), [&] { cuda::jacobian_states<T, S>(stream, impl_->nodes, impl_->net, n, x, mask, units, j); });
}

template <class S>
void multiply_states(const Stream& stream, std::int64_t n, std::int64_t n_out, std::int64_t n_in, const S* k,
                     StateView<const S> from, StateView<S> to, Transposed transposed, bool accumulate) {
  on_gpu(stream.device(), [&] {
    cuda::multiply_states<S>(stream, n, n_out, n_in, k, from, to, transposed == Transposed::yes, accumulate);
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
