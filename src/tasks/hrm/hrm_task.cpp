#include "lockstep/tasks/hrm/hrm_task.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/data/gpu_copy.hpp"
#include "lockstep/data/names.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/ops/cast.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {
namespace {

HrmArch arch_for(HrmArch arch, const PuzzleData& data) {
  arch.seq_len = data.seq_len;
  arch.vocab = data.vocab_size;
  arch.identifiers = data.identifiers;
  return arch;
}

/// Upper ends of the bins of ratings.
constexpr std::int64_t kRatings[] = {0, 4, 9, 19, 49, 99};
constexpr std::int64_t kBins = std::size(kRatings) + 1;
std::int64_t bin_of(std::int32_t rating) {
  return std::lower_bound(std::begin(kRatings), std::end(kRatings), rating) - std::begin(kRatings);
}
std::string bin_name(std::int64_t bin) {
  const std::int64_t from = bin == 0 ? 0 : kRatings[bin - 1] + 1;
  if (bin + 1 == kBins) return std::to_string(from) + "-";
  return from == kRatings[bin] ? std::to_string(from) : join(from, "-", kRatings[bin]);
}

/// The sums of an evaluation; from kTables on rows, accuracy and exact answers per source, then per rating bin.
enum Sum { kRows, kAccuracy, kExact, kQHaltAccuracy, kSteps, kLmLoss, kQHaltLoss, kTables };

/// A copy of host values in the tape's memory, where operations can read them.
Tensor kept(Tape& t, std::span<const std::int32_t> values, Shape shape) {
  return Tensor::of(t.keep(values).data(), shape);
}

/// x in a dtype: x itself, or a copy in the tape's memory.
Tensor in_dtype(Tape& t, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = t.keep(x.shape(), dtype);
  ops::cast(t.stream(), y, x);
  return y;
}

double at(const Tensor& t, std::int64_t i) {
  return visit_float(t.dtype(), [&]<class T>() { return static_cast<double>(t.data<T>()[i]); });
}

}  // namespace

std::vector<Metric> score_metrics(const ops::HaltingScore& sum, double sequences, const std::string& prefix) {
  const double n = std::max(sum.count, 1.0);
  return {{prefix + "exact_accuracy", sum.exact / n, true},
          {prefix + "accuracy", sum.accuracy / n, true},
          {prefix + "q_halt_accuracy", sum.q_halt_accuracy / n, true},
          {prefix + "steps", sum.steps / n},
          {prefix + "lm_loss", sum.lm_loss / sequences},
          {prefix + "q_halt_loss", sum.q_halt_loss / sequences},
          {prefix + "q_continue_loss", sum.q_continue_loss / sequences}};
}

HrmTask::HrmTask(Options options, PuzzleData data)
    : options_(std::move(options)),
      data_(std::move(data)),
      network_(arch_for(options_.arch, data_), options_.dtype, options_.seed) {
  options_.tries.check(data_.task);
  if (options_.eval_segments == 0) options_.eval_segments = options_.loss.halt_max_steps;
  for (const auto& [parts, answered] : {std::pair{&data_.val, &answered_val_}, {&data_.test, &answered_test_}}) {
    std::int64_t example = 0;
    for (const PuzzlePart& part : *parts) {
      std::vector<double> unknown(part.examples());
      const auto check = [&](std::int64_t row) {
        const auto* labels = part.labels.row<std::uint8_t>(part.first + row);
        unknown[row] =
            std::all_of(labels, labels + data_.seq_len, [&](auto token) { return token == data_.ignore_label_id; });
      };
      if (data_.task == "arc")
        part.labels.sum_over(
            part.examples(), [&](std::int64_t row) { return part.first + row; }, check, unknown);
      for (const double none : unknown) {
        if (none == 0) answered->push_back(example);
        ++example;
      }
    }
  }
  if (!answered_test_.empty()) pictured_ = data_.fetch(std::array{sample_of(Split::test, 0)});
}

std::int64_t HrmTask::tests() const {
  std::int64_t examples = 0;
  for (const PuzzlePart& part : data_.test) examples += part.examples();
  return examples;
}

std::span<const std::int64_t> HrmTask::answered(Split split) const {
  return split == Split::validation && !data_.val.empty() ? answered_val_ : answered_test_;
}

