#include "tasks/kgat/kgat_step.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/log.hpp"

namespace lockstep {

namespace {

/// The parameters of a loss, with the rows that this rank updates.
std::vector<RowsOf> tables_of(const Kgat& net, const GraphExchange& exchange, bool kg) {
  std::vector<RowsOf> tables;
  for (const Param& p : net.params().all()) {
    if (!(kg ? net.in_kg_loss(p) : net.in_cf_loss(p))) continue;
    const bool nodes = &p == &net.embedding();
    tables.push_back(nodes ? RowsOf{&p, exchange.first(), exchange.last() - exchange.first()} : RowsOf{&p});
  }
  return tables;
}

/// NCCL if the mode transfers rows between GPUs and the options allow it; else null.
std::unique_ptr<GpuReduce> nccl_for(Communicator& comm, Device device, const KgatStepOptions& options) {
  const bool moves = device.is_cuda() && options.mode != KgatMode::replicate && comm.size() > 1;
  if (!moves || options.backend == Backend::mpi) return nullptr;
  if (options.backend == Backend::automatic && !gpus_are_apart(comm, device)) return nullptr;
  return make_gpu_reduce(comm, device, options.timeout_s);
}

}  // namespace

bool KgatStepResult::finite() const { return std::isfinite(loss) && std::isfinite(norm); }

KgatStep::KgatStep(Communicator& comm, Kgat& net, KgatPropagation& propagation, const KgatStepOptions& options)
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
      plan_(graph_, attended().begin, attended().end, net.params().dtype(), stream_.device()),
      arenas_{Arena(stream_.device()), Arena(stream_.device())} {
  if (by_segments_) propagation.separate(bounds({0, options.segments}));
  const DType dtype = net.params().dtype();
  const std::int64_t begin = net.aggregators_begin(), weights = net.aggregators_end() - begin;
  gradients_ = OwnedTensor(dtype, Shape{net.aggregators_end()}, stream_.device(), MemoryUse::gradients);
  dx0_ = gradients_->slice(net.embedding().offset, net.embedding().shape.size()).reshaped(net.embedding().shape);
  gradient_ = gradients_->slice(begin, weights);
  if (by_segments_) segment_sums_ = OwnedTensor(dtype, Shape{options.segments, weights}, stream_.device());
  for (const Param& p : net.params().all())
    if (net.in_cf_loss(p) && &p != &net.embedding()) aggregators_.push_back(&p);
  propagation_.set_dx0(dx0_);
  if (exchange_.partitioned() && !on_gpu() && options_.world != nullptr && options_.world->nodes() == 1) share_tables();
  require_usage(runs_on_gpu() || options.graphs != Graphs::on,
                "option run.graphs = on: steps of kgat are graphs on a GPU with dist.mode = replicate and without "
                "--reproducible; use auto");
  if (!runs_on_gpu()) return;
  for (int kind = 0; kind < 2; ++kind) kinds_.emplace_back(stream_.device());
  // Each kind of step has two halves, and each half the graph of its last step.
  graphs_.emplace(stream_, GraphReplay::Options{.graphs = options.graphs, .halves = 4, .most = 1, .wait = [this] {
                                                  stream_.synchronize();
                                                }});
  update_cf_.emplace(net.params(), &adam_cf_, std::vector<FlatRange>{{0, gradients_->size()}},
                     GpuUpdate::Options{.clip_norm = options.clip_norm});
}

void KgatStep::share_tables() {
  try {
    shared_ = options_.world->share_on_node(propagation_.shared_bytes());
  } catch (const Error& problem) {  // on all ranks
    if (comm_.rank() == 0) log::warning("kgat's ranks exchange rows by messages, which is slower: ", problem.what());
    return;
  }
  exchange_.set_shared(shared_->bytes());
  propagation_.share_tables(shared_->bytes());
}

KgatStep::~KgatStep() {
  if (shared_) propagation_.share_tables({});
  exchange_.end_collectives();  // the stream would wait for those that an error has left
  try {
    if (!kinds_.empty()) stream_.synchronize();
  } catch (const Error&) {  // of a step whose outcome is not needed any more
  }
}

Arena& KgatStep::next_arena() {
  arena_ = arena_ == &arenas_[0] ? &arenas_[1] : &arenas_[0];
  arena_->reset();
  return *arena_;
}

ShardRange KgatStep::own_range(std::span<const std::int32_t> nodes) const {
  const auto begin = std::lower_bound(nodes.begin(), nodes.end(), exchange_.first()),
             end = std::lower_bound(begin, nodes.end(), exchange_.last());
  return {begin - nodes.begin(), end - nodes.begin()};
}

ShardRange KgatStep::own_segments() const {
  const NodeCut& cut = exchange_.cut();
  if (!exchange_.partitioned()) return {0, cut.segments()};
  return {cut.first_segment(comm_.rank()), cut.first_segment(comm_.rank() + 1)};
}

std::vector<std::int64_t> KgatStep::bounds(ShardRange segments) const {
  std::vector<std::int64_t> nodes;
  for (std::int64_t s = segments.begin; s <= segments.end; ++s) nodes.push_back(exchange_.cut().begin(s));
  return nodes;
}

ShardRange KgatStep::attended() const {
  return on_gpu() ? ShardRange{0, graph_.nodes} : ShardRange{exchange_.first(), exchange_.last()};
}

void KgatStep::fetch_embeddings(const PlacedRows& rows) {
  if (embeddings_spread_) exchange_.share(net_.embedding().value, rows, "embeddings");
}

void KgatStep::refresh_adjacency() {
  adam_kg_.flush();
  fetch_embeddings(ops::RowSet::range(0, graph_.nodes));
  embeddings_spread_ = false;
  refresh_attention(net_, graph_, plan_, options_.parallel_edges);
  if (!on_gpu()) exchange_.share_values(net_.adjacency().value, graph_.adj_indptr, "attention");
  propagation_.adjacency_changed();
  exchange_.wait(steps_done());
}

void KgatStep::settle() {
  adam_kg_.flush();
  const ops::RowSet all = ops::RowSet::range(0, graph_.nodes);
  fetch_embeddings(all);
  embeddings_spread_ = false;
  for (const LazyAdam* adam : {&adam_cf_, &adam_kg_}) {
    for (const NamedTensor& t : adam->state())
      if (t.value.shape() == net_.embedding().shape && t.name.ends_with("/" + net_.embedding().name))
        exchange_.share(t.value, all, "moments of the embeddings");
  }
  exchange_.wait(steps_done());
}

void KgatStep::restored() {
  embeddings_spread_ = false;
  propagation_.adjacency_changed();
}

}  // namespace lockstep
