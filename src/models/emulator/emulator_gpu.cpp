#include "models/emulator/emulator_operators_impl.hpp"

namespace lockstep {
namespace {

/// The convolution as a matrix (channels * n_in, n_in), with zeros outside the taps, and a bias per row.
template <class T>
struct ConvolutionMatrix {
  std::vector<T> weight, bias;
  explicit ConvolutionMatrix(const ops::FeedForward<T>& net) {
    const std::int64_t n = net.n_in, taps = net.conv.in;
    weight.resize(net.conv_rows() * n);
    for (std::int64_t c = 0; c < net.conv.out; ++c)
      for (std::int64_t i = 0; i < n; ++i) {
        bias.push_back(net.conv.bias[c]);
        for (std::int64_t j = 0; j < taps; ++j) {
          const std::int64_t at = i + j - taps / 2;
          if (at >= 0 && at < n) weight[(c * n + i) * n + at] = net.conv.weight[c * taps + j];
        }
      }
  }
};

}  // namespace

template <class T>
ops::FeedForwardStates<T> EmulatorOperators<T>::on_gpu(Device gpu) const {
  const Impl& impl = *impl_;
  const Moments& m = impl.emulator.moments();
  const ops::StatesScaling<T> scaling = {
      m.input_mean, m.input_std, m.output_mean, m.output_std, {impl.row_scale[0], impl.row_scale[1]}};
  const ops::FeedForward<T>& net = impl.network.net;
  if (net.conv.out == 0) return {gpu, net, scaling};
  const ConvolutionMatrix<T> matrix(net);
  std::vector<ops::DenseLayer<T>> layers = {
      {.in = net.n_in, .out = net.conv_rows(), .weight = matrix.weight.data(), .bias = matrix.bias.data()}};
  layers.insert(layers.end(), net.layer, net.layer + net.count);
  ops::FeedForward<T> dense = net;
  dense.conv = {};
  dense.layer = layers.data();
  dense.count = net.count + 1;
  return {gpu, dense, scaling};
}

template ops::FeedForwardStates<float> EmulatorOperators<float>::on_gpu(Device) const;
template ops::FeedForwardStates<double> EmulatorOperators<double>::on_gpu(Device) const;

}  // namespace lockstep
