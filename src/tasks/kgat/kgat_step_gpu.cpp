// The steps of KgatStep that run on a GPU alone.
#include <algorithm>
#include <cassert>

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

std::span<const ops::PoolDraw> span_of(const std::optional<ops::PoolDraw>& draw) {
  return draw ? std::span(&*draw, 1) : std::span<const ops::PoolDraw>{};
}

/// Makes a source refer to the copies on the GPU: of the draw, or of the columns.
template <class Table, int kColumns>
void place(ops::SampleSource<Table, kColumns>& source, std::span<const ops::PoolDraw> draw,
           const std::span<const std::int32_t> (&columns)[kColumns]) {
  source.draw = draw.empty() ? nullptr : draw.data();
  std::ranges::copy(columns, source.columns);
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
  start_cf({.count = batch.count(), .columns = {batch.user, batch.liked, batch.other}}, {}, number, lr, flags);
}

void KgatStep::start_cf(ops::PairSource source, const std::optional<ops::PoolDraw>& draw, std::int64_t number,
                        double lr, unsigned flags) {
  const auto [half, open] = next_half(0);
  if (open == 0) adam_kg_.flush();  // nothing is deferred by steps on interactions
  Arena& arena = kinds_[0].arena;
  const std::int64_t size = source.count;
  GpuStepRecord next = {.step = static_cast<std::uint64_t>(number), .samples = size};
  update_cf_->describe(next, lr, {}, open);
  const Report report;
  Staged staged;
  const auto [record, reports, draws, user, liked, other] =
      stage(staged, arena, std::span<const GpuStepRecord>(&next, 1), std::span<const Report>(&report, 1), span_of(draw),
            source.columns[0], source.columns[1], source.columns[2]);
  place(source, draws, {user, liked, other});
  run(size, draw ? source.table.pool.data() : nullptr, staged, [&, half = half, record = record, reports = reports] {
    const ops::PairBatch batch = ops::pair_batch(stream_, arena, source, graph_.nodes);
    // Rows that are added to the last layer have gradient 0.
    rows_.build_placed(graph_, net_.arch().layers(), batch.listed, batch.bits);
    const KgatPropagation::Noise noise = {.message_dropout = options_.message_dropout,
                                          .node_dropout = options_.node_dropout,
                                          .seed = options_.seed,
                                          .step_on_gpu = &record.data()->step};
    propagation_.begin(&noise);
    propagation_.forward(rows_, exchange_);
    const DType dtype = net_.params().dtype();
    const Shape shape = {std::ssize(batch.rows), net_.arch().final_width()};
    const Tensor h = allocate(arena, dtype, shape), dh = allocate(arena, dtype, shape);
    propagation_.gather(batch.rows, h);
    profile::Span loss("bpr");
    ops::bpr(stream_, arena, batch.pairs, h, options_.cf_l2, allocate(arena, dtype, {size}), dh, sums_of(reports),
             half->sums());
    loss.end();
    backward_cf({0, shape[0]}, batch.rows, dh);
    update_cf_->close(stream_, gradients_, reports_of(reports), record.data(), half->gpu(), nullptr);
  });
  end_step(*half, {.step = number, .is_cf = true, .flags = flags_of_all(comm_, flags), .samples = size});
}

void KgatStep::start_kg(const KgBatch& batch, std::int64_t number, double lr, unsigned flags) {
  start_kg({.count = batch.count(), .columns = {batch.head, batch.relation, batch.tail, batch.other}}, {}, number, lr,
           flags);
  const auto used = std::ssize(batch.relations);
  kg_gradient_.nodes = kg_gradient_.nodes.slice(0, std::ssize(batch.rows()));
  kg_gradient_.matrices = kg_gradient_.matrices.slice(0, used);
  kg_gradient_.translations = kg_gradient_.translations.slice(0, used);
}

