#include "train/kgat_steps.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "train/agreement.hpp"

namespace lockstep {

namespace {

std::vector<RowsOf> tables_of(const Kgat& net, const GraphExchange& exchange, bool triples) {
  std::vector<RowsOf> which;
  for (const Param& p : net.params().all()) {
    if (!(triples ? net.ranks_triples(p) : net.ranks_items(p))) continue;
    const bool nodes = &p == &net.embedding();
    which.push_back(nodes ? RowsOf{&p, exchange.first(), exchange.last() - exchange.first()} : RowsOf{&p});
  }
  return which;
}

/// NCCL where modes move rows between GPUs, and the options let it.
std::unique_ptr<GpuReduce> nccl_for(Communicator& comm, Device device, const KgatStepOptions& options) {
  const bool moves = device.is_cuda() && options.mode != KgatMode::replicate && comm.size() > 1;
  if (!moves || options.backend == Backend::mpi) return nullptr;
  if (options.backend == Backend::automatic && !gpus_are_apart(comm, device)) return nullptr;
  return make_gpu_reduce(comm, device, options.timeout_s);
}

}  // namespace

bool KgatStepSums::finite() const { return std::isfinite(loss) && std::isfinite(norm); }

KgatSteps::KgatSteps(Communicator& comm, Kgat& net, KgatPropagation& propagation, const KgatStepOptions& options)
    : comm_(comm),
      stream_(net.params().device()),
      net_(net),
      graph_(propagation.graph()),
      options_(options),
      exchange_(comm, NodeCut(graph_.adj_indptr, options.segments, comm.size()), options.mode != KgatMode::replicate,
                stream_.device(), nccl_for(comm, stream_.device(), options)),
      by_segments_(!on_gpu() || options.reproducible || exchange_.partitioned()),
      propagation_(propagation),
      adam_cf_(options.optimizer, net.params(), tables_of(net, exchange_, false)),
      adam_kg_(options.optimizer, net.params(), tables_of(net, exchange_, true)),
      plan_(graph_, attended().first, attended().second, net.params().dtype(), stream_.device()),
      arenas_{Arena(stream_.device()), Arena(stream_.device())} {
  require_usage(
      !on_gpu() || !options.reproducible || !exchange_.partitioned() || options.mode != KgatMode::column_switch,
      "option dist.mode = column-switch: on GPUs a sparse product's order of additions depends on its number of "
      "columns, here on the number of ranks; with --reproducible use row-partition, nested-rows or replicate");
  if (by_segments_) propagation.compute_apart(bounds({0, options.segments}));
  const DType dtype = net.params().dtype();
  const std::int64_t table = net.embedding().shape.size(), weights = net.aggregators_end() - net.aggregators_begin();
  constexpr std::int64_t kAligned = 64;
  const std::int64_t begin = (table + kAligned - 1) / kAligned * kAligned;
  gradients_ = OwnedTensor(dtype, Shape{begin + weights}, stream_.device(), MemoryUse::gradients);
  dx0_ = gradients_->slice(0, table).reshaped(net.embedding().shape);
  gradient_ = gradients_->slice(begin, weights);
  segment_sums_ = OwnedTensor(dtype, Shape{by_segments_ ? options.segments : 1, weights}, stream_.device());
  for (const Param& p : net.params().all())
    if (net.ranks_items(p) && &p != &net.embedding()) aggregators_.push_back(&p);
  propagation_.set_dx0(dx0_);
}

Arena& KgatSteps::next_arena() {
  arena_ = arena_ == &arenas_[0] ? &arenas_[1] : &arenas_[0];
  arena_->reset();
  return *arena_;
}

ShardRange KgatSteps::own_part(std::span<const std::int32_t> nodes) const {
  const auto begin = std::lower_bound(nodes.begin(), nodes.end(), exchange_.first()),
             end = std::lower_bound(begin, nodes.end(), exchange_.last());
  return {begin - nodes.begin(), end - nodes.begin()};
}

ShardRange KgatSteps::own_segments() const {
  const NodeCut& cut = exchange_.cut();
  if (!exchange_.partitioned()) return {0, cut.segments()};
  return {cut.first_segment(comm_.rank()), cut.first_segment(comm_.rank() + 1)};
}

std::vector<std::int64_t> KgatSteps::bounds(ShardRange segments) const {
  std::vector<std::int64_t> nodes;
  for (std::int64_t s = segments.begin; s <= segments.end; ++s) nodes.push_back(exchange_.cut().begin(s));
  return nodes;
}

std::pair<std::int64_t, std::int64_t> KgatSteps::attended() const {
  return on_gpu() ? std::pair(std::int64_t{0}, graph_.nodes) : std::pair(exchange_.first(), exchange_.last());
}

void KgatSteps::find_embeddings(const PlacedRows& rows) {
  if (embeddings_spread_) exchange_.share(net_.embedding().value, rows, "embeddings");
}

void KgatSteps::forward(const PlacedRows& nodes) {
  const int layers = net_.arch().layers();
  const ops::RowSet all = ops::RowSet::range(0, graph_.nodes);
  const bool columns = options_.mode == KgatMode::column_switch && exchange_.partitioned();
  // A product reads rows(0) of the embeddings; by columns, those that a rank owns, and the loss those of the batch.
  find_embeddings(columns ? nodes : rows_.rows(0));
  for (int l = 0; l < layers; ++l) {
    const PlacedRows own = exchange_.own(rows_.rows(l + 1));
    propagation_.store(l, (columns ? exchange_.own(rows_.rows(l)) : rows_.rows(l)).rows);
    if (columns) {
      exchange_.by_columns(
          {propagation_.s(l)}, propagation_.stored(l),
          [&](const Tensor& y, const Tensor& x) {
            ops::spmm(stream_, {y}, propagation_.pattern(), propagation_.values(), x, all);
          },
          "layer inputs by columns");
      propagation_.aggregate(l, own);
    } else {
      propagation_.forward(l, own);
    }
    exchange_.share(propagation_.x(l + 1), columns || l + 1 == layers ? nodes : rows_.rows(l + 1), "layer outputs");
  }
}

void KgatSteps::backward(const CfBatch& batch, std::span<const std::int32_t> nodes, const Tensor& dh) {
  const std::int64_t first = exchange_.first(), own_rows = exchange_.last() - first;
  const ops::RowSet all = ops::RowSet::range(0, graph_.nodes), mine = ops::RowSet::range(first, own_rows);
  const bool columns = options_.mode == KgatMode::column_switch && exchange_.partitioned();
  const ShardRange part = own_part(batch.rows());
  const auto own_nodes = nodes.subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.count()));
  const Tensor own_dh = dh.slice(part.begin, part.count());

  const ShardRange segments = own_segments();
  const std::vector<std::int64_t> pieces = by_segments_ ? bounds(segments) : std::vector<std::int64_t>{0, graph_.nodes};
  const Tensor sums = segment_sums_->slice(0, static_cast<std::int64_t>(pieces.size()) - 1);
  fill_zero(stream_, sums);

  const int layers = net_.arch().layers();
  ops::clear_node_rows(stream_, propagation_.dx(layers), exchange_.own(rows_.rows(layers)).rows);
  propagation_.scatter(layers, own_nodes, own_dh);
  for (int l = layers - 1; l >= 0; --l) {
    // Rows that only neighbours give something to start at zero; the embeddings' gradient has a value in every row.
    // By columns a product reads all rows of ds_l.
    if (!rows_.all(l + 1)) {
      ops::clear_node_rows(stream_, propagation_.dx(l), l == 0 || columns ? mine : exchange_.own(rows_.rows(l)).rows);
      if (columns) ops::clear_node_rows(stream_, propagation_.ds(l), mine);
    }
    propagation_.aggregate_backward(l, exchange_.own(rows_.rows(l + 1)), pieces, sums);
    if (columns) {
      exchange_.by_columns(
          {propagation_.dx(l), true}, propagation_.ds(l),
          [&](const Tensor& y, const Tensor& x) {
            ops::spmm(stream_, {y}, propagation_.pattern(), propagation_.transposed_values(), x, all);
          },
          "gradients by columns");
    } else {
      exchange_.share(propagation_.ds(l), rows_.rows(l + 1), "gradients of neighbours' sums");
      propagation_.product_backward(l, exchange_.own(rows_.rows(l)).rows, rows_.bits(l + 1));
    }
    propagation_.scatter(l, own_nodes, own_dh);
  }

  if (by_segments_) {
    sum_segments(sums);
  } else {
    copy(stream_, gradient_, sums);
  }
}