std::int64_t HrmTask::size(Split split) const {
  if (split != Split::train) {
    const std::int64_t examples = std::ssize(answered(split));
    const bool limited = split == Split::validation && options_.eval_examples > 0;
    return limited ? std::min(options_.eval_examples, examples) : examples;
  }
  std::int64_t visits = 0;
  for (const PuzzlePart& part : data_.train) visits += options_.visits * part.groups();
  return visits;
}

std::int64_t HrmTask::least_shard(const HrmArch& arch) {
  // Products with fewer than 512 rows do not amortise the packing of their weights.
  return std::max<std::int64_t>(1, 512 / arch.length());
}

SampleWork HrmTask::work() const {
  const HrmArch& a = network_.arch();
  const double l = a.level_flops(a.l_layers), h = a.level_flops(a.one_network ? a.l_layers : a.h_layers);
  const auto n = static_cast<double>(a.h_cycles), m = static_cast<double>(a.l_cycles);
  const double calls = n * (m * l + h), inner = options_.loss.q_continue && options_.loss.halt_max_steps > 1 ? 2 : 1;
  return {inner * calls + 2 * ((a.last_cycle_gradient ? m : 1) * l + h)};
}

HrmCycles HrmTask::cycles_at(std::int64_t step) const {
  const double progress = static_cast<double>(step) / std::max(run_steps_, 1.0);
  const bool shallow = options_.depth_curriculum && progress < 0.6;
  return network_.arch().cycles(shallow ? (progress < 0.3 ? 1 : 2) : 3);
}

void HrmTask::begin_run(std::int64_t slots) {
  const HrmArch& a = network_.arch();
  sampler_.emplace(data_, options_.seed, options_.visits, slots);
  const Shape state{slots, a.length(), a.hidden}, cells{slots, a.seq_len};
  const Device device = params().device();
  const std::size_t report_bytes = 2 * static_cast<std::size_t>(slots) * sizeof(ops::HaltingScore);
  slots_.emplace(HrmSlots{.z_h = {options_.dtype, state, device},
                          .z_l = {options_.dtype, state, device},
                          .steps = {DType::i32, {slots}, device},
                          .halted = {DType::i32, {slots}, device},
                          .inputs = {DType::i32, cells, device},
                          .labels = {DType::i32, cells, device},
                          .identifiers = {DType::i32, {slots}, device},
                          .puzzle_gradient = {options_.dtype, {slots, a.puzzle_width()}, device},
                          .report = device.is_cuda() ? Buffer::pinned(report_bytes) : Buffer({}, report_bytes)});
  const HostView halted(slots_->halted, HostView::Access::write);
  for (std::int32_t& one : halted->span<std::int32_t>()) one = 1;

  tokens_.clear();
  if (!device.is_cuda() || !data_.train.front().inputs.whole()) return;
  std::int64_t bytes = 0;
  for (const PuzzlePart& part : data_.train) bytes += 2 * part.examples() * data_.seq_len;
  if (!may_copy_to_gpu(device, "the puzzles", static_cast<std::size_t>(bytes))) return;
  for (const PuzzlePart& part : data_.train)
    for (const RowArray* array : {&part.inputs, &part.labels})
      tokens_.emplace_back(array->all().slice(part.first, part.examples()).span<const std::uint8_t>(), device);
}

void HrmTask::check_slots() const {
  const auto within = [](const char* what, const Tensor& values, std::int32_t least, std::int64_t end) {
    const HostView host(values);
    for (std::int64_t i = 0; i < host->size(); ++i) {
      const std::int32_t value = host->data<std::int32_t>()[i];
      require_data(value >= least && value < end, "carried ", what, " of slot ", i / values.columns(), ": ", value,
                   " is out of range; the checkpoint does not fit the data");
    }
  };
  constexpr std::int32_t kAnyIgnored = std::numeric_limits<std::int32_t>::min();
  within("inputs", slots_->inputs, 0, data_.vocab_size);
  within("labels", slots_->labels, kAnyIgnored, data_.vocab_size);
  within("puzzle_identifiers", slots_->identifiers->reshaped({slots_->identifiers->size(), 1}), 0, data_.identifiers);
}

std::int64_t HrmTask::begin_epoch(std::int64_t epoch) {
  sampler_->begin(epoch);
  return sampler_->batches();
}

void HrmTask::read_batch(const Shard& shard, std::int64_t first, std::span<PuzzleExample> rows) const {
  sampler_->rows(shard.first / slots_->steps->size(), first, rows);
}

void HrmTask::reads(const Shard& shard, std::vector<std::int64_t>& rows) const {
  std::vector<PuzzleExample> examples(shard.count);
  read_batch(shard, shard.first % slots_->steps->size(), examples);
  for (const PuzzleExample& example : examples) rows.push_back(example.table_row());
}

