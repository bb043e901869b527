// The steps of KgatStep that a GPU takes alone.
#include <algorithm>
#include <cassert>

#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/train/agreement.hpp"
#include "tasks/kgat/kgat_step.hpp"

namespace lockstep {

namespace {

/// The rank's report about a step: the gradient is that of the mean loss, so the weight is 1. The GPU writes the sums.
struct Report {
  RankReport of_rank = {.weight = 1};
  ops::RankingSums sums;
};
static_assert(sizeof(Report) == sizeof(RankReport) + 2 * sizeof(double));

ops::RankingSums& sums_of(std::span<const Report> on_gpu) {
  return const_cast<Report*>(on_gpu.data())->sums;  // memory of the step's arena
}
RankReports reports_of(std::span<const Report> on_gpu) {
  return {.bytes = reinterpret_cast<const std::byte*>(on_gpu.data()), .micros = 2, .doubles = true};
}

/// The values, then `fill`, `size` in all.
template <class T>
std::span<const T> pad(std::vector<T>& memory, const std::vector<T>& values, std::int64_t size, const T& fill) {
  memory = values;
  memory.resize(static_cast<std::size_t>(size), fill);
  return memory;
}

/// The rows, and the last nodes that they lack, `size` in all: ascending.
void with_more_nodes(std::vector<std::int32_t>& all, const std::vector<std::int32_t>& rows, std::int64_t nodes,
                     std::int64_t size) {
  all.clear();
  auto left = rows.rbegin();
  auto node = static_cast<std::int32_t>(nodes);
  for (std::int64_t more = size - std::ssize(rows); more > 0;) {
    all.push_back(--node);
    left != rows.rend() && *left == node ? static_cast<void>(++left) : static_cast<void>(--more);
  }
  all.insert(all.end(), left, rows.rend());
  std::ranges::reverse(all);
}

}  // namespace

std::pair<KgatStep::Half*, int> KgatStep::next_half(std::size_t kind) {
  [[maybe_unused]] const Kind& last = kinds_[kind_];
  assert(kind == kind_ || !last.halves[last.turn].open);
  Kind& now = kinds_[kind_ = kind];
  const bool open = now.halves[now.turn].open.has_value();
  Half& half = now.halves[now.turn = 1 - now.turn];
  assert(!half.open);
  now.arena.reset();
  return {&half, open ? 1 : 0};
}

void KgatStep::start_cf(const CfBatch& batch, std::int64_t number, double lr, unsigned flags) {
  const auto [half, open] = next_half(0);
  if (open == 0) adam_kg_.flush();  // nothing is deferred by steps on interactions
  Arena& arena = kinds_[0].arena;
  // Batches differ in the number of distinct rows. Rows that are added to the last layer have gradient 0.
  const std::int64_t size = batch.count(), most = 3 * size;
  with_more_nodes(padded_nodes_, batch.rows(), graph_.nodes, std::min(most, graph_.nodes));
  rows_.build(graph_, net_.arch().layers(), padded_nodes_, 0);
  GpuStepRecord next = {.step = static_cast<std::uint64_t>(number), .samples = size};
  update_cf_->describe(next, lr, {}, open);
  const Report report;
  const ops::RankedPairs pairs = batch.pairs();
  Staged staged;
  const auto [record, reports, list, bits, user, liked, other, use_ptr, use, nodes] =
      stage(staged, arena, std::span<const GpuStepRecord>(&next, 1), std::span<const Report>(&report, 1),
            rows_.last_list(), rows_.last_bits(), pairs.user, pairs.liked, pairs.other,
            pad(padded_ptr_, batch.uses.use_ptr(), most + 1, batch.uses.use_ptr().back()), pairs.use,
            pad(padded_nodes_, batch.rows(), most, -1));
  rows_.place_last(list, bits);
  run(*half, size, staged, [&] {
    const KgatPropagation::Noise noise = {.message_dropout = options_.message_dropout,
                                          .node_dropout = options_.node_dropout,
                                          .seed = options_.seed,
                                          .step_on_gpu = &record.data()->step};
    propagation_.begin(&noise);
    propagation_.forward(rows_, exchange_);
    const DType dtype = net_.params().dtype();
    const Shape shape = {most, net_.arch().final_width()};
    const Tensor h = allocate(arena, dtype, shape), dh = allocate(arena, dtype, shape);
    propagation_.gather(nodes, h);
    profile::Span loss("bpr");
    ops::bpr(stream_, arena, {user, liked, other, use_ptr, use}, h, options_.cf_l2, allocate(arena, dtype, {size}), dh,
             sums_of(reports), half->sums());
    loss.end();
    backward_cf({0, most}, nodes, dh);
    update_cf_->close(stream_, gradients_, reports_of(reports), record.data(), half->gpu(), nullptr);
  });
  end_step(*half, {.step = number, .is_cf = true, .flags = flags_of_all(comm_, flags), .samples = size});
}

void KgatStep::start_kg(const KgBatch& batch, std::int64_t number, double lr, unsigned flags) {
  const auto [half, open] = next_half(1);
  Arena& arena = kinds_[1].arena;
  // Batches differ in the numbers of distinct rows, of relations, and of chunks: a relation has one that is not full.
  const std::int64_t size = batch.count(), most = 3 * size, d = net_.arch().embed_dim, k = net_.arch().relation_dim,
                     relations = std::min(size, graph_.relations), chunks = size / KgBatch::kChunk + relations;
  const std::int64_t elements = most * d + relations * (d * k + k);
  if (elements != kg_elements_) {
    assert(open == 0);
    for (Half& each : kinds_[1].halves) each.key.clear();
    update_kg_.emplace(net_.params(), &adam_kg_, std::vector<FlatRange>{{0, elements}},
                       GpuUpdate::Options{.clip_norm = options_.clip_norm});
    kg_elements_ = elements;
  }
  GpuStepRecord next = {.step = static_cast<std::uint64_t>(number), .samples = size};
  update_kg_->describe(next, lr, {}, open);
  const LazyNow lazy = adam_kg_.describe(lr, open);
  const Report report;
  places_.clear();
  for (const std::int32_t u : batch.uses.use()) places_.push_back(batch.row_of_use(u));
  Staged staged;
  const auto [record, reports, now, all_chunks, head, tail, other, nodes, rows, use_ptr, places, relation_chunks] =
      stage(staged, arena, std::span<const GpuStepRecord>(&next, 1), std::span<const Report>(&report, 1),
            std::span<const LazyNow>(&lazy, 1), pad(padded_chunks_, batch.chunks, chunks, {}),
            std::span<const std::int32_t>(batch.head), std::span<const std::int32_t>(batch.tail),
            std::span<const std::int32_t>(batch.other), pad(padded_nodes_, batch.rows(), most, -1),
            pad(padded_relations_, batch.relations, relations, -1),
            pad(padded_ptr_, batch.uses.use_ptr(), most + 1, batch.uses.use_ptr().back()),
            std::span<const std::int64_t>(places_),
            pad(padded_chunk_ptr_, batch.relation_chunks, relations + 1, batch.relation_chunks.back()));
  run(*half, size, staged, [&] {
    RowsNow tables[] = {{&net_.embedding(), nodes}, {&net_.matrices(), rows}, {&net_.translations(), rows}};
    adam_kg_.enqueue_catch_up(tables, now.data());
    const DType dtype = net_.params().dtype();
    const std::span sums(static_cast<ops::RankingSums*>(arena.allocate(all_chunks.size() * sizeof(ops::RankingSums))),
                         all_chunks.size());
    const ChunkResults results = {.rows = allocate(arena, dtype, {most, d}),
                                  .relations = allocate(arena, dtype, {chunks, d * k + k}),
                                  .sums = sums};
    compute_chunks({all_chunks, head, tail, other}, {0, chunks}, results);
    ops::sum_rankings(stream_, sums_of(reports), half->sums(), sums);
    const Tensor flat = sum_chunks(arena, results, {use_ptr, places}, relation_chunks);
    half->kg_gradient = kg_gradient_;
    tables[0].gradient = kg_gradient_.nodes;
    tables[1].gradient = kg_gradient_.matrices;
    tables[2].gradient = kg_gradient_.translations;
    update_kg_->decide(stream_, flat, reports_of(reports), record.data(), half->gpu());
    adam_kg_.enqueue_update(tables, now.data(), update_kg_->now());
  });
  const auto used = static_cast<std::int64_t>(batch.relations.size());
  const KgGradient& padded = half->kg_gradient;
  kg_gradient_ = {.nodes = padded.nodes.slice(0, static_cast<std::int64_t>(batch.rows().size())),
                  .matrices = padded.matrices.slice(0, used),
                  .translations = padded.translations.slice(0, used)};
  end_step(*half, {.step = number, .is_cf = false, .flags = flags_of_all(comm_, flags), .samples = size});
}

void KgatStep::run(Half& half, std::int64_t size, const Staged& staged, const std::function<void()>& enqueue) {
  const auto all = [&] {
    staged.copy(stream_);
    enqueue();
  };
  const auto number = [](const void* p) { return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(p)); };
  const std::vector<std::int64_t> key = {size, number(staged.on_gpu), number(staged.pinned),
                                         number(adam_kg_.gpu_history())};
  if (options_.graphs == Graphs::off || std::exchange(half.key, key) != key) {
    half.graph = {};
    return all();
  }
  if (!half.graph.ready()) {
    const profile::Span span("capture of a graph", profile::Kind::phase);
    Arena& arena = kinds_[kind_].arena;
    const Arena::Mark begin = arena.mark();
    if (!half.graph.capture(stream_, all)) {
      constexpr int kEnough = 8;
      if (++failures_ == kEnough) {
        require(options_.graphs != Graphs::on,
                "option run.graphs = on: a step cannot be captured in a graph: ", half.graph.why(), "; use auto");
        log::info("steps run without CUDA graphs: a step cannot be captured: ", half.graph.why());
        options_.graphs = Graphs::off;
      }
      arena.rewind(begin);
      return all();
    }
    failures_ = 0;
  }
  const profile::Span span("launch of the graph", profile::Kind::phase);
  half.graph.launch(stream_);
  if (!std::exchange(logged_, true)) log::info("steps run on the GPU as graphs");
}

void KgatStep::end_step(Half& half, const KgatStepResult& open) {
  half.end.record(stream_);
  half.open = open;
}

std::optional<KgatStepResult> KgatStep::take(bool last) {
  Kind& kind = kinds_[kind_];
  Half& before = kind.halves[1 - kind.turn];
  Half& half = before.open || !last ? before : kind.halves[kind.turn];
  if (!half.open) return {};
  const profile::Span span("wait for the GPU", profile::Kind::phase);
  half.end.wait();
  KgatStepResult result = *std::exchange(half.open, {});
  const GpuOutcome& found = *half.gpu();
  result.sums = *half.sums();
  result.loss = mean_loss(result.sums, result.is_cf ? options_.cf_l2 : options_.kg_l2, result.samples);
  result.norm = found.norm;
  (result.is_cf ? update_cf_ : update_kg_)->count(found);
  return result;
}

}  // namespace lockstep
