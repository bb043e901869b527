#include "lockstep/ops/feed_forward_tile.hpp"

#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/test.hpp"

using ops::Activation;

namespace {

template <class T>
struct Tile {
  std::unique_ptr<T, decltype(&std::free)> memory;
  std::size_t size;
  explicit Tile(std::int64_t values)
      : memory(static_cast<T*>(std::aligned_alloc(64, (to_size(values) * sizeof(T) + 63) / 64 * 64)), &std::free),
        size(to_size(values)) {
    for (std::size_t i = 0; i < size; ++i) memory.get()[i] = 0;
  }
  operator T*() { return memory.get(); }
  T& operator[](std::int64_t i) { return memory.get()[i]; }
};

/// 3 inputs, a convolution of 2 channels and 3 taps, layers of 11 and 5, 4 outputs.
template <class T>
struct Small {
  std::vector<T> values;
  std::vector<ops::DenseLayer<T>> layers;
  ops::FeedForward<T> net;
  explicit Small(Activation activation) : values(400) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(std::sin(1.7 * static_cast<double>(i)));
    const T* next = values.data();
    const auto layer = [&](std::int64_t in, std::int64_t out) {
      const ops::DenseLayer<T> l{in, out, next, next + in * out};
      next += in * out + out;
      return l;
    };
    net.conv = layer(3, 2);
    layers = {layer(6, 11), layer(11, 5), layer(5, 4)};
    net.n_in = 3;
    net.n_out = 4;
    net.count = 3;
    net.layer = layers.data();
    net.activation = activation;
  }
};

/// The network in double, one sample.
template <class T>
std::vector<double> reference(const Small<T>& s, const std::vector<double>& z) {
  std::vector<double> h;
  for (std::int64_t c = 0; c < 2; ++c)
    for (std::int64_t i = 0; i < 3; ++i) {
      double sum = s.net.conv.bias[c];
      for (std::int64_t j = 0; j < 3; ++j)
        if (i + j - 1 >= 0 && i + j - 1 < 3)
          sum += static_cast<double>(s.net.conv.weight[c * 3 + j]) * z[to_size(i + j - 1)];
      h.push_back(exact(s.net.activation, sum).first);
    }
  for (std::size_t k = 0; k < 3; ++k) {
    std::vector<double> next;
    for (std::int64_t o = 0; o < s.layers[k].out; ++o) {
      double sum = s.layers[k].bias[o];
      for (std::int64_t i = 0; i < s.layers[k].in; ++i)
        sum += static_cast<double>(s.layers[k].weight[o * s.layers[k].in + i]) * h[to_size(i)];
      next.push_back(k < 2 ? exact(s.net.activation, sum).first : sum);
    }
    h = next;
  }
  return h;
}

