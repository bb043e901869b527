#include "lockstep/train/step_rows.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/checkpoint/train_state.hpp"

namespace lockstep {

void StepRows::fetch(const TrainState& state, std::int64_t positions) {
  if (rows_ == nullptr || rows_->whole()) return;
  if (fetches_ != rows_->fetches()) here_ = ahead_ = {};  // an evaluation has fetched rows since
  if (state.step >= here_.first && state.step < here_.end) return rows_->poll();
  const profile::Span waiting("wait for rows", profile::Kind::phase);
  if (ahead_.end == 0 || ahead_.first != state.step) ahead_ = start(state.step, state.epoch, state.position, positions);
  rows_->finish();
  here_ = std::exchange(ahead_, {});
  if (here_.position < positions) ahead_ = start(here_.end, here_.epoch, here_.position, positions);
  fetches_ = rows_->fetches();
}

StepRows::Fetched StepRows::start(std::int64_t step, std::int64_t epoch, std::int64_t position,
                                  std::int64_t positions) {
  std::vector<std::int64_t> wanted;
  TrainState at;
  at.step = step;
  at.epoch = epoch;
  at.position = position;
  Step last;
  for (std::int64_t samples = 0;
       at.position < positions && (samples == 0 || samples + last.samples <= rows_->fetch_rows()); ++at.step) {
    last = reads_(at, wanted);
    samples += last.samples;
    at.position = last.end;
  }
  rows_->start(std::move(wanted));
  return {.first = step, .end = at.step, .epoch = epoch, .position = at.position};
}

}  // namespace lockstep
