#include "train/kgat_steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lockstep/base/stopwatch.hpp"
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

void clear_rows(const Tensor& table, const ops::RowSet& rows) {
  const auto row_bytes = static_cast<std::size_t>(table.columns()) * size_bytes(table.dtype());
  auto* memory = static_cast<std::byte*>(table.raw());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows.size(); ++i)
    std::memset(memory + static_cast<std::size_t>(rows[i]) * row_bytes, 0, row_bytes);
}

}  // namespace

bool KgatStepSums::finite() const { return std::isfinite(loss) && std::isfinite(norm); }

double KgatSteps::squares(const Tensor& t) {
  const double norm = lockstep::gradient_norm(t, {{0, t.size()}});
  return norm * norm;
}

KgatSteps::KgatSteps(Communicator& comm, Kgat& net, KgatPropagation& propagation, const KgatStepOptions& options)
    : comm_(comm),
      net_(net),
      graph_(propagation.graph()),
      options_(options),
      exchange_(comm, NodeCut(graph_.adj_indptr, options.segments, comm.size()), options.mode != KgatMode::replicate),
      propagation_(propagation),
      adam_cf_(options.optimizer, net.params(), tables_of(net, exchange_, false)),
      adam_kg_(options.optimizer, net.params(), tables_of(net, exchange_, true)),
      plan_(graph_, exchange_.first(), exchange_.last(), net.params().dtype(), net.arch().relation_dim),
      dx0_(net.params().dtype(), net.embedding().shape),
      segment_sums_(net.params().dtype(), Shape{options.segments, net.aggregators_end() - net.aggregators_begin()}),
      gradient_(net.params().dtype(), Shape{net.aggregators_end() - net.aggregators_begin()}) {
  for (const Param& p : net.params().all())
    if (net.ranks_items(p) && &p != &net.embedding()) aggregators_.push_back(&p);
  propagation_.set_dx0(dx0_);
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

void KgatSteps::find_embeddings(const ops::RowSet& rows) {
  if (embeddings_spread_) exchange_.share(net_.embedding().value, rows, "embeddings");
}

void KgatSteps::forward(const CfBatch& batch) {
  const int layers = net_.arch().layers();
  const ops::RowSet all = ops::RowSet::range(0, graph_.nodes), nodes = ops::RowSet::list(batch.rows());
  const bool columns = options_.mode == KgatMode::column_switch && exchange_.partitioned();
  // A product reads rows(0) of the embeddings; by columns, those that a rank owns, and the loss those of the batch.
  find_embeddings(columns ? nodes : rows_.rows(0));
  for (int l = 0; l < layers; ++l) {
    const ops::RowSet own = exchange_.own(rows_.rows(l + 1));
    propagation_.store(l, columns ? exchange_.own(rows_.rows(l)) : rows_.rows(l));
    if (columns) {
      exchange_.by_columns(
          {propagation_.s(l)}, propagation_.stored(l),
          [&](const Tensor& y, const Tensor& x) {
            Stream stream;
            ops::spmm(stream, {y}, propagation_.pattern(), propagation_.values(), x, all);
          },
          "layer inputs by columns");
      propagation_.aggregate(l, own);
    } else {
      propagation_.forward(l, own);
    }
    exchange_.share(propagation_.x(l + 1), columns || l + 1 == layers ? nodes : rows_.rows(l + 1), "layer outputs");
  }
}

void KgatSteps::backward(const CfBatch& batch, const Tensor& dh) {
  const std::int64_t first = exchange_.first(), own_rows = exchange_.last() - first;
  const ops::RowSet all = ops::RowSet::range(0, graph_.nodes), mine = ops::RowSet::range(first, own_rows);
  const bool columns = options_.mode == KgatMode::column_switch && exchange_.partitioned();
  const ShardRange part = own_part(batch.rows());
  const auto own_nodes =
      std::span(batch.rows()).subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.count()));
  const Tensor own_dh = dh.slice(part.begin, part.count());

  const NodeCut& cut = exchange_.cut();
  const ShardRange segments = own_segments();
  std::vector<std::int64_t> bounds;
  for (std::int64_t s = segments.begin; s <= segments.end; ++s) bounds.push_back(cut.begin(s));
  const Tensor sums = segment_sums_->slice(0, segments.count());
  fill_zero(sums);

  const int layers = net_.arch().layers();
  clear_rows(propagation_.dx(layers), exchange_.own(rows_.rows(layers)));
  propagation_.scatter(layers, own_nodes, own_dh);
  for (int l = layers - 1; l >= 0; --l) {
    // Rows that only neighbours give something to start at zero; the embeddings' gradient has a value in every row.
    // By columns a product reads all rows of ds_l.
    if (!rows_.all(l + 1)) {
      clear_rows(propagation_.dx(l), l == 0 || columns ? mine : exchange_.own(rows_.rows(l)));
      if (columns) clear_rows(propagation_.ds(l), mine);
    }
    propagation_.aggregate_backward(l, exchange_.own(rows_.rows(l + 1)), bounds, sums);
    if (columns) {
      exchange_.by_columns(
          {propagation_.dx(l), true}, propagation_.ds(l),
          [&](const Tensor& y, const Tensor& x) {
            Stream stream;
            ops::spmm(stream, {y}, propagation_.pattern(), propagation_.transposed_values(), x, all);
          },
          "gradients by columns");
    } else {
      exchange_.share(propagation_.ds(l), rows_.rows(l + 1), "gradients of neighbours' sums");
      propagation_.product_backward(l, exchange_.own(rows_.rows(l)), rows_.bits(l + 1));
    }
    propagation_.scatter(l, own_nodes, own_dh);
  }

  // The same tree over all segments, whoever has them.
  visit_float(gradient_->dtype(), [&]<class T>() {
    std::vector<std::span<T>> local;
    for (std::int64_t s = 0; s < sums.rows(); ++s) local.push_back(sums.slice(s, 1).span<T>());
    if (exchange_.partitioned()) {
      tree_all_reduce<T>(comm_, cut.segments(), local, gradient_->span<T>(), "weights' gradients");
    } else {
      const std::vector<std::span<const T>> parts(local.begin(), local.end());
      tree_sum<T>(parts, 0, gradient_->size(), gradient_->span<T>());
    }
  });
}

