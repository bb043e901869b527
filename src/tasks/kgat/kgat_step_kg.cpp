// The step of KgatStep on triples.

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "lockstep/ops/transr.hpp"
#include "lockstep/train/agreement.hpp"
#include "tasks/kgat/kgat_step.hpp"

namespace lockstep {

KgatStepResult KgatStep::step_kg(const KgBatch& batch, double lr, unsigned flags) {
  if (runs_on_gpu()) {
    start_kg(batch, 0, lr, flags);
    return *take(true);
  }
  KgatStepResult result;
  profile::Phase phase("triples", result.compute);
  Arena& arena = next_arena();
  const std::int64_t size = batch.count(), d = net_.arch().embed_dim, k = net_.arch().relation_dim;
  const auto chunks = std::ssize(batch.chunks);
  const DType dtype = net_.params().dtype();
  places_.clear();
  for (const std::int32_t use : batch.uses.use()) places_.push_back(batch.row_of_use(use));
  const auto [all_chunks, head, tail, other, nodes, relations, use_ptr, places, relation_chunks] =
      for_kernels(stream_, arena, batch.chunks, batch.head, batch.tail, batch.other, batch.rows(), batch.relations,
                  batch.uses.use_ptr(), places_, batch.relation_chunks);
  const ShardRange own = own_range(batch.rows());
  const auto own_nodes = nodes.subspan(own.begin, own.count());
  adam_kg_.catch_up(net_.embedding(), own_nodes);
  adam_kg_.catch_up(net_.translations(), relations);
  adam_kg_.catch_up(net_.matrices(), relations);
  fetch_embeddings({ops::RowSet::list(nodes), ops::RowSet::list(batch.rows())});

  const ChunkResults results = {.rows = allocate(arena, dtype, {3 * size, d}),
                                .relations = allocate(arena, dtype, {chunks, d * k + k}),
                                .sums = arena.host().array<ops::RankingSums>(chunks)};
  const bool spread = exchange_.partitioned();
  compute_chunks({all_chunks, head, tail, other},
                 spread ? shards_of(chunks, comm_.rank(), comm_.size()) : ShardRange{0, chunks}, results);
  phase.next("exchange", result.exchange);
  if (spread) share_chunks(batch, results);
  result.flags = flags_of_all(comm_, flags);
  phase.next("triples", result.compute);
  const Tensor flat = sum_chunks(arena, results, {use_ptr, places}, relation_chunks);
  result.norm = gradient_norm(flat, {{0, flat.size()}});

  Stream here;
  ops::sum_rankings(here, result.sums, nullptr, results.sums);
  result.loss = mean_loss(result.sums, options_.kg_l2, size);
  phase.next("update", result.update);
  if (!result.finite()) return result;
  const KgGradient& gradient = kg_gradient_;
  adam_kg_.begin_step(lr, clip_scale(result.norm, options_.clip_norm));
  adam_kg_.update(net_.embedding(), own_nodes, gradient.nodes.slice(own.begin, own.count()));
  adam_kg_.update(net_.matrices(), relations, gradient.matrices);
  adam_kg_.update(net_.translations(), relations, gradient.translations);
  embeddings_spread_ = spread;
  phase.end();
  return result;
}

void KgatStep::compute_chunks(const ops::RelationSamples& batch, ShardRange which, const ChunkResults& results) {
  const auto first = static_cast<std::size_t>(which.begin), count = static_cast<std::size_t>(which.count());
  const profile::Span span("transr");
  ops::RelationSamples samples = batch;
  samples.chunks = batch.chunks.subspan(first, count);
  ops::transr(stream_, samples, net_.embedding().value, net_.matrices().value, net_.translations().value,
              options_.kg_l2, std::ssize(batch.head),
              {.projected = {},
               .score = {},
               .drows = results.rows,
               .drelations = results.relations.slice(which.begin, which.count())},
              results.sums.subspan(first, count));
}

void KgatStep::share_chunks(const KgBatch& batch, const ChunkResults& results) {
  const auto all = std::ssize(batch.chunks);
  const auto first_row = [&](std::int64_t c) { return c == all ? results.rows.rows() : 3 * batch.chunks[c].first; };
  exchange_.share_chunks(results.rows, all, first_row, "triples' gradients of nodes");
  exchange_.share_chunks(results.relations, all, std::identity(), "triples' gradients of relations");

  exchange_.wait(steps_done());  // the losses are in memory that the host reads
  all_gather_parts(
      comm_, results.sums, [&](int r) { return shards_of(all, r, comm_.size()); }, "triples' losses");
}

Tensor KgatStep::sum_chunks(Arena& arena, const ChunkResults& results, const Uses& uses,
                            std::span<const std::int64_t> relation_chunks) {
  const profile::Span span("sum_node_rows", profile::Kind::backward);
  const std::int64_t d = net_.arch().embed_dim, k = net_.arch().relation_dim;
  const auto nodes = std::ssize(uses.ptr) - 1, relations = std::ssize(relation_chunks) - 1;
  const std::int64_t sizes[] = {nodes * d, relations * d * k, relations * k};
  const Tensor flat = allocate(arena, net_.params().dtype(), {sizes[0] + sizes[1] + sizes[2]});
  kg_gradient_ = {.nodes = flat.slice(0, sizes[0]).reshaped({nodes, d}),
                  .matrices = flat.slice(sizes[0], sizes[1]).reshaped({relations, d * k}),
                  .translations = flat.slice(sizes[0] + sizes[1], sizes[2]).reshaped({relations, k})};
  ops::sum_node_rows(stream_, kg_gradient_.nodes, results.rows, 0, uses.ptr, uses.place);
  ops::sum_node_rows(stream_, kg_gradient_.matrices, results.relations, 0, relation_chunks, {});
  ops::sum_node_rows(stream_, kg_gradient_.translations, results.relations, d * k, relation_chunks, {});
  return flat;
}

}  // namespace lockstep