ops::PuzzlePick HrmTask::pick(Arena& host, const PuzzleExample& example) const {
  const auto part = static_cast<std::size_t>(example.part - data_.train.data());
  const auto tokens = [&](const RowArray& array, std::size_t copy) {
    if (!tokens_.empty()) return tokens_[copy].span().data() + example.row * data_.seq_len;
    const auto* row = array.row<std::uint8_t>(example.table_row());
    if (!network_.params().device().is_cuda()) return row;
    const std::span<std::uint8_t> staged = host.array<std::uint8_t>(data_.seq_len);
    std::copy_n(row, staged.size(), staged.begin());
    return static_cast<const std::uint8_t*>(staged.data());
  };
  return {.inputs = tokens(example.part->inputs, 2 * part),
          .labels = tokens(example.part->labels, 2 * part + 1),
          .group = static_cast<std::uint64_t>(example.group),
          .variant = static_cast<std::uint64_t>(example.variant),
          .identifier = example.identifier};
}

std::int64_t HrmTask::least_steps(const Shard& shard, std::int64_t slot) const {
  const Philox draw(shard.seed, static_cast<std::uint64_t>(shard.step), "hrm.explore",
                    static_cast<std::uint64_t>(slot));
  if (draw.uniform(0) >= options_.loss.explore) return 0;
  return 2 + static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(options_.loss.halt_max_steps - 1), 1));
}

/// The host's draws for a training pass.
struct HrmTask::Batch : DrawnShard {
  std::span<ops::PuzzlePick> picks;
  std::span<std::int32_t> least;  ///< least_steps()
};

const DrawnShard& HrmTask::draw(Arena& host, const Shard& shard) const {
  // Halted slots start their row of the batch. Only the device knows which slots have halted, so the host picks all
  // rows.
  const profile::Span drawing("batch", profile::Kind::phase);
  const std::int64_t count = shard.count, first = shard.first % slots_->steps->size();
  const HrmCycles cycles = cycles_at(shard.step);
  // The step's parity selects the memory of its scores.
  const auto* batch = new (host.allocate(sizeof(Batch)))
      Batch{{.weight = static_cast<double>(count), .shape = {first, cycles.h, cycles.l, shard.step % 2}},
            host.array<ops::PuzzlePick>(count),
            host.array<std::int32_t>(count)};
  const std::span<PuzzleExample> rows = host.array<PuzzleExample>(count);
  read_batch(shard, first, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    batch->picks[i] = pick(host, rows[i]);
    batch->least[i] = options_.loss.halt_max_steps > 1
                          ? static_cast<std::int32_t>(least_steps(shard, first + static_cast<std::int64_t>(i)))
                          : 0;
  }
  return *batch;
}

ShardLoss HrmTask::loss(Tape& t, const Shard& shard) const {
  const HrmLoss& rule = options_.loss;
  const HrmSlots& s = *slots_;
  const std::int64_t slots = s.steps->size(), first = shard.first % slots, count = shard.count;
  const auto own = [&](const Tensor& rows) { return rows.slice(first, count); };
  const Tensor steps = own(s.steps), halted = own(s.halted);
  const ops::SequenceData data = {own(s.inputs), own(s.labels), own(s.identifiers)};
  // Between steps the states are in real_dtype(), which represents the tape's dtype exactly.
  const Tensor carried_h = own(s.z_h), carried_l = own(s.z_l);
  const Tensor z_h = in_dtype(t, carried_h, t.dtype()), z_l = in_dtype(t, carried_l, t.dtype());

  const auto& batch = samples_of<Batch>(t.host_arena(), shard);
  profile::Span starting("slots", profile::Kind::phase);
  network_.reset(t, z_h, z_l, halted);
  ops::begin_sequences(t.stream(), data, steps, halted, batch.picks,
                       {.variants = data_.online, .ignored = data_.ignore_label_id});
  starting.end();

  const Var x = network_.embed(t, data.inputs, {data.identifiers, own(s.puzzle_gradient)});
  const HrmCycles cycles = cycles_at(shard.step);
  const Hrm::Output out = network_.inner(t, z_h, z_l, x, cycles);
  Hrm::keep_states(t, carried_h, carried_l, out);
  Tensor next_q;
  if (rule.q_continue && rule.halt_max_steps > 1) next_q = network_.next_q(t, out, x, cycles);

  const profile::Span span("hrm_loss");
  const Tensor dlogits = t.keep(out.logits.shape(), t.real_dtype()), dq = t.keep(out.q.shape(), t.real_dtype());
  const auto scores = t.arena().array<ops::SequenceScore>(count);
  ops::sequence_loss(t.stream(), dlogits, scores, out.logits.value(), data.labels, rule.tokens);
  if (rule.decay != 1) ops::decay_sequences(t.stream(), dlogits, steps, rule.decay);
  Var loss = t.output({}, t.wants_grad({out.logits, out.q}), t.real_dtype());
  const Shape pairs{count, 2};
  const std::span<ops::HaltingScore> reports = s.scores(shard.step).subspan(first, count);
  ops::halting_loss(t.stream(), loss.value(), dq.reshaped(pairs), steps, halted, reports,
                    {.q = out.q.value().reshaped(pairs), .next_q = next_q, .scores = scores, .least = batch.least},
                    {.most_steps = rule.halt_max_steps, .q_continue = rule.q_continue, .decay = rule.decay});
  t.record("hrm_loss", loss, {}, [=, &t, logits = out.logits, halting = out.q] {
    ops::scale_by(t.stream(), t.grad_of(logits), dlogits, loss.grad(), 1);
    ops::scale_by(t.stream(), t.grad_of(halting), dq, loss.grad(), 1);
  });
  observe(t, shard, out, next_q);
  return {loss, static_cast<double>(count)};
}

