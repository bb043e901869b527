#include "lockstep/tasks/hrm/puzzle_sampler.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep {
namespace {

class PhiloxDraws final : public PuzzleDraws {
 public:
  PhiloxDraws(std::int64_t groups, std::uint64_t seed) : groups_(groups), seed_(seed) {}
  std::int64_t group(std::int64_t visit) const override {
    return Permutation(groups_, seed_, static_cast<std::uint64_t>(visit / groups_))(visit % groups_);
  }
  std::int64_t puzzle(std::int64_t visit, std::int64_t puzzles) const override {
    const Philox draw(seed_, 0, "puzzle.pick", static_cast<std::uint64_t>(visit));
    return static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(puzzles), 0));
  }
  std::int64_t example(std::int64_t visit, std::int64_t examples, std::int64_t i) const override {
    const Philox key(seed_, 0, "puzzle.order", static_cast<std::uint64_t>(visit));
    return examples == 1 ? 0 : Permutation(examples, key.bits64(0), 0)(i);
  }

 private:
  std::int64_t groups_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<PuzzleDraws> make_puzzle_draws(std::int64_t groups, std::uint64_t seed, std::int64_t iteration) {
  return std::make_unique<PhiloxDraws>(groups, seed + static_cast<std::uint64_t>(iteration));
}

PuzzleBatches::PuzzleBatches(const PuzzlePart& part, std::int64_t variants, std::int64_t visits, std::int64_t batch,
                             std::unique_ptr<PuzzleDraws> draws)
    : part_(&part),
      variants_(variants),
      batch_(batch),
      draws_(std::move(draws)),
      single_(part.examples() == part.puzzles()) {
  if (single_) {
    count_ = visits / batch;
    return;
  }
  std::int64_t filled = 0;
  for (std::int64_t v = 0; v < visits; ++v) {
    if (filled == 0) starts_.push_back(v);
    filled = std::min(batch, filled + visit(v).examples);
    if (filled == batch) {
      filled = 0;
      ++count_;
    }
  }
}

PuzzleBatches::Visit PuzzleBatches::visit(std::int64_t v) const {
  const std::int64_t group = draws_->group(v), first = part_->first_puzzle(group),
                     stored = part_->first_puzzle(group + 1) - first, pick = draws_->puzzle(v, stored * variants_),
                     puzzle = first + pick / variants_, example = part_->first_example(puzzle);
  return {group, puzzle, pick % variants_, example, part_->first_example(puzzle + 1) - example};
}

void PuzzleBatches::rows(std::int64_t batch, std::int64_t first, std::span<PuzzleExample> rows) const {
  std::int64_t v = single_ ? batch * batch_ + first : starts_[batch];
  std::int64_t at = single_ ? first : 0;
  const std::int64_t end = first + std::ssize(rows);
  for (; at < end; ++v) {
    const Visit now = visit(v);
    const std::int64_t used = std::min(now.examples, batch_ - at);
    for (std::int64_t i = std::max<std::int64_t>(0, first - at); i < used && at + i < end; ++i)
      rows[at + i - first] = {.part = part_,
                              .row = now.first + draws_->example(v, now.examples, i),
                              .group = now.group,
                              .variant = now.variant,
                              .identifier = part_->puzzle_identifiers.data<std::int32_t>()[now.puzzle]};
    at += used;
  }
}

PuzzleSampler::PuzzleSampler(const PuzzleData& data, std::uint64_t seed, std::int64_t visits, std::int64_t batch)
    : data_(data), seed_(seed), visits_(visits), batch_(batch) {
  require_usage(nominal_batches() >= 1, "a batch of ", batch, " puzzles: ", visits, " visits of each group of '",
                data.path.string(), "' do not fill one; lower batch.size or raise data.group_visits");
}

std::int64_t PuzzleSampler::nominal_batches() const {
  std::int64_t batches = 0;
  for (const PuzzlePart& part : data_.train) {
    const double mean = static_cast<double>(part.examples()) / static_cast<double>(part.puzzles());
    batches += static_cast<std::int64_t>(static_cast<double>(visits_ * part.groups()) * mean) / batch_;
  }
  return batches;
}

void PuzzleSampler::begin(std::int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  sets_.clear();
  std::int64_t iteration = epoch * std::ssize(data_.train);
  for (const PuzzlePart& part : data_.train)
    sets_.emplace_back(part, data_.variants, visits_ * part.groups(), batch_,
                       make_puzzle_draws(part.groups(), seed_, ++iteration));
}

std::int64_t PuzzleSampler::batches() const {
  std::int64_t all = 0;
  for (const PuzzleBatches& set : sets_) all += set.count();
  return all;
}

void PuzzleSampler::rows(std::int64_t batch, std::int64_t first, std::span<PuzzleExample> rows) const {
  for (const PuzzleBatches& set : sets_) {
    if (batch < set.count()) return set.rows(batch, first, rows);
    batch -= set.count();
  }
}

}  // namespace lockstep
