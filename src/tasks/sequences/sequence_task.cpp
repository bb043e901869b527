#include "lockstep/tasks/sequences/sequence_task.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/permutation.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/data/gpu_copy.hpp"
#include "lockstep/data/names.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "tasks/sequences/item_shard_program.hpp"

namespace lockstep {
namespace {

/// Multiply-adds of a forward pass over all training windows.
double multiplications(const SasRecArch& a, const SequenceData& data) {
  const auto d = static_cast<double>(a.hidden), n = static_cast<double>(a.streams);
  double tokens = 0, pairs = 0;
  for (std::int64_t s = 0; s < data.size(Split::train); ++s) {
    const auto length = static_cast<double>(history_sample(data, data.user(Split::train, s)).targets(a.slots));
    tokens += length;
    pairs += length * (length + 1) / 2;
  }
  using Kind = ItemLoss::Kind;
  // Rows of the item table that a target is compared with.
  const auto scored = static_cast<double>(a.loss.kind == Kind::bce       ? 2
                                          : a.loss.kind == Kind::softmax ? a.items
                                                                         : 1 + a.loss.negatives);
  double per_token = (a.timed ? 5 : 6) * d * d;
  if (a.mhc == SasRecArch::Mhc::streams) per_token += 2 * (n + 2) * n * n * d;
  // Scores and weighted values; with times also those of the time tables, as in the formula.
  return static_cast<double>(a.blocks) * (tokens * per_token + pairs * (a.timed ? 4 : 2) * d) + scored * tokens * d;
}

/// "12 users WHO ('a', 'b', 'c' and 9 more)", with their ids in the raw data.
std::string users_text(const SequenceData& data, const std::vector<std::int32_t>& users, const std::string& who) {
  constexpr std::size_t kMost = 3;
  const std::vector<std::string> ids = SequenceNames::read(H5File::open(data.path)).users;
  const std::span<const std::int32_t> first = std::span(users).first(std::min(kMost, users.size()));
  return join(users.size(), users.size() == 1 ? " user" : " users", " ", who, " (",
              listed(first, ", ", [&](std::int32_t user) { return "'" + ids[user] + "'"; }),
              users.size() > kMost ? join(" and ", users.size() - kMost, " more") : "", ")");
}

double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

/// The target's rank among the candidates: how many of these have a greater score, and how many the same.
struct Rank {
  std::int64_t greater = 0, ties = 0, candidates = 0;