Hrm::Output HrmTask::run_segments(Tape& t, std::span<const std::int32_t> inputs,
                                  std::span<const std::int32_t> identifiers, std::int64_t segments) const {
  const auto count = std::ssize(identifiers);
  return network_.segments(t, kept(t, inputs, {count, data_.seq_len}), {kept(t, identifiers, {count}), {}}, segments);
}

void HrmTask::solve(Tape& t, std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
                    std::int64_t segments, const SegmentObserver& see, const StateNoise& noise) const {
  const HrmArch& a = network_.arch();
  const auto count = std::ssize(identifiers);
  Tensor z_h = t.keep({count, a.length(), a.hidden}), z_l = t.keep(z_h.shape());
  network_.reset(t, z_h, z_l);
  if (noise) {
    const std::int64_t width = a.length() * a.hidden;
    for (const auto& [state, first] : {std::pair{&z_h, std::int64_t{0}}, {&z_l, width}}) {
      const Tensor values = allocate(t.host_arena(), t.real_dtype(), state->shape());
      visit_float(values.dtype(), [&, first = first]<class T>() {
        for (std::int64_t i = 0; i < values.size(); ++i)
          values.data<T>()[i] = static_cast<T>(noise(i / width, static_cast<std::uint64_t>(first + i % width)));
      });
      ops::add(t.stream(), *state, *state, to_tape(t, values));
    }
  }
  Tensor x = network_.embed(t, kept(t, inputs, {count, a.seq_len}), {kept(t, identifiers, {count}), {}}).value();
  const auto tokens = t.host_arena().array<std::int32_t>(count * a.seq_len);
  const auto rows = t.host_arena().array<std::int64_t>(count);  // of the puzzles in the batch
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  std::int64_t left = count;
  for (std::int64_t segment = 1; segment <= segments && left > 0; ++segment) {
    const ArenaScope scope(t.arena());
    const Hrm::Output out = network_.inner(t, z_h, z_l, t.constant(x));
    const Tensor seen = to_host(t, out.logits.value()), logits = to_host(t, out.q.value());
    most_likely(seen, tokens.first(left * a.seq_len));
    Hrm::keep_states(t, z_h, z_l, out);
    const std::int64_t before = std::exchange(left, 0);
    for (std::int64_t i = 0; i < before; ++i) {
      const auto answer = tokens.subspan(i * a.seq_len, a.seq_len);
      const std::int64_t row = rows[i];
      if (!see(row, segment, answer, at(logits, 2 * i), at(logits, 2 * i + 1))) continue;
      if (left < i)
        for (const Tensor* all : {&z_h, &z_l, &x}) copy(t.stream(), all->slice(left, 1), all->slice(i, 1));
      rows[left++] = row;
    }
    for (Tensor* all : {&z_h, &z_l, &x}) *all = all->slice(0, left);
  }
}

