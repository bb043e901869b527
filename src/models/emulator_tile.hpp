#pragma once
#include <cstdint>

#include "lockstep/ops/activation.hpp"

// The emulator's network on one tile of nodes. Everything is feature-major: row f of a tile holds feature f of `nodes` nodes side by
// side, so a vector register holds one feature of several nodes, the weights are broadcast as they lie ([out, in] row-major, no packing),
// and the result of a layer is laid out as the input of the next. A tile and the weights of the usual networks stay in the L1 and L2 caches.
// No value depends on another node of its tile.

namespace lockstep::emulator_tile {

template <class T>
struct Layer {
  std::int64_t in = 0, out = 0;
  const T* weight = nullptr;  ///< (out, in)
  const T* bias = nullptr;    ///< (out)
};

/// A network of count layers, the last one linear; before them, if conv.out > 0, a convolution of conv.out channels over n_in points with conv.in taps.
template <class T>
struct Net {
  std::int64_t n_in = 0, n_out = 0;
  std::int64_t count = 0;
  const Layer<T>* layer = nullptr;
  Layer<T> conv;
  ops::Activation activation = ops::Activation::gelu;
  std::int64_t conv_rows() const { return conv.out * n_in; }
  /// Rows of a tile of hidden values: those of the front end, then those of each hidden layer.
  std::int64_t hidden_rows() const {
    std::int64_t rows = conv_rows();
    for (std::int64_t k = 0; k + 1 < count; ++k) rows += layer[k].out;
    return rows;
  }
  /// Rows of the widest tile between layers.
  std::int64_t widest() const {
    std::int64_t rows = conv_rows() > n_in ? conv_rows() : n_in;
    for (std::int64_t k = 0; k < count; ++k) rows = layer[k].out > rows ? layer[k].out : rows;
    return rows;
  }
};

/// The kernels of one instruction set. All tiles are (rows, nodes), 64-byte aligned; `scratch` is (2 * widest(), nodes).
template <class T>
struct Kernels {
  int nodes;  ///< of a tile
  /// y (n_out) from z (n_in). Keeps the derivatives d (hidden_rows()) unless null; leaves y out when null.
  void (*forward)(const Net<T>&, const T* z, T* d, T* scratch, T* y);
  /// dy (n_out) = J dz (n_in).
  void (*tangent)(const Net<T>&, const T* d, const T* dz, T* scratch, T* dy);
  /// Column i of J: dy (n_out).
  void (*column)(const Net<T>&, const T* d, std::int64_t i, T* scratch, T* dy);
  /// dz (n_in) = J^T dy (n_out).
  void (*adjoint)(const Net<T>&, const T* d, const T* dy, T* scratch, T* dz);
  /// Row o of J: dz (n_in).
  void (*row)(const Net<T>&, const T* d, std::int64_t o, T* scratch, T* dz);
  /// v <- (v - mean) / std per row.
  void (*normalise)(std::int64_t rows, T* v, const T* mean, const T* std);
  /// v <- scale * v per row, 0 where that is not finite or keep is 0. keep (nodes) or null.
  void (*finish)(std::int64_t rows, T* v, const T* scale, const T* keep);
  /// y (n_out) = K x (n_in), K (n_out * n_in, nodes) per node; and x = K^T y.
  void (*multiply)(std::int64_t n_out, std::int64_t n_in, const T* k, const T* x, T* y);
  void (*multiply_transposed)(std::int64_t n_out, std::int64_t n_in, const T* k, const T* y, T* x);
  /// tile(f, node) = rows[node * ld + f] for the first `count` nodes, 0 for the others; and the way back.
  void (*from_rows)(std::int64_t features, std::int64_t count, const T* rows, std::int64_t ld, T* tile);
  void (*to_rows)(std::int64_t features, std::int64_t count, const T* tile, T* rows, std::int64_t ld);
};

/// The kernels that this processor runs best.
template <class T>
const Kernels<T>& kernels();

#define LOCKSTEP_TILE_ISA(isa)      \
  namespace isa {                   \
  template <class T>                \
  const Kernels<T>& tile_kernels(); \
  }
LOCKSTEP_TILE_ISA(generic)
LOCKSTEP_TILE_ISA(avx2)
LOCKSTEP_TILE_ISA(avx512)
#undef LOCKSTEP_TILE_ISA

}  // namespace lockstep::emulator_tile
