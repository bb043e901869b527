#include <omp.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/f16.hpp"
#include "lockstep/models/kgat.hpp"

namespace lockstep {

namespace {

/// Rows of one block: its operands stay in the second-level cache.
constexpr std::int64_t kBlock = 128;
constexpr double kLeastNorm = 1e-12;

/// Runs work(thread, first, count) for the pieces of n rows, shared among the threads as they come.
template <class Work>
void in_pieces(std::int64_t n, std::int64_t pieces, const Work& work) {
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t first = n * i / pieces;
    work(omp_get_thread_num(), i, first, n * (i + 1) / pieces - first);
  }
}

std::int64_t blocks_of(std::int64_t n) { return (n + kBlock - 1) / kBlock; }

}  // namespace

KgatPropagation::KgatPropagation(Kgat& net, const KgGraph& graph, std::optional<DType> storage)
    : net_(net), graph_(graph) {
  const KgatArch& arch = net.arch();
  const DType dtype = net.params().dtype();
  const auto array = [&](DType type, std::int64_t columns) {
    return storage_.emplace_back(type, Shape{graph.nodes, columns}).view();
  };
  std::int64_t widest = 0;
  x_.push_back(net.embedding().value);
  dx_.emplace_back();
  for (int l = 0; l < arch.layers(); ++l) {
    s_.push_back(array(dtype, arch.width(l)));
    x_.push_back(array(dtype, arch.width(l + 1)));
    marks_.push_back(array(DType::u8, arch.width(l + 1)));
    dx_.push_back(array(dtype, arch.width(l + 1)));
    widest = std::max(widest, arch.width(l));
  }
  ds_ = OwnedTensor(dtype, {graph.nodes * widest});
  if (storage) rounded_ = OwnedTensor(*storage, {graph.nodes * widest});
  transposed_ = OwnedTensor(dtype, {graph.nnz()});
  adjacency_changed();
  begin(nullptr);
}

Tensor KgatPropagation::ds(int l) const {
  const std::int64_t width = net_.arch().width(l);
  return ds_->slice(0, graph_.nodes * width).reshaped({graph_.nodes, width});
}

void KgatPropagation::adjacency_changed() {
  visit_float(net_.params().dtype(), [&]<class T>() {
    const T* a = net_.adjacency().value.data<const T>();
    T* to = transposed_->data<T>();
    const std::int64_t count = graph_.nnz();
#pragma omp parallel for schedule(static)
    for (std::int64_t e = 0; e < count; ++e) to[e] = a[graph_.transpose[static_cast<std::size_t>(e)]];
  });
}

void KgatPropagation::begin(const Noise* noise) {
  while (static_cast<int>(arenas_.size()) < omp_get_max_threads()) arenas_.emplace_back();
  noise_ = noise == nullptr ? std::nullopt : std::optional<Noise>(*noise);
  values_now_ = net_.adjacency().value, transposed_now_ = transposed_;
  if (noise_ && noise_->node_dropout > 0) drop_edges();
}

void KgatPropagation::drop_edges() {
  const DType dtype = net_.params().dtype();
  const std::int64_t count = graph_.nnz();
  if (!dropped_.view()) {
    dropped_ = OwnedTensor(dtype, {count}), dropped_transposed_ = OwnedTensor(dtype, {count});
  }
  visit_float(dtype, [&]<class T>() {
    const T* a = net_.adjacency().value.data<const T>();
    T *kept = dropped_->data<T>(), *opposite = dropped_transposed_->data<T>();
    const Philox draws(noise_->seed, noise_->step, "kgat.edges");
    const auto threshold = static_cast<std::uint64_t>(noise_->node_dropout * 0x1p32);
    const T scale = static_cast<T>(1 / (1 - noise_->node_dropout));
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < count; first += 4) {
      const auto words = draws.block(static_cast<std::uint64_t>(first / 4));
      for (std::int64_t e = first; e < std::min(first + 4, count); ++e)
        kept[e] = words[static_cast<std::size_t>(e - first)] < threshold ? T{0} : a[e] * scale;
    }
#pragma omp parallel for schedule(static)
    for (std::int64_t e = 0; e < count; ++e) opposite[e] = kept[graph_.transpose[static_cast<std::size_t>(e)]];
  });
  values_now_ = dropped_, transposed_now_ = dropped_transposed_;
}

ops::AggregateLayer KgatPropagation::noisy_layer(int l) const {
  ops::AggregateLayer layer = net_.layer(l, net_.params().values());
  if (!noise_) return layer;
  layer.dropout = noise_->message_dropout.empty() ? 0 : noise_->message_dropout[static_cast<std::size_t>(l)];
  layer.seed = noise_->seed, layer.step = noise_->step;
  layer.site = Site(Site("kgat.messages").id + static_cast<std::uint32_t>(l));
  return layer;
}

ops::AggregateRows KgatPropagation::arrays(int l) const {
  const auto n = static_cast<std::size_t>(l);
  return {.x = x_[n], .s = s_[n], .out = x_[n + 1], .marks = noise_ ? marks_[n] : Tensor()};
}

void KgatPropagation::store(int l, const ops::RowSet& rows) {
  if (!rounded_.view()) return;
  const std::int64_t width = net_.arch().width(l), count = rows.size();
  rounded_now_ = rounded_->slice(0, graph_.nodes * width).reshaped({graph_.nodes, width});
  const float* from = x(l).data<const float>();
  const auto round = [&](auto* to, const auto& rounded) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = rows[i] * width;
      for (std::int64_t c = first; c < first + width; ++c) to[c].bits = rounded(from[c]);
    }
  };
  if (rounded_->dtype() == DType::f16)
    round(rounded_now_.data<f16>(), to_f16);
  else
    round(rounded_now_.data<bf16>(), to_bf16);
}