void HrmTask::most_likely(const Tensor& logits, std::span<std::int32_t> tokens) const {
  const std::int64_t vocab = network_.arch().vocab;
  visit_float(logits.dtype(), [&]<class T>() {
    const T* at = logits.data<T>();
    for (std::size_t i = 0; i < tokens.size(); ++i, at += vocab)
      tokens[i] = static_cast<std::int32_t>(std::max_element(at, at + vocab) - at);
  });
}

std::int64_t HrmTask::evaluation_block() const { return std::max<std::int64_t>(1, 1024 / network_.arch().length()); }

const std::vector<PuzzlePart>& HrmTask::held_out(Split split) const {
  return split == Split::validation && !data_.val.empty() ? data_.val : data_.test;
}

PuzzleExample HrmTask::example_of(Split split, std::int64_t index) const {
  for (const PuzzlePart& part : held_out(split)) {
    if (index < part.examples()) {
      const std::int64_t puzzle = part.puzzle_of(index);
      return {.part = &part,
              .row = index,
              .group = part.group_of(puzzle),
              .variant = 0,
              .identifier = part.puzzle_identifiers.data<std::int32_t>()[puzzle]};
    }
    index -= part.examples();
  }
  throw Error(Fault::internal, join(name(split), " example ", index, " beyond the last"));
}

PuzzleExample HrmTask::sample_of(Split split, std::int64_t index) const {
  return example_of(split, answered(split)[index]);
}

std::int64_t HrmTask::sum_count() const { return kTables + 3 * (std::ssize(data_.source_names) + kBins); }

void HrmTask::add(const PuzzleExample& example, std::int64_t labelled, std::int64_t correct, double* sums) const {
  if (labelled == 0) return;
  const double right = static_cast<double>(correct) / static_cast<double>(labelled);
  const bool exact = correct == labelled;
  sums[kRows] += 1;
  sums[kAccuracy] += right;
  sums[kExact] += exact;
  const auto tally = [&](std::int64_t row) {
    double* table = sums + kTables + 3 * row;
    table[0] += 1;
    table[1] += right;
    table[2] += exact;
  };
  const PuzzlePart& part = *example.part;
  if (part.source) tally(part.source.data<std::int32_t>()[example.group]);
  if (part.rating) tally(std::ssize(data_.source_names) + bin_of(part.rating.data<std::int32_t>()[example.group]));
}

std::vector<Baseline> HrmTask::baselines() const {
  constexpr std::int64_t kMostExamples = 100'000;  // of each set of training puzzles, spread over it
  const auto tokens = static_cast<std::size_t>(data_.vocab_size), width = static_cast<std::size_t>(data_.seq_len);
  std::vector<double> counts(tokens * tokens);  // (input, answer)
  std::vector<std::int32_t> inputs(width), labels(width);
  for (const PuzzlePart& part : data_.train) {
    const std::int64_t examples = part.examples(), used = std::min(examples, kMostExamples);
    std::vector<double> of_part(counts.size());
    const auto example = [&](std::int64_t i) { return PuzzleExample{.part = &part, .row = examples * i / used}; };
    const auto add = [&](std::int64_t i) {
      data_.read(example(i), inputs, labels);
      for (std::size_t cell = 0; cell < width; ++cell)
        if (labels[cell] >= 0)
          ++of_part[static_cast<std::size_t>(inputs[cell]) * tokens + static_cast<std::size_t>(labels[cell])];
    };
    part.inputs.sum_over(
        used, [&](std::int64_t i) { return example(i).table_row(); }, add, of_part);
    std::ranges::transform(counts, of_part, counts.begin(), std::plus());
  }
  std::vector<std::int32_t> answer;
  for (auto of = counts.begin(); of < counts.end(); of += data_.vocab_size) {
    const auto most = std::max_element(of, of + data_.vocab_size);
    answer.push_back(static_cast<std::int32_t>(*most > 0 ? most - of : std::ssize(answer)));
  }
  const auto evaluate = [this, answer = std::move(answer)](Tape&, Split split, std::int64_t first, std::int64_t count,
                                                           double* sums) {
    std::vector<std::int32_t> in(data_.seq_len), wanted(in.size());
    for (std::int64_t i = first; i < first + count; ++i) {
      const PuzzleExample example = sample_of(split, i);
      data_.read(example, in, wanted);
      std::int64_t labelled = 0, correct = 0;
      for (std::size_t cell = 0; cell < in.size(); ++cell) {
        labelled += wanted[cell] >= 0;
        correct += wanted[cell] == answer[in[cell]];
      }
      add(example, labelled, correct, sums);
    }
    for (const Sum network : {kQHaltAccuracy, kSteps, kLmLoss, kQHaltLoss})
      sums[network] = std::numeric_limits<double>::quiet_NaN();
  };
  return {{"most frequent answers", evaluate}};
}

