// The step of KgatStep on interactions.
#include <cmath>
#include <numeric>

#include "lockstep/base/profile.hpp"
#include "lockstep/train/agreement.hpp"
#include "tasks/kgat/kgat_step.hpp"

namespace lockstep {

KgatStepResult KgatStep::step_cf(const CfBatch& batch, std::int64_t number, double lr, unsigned flags) {
  if (runs_on_gpu()) {
    start_cf(batch, number, lr, flags);
    return *take(true);
  }
  KgatStepResult result;
  profile::Phase phase("interactions", result.compute);
  Arena& arena = next_arena();
  adam_kg_.flush();
  profile::Span placing("rows of the batch", profile::Kind::phase);
  rows_.build(graph_, net_.arch().layers(), batch.rows(),
              options_.mode == KgatMode::nested_rows ? options_.row_threshold : 0);
  rows_.place(stream_, arena);
  placing.end();
  const ops::RankedPairs pairs = batch.pairs();
  const auto [user, liked, other, use_ptr, use, nodes] =
      for_kernels(stream_, arena, pairs.user, pairs.liked, pairs.other, pairs.use_ptr, pairs.use, batch.rows());
  const KgatPropagation::Noise noise = {.message_dropout = options_.message_dropout,
                                        .node_dropout = options_.node_dropout,
                                        .seed = options_.seed,
                                        .step = static_cast<std::uint64_t>(number)};
  propagation_.begin(&noise);
  if (!shared_) fetch_embeddings(rows_.rows(0));
  propagation_.forward(rows_, exchange_);

  const DType dtype = net_.params().dtype();
  const Shape shape = {std::ssize(nodes), net_.arch().final_width()};
  const Tensor h = allocate(arena, dtype, shape);
  const ShardRange own = own_range(batch.rows()),
                   with_gradient = on_gpu() ? ShardRange{0, shape[0]} : own;  // the other gradients are not read
  const Tensor dh = allocate(arena, dtype, {with_gradient.count(), shape[1]});
  propagation_.gather(nodes, h);
  ops::RankingSums& sums = arena.host().array<ops::RankingSums>(1)[0];
  profile::Span loss("bpr");
  ops::bpr(stream_, arena, {user, liked, other, use_ptr, use}, h, options_.cf_l2,
           allocate(arena, dtype, {batch.count()}), dh, sums, nullptr, with_gradient.begin);
  loss.end();
  backward_cf(own, nodes, dh.slice(own.begin - with_gradient.begin, own.count()));
  result.flags = flags_of_all(comm_, flags);  // while a GPU works
  result.norm = norm_cf();
  result.sums = sums;  // complete, because the norm is
  result.loss = mean_loss(sums, options_.cf_l2, batch.count());
  phase.next("update", result.update);
  if (!result.finite()) return result;
  update_cf(lr, clip_scale(result.norm, options_.clip_norm));
  phase.end();
  return result;
}

void KgatStep::backward_cf(const ShardRange& own, std::span<const std::int32_t> nodes, const Tensor& dh) {
  const std::vector<std::int64_t> segments =
      by_segments_ ? bounds(own_segments()) : std::vector<std::int64_t>{0, graph_.nodes};
  const Tensor sums =
      by_segments_ ? segment_sums_->slice(0, std::ssize(segments) - 1) : gradient_.reshaped({1, gradient_.size()});
  propagation_.backward(rows_, exchange_, nodes.subspan(own.begin, own.count()), dh, segments, sums);
  if (by_segments_) sum_segments(sums);
}

void KgatStep::sum_segments(const Tensor& sums) {
  const profile::Span span("sum over segments", profile::Kind::phase);
  // One tree over all segments, independent of their owners. Sums of a GPU are added on the host.
  exchange_.wait(steps_done());
  visit_float(gradient_.dtype(), [&]<class T>() {
    const Tensor own = on_host(stream_, *arena_, sums);
    const std::span<T> total = on_gpu() ? arena_->host().array<T>(gradient_.size()) : gradient_.span<T>();
    std::vector<std::span<T>> local;
    for (std::int64_t s = 0; s < own.rows(); ++s) local.push_back(own.slice(s, 1).span<T>());
    if (exchange_.partitioned()) {
      tree_all_reduce<T>(comm_, exchange_.cut().segments(), local, total, "weights' gradients");
    } else {
      const std::vector<std::span<const T>> all(local.begin(), local.end());
      tree_sum<T>(all, 0, gradient_.size(), total);
    }
    if (on_gpu()) copy(stream_, gradient_, Tensor::of(total.data(), gradient_.shape()));
  });
}

double KgatStep::norm_cf() const {
  if (!by_segments_) return gradient_norm(gradients_, {{0, gradients_->size()}});
  const NodeCut& cut = exchange_.cut();
  const ShardRange segments = own_segments();
  const auto square_norm = [](const Tensor& t) {
    const double norm = gradient_norm(t, {{0, t.size()}});
    return norm * norm;
  };
  std::vector<double> all(cut.segments());
#pragma omp parallel for schedule(dynamic) if (!on_gpu())
  for (std::int64_t s = segments.begin; s < segments.end; ++s)
    all[s] = square_norm(dx0_.slice(cut.begin(s), cut.begin(s + 1) - cut.begin(s)));
  const auto part = [&](int r) { return ShardRange{cut.first_segment(r), cut.first_segment(r + 1)}; };
  if (exchange_.partitioned()) all_gather_parts(comm_, std::span(all), part, "gradient norm");
  return std::sqrt(std::accumulate(all.begin(), all.end(), square_norm(gradient_)));
}

void KgatStep::update_cf(double lr, double scale) {
  adam_cf_.begin_step(lr, scale);
  const std::int64_t first = exchange_.first(), count = exchange_.last() - first;
  adam_cf_.update(net_.embedding(), first, count, dx0_.slice(first, count));
  for (const Param* p : aggregators_) {
    adam_cf_.update(*p, 0, p->shape[0], gradient_.slice(p->offset - net_.aggregators_begin(), p->shape.size()));
  }
  embeddings_spread_ = exchange_.partitioned();
}

}  // namespace lockstep