template <class T>
void agrees_with_reference(double tolerance) {
  const ops::FeedForwardTile<T>& tile = ops::feed_forward_tile<T>();
  const std::int64_t nodes = tile.nodes, hidden = 6 + 11 + 5;
  for (const Activation activation : kActivations) {
    CAPTURE(std::string(name(activation)));
    const Small<T> s(activation);
    REQUIRE(s.net.hidden_rows() == hidden);
    REQUIRE(s.net.widest() == 11);
    Tile<T> z(3 * nodes), d(hidden * nodes), scratch(2 * 11 * nodes), y(4 * nodes), dy(4 * nodes), dz(3 * nodes),
        one(4 * nodes);
    for (std::int64_t i = 0; i < 3 * nodes; ++i) z[i] = static_cast<T>(2 * std::cos(0.9 * static_cast<double>(i)));
    tile.forward(s.net, z, d, scratch, y);
    double worst = 0, worst_slope = 0, worst_same = 0;
    for (std::int64_t node = 0; node < nodes; ++node) {
      std::vector<double> x;
      for (std::int64_t i = 0; i < 3; ++i) x.push_back(z[i * nodes + node]);
      const std::vector<double> expected = reference(s, x);
      for (std::int64_t o = 0; o < 4; ++o)
        worst = std::max(worst, std::abs(static_cast<double>(y[o * nodes + node]) - expected[to_size(o)]));
    }
    CHECK(worst < tolerance);
    for (std::int64_t i = 0; i < 3; ++i) {
      // Column i three ways: at once, as the tangent of a unit vector, and from the rows and adjoints.
      for (std::int64_t n = 0; n < 3 * nodes; ++n) dz[n] = n / nodes == i ? T{1} : T{0};
      tile.tangent(s.net, d, dz, scratch, dy);
      tile.column(s.net, d, i, scratch, one);
      for (std::int64_t n = 0; n < 4 * nodes; ++n)
        worst_same = std::max(worst_same, static_cast<double>(std::abs(dy[n] - one[n])));
      for (std::int64_t o = 0; o < 4; ++o) {
        Tile<T> unit(4 * nodes), row(3 * nodes), adjoint(3 * nodes);
        for (std::int64_t n = 0; n < nodes; ++n) unit[o * nodes + n] = 1;
        tile.row(s.net, d, o, scratch, row);
        tile.adjoint(s.net, d, unit, scratch, adjoint);
        for (std::int64_t n = 0; n < nodes; ++n) {
          worst_same = std::max(worst_same, static_cast<double>(std::abs(row[i * nodes + n] - dy[o * nodes + n])));
          worst_same = std::max(worst_same, static_cast<double>(std::abs(row[i * nodes + n] - adjoint[i * nodes + n])));
        }
      }
      for (std::int64_t node = 0; node < nodes; ++node) {  // against differences of the reference
        std::vector<double> low, high;
        for (std::int64_t k = 0; k < 3; ++k) {
          low.push_back(static_cast<double>(z[k * nodes + node]) - (k == i ? 1e-6 : 0));
          high.push_back(static_cast<double>(z[k * nodes + node]) + (k == i ? 1e-6 : 0));
        }
        const std::vector<double> below = reference(s, low), above = reference(s, high);
        for (std::size_t o = 0; o < 4; ++o)
          worst_slope =
              std::max(worst_slope, std::abs((above[o] - below[o]) / 2e-6 -
                                             static_cast<double>(dy[static_cast<std::int64_t>(o) * nodes + node])));
      }
    }
    CHECK(worst_same < tolerance);
    CHECK(worst_slope < tolerance + 1e-7);  // the differences cancel nine digits
  }
}

/// How many results of the kernels for groups of `group` nodes differ from those of the kernels for a tile.
template <class T>
std::int64_t differing_bits(Activation activation, int group, const std::vector<std::int64_t>& sizes) {
  const ops::FeedForwardTile<T>&tile = ops::feed_forward_tile<T>(), &few = ops::feed_forward_nodes<T>(group);
  REQUIRE(few.nodes == group);
  const std::int64_t in = sizes[0], out = sizes[3], hidden = sizes[1] + sizes[2], nodes = tile.nodes;
  const std::int64_t widest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<T>> arrays;
  const auto array = [&](std::int64_t n) {
    std::vector<T>& values = arrays.emplace_back(to_size(n));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(std::sin(1.7 * static_cast<double>(i) + static_cast<double>(arrays.size())));
    return values.data();
  };
  arrays.reserve(16);
  std::vector<ops::DenseLayer<T>> layers;
  std::vector<ops::NodeWeights<T>> copies;
  for (std::size_t k = 0; k < 3; ++k) {
    ops::DenseLayer<T>& layer =
        layers.emplace_back(sizes[k], sizes[k + 1], array(sizes[k] * sizes[k + 1]), array(sizes[k + 1]));
    const ops::NodeWeights<T>& copy = copies.emplace_back(layer);
    layer.by_input = copy.by_input();
    layer.by_output = copy.by_output();
  }
  ops::FeedForward<T> net;
  net.n_in = in;
  net.n_out = out;
  net.count = 3;
  net.layer = layers.data();
  net.activation = activation;
  const T *mean = array(in), *scale = array(in);

  std::int64_t wrong = 0;
  Tile<T> x(in * nodes), y(out * nodes), d(hidden * nodes), scratch(2 * widest * nodes), j(out * in * nodes);
  const std::int64_t result_rows[] = {out, hidden, out, out, in, in, in, in, out, in};
  std::vector<Tile<T>> results;
  for (const std::int64_t rows : result_rows) results.emplace_back(rows * nodes);
  for (std::int64_t i = 0; i < in * nodes; ++i) x[i] = static_cast<T>(2 * std::cos(0.9 * static_cast<double>(i)));
  for (std::int64_t i = 0; i < out * nodes; ++i) y[i] = static_cast<T>(std::cos(0.7 * static_cast<double>(i)));
  for (std::int64_t i = 0; i < out * in * nodes; ++i) j[i] = static_cast<T>(std::cos(0.3 * static_cast<double>(i)));
  const auto run = [&](const ops::FeedForwardTile<T>& kernels, std::vector<Tile<T>>& r, T* at_x, T* at_y, T* at_j) {
    T* slopes = r[1];
    kernels.forward(net, at_x, slopes, scratch, r[0]);
    kernels.tangent(net, slopes, at_x, scratch, r[2]);
    kernels.column(net, slopes, in - 1, scratch, r[3]);
    kernels.adjoint(net, slopes, at_y, scratch, r[4]);
    kernels.row(net, slopes, out - 1, scratch, r[5]);
    for (const int which : {6, 7})
      for (std::int64_t i = 0; i < in * kernels.nodes; ++i) r[to_size(which)][i] = at_x[i];
    kernels.normalise(in, r[6], mean, scale);
    kernels.finish(in, r[7], scale, nullptr);
    kernels.multiply(out, in, at_j, at_x, r[8]);
    kernels.multiply_transposed(out, in, at_j, at_y, r[9]);
  };
  run(tile, results, x, y, j);
  for (std::int64_t first = 0; first < nodes; first += group) {
    const auto of_group = [&](Tile<T>& from, std::int64_t rows) {
      Tile<T> values(rows * group);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t n = 0; n < group; ++n)
          values[i * few.row_step() + n * few.node_step(rows)] = from[i * nodes + first + n];
      return values;
    };
    std::vector<Tile<T>> alone;
    for (const std::int64_t rows : result_rows) alone.emplace_back(rows * group);
    Tile<T> x1 = of_group(x, in), y1 = of_group(y, out), j1 = of_group(j, out * in);
    run(few, alone, x1, y1, j1);
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (r == 1) continue;  // each set of kernels has its own order of slopes
      const Tile<T> expected = of_group(results[r], result_rows[r]);
      wrong += std::memcmp(alone[r].memory.get(), expected.memory.get(), expected.size * sizeof(T)) != 0;
    }
  }
  return wrong;
}