  template <class T>
  Rank(T target, std::span<const T> others) {
    for (const T score : others) {
      candidates += score != -std::numeric_limits<T>::infinity();
      greater += score > target;
      ties += score == target;
    }
  }
};

/// The binary cross-entropy of the target and the mean one of the candidates.
template <class T>
double cross_entropy(T target, std::span<const T> others, std::int64_t candidates) {
  double negative = 0;
  for (const T score : others)
    if (score != -std::numeric_limits<T>::infinity()) negative += softplus(static_cast<double>(score));
  return softplus(-static_cast<double>(target)) + (candidates > 0 ? negative / static_cast<double>(candidates) : 0);
}

}  // namespace

SequenceTask::SequenceTask(Options options, SequenceData data)
    : options_(std::move(options)),
      data_(std::move(data)),
      network_((options_.arch.items = data_.n_items, options_.arch), options_.dtype, options_.seed),
      counts_(data_.training_counts()) {
  require_usage(!network_.arch().timed || data_.has_time(), "model.kind = tisasrec: '", data_.path.string(),
                "' has no times; use model.kind = sasrec");
  choose_evaluated();
  if (network_.arch().loss.kind == ItemLoss::Kind::sampled_softmax)
    popular_ = PopularItems(counts_, network_.arch().loss.popularity, network_.arch().loss.negatives);
  flops_per_sample_ = 6 * multiplications(network_.arch(), data_) / static_cast<double>(data_.size(Split::train));
}

void SequenceTask::choose_evaluated() {
  const RankingOptions& ranking = options_.ranking;
  const std::int64_t samples = data_.size(Split::validation);  // those of the test split, too
  const auto user_of = [&](std::int64_t s) { return data_.user(Split::validation, s); };
  // Of each user the number of rivals, and whether the held-out items recur.
  std::vector<double> facts(3 * samples);
  const auto add = [&](std::int64_t s) {
    double* to = facts.data() + 3 * s;
    to[0] = static_cast<double>(rivals().count(user_of(s)));
    for (const Split split : {Split::validation, Split::test})
      to[static_cast<std::size_t>(split)] = ranking.repeats != Repeats::keep && data_.recurs(split, user_of(s));
  };
  data_.item.sum_over(samples, user_of, add, facts);

  for (const Split split : {Split::validation, Split::test}) {
    std::vector<std::int32_t> recurring, alone;
    std::int64_t few = 0;
    Evaluated& to = evaluated_[static_cast<std::size_t>(split)];
    for (std::int64_t s = 0; s < samples; ++s) {
      const double* of = facts.data() + 3 * s;
      const bool recurs = of[static_cast<std::size_t>(split)] != 0;
      (recurs ? recurring : of[0] == 0 ? alone : to.users).push_back(static_cast<std::int32_t>(user_of(s)));
      if (!recurs && of[0] > 0 && of[0] < static_cast<double>(Rivals::enough_for(ranking.candidates))) ++few;
    }
    std::string& notes = to.notes;
    if (!recurring.empty()) {
      notes = users_text(data_, recurring, "whose held-out item is in their history");
      require_data(ranking.repeats != Repeats::refuse, "evaluating '", data_.path.string(), "': ", notes,
                   "; set eval.repeats = drop to leave them out, or keep to rank known items too");
      notes = "; eval.repeats = drop (keep evaluates them) leaves out " + notes;
    }
    if (!alone.empty()) notes += "; left out: " + users_text(data_, alone, "without another item to rank");
    if (few > 0 && ranks_drawn())
      notes += join("; users with fewer than ", Rivals::enough_for(ranking.candidates),
                    " items to draw from, none of which is drawn twice: ", few);
    if (const std::int64_t untrained = untrained_items(); untrained > 0)
      notes += join("; items without a training interaction: ", untrained);
  }
}

std::int64_t SequenceTask::evaluated_user(Split split, std::int64_t sample) const {
  const std::vector<std::int32_t>& all = evaluated_[static_cast<std::size_t>(split)].users;
  const bool drawn = size(split) < std::ssize(all);
  return all[drawn ? Permutation(std::ssize(all), options_.seed, 0)(sample) : sample];
}

void SequenceTask::reads(const Shard& shard, std::vector<std::int64_t>& rows) const {
  const Permutation order(size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  for (std::int64_t b = 0; b < shard.count; ++b) rows.push_back(data_.user(Split::train, order(shard.first + b)));
}

std::int64_t SequenceTask::size(Split split) const {
  if (split == Split::train) return data_.size(split);
  const std::int64_t all = std::ssize(evaluated_[static_cast<std::size_t>(split)].users),
                     wanted = options_.ranking.users;
  return wanted == 0 ? all : std::min(all, wanted);
}

std::int64_t SequenceTask::samples_in_cache(const SasRecArch& arch) {
  const bool sampled = arch.loss.kind == ItemLoss::Kind::bce || arch.loss.kind == ItemLoss::Kind::gbce;
  return sampled ? std::max<std::int64_t>(1, 40000 / (arch.slots * arch.hidden)) : 0;
}

std::int64_t SequenceTask::least_tree_shard(const SasRecArch& arch) {
  // The exact softmax reads all items for each shard, and dist.items = shard divides them into as many parts.
  return arch.loss.kind == ItemLoss::Kind::softmax ? 0 : std::max<std::int64_t>(1, 128 / arch.slots);
}

SequenceBatch SequenceTask::batch(Arena& arena, const Shard& shard) const {
  const profile::Span span("batch", profile::Kind::phase);
  const ItemLoss& kind = network_.arch().loss;
  SequenceBatch batch = training_batch(arena, data_, network_.arch().window(), shard, kind.negatives_each());
  if (kind.kind == ItemLoss::Kind::sampled_softmax)
    popular_.draw(arena, shard.seed, shard.step, real_dtype(network_.params().storage()), batch);
  return batch;
}

void SequenceTask::move_to(Device device) {
  ShardTask::move_to(device);
  on_gpu_.reset();
  if (!device.is_cuda() || !data_.item.whole()) return;
  const bool timed = network_.arch().timed, negatives = network_.arch().loss.negatives_each() > 0;
  std::vector<ops::HistorySample> samples;
  for (std::int64_t s = 0; s < data_.size(Split::train); ++s)
    samples.push_back(history_sample(data_, data_.user(Split::train, s)));
  const auto items = data_.item.all().span<const std::int32_t>();
  const auto times = timed ? data_.time.all().span<const std::int64_t>() : std::span<const std::int64_t>();
  const std::span<const double> up_to = popular_.up_to(), biases = popular_.biases();
  const std::size_t bytes = std::span(samples).size_bytes() + (negatives ? 2 : 1) * items.size_bytes() +
                            times.size_bytes() + up_to.size_bytes() + biases.size_bytes();
  if (!may_copy_to_gpu(device, "the histories", bytes)) return;
  std::vector<std::int32_t> known;
  if (negatives) known.assign(items.begin(), items.end());
  for (const ops::HistorySample& sample : samples)
    if (negatives) std::sort(known.begin() + sample.first, known.begin() + sample.first + sample.items);
  on_gpu_ = {.samples = {std::move(samples), device},
             .items = {items, device},
             .known = {std::move(known), device},
             .times = {times, device},
             .up_to = {up_to, device},
             .biases = {biases, device}};
}

std::vector<FlatRange> SequenceTask::norm_ranges() {
  const std::int64_t parts = network_.item_parts(), columns = network_.arch().hidden;
  if (parts == 0) return ShardTask::norm_ranges();
  const Param& table = network_.item_table();
  std::vector<FlatRange> ranges;
  for (std::int64_t p = 0; p < parts; ++p) {
    const auto row = [&](std::int64_t at) {
      return table.offset + (at == 0 ? 0 : 1 + data_.n_items * at / parts) * columns;
    };
    ranges.push_back({row(p), row(p + 1)});
  }
  for (const FlatRange& rest : trainable_ranges(params(), [&](const Param& p) { return &p != &table; }))
    ranges.push_back(rest);
  return ranges;
}

std::unique_ptr<TrainingProgram> SequenceTask::make_program(World& world, const RunConfig& config, int threads) {
  const bool shard = options_.shard_items;
  if (network_.arch().loss.kind == ItemLoss::Kind::softmax && (shard || config.run.reproducible))
    network_.set_item_parts(config.shards());
  if (!shard) return ShardTask::make_program(world, config, threads);
  return make_item_shard_program(world, config, *this, threads);
}

RowCounts SequenceTask::count_rows(const Shard& shard, std::span<std::int64_t> each) const {
  return network_.arch().padded() ? RowCounts{} : count_windows(data_, network_.arch().window(), shard, each);
}

/// The host's draws for a training pass: a batch, or the inputs of the kernels that make one.
struct SequenceTask::Drawn : DrawnShard {
  ops::RowDraw samples;
  const SequenceBatch* batch = nullptr;
  RowCounts counts = {};
};

const DrawnShard& SequenceTask::draw(Arena& host, const Shard& shard) const {
  const Permutation order(size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  auto& drawn = *new (host.allocate(sizeof(Drawn))) Drawn{
      {.staged = true}, {.order = order, .seed = shard.seed, .first = shard.first, .count = shard.count}};
  if (on_gpu_ && shard.step_on_gpu != nullptr) {  // a graph may repeat the pass, and only kernels read the batch
    drawn.counts = shard.counts.rows > 0 ? shard.counts : count_windows(data_, network_.arch().window(), shard);
    drawn.weight = static_cast<double>(drawn.counts.targets);
    drawn.shape = {1};
    return drawn;
  }
  auto* batch = new (host.allocate(sizeof(SequenceBatch))) SequenceBatch(this->batch(host, shard));
  network_.prepare(host, *batch);
  drawn.batch = batch;
  drawn.weight = static_cast<double>(batch->targets);
  return drawn;
}

SequenceBatch SequenceTask::windows_on_gpu(Tape& tape, const Shard& shard, const Drawn& drawn) const {
  const SasRecArch& arch = network_.arch();
  const auto array = [&](DType dtype, Shape shape) { return tape.keep(shape, dtype); };
  SequenceBatch batch;
  batch.slots = arch.slots;
  batch.token_capacity = shard.token_capacity > 0 ? shard.token_capacity : drawn.counts.rows;
  batch.targets = drawn.counts.targets;
  batch.pairs = drawn.counts.pairs;
  const Shape tokens{batch.token_capacity}, samples{shard.count};
  batch.begin = array(DType::i64, {shard.count + 1});
  batch.user = array(DType::i64, samples);
  batch.item = array(DType::i32, tokens);
  batch.slot = array(DType::i32, tokens);
  batch.pos = array(DType::i32, tokens);
  batch.neg = array(DType::i32, {batch.token_capacity, arch.loss.negatives_each()});
  (arch.timed ? batch.time : batch.position) = array(arch.timed ? DType::i64 : DType::i32, tokens);
  if (arch.pad_mask == SasRecArch::PadMask::query) batch.first_query = array(DType::i64, samples);
  const ops::WindowRule rule = {.slots = arch.slots,
                                .padded = arch.padded(),
                                .step = static_cast<std::uint64_t>(shard.step),
                                .step_on_gpu = shard.step_on_gpu};
  ops::training_windows(tape.stream(),
                        {.begin = batch.begin,
                         .user = batch.user,
                         .item = batch.item,
                         .slot = batch.slot,
                         .pos = batch.pos,
                         .neg = batch.neg,
                         .time = batch.time,
                         .position = batch.position,
                         .first_query = batch.first_query},
                        {.samples = on_gpu_->samples.span(),
                         .items = on_gpu_->items.span(),
                         .times = on_gpu_->times.span(),
                         .known = on_gpu_->known.span(),
                         .n_items = data_.n_items},
                        rule, &drawn.samples);
  if (arch.loss.kind != ItemLoss::Kind::sampled_softmax) return batch;
  batch.candidates = array(DType::i32, {popular_.count()});
  batch.bias = array(tape.real_dtype(), {popular_.count()});
  ops::draw_candidates(tape.stream(), batch.candidates, batch.bias, on_gpu_->up_to.span(), on_gpu_->biases.span(),
                       shard.seed, rule);
  return batch;
}

SequenceBatch SequenceTask::batch(Tape& tape, const Shard& shard) const {
  if (shard.drawn == nullptr) return batch(tape.host_arena(), shard);
  const auto& drawn = static_cast<const Drawn&>(*shard.drawn);
  return drawn.batch != nullptr ? *drawn.batch : windows_on_gpu(tape, shard, drawn);
}

ShardLoss SequenceTask::loss(Tape& tape, const Shard& shard) const {
  const SequenceBatch batch = this->batch(tape, shard);
  const SasRecDraws draws = {.training = true,
                             .seed = shard.seed,
                             .step = static_cast<std::uint64_t>(shard.step),
                             .step_on_gpu = shard.step_on_gpu};
  const Var features = network_.features(tape, batch, draws);
  return {network_.loss(tape, features, batch), static_cast<double>(batch.targets)};
}

Tensor SequenceTask::states(Tape& tape, std::span<const UserHistory> histories) const {
  return network_.newest(tape, newest_batch(tape.host_arena(), network_.arch().window(), histories));
}

SequenceTask::Ranked SequenceTask::ranked(Tape& tape, Split split, std::int64_t first, std::int64_t count) const {
  const Tensor who = allocate(tape.host_arena(), DType::i64, {count});
  const std::span<std::int64_t> users = who.span<std::int64_t>();
  const std::int64_t drawn = ranks_drawn() ? options_.ranking.candidates : 0;
  const Tensor items = allocate(tape.host_arena(), DType::i32, {count, 1 + drawn});
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t user = evaluated_user(split, first + b);
    users[b] = user;
    const std::span<std::int32_t> row = items.slice(b, 1).span<std::int32_t>();
    row[0] = data_.target(split, user);
    if (drawn > 0) rivals().draw(user, row[0], options_.seed, row.subspan(1));
  }
  return {users, items};
}

void SequenceTask::add(const Ranked& ranked, const Tensor& scores, const Tensor& everything, double* sums) const {
  const RankingOptions& ranking = options_.ranking;
  visit_float(scores.dtype(), [&]<class T>() {
    constexpr T kLeftOut = -std::numeric_limits<T>::infinity();
    for (std::size_t b = 0; b < ranked.users.size(); ++b) {
      const auto at = static_cast<std::int64_t>(b);
      const std::int64_t who = ranked.users[b];
      const std::span<const std::int32_t> items = ranked.items.slice(at, 1).span<const std::int32_t>();
      const std::span<T> row = scores.slice(at, 1).span<T>();
      require(std::isfinite(row[0]), "evaluation: the score of user ", who + 1, " is ", row[0],
              ": the weights are not finite");
      for (std::size_t k = 1; k < row.size(); ++k)
        if (items[k] == 0) row[k] = kLeftOut;
      if (everything) {
        T* all = everything.slice(at, 1).data<T>();
        all[0] = all[items[0]] = kLeftOut;
        if (ranking.repeats != Repeats::keep)
          for (const std::int32_t item : data_.items(who, Seen::everything)) all[item] = kLeftOut;
      }
      double* to = sums + 4;
      const auto others = [&](bool all) -> std::span<const T> {
        return all ? everything.slice(at, 1).span<T>() : row.subspan(1);
      };
      const auto rank = [&](bool all) {
        const Rank user(row[0], others(all));
        for (const std::int64_t k : ranking.at) {
          if (user.greater < k) {
            to[0] += 1 / std::log2(static_cast<double>(user.greater + 2));
            to[1] += 1;
            to[2] += 1 / static_cast<double>(user.greater + 1);
          }
          to += 3;
        }
        return user;
      };
      const Rank user = rank(ranking.full);
      sums[0] += 1;
      sums[1] += static_cast<double>(user.candidates);
      sums[2] += static_cast<double>(user.ties);
      sums[3] += cross_entropy(row[0], others(ranking.full), user.candidates);
      if (ranking.both) rank(!ranking.full);
    }
  });
}

void SequenceTask::evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  const Ranked rows = ranked(tape, split, first, count);
  std::vector<UserHistory> histories;
  for (const std::int64_t user : rows.users) histories.push_back(data_.history(user, seen_before(split)));
  const Tensor features = states(tape, histories);
  const Tensor there = tape.keep(rows.items.shape(), tape.real_dtype());
  ops::row_scores(tape.stream(), there, features, tape.value(network_.item_table()), rows.items.span<std::int32_t>());
  const Tensor scores = on_host(tape.stream(), tape.arena(), there);
  Tensor everything;
  if (ranks_all()) {
    const Tensor all = tape.keep({count, data_.n_items + 1}, tape.real_dtype());
    ops::gemm_nt(tape.stream(), {all}, features, tape.value(network_.item_table()));
    everything = on_host(tape.stream(), tape.arena(), all);
  }
  add(rows, scores, everything, sums);
}

std::vector<Baseline> SequenceTask::baselines() const {
  const std::size_t items = counts_.size();
  const auto popular = indices_by<std::int32_t>(
      std::ssize(counts_), [&](std::int32_t item) { return counts_[item]; }, std::greater<>());
  std::vector<double> score(items);  // distinct, so that nothing ties with the target
  for (std::size_t place = 0; place < items; ++place) score[popular[place]] = -static_cast<double>(place);
  const auto evaluate = [this, score = std::move(score)](Tape& tape, Split split, std::int64_t first,
                                                         std::int64_t count, double* sums) {
    const Ranked rows = ranked(tape, split, first, count);
    const Tensor scores = allocate(tape.host_arena(), DType::f64, rows.items.shape());
    std::ranges::transform(rows.items.span<const std::int32_t>(), scores.data<double>(),
                           [&](std::int32_t item) { return score[item]; });
    Tensor everything;
    if (ranks_all()) {
      everything = allocate(tape.host_arena(), DType::f64, {count, data_.n_items + 1});
      for (std::int64_t b = 0; b < count; ++b) std::ranges::copy(score, everything.slice(b, 1).data<double>());
    }
    add(rows, scores, everything, sums);
    sums[3] = std::numeric_limits<double>::quiet_NaN();  // ranks have no cross-entropy
  };
  return {{"most popular items", evaluate}};
}

std::vector<Metric> SequenceTask::metrics(Split, const std::vector<double>& sums) const {
  std::vector<Metric> metrics;
  const double users = std::max(sums[0], 1.0);
  const double* from = sums.data() + 4;
  const auto add_ranking = [&](const std::string& prefix) {
    for (const std::int64_t k : options_.ranking.at)
      for (const char* metric : {"ndcg@", "hr@", "mrr@"})
        metrics.push_back({join(prefix, metric, k), *from++ / users, true});
  };
  add_ranking("");
  metrics.push_back({"loss", sums[3] / users, false});
  metrics.push_back({"ties", sums[2] / std::max(sums[1], 1.0), false});
  metrics.push_back({"candidates", sums[1] / users, false});
  if (options_.ranking.both) add_ranking(name_of(!options_.ranking.full) + ".");
  return metrics;
}

std::string SequenceTask::name_of(bool full) const {
  return full ? "full" : join("sampled-", options_.ranking.candidates);
}

std::string SequenceTask::protocol(Split split) const {
  const Evaluated& evaluated = evaluated_[static_cast<std::size_t>(split)];
  const std::size_t all = evaluated.users.size();
  const std::string drawn = size(split) < static_cast<std::int64_t>(all) ? join(" drawn from ", all) : "";
  const RankingOptions& ranking = options_.ranking;
  const std::int64_t rivals = ranking.full ? data_.n_items - 1 : std::min(ranking.candidates, data_.n_items - 1);
  return join(size(split), " users", drawn, ", ", name_of(ranking.full), " ranking of ", data_.n_items,
              " items, known items ", ranking.repeats == Repeats::keep ? "included" : "left out",
              std::ranges::max(ranking.at) > rivals ? join("; HR@K is 1 for K above ", rivals) : "", evaluated.notes);
}

std::vector<std::pair<std::string, std::string>> SequenceTask::facts() const {
  if (network_.arch().loss.kind != ItemLoss::Kind::bce) return {};
  return {
      {"loss",
       "bce compares a target with one drawn item; softmax ranks better on each data set that docs/your-own-data.md "
       "lists"}};
}

void SequenceTask::save(H5File& file) const {
  const SasRecArch& a = network_.arch();
  save_names(file, data_.item_names);
  file.create_group(kSequenceGroup);
  for (const auto& [key, value] : {std::pair<const char*, std::int64_t>{"timed", a.timed},
                                   {"items", a.items},
                                   {"maxlen", a.slots},
                                   {"hidden_units", a.hidden},
                                   {"num_heads", a.heads},
                                   {"num_blocks", a.blocks},
                                   {"time_span", a.time_span},
                                   {"ffn_residual", a.ffn_residual},
                                   {"mhc_expansion_rate", a.streams},
                                   {"mhc_sinkhorn_iter", a.sinkhorn_iterations}})
    file.set_attribute(kSequenceGroup, key, value);
  for (const auto& [key, value] :
       {std::pair{"norm", name(a.norm)}, {"pad_mask", name(a.pad_mask)}, {"mhc", name(a.mhc)}})
    file.set_attribute(kSequenceGroup, key, std::string(value));
  file.set_attribute(kSequenceGroup, "ln_eps", a.ln_eps);
}

}  // namespace lockstep