void KgatStep::start_kg(ops::TripleSource source, const std::optional<ops::PoolDraw>& draw, std::int64_t number,
                        double lr, unsigned flags) {
  const auto [half, open] = next_half(1);
  Arena& arena = kinds_[1].arena;
  const std::int64_t size = source.count, d = net_.arch().embed_dim, k = net_.arch().relation_dim,
                     elements = 3 * size * d + std::min(size, graph_.relations) * (d * k + k);
  if (elements != kg_elements_) {
    assert(open == 0);
    update_kg_.emplace(net_.params(), &adam_kg_, std::vector<FlatRange>{{0, elements}},
                       GpuUpdate::Options{.clip_norm = options_.clip_norm});
    kg_elements_ = elements;
    ++kg_updates_;
  }
  GpuStepRecord next = {.step = static_cast<std::uint64_t>(number), .samples = size};
  update_kg_->describe(next, lr, {}, open);
  const LazyNow lazy = adam_kg_.describe(lr, open);
  const Report report;
  Staged staged;
  const auto [record, reports, now, draws, head, relation, tail, other] =
      stage(staged, arena, std::span<const GpuStepRecord>(&next, 1), std::span<const Report>(&report, 1),
            std::span<const LazyNow>(&lazy, 1), span_of(draw), source.columns[0], source.columns[1], source.columns[2],
            source.columns[3]);
  place(source, draws, {head, relation, tail, other});
  run(size, draw ? source.table.pool.data() : nullptr, staged,
      [&, half = half, record = record, reports = reports, now = now] {
        const ops::TripleBatch batch = ops::triple_batch(stream_, arena, source, graph_.relations, KgBatch::kChunk);
        RowsNow tables[] = {{&net_.embedding(), batch.rows},
                            {&net_.matrices(), batch.relations},
                            {&net_.translations(), batch.relations}};
        adam_kg_.enqueue_catch_up(tables, now.data());
        const DType dtype = net_.params().dtype();
        const auto chunks = std::ssize(batch.samples.chunks);
        const auto sums = arena.array<ops::RankingSums>(chunks);
        const ChunkResults results = {.rows = allocate(arena, dtype, {std::ssize(batch.rows), d}),
                                      .relations = allocate(arena, dtype, {chunks, d * k + k}),
                                      .sums = sums};
        compute_chunks(batch.samples, {0, chunks}, results);
        ops::sum_rankings(stream_, sums_of(reports), half->sums(), sums);
        const Tensor flat = sum_chunks(arena, results, {batch.ptr, batch.places}, batch.relation_chunks);
        half->kg_gradient = kg_gradient_;
        tables[0].gradient = kg_gradient_.nodes;
        tables[1].gradient = kg_gradient_.matrices;
        tables[2].gradient = kg_gradient_.translations;
        update_kg_->decide(stream_, flat, reports_of(reports), record.data(), half->gpu());
        adam_kg_.enqueue_update(tables, now.data(), update_kg_->now());
      });
  kg_gradient_ = half->kg_gradient;
  end_step(*half, {.step = number, .is_cf = false, .flags = flags_of_all(comm_, flags), .samples = size});
}

void KgatStep::run(std::int64_t size, const void* drawn_from, const Staged& staged,
                   const std::function<void()>& enqueue) {
  const auto number = [](const void* p) { return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(p)); };
  Kind& kind = kinds_[kind_];
  const Arena::Mark begin = kind.arena.mark();
  const auto all = [&] {
    kind.arena.rewind(begin);  // of a capture that failed
    staged.copy(stream_);
    enqueue();
  };
  const GraphReplay::Key key = {size,
                                number(drawn_from),
                                number(staged.on_gpu),
                                number(staged.pinned),
                                number(adam_kg_.gpu_history()),
                                kind_ == 0 ? 0 : kg_updates_};
  graphs_->run(2 * kind_ + kind.turn, key, {.call_by_call = [&](bool) { all(); }, .enqueue = [&](Arena*) { all(); }});
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