void KgatSteps::sum_segments(const Tensor& sums) {
  // The same tree over all segments, whoever has them; a GPU's on the host.
  exchange_.wait(steps_done());
  visit_float(gradient_.dtype(), [&]<class T>() {
    const Tensor parts = lockstep::on_host(stream_, *arena_, sums);
    const std::span<T> total = on_gpu() ? on_host<T>(*arena_, gradient_.size()) : gradient_.span<T>();
    std::vector<std::span<T>> local;
    for (std::int64_t s = 0; s < parts.rows(); ++s) local.push_back(parts.slice(s, 1).span<T>());
    if (exchange_.partitioned()) {
      tree_all_reduce<T>(comm_, exchange_.cut().segments(), local, total, "weights' gradients");
    } else {
      const std::vector<std::span<const T>> all(local.begin(), local.end());
      tree_sum<T>(all, 0, gradient_.size(), total);
    }
    if (on_gpu()) copy(stream_, gradient_, Tensor::of(total.data(), gradient_.shape()));
  });
}

double KgatSteps::square_norm(unsigned& flags) {
  if (!by_segments_) {
    flags = wishes_of_all(comm_, flags);  // while the GPU works
    const double norm = gradient_norm(gradients_, {{0, gradients_->size()}});
    return norm * norm;
  }
  const NodeCut& cut = exchange_.cut();
  const ShardRange segments = own_segments();
  const auto squares = [](const Tensor& t) {
    const double norm = gradient_norm(t, {{0, t.size()}});
    return norm * norm;
  };
  std::vector<double> own(static_cast<std::size_t>(segments.count())), all(static_cast<std::size_t>(cut.segments()));
#pragma omp parallel for schedule(dynamic) if (!on_gpu())
  for (std::int64_t s = segments.begin; s < segments.end; ++s)
    own[static_cast<std::size_t>(s - segments.begin)] =
        squares(dx0_.slice(cut.begin(s), cut.begin(s + 1) - cut.begin(s)));
  if (exchange_.partitioned()) {
    std::vector<std::int64_t> sizes;
    for (int r = 0; r < comm_.size(); ++r)
      sizes.push_back((cut.first_segment(r + 1) - cut.first_segment(r)) * static_cast<std::int64_t>(sizeof(double)));
    comm_.all_gather_known(std::as_bytes(std::span<const double>(own)), sizes,
                           std::as_writable_bytes(std::span<double>(all)), "gradient norm");
  } else {
    all = own;
  }
  flags = wishes_of_all(comm_, flags);
  return std::accumulate(all.begin(), all.end(), squares(gradient_));
}

