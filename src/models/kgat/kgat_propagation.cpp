#include "lockstep/models/kgat/kgat_propagation.hpp"

#include <omp.h>

#include <algorithm>

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/edge_values.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "lockstep/ops/row_blocks.hpp"

namespace lockstep {

namespace {

/// Rows of a chunk. On the CPU its operands stay in the second-level cache; on a GPU it bounds the memory.
constexpr std::int64_t kChunk = 128, kGpuChunk = std::int64_t{1} << 16;

/// H holds the embeddings unchanged, and the layers' outputs with norm 1.
ops::RowScale scale_of(int l) { return l == 0 ? ops::RowScale::none : ops::RowScale::norm; }

}  // namespace

template <class Work>
void KgatPropagation::in_gpu_chunks(const ops::RowSet& rows, const Work& work) {
  const std::int64_t n = rows.size(), chunks = (n + kGpuChunk - 1) / kGpuChunk;
  for (std::int64_t i = 0; i < chunks; ++i) {
    arenas_[0].reset();
    work(arenas_[0], rows.part(n * i / chunks, n * (i + 1) / chunks - n * i / chunks));
  }
}

template <class Work>
void KgatPropagation::in_chunks(const PlacedRows& rows, const Work& work) {
  if (net_.params().device().is_cuda()) {
    if (separate_.empty()) return in_gpu_chunks(rows.rows, work);
    for (std::size_t s = 0; s + 1 < separate_.size(); ++s)
      in_gpu_chunks(rows.between(separate_[s], separate_[s + 1]).rows, work);
    return;
  }
  const std::int64_t n = rows.host.size(), chunks = (n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < chunks; ++i) {
    Arena& arena = arenas_[omp_get_thread_num()];
    arena.reset();
    work(arena, rows.host.part(n * i / chunks, n * (i + 1) / chunks - n * i / chunks));
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

std::size_t KgatPropagation::table_bytes(std::int64_t columns) const {
  const auto bytes = static_cast<std::size_t>(graph_.nodes * columns) * size_bytes(net_.params().dtype());
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

std::size_t KgatPropagation::shared_bytes() const {
  const KgatArch& arch = net_.arch();
  std::size_t bytes = table_bytes(arch.width(arch.layers()));
  for (int l = 0; l < arch.layers(); ++l) bytes += 2 * table_bytes(arch.width(l));
  return bytes;
}

void KgatPropagation::share_tables(std::span<std::byte> memory) {
  shared_x_.clear();
  shared_ds_.clear();
  in_shared_ = false;
  if (memory.empty()) return;
  require(memory.size() >= shared_bytes(), "sharing the tables of a propagation: ", memory.size(), " bytes, needed ",
          shared_bytes());
  const KgatArch& arch = net_.arch();
  const auto next = [&](std::int64_t columns) {
    const Tensor table(memory.data(), net_.params().dtype(), {graph_.nodes, columns});
    memory = memory.subspan(table_bytes(columns));
    return table;
  };
  for (int l = 0; l <= arch.layers(); ++l) shared_x_.push_back(next(arch.width(l)));
  for (int l = 0; l < arch.layers(); ++l) shared_ds_.push_back(next(arch.width(l)));
}

Tensor KgatPropagation::ds(int l) const {
  if (in_shared_) return shared_ds_[l];
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
  in_shared_ = noise_ && !shared_x_.empty();
  Stream stream = this->stream();
  net_.params().refresh(stream);
  values_now_ = net_.adjacency().value;
  transposed_now_ = transposed_;
  if (noise_ && noise_->node_dropout > 0) drop_edges();
}

void KgatPropagation::drop_edges() {
  const profile::Span span("drop_edges");
  if (!dropped_.view()) {
    const Shape shape = {graph_.nnz()};
    const DType dtype = net_.params().dtype();
    const Device device = net_.params().device();
    dropped_ = OwnedTensor(dtype, shape, device);
    dropped_transposed_ = OwnedTensor(dtype, shape, device);
  }
  Stream stream = this->stream();
  ops::drop_edges(stream, dropped_, net_.adjacency().value,
                  {.rate = noise_->node_dropout,
                   .seed = noise_->seed,
                   .step = noise_->step,
                   .site = Site("kgat.edges"),
                   .step_on_gpu = noise_->step_on_gpu});
  ops::transpose_edges(stream, dropped_transposed_, dropped_, transpose_.span());
  values_now_ = dropped_;
  transposed_now_ = dropped_transposed_;
}

ops::AggregateLayer KgatPropagation::noisy_layer(int l) const {
  ops::AggregateLayer layer = net_.layer(l);
  if (!noise_) return layer;
  layer.dropout = noise_->message_dropout.empty() ? 0 : noise_->message_dropout[l];
  layer.seed = noise_->seed;
  layer.step = noise_->step;
  layer.step_on_gpu = noise_->step_on_gpu;
  layer.site = Site(Site("kgat.messages").id + static_cast<std::uint32_t>(l));
  return layer;
}

ops::AggregateRows KgatPropagation::arrays(int l) const {
  const auto n = static_cast<std::size_t>(l);
  return {.x = x(l), .s = s_[n], .out = x(l + 1), .marks = noise_ ? marks_[n] : Tensor()};
}

void KgatPropagation::store(int l, const ops::RowSet& rows) {
  if (!rounded_.view()) return;
  const std::int64_t width = net_.arch().width(l);
  rounded_now_ = rounded_->slice(0, graph_.nodes * width).reshaped({graph_.nodes, width});
  Stream stream = this->stream();
  ops::round_node_rows(stream, rounded_now_, x(l), rows);
}

void KgatPropagation::forward(const NestedRows& rows, RowOwner& owner) {
  if (in_shared_) {
    const ops::RowSet own = owner.own(rows.rows(0)).rows;
    Stream stream = this->stream();
    ops::copy_block(stream, {x(0), own}, {net_.embedding().value, own});
    owner.share(x(0), rows.rows(0), "embeddings");
  }
  for (int l = 0; l < net_.arch().layers(); ++l) {
    store(l, rows.rows(l).rows);
    aggregate_forward(l, owner.own(rows.rows(l + 1)));
    owner.share(x(l + 1), rows.rows(l + 1), "layer outputs");
  }
}

void KgatPropagation::forward() {
  NestedRows all;
  all.build_all(graph_, net_.arch().layers());
  RowOwner owner;
  forward(all, owner);
}

void KgatPropagation::backward(const NestedRows& rows, RowOwner& owner, std::span<const std::int32_t> nodes,
                               const Tensor& dh, std::span<const std::int64_t> segments, const Tensor& sums) {
  Stream stream = this->stream();
  const int layers = net_.arch().layers();
  fill_zero(stream, sums);
  ops::clear_node_rows(stream, dx_.back(), owner.own(rows.rows(layers)).rows);
  scatter(layers, nodes, dh);
  for (int l = layers - 1; l >= 0; --l) {
    const PlacedRows own = owner.own(l == 0 ? ops::RowSet::range(0, graph_.nodes) : rows.rows(l));
    // Rows outside rows(l + 1) receive gradients only from neighbours and start at zero. Embeddings (l = 0) need all
    // rows.
    if (!rows.all(l + 1)) ops::clear_node_rows(stream, dx_[l], own.rows);
    aggregate_backward(l, owner.own(rows.rows(l + 1)), segments, sums);
    owner.share(ds(l), rows.rows(l + 1), "gradients of neighbours' sums");
    const profile::Span span("spmm", profile::Kind::backward);
    ops::spmm(stream, {dx_[l], true}, pattern(), transposed_now_, ds(l), owner.own(rows.rows(l)).rows,
              rows.bits(l + 1));
    scatter(l, nodes, dh);
  }
}

void KgatPropagation::aggregate_forward(int l, const PlacedRows& rows) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  in_chunks(rows, [&](Arena& arena, const ops::RowSet& chunk) {
    Stream stream = this->stream();
    profile::Span neighbours("spmm");
    ops::spmm(stream, {array.s}, pattern(), values_now_, stored(l), chunk);
    neighbours.end();
    const profile::Span span("aggregate");
    ops::aggregate_forward(stream, arena, layer, array, chunk);
  });
}

void KgatPropagation::aggregate_backward(int l, const PlacedRows& rows, std::span<const std::int64_t> segments,
                                         const Tensor& sums) {
  const ops::AggregateLayer layer = noisy_layer(l);
  const ops::AggregateRows array = arrays(l);
  const auto n = static_cast<std::size_t>(l);
  const Tensor ds_l = ds(l), dx_l = dx_[n], dout = dx_[n + 1];
  const std::int64_t begin = net_.aggregators_begin(), size = net_.aggregators_end() - begin;
  const auto count = std::ssize(segments) - 1;
  const auto rows_of = [&](std::int64_t segment) {
    if (count == 1) return rows;  // the host need not know them
    return rows.between(segments[segment], segments[segment + 1]);
  };
  const auto gradient = [&](std::int64_t segment) {
    return net_.layer(l, sums.slice(segment, 1).reshaped({size}), begin);
  };
  if (net_.params().device().is_cuda()) {
    for (std::int64_t segment = 0; segment < count; ++segment) {
      in_gpu_chunks(rows_of(segment).rows, [&](Arena& arena, const ops::RowSet& chunk) {
        Stream stream = this->stream();
        const profile::Span span("aggregate", profile::Kind::backward);
        ops::aggregate_backward(stream, arena, layer, array, chunk, dout, ds_l, dx_l, gradient(segment));
      });
    }
    return;
  }
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t segment = 0; segment < count; ++segment) {
    Stream stream;
    Arena& arena = arenas_[omp_get_thread_num()];
    const PlacedRows own = rows_of(segment);
    // Chunk bounds are multiples of kChunk: omitting a row whose gradient is zero changes no bit of the sums.
    for (std::int64_t at = 0, next = 0; at < own.host.size(); at = next) {
      const std::int64_t edge = (own.host[at] / kChunk + 1) * kChunk;
      next = at + own.between(own.host[at], edge).host.size();
      arena.reset();
      const profile::Span span("aggregate", profile::Kind::backward);
      ops::aggregate_backward(stream, arena, layer, array, own.host.part(at, next - at), dout, ds_l, dx_l,
                              gradient(segment));
    }
  }
}

void KgatPropagation::gather(std::span<const std::int32_t> nodes, const Tensor& h) const {
  const profile::Span span("gather_node_rows");
  Stream stream = this->stream();
  std::int64_t column = 0;
  for (int l = 0; l <= net_.arch().layers(); ++l) {
    ops::gather_node_rows(stream, h, column, x(l), nodes, scale_of(l));
    column += net_.arch().width(l);
  }
}

void KgatPropagation::scatter(int l, std::span<const std::int32_t> nodes, const Tensor& dh) const {
  const profile::Span span("scatter_node_rows", profile::Kind::backward);
  Stream stream = this->stream();
  std::int64_t column = 0;
  for (int k = 0; k < l; ++k) column += net_.arch().width(k);
  ops::scatter_node_rows(stream, dx_[l], dh, column, x(l), nodes, scale_of(l));
}

}  // namespace lockstep