void KgatPropagation::product(int l, const ops::RowSet& rows) {
  Stream stream;
  ops::spmm(stream, {s_[static_cast<std::size_t>(l)]}, pattern(), values_now_, stored(l), rows);
}

void KgatPropagation::aggregate(int l, const ops::RowSet& rows) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  in_pieces(rows.size(), blocks_of(rows.size()), [&](int thread, std::int64_t, std::int64_t first, std::int64_t count) {
    Stream stream;
    Arena& arena = arenas_[static_cast<std::size_t>(thread)];
    arena.reset();
    ops::aggregate_forward(stream, arena, layer, array, rows.part(first, count));
  });
}

void KgatPropagation::forward(int l, const ops::RowSet& rows) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  in_pieces(rows.size(), blocks_of(rows.size()), [&](int thread, std::int64_t, std::int64_t first, std::int64_t count) {
    Stream stream;
    Arena& arena = arenas_[static_cast<std::size_t>(thread)];
    arena.reset();
    const ops::RowSet block = rows.part(first, count);
    ops::spmm(stream, {array.s}, pattern(), values_now_, stored(l), block);
    ops::aggregate_forward(stream, arena, layer, array, block);
  });
}

void KgatPropagation::aggregate_backward(int l, const ops::RowSet& rows, std::span<const std::int64_t> segments,
                                         const Tensor& sums) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  const Tensor ds_l = ds(l), dx_l = dx(l), dout = dx(l + 1);
  const std::int64_t begin = net_.aggregators_begin(), size = net_.aggregators_end() - begin;
  const auto count = static_cast<std::int64_t>(segments.size()) - 1;
  const auto place = [&](std::int64_t node) {
    std::int64_t low = 0, high = rows.size();
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      rows[middle] < node ? low = middle + 1 : high = middle;
    }
    return low;
  };
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t segment = 0; segment < count; ++segment) {
    Stream stream;
    Arena& arena = arenas_[static_cast<std::size_t>(omp_get_thread_num())];
    const ops::AggregateLayer gradient = net_.layer(l, sums.slice(segment, 1).reshaped({size}), begin);
    const std::int64_t last = place(segments[static_cast<std::size_t>(segment) + 1]);
    // Blocks by the nodes' numbers: a row that is left out because its gradient is zero changes no bit of the sums.
    for (std::int64_t at = place(segments[static_cast<std::size_t>(segment)]), next = 0; at < last; at = next) {
      next = std::min(last, place((rows[at] / kBlock + 1) * kBlock));
      arena.reset();
      ops::aggregate_backward(stream, arena, layer, array, rows.part(at, next - at), dout, ds_l, dx_l, gradient);
    }
  }
}

void KgatPropagation::product_backward(int l, const ops::RowSet& rows, ops::RowBits from) {
  Stream stream;
  ops::spmm(stream, {dx(l), true}, pattern(), transposed_now_, ds(l), rows, from);
}

void KgatPropagation::gather(std::span<const std::int32_t> nodes, const Tensor& h) const {
  const auto count = static_cast<std::int64_t>(nodes.size());
  require(h.rows() == count && h.columns() == net_.arch().final_width(), "gather: ", count, " nodes, H ", h.shape());
  visit_float(h.dtype(), [&]<class T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t node = nodes[static_cast<std::size_t>(i)];
      T* to = h.data<T>() + i * h.columns();
      for (int l = 0; l <= net_.arch().layers(); ++l) {
        const std::int64_t width = net_.arch().width(l);
        const T* row = x(l).data<const T>() + node * width;
        double square = 0;
        for (std::int64_t c = 0; c < width; ++c) square += static_cast<double>(row[c]) * static_cast<double>(row[c]);
        const T scale = l == 0 ? T{1} : static_cast<T>(1 / std::max(std::sqrt(square), kLeastNorm));
        for (std::int64_t c = 0; c < width; ++c) to[c] = row[c] * scale;
        to += width;
      }
    }
  });
}

void KgatPropagation::scatter(int l, std::span<const std::int32_t> nodes, const Tensor& dh) const {
  const auto count = static_cast<std::int64_t>(nodes.size());
  const std::int64_t width = net_.arch().width(l);
  std::int64_t offset = 0;
  for (int k = 0; k < l; ++k) offset += net_.arch().width(k);
  visit_float(dh.dtype(), [&]<class T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t node = nodes[static_cast<std::size_t>(i)];
      const T* dn = dh.data<const T>() + i * dh.columns() + offset;
      T* to = dx(l).data<T>() + node * width;
      if (l == 0) {
        for (std::int64_t c = 0; c < width; ++c) to[c] += dn[c];
        continue;
      }
      // n = x / |x|:  dx = (dn - n (n . dn)) / |x|
      const T* row = x(l).data<const T>() + node * width;
      double square = 0, dot = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        square += static_cast<double>(row[c]) * static_cast<double>(row[c]);
        dot += static_cast<double>(row[c]) * static_cast<double>(dn[c]);
      }
      const double norm = std::sqrt(square);
      const T scale = static_cast<T>(1 / std::max(norm, kLeastNorm));
      const T along = norm > kLeastNorm ? static_cast<T>(dot / square) : T{0};
      for (std::int64_t c = 0; c < width; ++c) to[c] += (dn[c] - row[c] * along) * scale;
    }
  });
}

}  // namespace lockstep