void KgatSteps::update_items(double lr, double scale) {
  adam_cf_.begin_step(lr, scale);
  const std::int64_t first = exchange_.first(), count = exchange_.last() - first;
  adam_cf_.update(net_.embedding(), first, count, dx0_.slice(first, count));
  for (const Param* p : aggregators_) {
    adam_cf_.update(*p, 0, p->shape[0], gradient_.slice(p->offset - net_.aggregators_begin(), p->shape.size()));
  }
  embeddings_spread_ = exchange_.partitioned();
}

KgatStepSums KgatSteps::rank_items(const CfBatch& batch, std::int64_t number, double lr, unsigned flags) {
  Stopwatch watch;
  KgatStepSums result;
  Arena& arena = next_arena();
  adam_kg_.flush();
  rows_.build(graph_, net_.arch().layers(), batch.rows(), options_.mode == KgatMode::nested_rows ? 0.7 : -1);
  rows_.place(stream_, arena);
  const ops::RankedPairs all = batch.pairs();
  const auto [user, liked, other, use_ptr, use, nodes] =
      for_kernels(stream_, arena, all.user, all.liked, all.other, all.use_ptr, all.use, std::span(batch.rows()));
  const KgatPropagation::Noise noise = {.message_dropout = options_.message_dropout,
                                        .node_dropout = options_.node_dropout,
                                        .seed = options_.seed,
                                        .step = static_cast<std::uint64_t>(number)};
  propagation_.begin(&noise);
  forward({ops::RowSet::list(nodes), ops::RowSet::list(batch.rows())});

  const DType dtype = net_.params().dtype();
  const Shape shape = {static_cast<std::int64_t>(nodes.size()), net_.arch().final_width()};
  const Tensor h = allocate(arena, dtype, shape), dh = allocate(arena, dtype, shape);
  propagation_.gather(nodes, h);
  ops::RankingSums& sums = on_host<ops::RankingSums>(arena, 1)[0];
  ops::bpr(stream_, arena, {user, liked, other, use_ptr, use}, h, options_.cf_l2,
           allocate(arena, dtype, {batch.count()}), dh, sums);
  backward(batch, nodes, dh);
  result.norm = std::sqrt(square_norm(flags));
  result.sums = sums;  // there, now that the norm is
  result.loss = (sums.loss + options_.cf_l2 * sums.half_square) / static_cast<double>(batch.count());
  result.flags = flags;
  result.compute = watch.restart();
  if (!result.finite()) return result;
  update_items(lr, clip_scale(result.norm, options_.clip_norm));
  result.update = watch.seconds();
  return result;
}

void KgatSteps::refresh() {
  adam_kg_.flush();
  find_embeddings(ops::RowSet::range(0, graph_.nodes));
  embeddings_spread_ = false;
  refresh_attention(net_, graph_, plan_, options_.parallel_edges);
  if (!on_gpu()) exchange_.share(net_.adjacency().value, graph_.adj_indptr, "attention");
  propagation_.adjacency_changed();
  exchange_.wait(steps_done());
}

void KgatSteps::settle() {
  adam_kg_.flush();
  const ops::RowSet all = ops::RowSet::range(0, graph_.nodes);
  find_embeddings(all);
  embeddings_spread_ = false;
  for (const LazyAdam* adam : {&adam_cf_, &adam_kg_}) {
    for (const NamedTensor& t : adam->state())
      if (t.value.shape() == net_.embedding().shape && t.name.ends_with("/" + net_.embedding().name))
        exchange_.share(t.value, all, "moments of the embeddings");
  }
  exchange_.wait(steps_done());
}

void KgatSteps::restored() {
  embeddings_spread_ = false;
  propagation_.adjacency_changed();
}

}  // namespace lockstep