template <class T>
void rows_come_back(const ops::FeedForwardTile<T>& tile) {
  for (const std::int64_t features : {1, 3, 14, 17})
    for (const std::int64_t count : {1, tile.nodes - 3, tile.nodes}) {
      CAPTURE(features);
      CAPTURE(count);
      const std::int64_t ld = features + 2;
      std::vector<T> rows(to_size(count * ld)), back(rows.size(), -1);
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<T>(i + 1);
      Tile<T> t(features * tile.nodes);
      tile.from_rows(features, count, rows.data(), ld, t);
      tile.to_rows(features, count, t, back.data(), ld);
      std::int64_t wrong = 0;
      for (std::int64_t f = 0; f < features; ++f)
        for (std::int64_t n = 0; n < tile.nodes; ++n)
          wrong +=
              t[f * tile.row_step() + n * tile.node_step(features)] != (n < count ? rows[to_size(n * ld + f)] : T{0});
      for (std::int64_t n = 0; n < count; ++n)
        for (std::int64_t f = 0; f < ld; ++f)
          wrong += back[to_size(n * ld + f)] != (f < features ? rows[to_size(n * ld + f)] : T{-1});
      CHECK(wrong == 0);
    }
}

}  // namespace

TEST_SUITE("ops.feed_forward_tile") {
  EVERY_ISA_TEST_CASE("kernels for a few nodes give the bits of the kernels for a tile") {
    // Full, partly filled and single vectors of every instruction set; layers of one and two values.
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{7, 37, 90, 5}, {1, 3, 17, 1}, {2, 1, 2, 2}})
      for (const int group : {1, 2, 4})
        for (const Activation activation : kActivations) {
          CAPTURE(std::string(name(activation)));
          CAPTURE(group);
          CAPTURE(sizes[1]);
          CHECK(differing_bits<float>(activation, group, sizes) == 0);
          CHECK(differing_bits<double>(activation, group, sizes) == 0);
        }
  }

  EVERY_ISA_TEST_CASE("values and Jacobians agree with plain loops in double") {
    agrees_with_reference<float>(4e-6);  // twice the largest error of any instruction set
    agrees_with_reference<double>(1e-13);
  }

  EVERY_ISA_TEST_CASE("rows go into a tile or a few nodes and back, and no row past the count is read or written") {
    rows_come_back<float>(ops::feed_forward_tile<float>());
    rows_come_back<float>(ops::feed_forward_nodes<float>(4));
  }
}
