// The steps of KgatSteps that rank triples.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/ops/transr.hpp"
#include "train/agreement.hpp"
#include "train/kgat_steps.hpp"

namespace lockstep {

KgatStepSums KgatSteps::rank_triples(const KgBatch& batch, double lr, unsigned flags) {
  Stopwatch watch;
  KgatStepSums result;
  arena_.reset();
  const std::int64_t size = batch.count(), d = net_.arch().embed_dim, k = net_.arch().relation_dim;
  const auto chunks = static_cast<std::int64_t>(batch.chunks.size());
  const DType dtype = net_.params().dtype();
  const ShardRange own = own_part(batch.rows());
  const auto own_nodes =
      std::span(batch.rows()).subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.count()));
  adam_kg_.catch_up(net_.embedding(), own_nodes);
  adam_kg_.catch_up(net_.translations(), batch.relations);
  adam_kg_.catch_up(net_.matrices(), batch.relations);
  find_embeddings(ops::RowSet::list(batch.rows()));

  chunk_sums_.assign(batch.chunks.size(), {});
  const ChunkResults results = {.rows = allocate(arena_, dtype, {3 * size, d}),
                                .relations = allocate(arena_, dtype, {chunks, d * k + k}),
                                .sums = chunk_sums_};
  const bool shared_out = exchange_.partitioned();
  rank_chunks(batch, shared_out ? shards_of(chunks, comm_.rank(), comm_.size()) : ShardRange{0, chunks}, results);
  result.compute = watch.restart();
  if (shared_out) gather_chunks(batch, results);
  flags = wishes_of_all(comm_, flags);
  result.exchange = watch.restart();
  sum_chunks(batch, results);

  for (const ops::RankingSums& s : chunk_sums_) result.sums.loss += s.loss, result.sums.half_square += s.half_square;
  result.loss = (result.sums.loss + options_.kg_l2 * result.sums.half_square) / static_cast<double>(size);
  const TriplesGradient& gradient = triples_gradient_;
  result.norm = std::sqrt(squares(gradient.nodes) + squares(gradient.matrices) + squares(gradient.translations));
  result.flags = flags;
  result.compute += watch.restart();
  if (!result.finite()) return result;
  adam_kg_.begin_step(lr, clip_scale(result.norm, options_.clip_norm));
  adam_kg_.update(net_.embedding(), own_nodes, gradient.nodes.slice(own.begin, own.count()));
  adam_kg_.update(net_.matrices(), batch.relations, gradient.matrices);
  adam_kg_.update(net_.translations(), batch.relations, gradient.translations);
  embeddings_spread_ = shared_out;
  result.update = watch.seconds();
  return result;
}

void KgatSteps::rank_chunks(const KgBatch& batch, ShardRange which, const ChunkResults& results) {
  const std::int64_t d = net_.arch().embed_dim, k = net_.arch().relation_dim;
  const DType dtype = net_.params().dtype();
  const Kgat& net = net_;
  while (static_cast<int>(arenas_.size()) < omp_get_max_threads()) arenas_.emplace_back();
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t c = which.begin; c < which.end; ++c) {
    const KgBatch::Chunk& chunk = batch.chunks[static_cast<std::size_t>(c)];
    Arena& scratch = arenas_[static_cast<std::size_t>(omp_get_thread_num())];
    scratch.reset();
    const Tensor relation = results.relations.slice(c, 1).reshaped({d * k + k});
    const ops::TransrResult out = {.projected = allocate(scratch, dtype, {3 * chunk.count, k}),
                                   .score = allocate(scratch, dtype, {2, chunk.count}),
                                   .drows = results.rows.slice(3 * chunk.first, 3 * chunk.count),
                                   .dmatrix = relation.slice(0, d * k).reshaped({d, k}),
                                   .dtranslation = relation.slice(d * k, k)};
    Stream stream;
    results.sums[static_cast<std::size_t>(c)] = ops::transr(
        stream, scratch, batch.samples(chunk), net.embedding().value,
        net.matrices().value.slice(chunk.relation, 1).reshaped({d, k}),
        net.translations().value.slice(chunk.relation, 1).reshaped({k}), options_.kg_l2, batch.count(), out);
  }
}

