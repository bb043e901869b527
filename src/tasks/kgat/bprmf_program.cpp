#include <algorithm>
#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/tasks/kgat/bprmf_task.hpp"
#include "lockstep/tasks/kgat/kgat_sampler.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/sharded_program.hpp"
#include "tasks/kgat/interaction_batch.hpp"

namespace lockstep {

namespace {

/// Matrix factorisation: floor(interactions / batch) + 1 steps per epoch, each on a drawn batch. Every rank computes
/// the whole step, which costs less than exchanging gradients.
class BprmfProgram final : public TrainingProgram {
 public:
  BprmfProgram(World& world, const RunConfig& config, BprmfTask& model)
      : TrainingProgram({}),
        world_(world),
        config_(config),
        model_(model),
        batch_size_(interactions_per_step(config, world.size())),
        sampler_(model.data(), config.run.seed),
        adam_(config.optim, model.params(), {{&model.users()}, {&model.items()}}),
        stream_(model.params().device()),
        arenas_{Arena(stream_.device()), Arena(stream_.device())} {
    epoch_.positions = epoch_.steps = model.size(Split::train) / batch_size_ + 1;
  }

  StepResult step(const TrainState& state, double lr, Ema*, unsigned flags) override {
    StepResult result;
    StepOutcome& outcome = result.outcome.emplace(StepOutcome{.step = state.step});
    profile::Phase phase("reduce", result.reduce);
    outcome.flags = flags_of_all(world_.communicator(), flags);
    result.change = world_.change();
    phase.next("interactions", result.compute);
    const std::int64_t items = model_.data().items, d = model_.options().embed_dim;
    const DType dtype = model_.params().dtype();
    const double l2 = model_.options().l2;
    profile::Span drawing("batch", profile::Kind::phase);
    sampler_.interactions(state.step, batch_size_, batch_, items);  // one table: the items, then the users
    const std::vector<std::int32_t>& rows = batch_.rows();
    const auto split = std::lower_bound(rows.begin(), rows.end(), static_cast<std::int32_t>(items)) - rows.begin();
    users_.assign(rows.begin() + split, rows.end());
    for (std::int32_t& user : users_) user -= static_cast<std::int32_t>(items);
    drawing.end();

    Arena& arena = arenas_[arena_ = 1 - arena_];
    arena.reset();
    const ops::RankedPairs pairs = batch_.pairs();
    const auto [user, liked, other, use_ptr, use, of_items, of_users] =
        for_kernels(stream_, arena, pairs.user, pairs.liked, pairs.other, pairs.use_ptr, pairs.use,
                    std::span(rows).first(split), users_);
    adam_.catch_up(model_.items(), of_items);
    adam_.catch_up(model_.users(), of_users);
    const auto count = std::ssize(rows);
    const Tensor values = allocate(arena, dtype, {count, d}), gradient = allocate(arena, dtype, {count, d}),
                 slope = allocate(arena, dtype, {batch_size_});
    ops::gather_node_rows(stream_, values.slice(0, split), 0, model_.items().value, of_items, ops::RowScale::none);
    ops::gather_node_rows(stream_, values.slice(split, count - split), 0, model_.users().value, of_users,
                          ops::RowScale::none);
    auto& sums = arena.host().array<ops::RankingSums>(1)[0];
    ops::bpr(stream_, arena, {user, liked, other, use_ptr, use}, values, l2, slope, gradient, sums);
    outcome.norm = gradient_norm(gradient, {{0, gradient.size()}});  // waits for the sums too
    result.advance = 1;
    result.samples = batch_size_;
    outcome.loss = sums.loss + l2 * sums.half_square;
    outcome.weight = static_cast<double>(batch_size_);
    require_finite(world_, config_, state.step, state.epoch, "", outcome.loss / outcome.weight, outcome.norm);
    phase.next("update", result.update);
    adam_.begin_step(lr, clip_scale(outcome.norm, config_.optim.clip_norm));
    adam_.update(model_.items(), of_items, gradient.slice(0, split));
    adam_.update(model_.users(), of_users, gradient.slice(split, count - split));
    phase.end();
    return result;
  }

  std::optional<StepOutcome> settle(UpTo what) override {
    if (what != UpTo::outcomes) adam_.flush();
    return {};
  }
  bool settle_alone() override {
    adam_.flush();
    return true;
  }
  ProgramState state() override { return {{{"", &adam_}}}; }
  ProgramFacts facts() override {
    return {.backend = world_.communicator().backend(),
            .lines = {{"batch", interactions_text(config_, world_.size())}}};
  }

 private:
  World& world_;
  const RunConfig& config_;
  BprmfTask& model_;
  const std::int64_t batch_size_;
  KgatSampler sampler_;
  LazyAdam adam_;
  CfBatch batch_;
  std::vector<std::int32_t> users_;  ///< of the batch, ascending
  Stream stream_;
  std::array<Arena, 2> arenas_;  ///< of this step and the previous one, whose update may still be running
  int arena_ = 0;                ///< index of this step's
};

}  // namespace

std::unique_ptr<TrainingProgram> BprmfTask::make_program(World& world, const RunConfig& config, int) {
  config.task->require_supported(config, world.size());
  return std::make_unique<BprmfProgram>(world, config, *this);
}

}  // namespace lockstep