double KgatSteps::square_norm(unsigned& flags) {
  const NodeCut& cut = exchange_.cut();
  const ShardRange segments = own_segments();
  std::vector<double> own(static_cast<std::size_t>(segments.count())), all(static_cast<std::size_t>(cut.segments()));
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t s = segments.begin; s < segments.end; ++s)
    own[static_cast<std::size_t>(s - segments.begin)] =
        squares(dx0_->slice(cut.begin(s), cut.begin(s + 1) - cut.begin(s)));
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
  adam_cf_.update(net_.embedding(), first, count, dx0_->slice(first, count));
  for (const Param* p : aggregators_) {
    adam_cf_.update(*p, 0, p->shape[0], gradient_->slice(p->offset - net_.aggregators_begin(), p->shape.size()));
  }
  embeddings_spread_ = exchange_.partitioned();
}

KgatStepSums KgatSteps::rank_items(const CfBatch& batch, std::int64_t number, double lr, unsigned flags) {
  Stopwatch watch;
  KgatStepSums result;
  arena_.reset();
  adam_kg_.flush();
  rows_.build(graph_, net_.arch().layers(), batch.rows(), options_.mode == KgatMode::nested_rows ? 0.7 : -1);
  const KgatPropagation::Noise noise = {.message_dropout = options_.message_dropout,
                                        .node_dropout = options_.node_dropout,
                                        .seed = options_.seed,
                                        .step = static_cast<std::uint64_t>(number)};
  propagation_.begin(&noise);
  forward(batch);

  const DType dtype = net_.params().dtype();
  const Shape shape = {static_cast<std::int64_t>(batch.rows().size()), net_.arch().final_width()};
  const Tensor h = allocate(arena_, dtype, shape), dh = allocate(arena_, dtype, shape);
  propagation_.gather(batch.rows(), h);
  Stream stream;
  result.sums = ops::bpr(stream, batch.pairs(), h, options_.cf_l2, allocate(arena_, dtype, {batch.count()}), dh);
  result.loss = (result.sums.loss + options_.cf_l2 * result.sums.half_square) / static_cast<double>(batch.count());
  backward(batch, dh);
  result.norm = std::sqrt(square_norm(flags));
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
  exchange_.share(net_.adjacency().value, graph_.adj_indptr, "attention");
  propagation_.adjacency_changed();
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
}

void KgatSteps::restored() {
  embeddings_spread_ = false;
  propagation_.adjacency_changed();
}

}  // namespace lockstep
