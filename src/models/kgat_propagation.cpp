#include <omp.h>

#include <algorithm>

#include "lockstep/models/kgat.hpp"
#include "lockstep/ops/edge_values.hpp"
#include "lockstep/ops/node_rows.hpp"

namespace lockstep {

namespace {

/// Rows of one block: on a processor its operands stay in the second-level cache; on a GPU it is what bounds their memory.
constexpr std::int64_t kBlock = 128, kGpuBlock = std::int64_t{1} << 16;

/// The embeddings stand in H as they are, what the layers make of them with norm 1.
ops::RowScale scale_of(int l) { return l == 0 ? ops::RowScale::none : ops::RowScale::norm; }

}  // namespace

template <class Work>
void KgatPropagation::in_blocks(const ops::RowSet& rows, const Work& work) {
  const std::int64_t n = rows.size(), blocks = (n + kGpuBlock - 1) / kGpuBlock;
  for (std::int64_t i = 0; i < blocks; ++i) {
    arenas_[0].reset();
    work(arenas_[0], rows.part(n * i / blocks, n * (i + 1) / blocks - n * i / blocks));
  }
}

template <class Work>
void KgatPropagation::in_pieces(const PlacedRows& rows, const Work& work) {
  if (net_.params().device().is_cuda()) {
    if (apart_.empty()) return in_blocks(rows.rows, work);
    for (std::size_t s = 0; s + 1 < apart_.size(); ++s) in_blocks(rows.between(apart_[s], apart_[s + 1]).rows, work);
    return;
  }
  const std::int64_t n = rows.host.size(), pieces = (n + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < pieces; ++i) {
    Arena& arena = arenas_[static_cast<std::size_t>(omp_get_thread_num())];
    arena.reset();
    work(arena, rows.host.part(n * i / pieces, n * (i + 1) / pieces - n * i / pieces));
  }
}

KgatPropagation::KgatPropagation(Kgat& net, const KgGraph& graph, std::optional<DType> storage)
    : net_(net),
      graph_(graph),
      indptr_(graph.adj_indptr, net.params().device()),
      transpose_(graph.transpose, net.params().device()),
      column_(graph.col, net.params().device()) {
  const KgatArch& arch = net.arch();
  const DType dtype = net.params().dtype();
  const Device device = net.params().device();
  const auto array = [&](DType type, std::int64_t columns) {
    return storage_.emplace_back(type, Shape{graph.nodes, columns}, device).view();
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
  ds_ = OwnedTensor(dtype, {graph.nodes * widest}, device);
  if (storage) rounded_ = OwnedTensor(*storage, {graph.nodes * widest}, device);
  transposed_ = OwnedTensor(dtype, {graph.nnz()}, device);
  adjacency_changed();
  begin(nullptr);
}

Tensor KgatPropagation::ds(int l) const {
  const std::int64_t width = net_.arch().width(l);
  return ds_->slice(0, graph_.nodes * width).reshaped({graph_.nodes, width});
}

void KgatPropagation::adjacency_changed() {
  Stream stream = this->stream();
  ops::transpose_edges(stream, transposed_, net_.adjacency().value, transpose_.span());
}

void KgatPropagation::begin(const Noise* noise) {
  const Device device = net_.params().device();
  const std::size_t threads = device.is_cuda() ? 1 : static_cast<std::size_t>(omp_get_max_threads());
  while (arenas_.size() < threads) arenas_.emplace_back(device);
  noise_ = noise == nullptr ? std::nullopt : std::optional<Noise>(*noise);
  Stream stream = this->stream();
  net_.params().refresh(stream);
  values_now_ = net_.adjacency().value, transposed_now_ = transposed_;
  if (noise_ && noise_->node_dropout > 0) drop_edges();
}

void KgatPropagation::drop_edges() {
  if (!dropped_.view()) {
    const Shape shape = {graph_.nnz()};
    const DType dtype = net_.params().dtype();
    const Device device = net_.params().device();
    dropped_ = OwnedTensor(dtype, shape, device), dropped_transposed_ = OwnedTensor(dtype, shape, device);
  }
  Stream stream = this->stream();
  ops::drop_edges(stream, dropped_, net_.adjacency().value, noise_->node_dropout,
                  Philox(noise_->seed, noise_->step, "kgat.edges"));
  ops::transpose_edges(stream, dropped_transposed_, dropped_, transpose_.span());
  values_now_ = dropped_, transposed_now_ = dropped_transposed_;
}

ops::AggregateLayer KgatPropagation::noisy_layer(int l) const {
  ops::AggregateLayer layer = net_.layer(l);
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
  const std::int64_t width = net_.arch().width(l);
  rounded_now_ = rounded_->slice(0, graph_.nodes * width).reshaped({graph_.nodes, width});
  Stream stream = this->stream();
  ops::round_node_rows(stream, rounded_now_, x(l), rows);
}

void KgatPropagation::product(int l, const ops::RowSet& rows) {
  Stream stream = this->stream();
  ops::spmm(stream, {s_[static_cast<std::size_t>(l)]}, pattern(), values_now_, stored(l), rows);
}

void KgatPropagation::aggregate(int l, const PlacedRows& rows) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  in_pieces(rows, [&](Arena& arena, const ops::RowSet& block) {
    Stream stream = this->stream();
    ops::aggregate_forward(stream, arena, layer, array, block);
  });
}

void KgatPropagation::forward(int l, const PlacedRows& rows) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  in_pieces(rows, [&](Arena& arena, const ops::RowSet& block) {
    Stream stream = this->stream();
    ops::spmm(stream, {array.s}, pattern(), values_now_, stored(l), block);
    ops::aggregate_forward(stream, arena, layer, array, block);
  });
}

