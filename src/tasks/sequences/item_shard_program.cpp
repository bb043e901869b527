#include "tasks/sequences/item_shard_program.hpp"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <numeric>
#include <utility>

#include "lockstep/base/profile.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/device/host_memory.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/embedding.hpp"
#include "lockstep/ops/item_softmax.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"
#include "lockstep/step/step_extras.hpp"
#include "lockstep/train/sharded_program.hpp"
#include "lockstep/train/step_rows.hpp"

namespace lockstep {

namespace {

/// Runs work(i, thread) for i in [0, n) on all threads. Rethrows the first exception.
void for_each(int threads, std::int64_t n, const auto& work) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
  for (std::int64_t i = 0; i < n; ++i) {
    try {
      work(i, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(item_shard_error)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

template <class T>
class ItemShardProgram final : public TrainingProgram {
 public:
  ItemShardProgram(World& world, const RunConfig& config, SequenceTask& task, int threads)
      : TrainingProgram({}),
        world_(world),
        comm_(world.communicator()),
        config_(config),
        task_(task),
        net_(std::as_const(task).network()),
        table_(net_.item_table()),
        threads_(threads),
        samples_(task.size(Split::train)),
        batch_(checked_batch(config, world.size(), samples_)),
        shards_(config.shards()),
        mine_(shards_of(shards_, comm_.rank(), comm_.size())),
        items_{.rows = table_.value.slice(1, task.data().n_items), .ids = {}, .bias = {}, .parts = shards_},
        own_(elements_of(comm_.rank())),
        rest_(trainable_ranges(task.params(), [this](const Param& p) { return &p != &table_; })),
        rest_begin_(rest_.front().begin),
        gradient_(kType, {task.params().flat_size()}),
        rows_(kType, {mine_.count(), kExtras + task.params().flat_size() - rest_begin_}),
        total_(kType, {kExtras + task.params().flat_size() - rest_begin_}),
        one_(kType, {}),
        token_(static_cast<std::size_t>(shards_) + 1),
        losses_(static_cast<std::size_t>(shards_)),
        targets_(static_cast<std::size_t>(mine_.count())),
        slot_(static_cast<std::size_t>(own_.count() / table_.shape.columns())),
        data_rows_(task.row_source(), [this](const TrainState& at, std::vector<std::int64_t>& rows) {
          const Shard batch = batch_at(at);
          for (std::int64_t shard = mine_.begin; shard < mine_.end; ++shard)
            task_.reads(samples_of(batch, shard), rows);
          return StepRows::Step{batch.count, batch.first + batch.count};
        }) {
    epoch_ = {.positions = samples_, .steps = (samples_ + batch_ - 1) / batch_};
    // The tape of a shard never adds to the table: its gradients need not be cleared there.
    task.params().at(table_.name).row_sparse = true;
    OptimizerOptions options = config.optim;
    options.lazy = false;  // every row of the table has a gradient
    optimizer_ = make_optimizer(options, task.params(), trainable_ranges(task.params()));
    std::vector<FlatRange> updated = rest_;
    updated.push_back(own_);
    optimizer_->update_only(updated);
    workers_.reserve(threads);
    for (int t = 0; t < threads; ++t) workers_.emplace_back(task.params());
    *one_->data<T>() = 1;
  }

  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override {
    const Shard batch = batch_at(state);
    data_rows_.fetch(state, samples_);
    StepResult result = {.advance = batch.count, .samples = batch.count};
    StepOutcome& outcome = result.outcome.emplace(StepOutcome{.step = state.step});
    if (std::exchange(gathered_, false)) release_states();
    profile::Phase phase("compute", result.compute);
    memory_.reset();
    compute_features(batch);
    compute_sums();
    for_each(threads_, mine_.count(), [&](std::int64_t p, int thread) { backward_items(p, workers_[thread]); });
    phase.next("reduce", result.reduce);
    std::vector<std::span<T>> parts;
    for (std::int64_t p = 0; p < mine_.count(); ++p) parts.push_back(part_df_.slice(p, 1).template span<T>());
    tree_all_reduce<T>(comm_, shards_, parts, df_.span<T>(), "features' gradient");
    double more = 0;
    phase.next("compute", more);
    backward_network(batch, flags);
    phase.next("update", result.update);
    const StepExtras sums = decode<T>(total_->data<T>());
    add_inputs();
    result.compute += more;
    outcome.loss = sums.loss;
    outcome.weight = sums.weight;
    outcome.flags = sums.flags;
    if (sums.weight > 0) {
      // The penalty is the same on all ranks; its gradient is added to the own rows, and to the rest.
      add_penalty(task_.params(), gradient_, sums.weight, false, own_);
      outcome.loss += sums.weight * add_penalty(task_.params(), gradient_, sums.weight, false,
                                                {rest_begin_, task_.params().flat_size()});
      outcome.norm = norm() / sums.weight;
      require_finite(world_, config_, task_.params(), gradient_, state, outcome.loss / sums.weight, outcome.norm);
      optimizer_->step(gradient_, lr, clip_scale(outcome.norm, config_.optim.clip_norm) / sums.weight, average);
      share_weights(average);
    }
    phase.end();
    return result;
  }

  std::optional<StepOutcome> settle(UpTo what) override {
    if (what == UpTo::optimizers && !std::exchange(gathered_, true))
      for_states([&](const Tensor& rows, int r) {
        comm_.broadcast(std::as_writable_bytes(rows.span<T>()), r, "optimizer's rows");
      });
    return {};
  }
  void resumed() override {
    gathered_ = false;
    release_states();
  }
  ProgramState state() override { return {{{"", optimizer_.get()}}}; }
  ProgramFacts facts() override {
    return {.backend = comm_.backend(),
            .lines = {{"batch", config_.batch_text(batch_, comm_.size())},
                      {"items", join("dist.items = shard: ", task_.data().n_items, " items, about ",
                                     task_.data().n_items / comm_.size(), " per rank")}}};
  }

 private:
  static constexpr DType kType = dtype_of<T>::value;
  /// The working memory of a thread.
  struct Worker {
    explicit Worker(const ParamStore& params) : gradients(params) {}
    Stream stream;
    Arena arena;
    Gradients gradients;
  };

  Shard batch_at(const TrainState& state) const {
    return {.seed = config_.run.seed,
            .epoch = state.epoch,
            .step = state.step,
            .first = state.position,
            .count = std::min(batch_, samples_ - state.position)};
  }
  Shard samples_of(const Shard& batch, std::int64_t shard) const { return part_of(batch, shard, shards_); }
  /// Elements of the flat vectors that part p, or rank r, owns.
  FlatRange elements(std::int64_t p) const { return task_.norm_ranges()[p]; }
  FlatRange elements_of(int rank) const {
    const ShardRange parts = shards_of(shards_, rank, comm_.size());
    return {elements(parts.begin).begin, elements(parts.end - 1).end};
  }
  /// The tokens of a shard.
  Tensor of_shard(const Tensor& all, std::int64_t shard) const { return all.slice(token_[shard], tokens_of(shard)); }
  std::int64_t tokens_of(std::int64_t shard) const {
    return token_[static_cast<std::size_t>(shard) + 1] - token_[shard];
  }
  std::span<const std::int32_t> of_shard(const std::vector<std::int32_t>& all, std::int64_t shard) const {
    return std::span(all).subspan(token_[shard], tokens_of(shard));
  }
  /// Gathers the values of each rank's tokens, `each` elements a token, into `all`, whose own part is filled.
  template <class V>
  void share_tokens(std::span<V> all, std::int64_t each, const char* what) {
    const auto at = [&](std::int64_t shard) { return token_[shard] * each; };
    const auto part = [&](int r) {
      const ShardRange of = shards_of(shards_, r, comm_.size());
      return ShardRange{at(of.begin), at(of.end)};
    };
    all_gather_parts(comm_, all, part, what);
  }

  void compute_features(const Shard& batch) {
    const std::int64_t columns = table_.shape.columns();
    // First the numbers of tokens: they give the position of each rank's own.
    std::vector<SequenceBatch> batches(mine_.count());
    std::vector<std::int64_t> counts(batches.size());
    for (std::size_t i = 0; i < batches.size(); ++i) {
      batches[i] = task_.batch(memory_, samples_of(batch, mine_.begin + static_cast<std::int64_t>(i)));
      counts[i] = batches[i].tokens();
      targets_[i] = static_cast<double>(batches[i].targets);
    }
    const Gathered all = comm_.all_gather(std::as_bytes(std::span(counts)), "numbers of tokens");
    token_[0] = 0;
    std::copy_n(all.bytes.data(), all.bytes.size(), reinterpret_cast<std::byte*>(token_.data() + 1));
    std::partial_sum(token_.begin(), token_.end(), token_.begin());
    const std::int64_t tokens = token_.back();
    input_.resize(tokens);
    pos_.resize(tokens);
    for (Tensor* t : {&f_, &df_, &dx_}) *t = allocate(memory_, kType, {tokens, columns});
    for (Tensor* t : {&lse_, &sum_, &slope_}) *t = allocate(memory_, kType, {tokens});
    part_sums_ = allocate(memory_, kType, {shards_, 2, tokens});
    part_df_ = allocate(memory_, kType, {mine_.count(), tokens, columns});

    for_each(threads_, mine_.count(), [&](std::int64_t i, int thread) {
      Worker& worker = workers_[thread];
      const SequenceBatch& b = batches[i];
      const std::int64_t shard = mine_.begin + i, first = token_[shard];
      if (b.tokens() == 0) return;
      std::ranges::copy(b.item.span<std::int32_t>(), input_.begin() + first);
      std::ranges::copy(b.pos.span<std::int32_t>(), pos_.begin() + first);
      worker.arena.reset();
      Tape tape(worker.stream, worker.arena, kType, Tape::Mode::forward);
      const Var f = net_.features(
          tape, b, {.training = true, .seed = batch.seed, .step = static_cast<std::uint64_t>(batch.step)});
      copy(worker.stream, of_shard(f_, shard), f.value());
    });
    share_tokens(std::span(input_), 1, "inputs");
    share_tokens(std::span(pos_), 1, "targets");
    share_tokens(f_.span<T>(), columns, "features");

    // The own rows that are an input or a target.
    std::ranges::fill(slot_, 0);
    slots_ = 0;
    const std::int64_t first_row = (own_.begin - table_.offset) / columns;
    for (const std::vector<std::int32_t>* rows : {&input_, &pos_})
      for (const std::int32_t item : *rows) {
        const std::int64_t at = item - first_row;
        if (item == 0 || at < 0 || at >= std::ssize(slot_)) continue;
        if (std::int32_t& slot = slot_[at]; slot == 0) slot = static_cast<std::int32_t>(++slots_);
      }
    touched_ = allocate(memory_, kType, {1 + slots_ * shards_, columns});
  }

  void compute_sums() {
    const std::int64_t tokens = f_.rows();
    const auto for_tokens = [&](const auto& work) {
      for_each(threads_, shards_, [&](std::int64_t shard, int thread) {
        if (tokens_of(shard) > 0) work(shard, workers_[thread]);
      });
    };
    for_tokens([&](std::int64_t shard, Worker& worker) {
      ops::row_scores(worker.stream, of_shard(slope_, shard).reshaped({tokens_of(shard), 1}), of_shard(f_, shard),
                      table_.value, of_shard(pos_, shard));
    });
    const auto sums = [&](std::int64_t part, std::int64_t which, std::int64_t shard) {
      return of_shard(part_sums_.slice(part, 1).reshaped({2, tokens}).slice(which, 1).reshaped({tokens}), shard);
    };
    for_each(threads_, mine_.count() * shards_, [&](std::int64_t i, int thread) {
      const std::int64_t p = mine_.begin + i / shards_, shard = i % shards_;
      const ops::SoftmaxCandidates part = items_.part(p);
      if (tokens_of(shard) == 0 || part.rows.rows() == 0) return;
      Worker& worker = workers_[thread];
      worker.arena.reset();
      const Tensor scratch = allocate(
          worker.arena, kType, {ops::softmax_scratch({}, false, tokens_of(shard), part.rows.rows(), f_.columns())});
      ops::softmax_part(worker.stream, sums(p, 0, shard), sums(p, 1, shard), of_shard(slope_, shard), scratch,
                        of_shard(f_, shard), part, of_shard(pos_, shard));
    });
    const auto part = [&](int r) {
      const ShardRange of = shards_of(shards_, r, comm_.size());
      return ShardRange{2 * tokens * of.begin, 2 * tokens * of.end};
    };
    all_gather_parts(comm_, part_sums_.span<T>(), part, "sums of exponentials");

    for_tokens([&](std::int64_t shard, Worker&) {
      const Tensor lse = of_shard(lse_, shard), sum = of_shard(sum_, shard), next = of_shard(slope_, shard);
      ops::softmax_begin(lse, sum, next);
      for (std::int64_t p = 0; p < shards_; ++p)
        if (items_.part_begin(p + 1) > items_.part_begin(p))
          ops::softmax_add(lse, sum, sums(p, 0, shard), sums(p, 1, shard), of_shard(pos_, shard));
      losses_[shard] = ops::softmax_end(lse, sum, next, of_shard(pos_, shard));
    });
  }

  void backward_items(std::int64_t own_part, Worker& worker) {
    const Stream& stream = worker.stream;
    const std::int64_t p = mine_.begin + own_part, columns = f_.columns();
    const ops::SoftmaxCandidates part = items_.part(p);
    const Tensor df = part_df_.slice(own_part, 1).reshaped(f_.shape());
    if (part.rows.rows() == 0) return fill_zero(stream, df);
    const std::int64_t first_row = (own_.begin - table_.offset) / columns;
    worker.arena.reset();
    std::int64_t longest = 0;
    for (std::int64_t s = 0; s < shards_; ++s) longest = std::max(longest, tokens_of(s));
    const Tensor scratch =
        allocate(worker.arena, kType, {ops::softmax_scratch({}, false, longest, part.rows.rows(), columns)});
    const std::int64_t levels = std::bit_width(static_cast<std::uint64_t>(shards_));
    const Tensor tree = allocate(worker.arena, kType, {levels, ops::kSoftmaxTile, columns});
    for (std::int64_t j = 0; j < part.rows.rows(); j += ops::kSoftmaxTile) {
      const std::int64_t rows = std::min(ops::kSoftmaxTile, part.rows.rows() - j);
      const ops::SoftmaxCandidates tile = {
          .rows = part.rows.slice(j, rows), .ids = {}, .bias = {}, .first = part.first + j};
      const auto vector = [&](std::int64_t i) {
        return tree.slice(i, 1).reshaped({ops::kSoftmaxTile, columns}).slice(0, rows);
      };
      const std::int64_t row = 1 + tile.first - first_row;  // of the own rows
      std::int64_t used = 0;
      for (std::int64_t s = 0; s < shards_; ++s) {
        const Tensor drows = vector(used++);
        fill_zero(stream, drows);
        if (tokens_of(s) > 0)
          ops::softmax_part_backward(worker.stream, {of_shard(df, s), j > 0}, {drows, true}, one_, of_shard(lse_, s),
                                     scratch, of_shard(f_, s), tile, of_shard(pos_, s));
        for (std::int64_t i = 0; i < rows; ++i)
          if (const std::int64_t slot = slot_[row + i]; slot > 0)
            copy(stream, touched_.slice(1 + (slot - 1) * shards_ + s, 1), drows.slice(i, 1));
        for (std::int64_t n = s + 1; n % 2 == 0; n /= 2, --used)
          ops::add(worker.stream, vector(used - 2), vector(used - 2), vector(used - 1));
      }
      copy(stream, gradient_->slice(own_.begin + row * columns, rows * columns), vector(0).reshaped({rows * columns}));
    }
  }

  void backward_network(const Shard& batch, unsigned flags) {
    std::vector<std::span<T>> local;
    for (std::int64_t i = 0; i < mine_.count(); ++i) local.push_back(rows_->slice(i, 1).template span<T>());
    for_each(threads_, mine_.count(), [&](std::int64_t i, int thread) {
      const std::span<T> row = local[i];
      const std::int64_t shard = mine_.begin + i;
      Worker& worker = workers_[thread];
      worker.gradients.zero();
      StepExtras extras = {.flags = flags};
      if (tokens_of(shard) > 0) {
        extras.loss = static_cast<double>(static_cast<T>(losses_[shard]));
        extras.weight = targets_[i];
        worker.arena.reset();
        Tape tape(worker.stream, worker.arena, kType, Tape::Mode::train, &worker.gradients);
        const SequenceBatch b = task_.batch(tape.host_arena(), samples_of(batch, shard));
        Var inputs;
        const Var f = net_.features(
            tape, b, {.training = true, .seed = batch.seed, .step = static_cast<std::uint64_t>(batch.step)}, nullptr,
            &inputs);
        const Tensor df = of_shard(df_, shard), slopes = of_shard(slope_, shard).reshaped({1, tokens_of(shard)});
        ops::sampled_cross_entropy_backward(worker.stream, {df, true}, {}, one_, slopes, of_shard(f_, shard),
                                            table_.value, of_shard(pos_, shard), {});
        tape.backward(f, df);
        copy(worker.stream, of_shard(dx_, shard), inputs.grad());
      }
      encode<T>(extras, row.data());
      std::ranges::copy(worker.gradients.flat().template span<T>().subspan(rest_begin_), row.begin() + kExtras);
    });
    tree_all_reduce<T>(comm_, shards_, local, total_->span<T>(), "gradient of the network");
    std::ranges::copy(total_->span<T>().subspan(kExtras), gradient_->data<T>() + rest_begin_);
    share_tokens(dx_.span<T>(), f_.columns(), "inputs' gradient");
  }

  void add_inputs() {
    const std::int64_t columns = f_.columns(), first_row = (own_.begin - table_.offset) / columns;
    // Row 0 belongs to no item, so nothing overwrites the penalty that the previous step added to it.
    fill_zero(workers_.front().stream, gradient_->slice(table_.offset, columns));
    for_each(threads_, shards_, [&](std::int64_t shard, int thread) {
      if (tokens_of(shard) == 0) return;
      const auto places = [&](std::span<const std::int32_t> rows) {
        std::vector<std::int32_t> at;
        for (const std::int32_t item : rows) {
          const bool own = item > 0 && item >= first_row && item - first_row < std::ssize(slot_);
          at.push_back(own ? static_cast<std::int32_t>(1 + (slot_[item - first_row] - 1) * shards_ + shard) : 0);
        }
        return at;
      };
      Worker& worker = workers_[thread];
      const Tensor slopes = of_shard(slope_, shard).reshaped({1, tokens_of(shard)});
      ops::sampled_cross_entropy_backward(worker.stream, {}, touched_, one_, slopes, of_shard(f_, shard), touched_,
                                          places(of_shard(pos_, shard)), {});
      ops::embedding_backward(worker.stream, touched_, of_shard(dx_, shard), places(of_shard(input_, shard)),
                              net_.input_scale(), 0);
    });
    for_each(threads_, std::ssize(slot_), [&](std::int64_t row, int) {
      const std::int64_t slot = slot_[row];
      if (slot == 0) return;
      std::vector<std::span<const T>> of_shards;
      for (std::int64_t s = 0; s < shards_; ++s)
        of_shards.push_back(touched_.slice(1 + (slot - 1) * shards_ + s, 1).template span<const T>());
      tree_sum<T>(of_shards, 0, columns, gradient_->slice(own_.begin + row * columns, columns).template span<T>());
    });
  }

  double norm() {
    const std::vector<FlatRange> ranges = task_.norm_ranges();
    const std::vector<FlatRange> own(ranges.begin() + mine_.begin, ranges.begin() + mine_.end);
    const std::vector<double> mine = chunk_squares(gradient_, own);
    const Gathered all = comm_.all_gather(std::as_bytes(std::span(mine)), "gradient norm");
    double sum = 0;
    for (const double chunk : values_of<double>(all.bytes)) sum += chunk;
    for (const double chunk : chunk_squares(gradient_, rest_)) sum += chunk;
    return std::sqrt(sum);
  }

  void share_weights(Ema* average) {
    const Tensor values = task_.params().values();
    for (int r = 0; r < comm_.size() && comm_.size() > 1; ++r) {
      const FlatRange rows = elements_of(r);
      const Tensor of_rank = values.slice(rows.begin, rows.count());
      comm_.broadcast(std::as_writable_bytes(of_rank.span<T>()), r, "item rows");
      if (average != nullptr && r != comm_.rank()) average->update(values, rows.begin, rows.end);
    }
  }

  /// Calls f(rows, rank) for each rank's rows of each of the optimizer's vectors of the table.
  void for_states(const auto& f) const {
    for (const NamedTensor& state : optimizer_->state()) {
      if (!state.name.ends_with("/" + table_.name)) continue;
      for (int r = 0; r < comm_.size() && comm_.size() > 1; ++r) {
        const FlatRange rows = elements_of(r);
        f(state.value.reshaped({state.value.size()}).slice(rows.begin - table_.offset, rows.count()), r);
      }
    }
  }

  /// Frees the memory of the rows of the optimizer's vectors that other ranks store.
  void release_states() const {
    for_states([&](const Tensor& rows, int r) {
      if (r != comm_.rank()) discard(rows.raw(), rows.size_bytes());
    });
  }

  World& world_;
  Communicator& comm_;
  const RunConfig& config_;
  SequenceTask& task_;
  const SasRec& net_;
  const Param& table_;
  const int threads_;
  const std::int64_t samples_, batch_, shards_;
  const ShardRange mine_;  ///< shards of the samples, and parts of the items
  const ops::SoftmaxCandidates items_;
  const FlatRange own_;          ///< elements of the own rows
  std::vector<FlatRange> rest_;  ///< elements of all other parameters
  bool gathered_ = false;        ///< whether this rank has all rows of the optimizer's vectors
  std::int64_t rest_begin_;      ///< the table comes first
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Worker> workers_;
  OwnedTensor gradient_;      ///< (flat_size); zero in other ranks' rows
  OwnedTensor rows_, total_;  ///< (own shards, kExtras + rest), their sum over all shards
  OwnedTensor one_;           ///< the derivative of a loss with respect to itself

  // A step
  std::vector<std::int64_t> token_;        ///< (shards + 1) first token of each shard
  std::vector<std::int32_t> input_, pos_;  ///< (M) items
  std::vector<double> losses_;             ///< per shard
  std::vector<double> targets_;            ///< per own shard
  Arena memory_;
  Tensor f_, df_, dx_;              ///< (M, C) features, their gradient, that of the inputs
  Tensor lse_, sum_, slope_;        ///< (M)
  Tensor part_sums_;                ///< (parts, 2, M) largest score and sum of exponentials
  Tensor part_df_;                  ///< (own parts, M, C)
  std::vector<std::int32_t> slot_;  ///< (own rows) 1 + index of the row in `touched_`, or 0
  std::int64_t slots_ = 0;
  StepRows data_rows_;
  Tensor touched_;  ///< (1 + slots shards, C) each shard's gradient of the rows that are inputs or targets
};

}  // namespace

void require_item_shards(const RunConfig& c, std::int64_t items, int ranks) {
  const auto ask = [](const Condition& condition, const auto&... parts) {
    require_usage(condition, "option dist.items = shard: ", parts...);
  };
  ask(c.run.device != "cuda", "runs on CPUs only; set run.device = cpu, or dist.items = replicate");
  ask(c.batch.accumulate == 1, "computes a batch at once, but batch.accumulate = ", c.batch.accumulate,
      "; set batch.accumulate = 1, or dist.items = replicate");
  ask(c.dist.compress == "none", "sends gradients in full precision, but dist.compress = ", c.dist.compress,
      "; set dist.compress = none, or dist.items = replicate");
  ask(std::has_single_bit(static_cast<std::uint64_t>(c.shards())) && c.shards() >= ranks, "dist.shards = ", c.shards(),
      " must be a power of two and at least the number of ranks, ", ranks);
  ask(items >= ranks, "the data set has ", items, " items for ", ranks,
      " ranks; start fewer ranks, or set dist.items = replicate");
}

std::unique_ptr<TrainingProgram> make_item_shard_program(World& world, const RunConfig& config, SequenceTask& task,
                                                         int threads) {
  require_item_shards(config, task.data().n_items, world.size());
  return visit_float(task.params().dtype(), [&]<class T>() -> std::unique_ptr<TrainingProgram> {
    return std::make_unique<ItemShardProgram<T>>(world, config, task, threads);
  });
}

}  // namespace lockstep