void HrmTask::evaluate(Tape& t, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  const std::int64_t cells = data_.seq_len;
  std::vector<PuzzleExample> examples;
  for (std::int64_t i = first; i < first + count; ++i) examples.push_back(sample_of(split, i));
  const auto [inputs, labels, ids] = data_.read(examples);
  const Hrm::Output out = run_segments(t, inputs, ids, options_.eval_segments);
  const auto scores = t.host_arena().array<ops::SequenceScore>(count);
  ops::sequence_loss(t.stream(), {}, scores, out.logits.value(), kept(t, labels, {count, cells}), options_.loss.tokens);
  const Tensor q = to_host(t, out.q.value());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const ops::SequenceScore& score = scores[i];
    const double q_halt = at(q, 2 * static_cast<std::int64_t>(i));
    sums[kQHaltLoss] += ops::binary_cross_entropy(q_halt, score.exact() ? 1 : 0).loss;
    sums[kLmLoss] += score.loss;
    add(examples[i], score.labelled, score.correct, sums);
    if (score.labelled == 0) continue;
    sums[kQHaltAccuracy] += (q_halt >= 0) == score.exact();
    sums[kSteps] += static_cast<double>(options_.eval_segments);
  }
  if (data_.arc_names.empty()) return;
  const auto answers = t.host_arena().array<std::int32_t>(count * cells);
  most_likely(to_host(t, out.logits.value()), answers);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const auto row = [&](std::span<const std::int32_t> all) { return all.subspan(i * cells, cells); };
    const ArcBallot ballot = arc_ballot(data_.arc_names[ids[i]], row(inputs), row(labels), row(answers),
                                        at(q, 2 * static_cast<std::int64_t>(i)));
#pragma omp critical(hrm_ballots)
    ballots_.push_back(ballot);
  }
}

std::vector<Metric> HrmTask::metrics(Split, const std::vector<double>& sums) const {
  const double n = std::max(sums[kRows], 1.0);
  std::vector<Metric> out = {{"exact_accuracy", sums[kExact] / n, true},
                             {"loss", (sums[kLmLoss] + 0.5 * sums[kQHaltLoss]) / n},
                             {"accuracy", sums[kAccuracy] / n, true},
                             {"q_halt_accuracy", sums[kQHaltAccuracy] / n, true},
                             {"lm_loss", sums[kLmLoss] / n},
                             {"q_halt_loss", sums[kQHaltLoss] / n},
                             {"steps", sums[kSteps] / n}};
  const auto table = [&](std::int64_t row, const std::string& name) {
    const double* sum = sums.data() + kTables + 3 * row;
    if (sum[0] == 0) return;
    out.push_back({"exact." + name, sum[2] / sum[0], true});
    out.push_back({"accuracy." + name, sum[1] / sum[0], true});
    out.push_back({"puzzles." + name, sum[0], true});
  };
  const auto sources = std::ssize(data_.source_names);
  for (std::int64_t i = 0; i < sources; ++i) table(i, data_.source_names[i]);
  for (std::int64_t bin = 0; bin < kBins; ++bin) table(sources + bin, "rating." + bin_name(bin));
  return out;
}

std::string HrmTask::protocol(Split split) const {
  const Tries& t = options_.tries;
  std::string text = join(size(split), " puzzles, ", options_.eval_segments, " segments");
  if (t.count == 1) return text;
  return join(text, "; @K by up to ", t.count, " tries, combined by ", t.combine, ", that differ by ",
              t.noise > 0 ? join("noise ", t.noise) : "symmetries",
              options_.eval_halt ? ", until the network halts" : "");
}

void HrmTask::save(H5File& file) const {
  const HrmArch& a = network_.arch();
  file.set_attribute("/", "task", data_.task);
  save_names(file, data_.identifier_names);
  for (const auto& [name, value] : {std::pair{"seq_len", a.seq_len},
                                    {"vocab_size", a.vocab},
                                    {"num_puzzle_identifiers", a.identifiers},
                                    {"hidden_size", a.hidden},
                                    {"num_heads", a.heads},
                                    {"inter_size", a.inter()},
                                    {"halt_max_steps", options_.loss.halt_max_steps}})
    file.set_attribute("/", name, static_cast<std::int64_t>(value));
}

}  // namespace lockstep