void KgatSteps::gather_chunks(const KgBatch& batch, const ChunkResults& results) {
  const auto all = static_cast<std::int64_t>(batch.chunks.size());
  const auto first_row = [&](std::int64_t c) {
    return c == all ? results.rows.rows() : 3 * batch.chunks[static_cast<std::size_t>(c)].first;
  };
  // Pieces of an array that lie in the order of the ranks: `at(c)` is where chunk c's begin.
  const auto gather = [&](std::span<std::byte> array, std::int64_t unit, const auto& at, const char* what) {
    std::vector<std::int64_t> sizes;
    for (int r = 0; r < comm_.size(); ++r) {
      const ShardRange of = shards_of(all, r, comm_.size());
      sizes.push_back((at(of.end) - at(of.begin)) * unit);
    }
    const ShardRange mine = shards_of(all, comm_.rank(), comm_.size());
    const auto part = array.subspan(static_cast<std::size_t>(at(mine.begin) * unit),
                                    static_cast<std::size_t>((at(mine.end) - at(mine.begin)) * unit));
    const std::vector<std::byte> given(part.begin(), part.end());
    comm_.all_gather_known(given, sizes, array, what);
  };
  const auto bytes_of = [](const Tensor& t) { return std::span(static_cast<std::byte*>(t.raw()), t.size_bytes()); };
  const auto itself = [](std::int64_t c) { return c; };
  const auto element = static_cast<std::int64_t>(size_bytes(results.rows.dtype()));
  gather(bytes_of(results.rows), results.rows.columns() * element, first_row, "triples' gradients of nodes");
  gather(bytes_of(results.relations), results.relations.columns() * element, itself, "triples' gradients of relations");
  gather(std::as_writable_bytes(results.sums), static_cast<std::int64_t>(sizeof(ops::RankingSums)), itself,
         "triples' losses");
}

/// A node's uses in the order of the batch; a relation's chunks in theirs.
void KgatSteps::sum_chunks(const KgBatch& batch, const ChunkResults& results) {
  const std::int64_t d = net_.arch().embed_dim, k = net_.arch().relation_dim;
  const DType dtype = net_.params().dtype();
  const auto nodes = static_cast<std::int64_t>(batch.rows().size()),
             relations = static_cast<std::int64_t>(batch.relations.size());
  TriplesGradient& gradient = triples_gradient_;
  gradient = {.nodes = allocate(arena_, dtype, {nodes, d}),
              .matrices = allocate(arena_, dtype, {relations, d * k}),
              .translations = allocate(arena_, dtype, {relations, k})};
  const RowUses& uses = batch.uses;
  visit_float(dtype, [&]<class T>() {
#pragma omp parallel
    {
#pragma omp for schedule(static) nowait
      for (std::int64_t n = 0; n < nodes; ++n) {
        T* sum = gradient.nodes.data<T>() + n * d;
        std::fill_n(sum, d, T{0});
        for (std::int64_t u = uses.use_ptr()[static_cast<std::size_t>(n)];
             u < uses.use_ptr()[static_cast<std::size_t>(n) + 1]; ++u) {
          const T* row = results.rows.data<const T>() + batch.row_of_use(uses.use()[static_cast<std::size_t>(u)]) * d;
          for (std::int64_t c = 0; c < d; ++c) sum[c] += row[c];
        }
      }
#pragma omp for schedule(dynamic)
      for (std::int64_t r = 0; r < relations; ++r) {
        T *matrix = gradient.matrices.data<T>() + r * d * k, *translation = gradient.translations.data<T>() + r * k;
        std::fill_n(matrix, d * k, T{0});
        std::fill_n(translation, k, T{0});
        for (std::int64_t c = batch.relation_chunks[static_cast<std::size_t>(r)];
             c < batch.relation_chunks[static_cast<std::size_t>(r) + 1]; ++c) {
          const T* from = results.relations.data<const T>() + c * (d * k + k);
          for (std::int64_t i = 0; i < d * k; ++i) matrix[i] += from[i];
          for (std::int64_t i = 0; i < k; ++i) translation[i] += from[d * k + i];
        }
      }
    }
  });
}

}  // namespace lockstep