void KgatPropagation::aggregate_backward(int l, const PlacedRows& rows, std::span<const std::int64_t> segments,
                                         const Tensor& sums) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  const Tensor ds_l = ds(l), dx_l = dx(l), dout = dx(l + 1);
  const std::int64_t begin = net_.aggregators_begin(), size = net_.aggregators_end() - begin;
  const auto count = static_cast<std::int64_t>(segments.size()) - 1;
  const auto part = [&](std::int64_t segment) {
    return rows.between(segments[static_cast<std::size_t>(segment)], segments[static_cast<std::size_t>(segment) + 1]);
  };
  const auto gradient = [&](std::int64_t segment) {
    return net_.layer(l, sums.slice(segment, 1).reshaped({size}), begin);
  };
  if (net_.params().device().is_cuda()) {
    for (std::int64_t segment = 0; segment < count; ++segment) {
      in_blocks(part(segment).rows, [&](Arena& arena, const ops::RowSet& block) {
        Stream stream = this->stream();
        ops::aggregate_backward(stream, arena, layer, array, block, dout, ds_l, dx_l, gradient(segment));
      });
    }
    return;
  }
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t segment = 0; segment < count; ++segment) {
    Stream stream;
    Arena& arena = arenas_[static_cast<std::size_t>(omp_get_thread_num())];
    const PlacedRows own = part(segment);
    // Blocks by the nodes' numbers: a row that is left out because its gradient is zero changes no bit of the sums.
    for (std::int64_t at = 0, next = 0; at < own.host.size(); at = next) {
      const std::int64_t edge = (own.host[at] / kBlock + 1) * kBlock;
      next = at + own.between(own.host[at], edge).host.size();
      arena.reset();
      ops::aggregate_backward(stream, arena, layer, array, own.host.part(at, next - at), dout, ds_l, dx_l,
                              gradient(segment));
    }
  }
}

void KgatPropagation::product_backward(int l, const ops::RowSet& rows, ops::RowBits from) {
  Stream stream = this->stream();
  ops::spmm(stream, {dx(l), true}, pattern(), transposed_now_, ds(l), rows, from);
}

void KgatPropagation::gather(std::span<const std::int32_t> nodes, const Tensor& h) const {
  Stream stream = this->stream();
  std::int64_t column = 0;
  for (int l = 0; l <= net_.arch().layers(); ++l) {
    ops::gather_node_rows(stream, h, column, x(l), nodes, scale_of(l));
    column += net_.arch().width(l);
  }
}

void KgatPropagation::scatter(int l, std::span<const std::int32_t> nodes, const Tensor& dh) const {
  Stream stream = this->stream();
  std::int64_t column = 0;
  for (int k = 0; k < l; ++k) column += net_.arch().width(k);
  ops::scatter_node_rows(stream, dx(l), dh, column, x(l), nodes, scale_of(l));
}

}  // namespace lockstep
