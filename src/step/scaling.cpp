#include "lockstep/step/scaling.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"
#include "step/grad_sync.hpp"

namespace lockstep {

namespace {

constexpr double kBackwardShare = 2.0 / 3.0;
constexpr double kWeightShare = 1.0 / 3.0;  // fraction of the backward pass for gradients of weights

/// The factors of alpha and beta in all_reduce_seconds().
struct Factors {
  double alpha, beta;
};
Factors factors(std::int64_t members, double bytes) {
  if (members <= 1) return {0, 0};
  const int rounds = std::bit_width(static_cast<std::uint64_t>(members - 1));  // ceil(log2)
  const auto p = static_cast<double>(members);
  return {2.0 * rounds, 2 * (p - 1) / p * bytes};
}

constexpr std::int64_t kMostMembers = 1024;

double step_of(const StepWork& work, LinkCost cost, std::int64_t members) {
  return predict_step(work, cost, members * work.ranks_per_member).step_s;
}

std::int64_t whole_number(const std::string& text, const std::string& all) {
  const std::int64_t value = number_in<std::int64_t>(text).value_or(0);
  constexpr std::int64_t kMost = 100'000'000;
  require_usage(value >= 1 && value <= kMost, "option predict_ranks = ", all, ": must be a number of ranks, at most ",
                kMost, ", or a range such as 2..1024");
  return value;
}

}  // namespace

double all_reduce_seconds(LinkCost cost, std::int64_t members, double bytes) {
  const Factors f = factors(members, bytes);
  return f.alpha * cost.alpha_s + f.beta * cost.beta_s;
}

LinkCost fit_link_cost(const std::vector<AllReduceTime>& times, std::int64_t members) {
  require_usage(members >= 2 && times.size() >= 2,
                "fitting the cost of a message: it needs all-reduces of at least two sizes and two ranks");
  // Minimises sum ((a x + b y) / t - 1)^2. If a constant is negative it is set to 0 and the other one is fitted alone.
  double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
  for (const AllReduceTime& t : times) {
    const Factors f = factors(members, static_cast<double>(t.bytes));
    const double x = f.alpha / t.seconds, y = f.beta / t.seconds;
    xx += x * x;
    xy += x * y;
    yy += y * y;
    x1 += x;
    y1 += y;
  }
  const double determinant = xx * yy - xy * xy;
  LinkCost cost{(x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant};
  if (!(cost.alpha_s > 0)) cost = {0, y1 / yy};
  if (!(cost.beta_s > 0)) cost = {x1 / xx, 0};
  return cost;
}

std::vector<double> gradient_messages(const ParamStore& params, std::int64_t bucket_bytes, double element_bytes) {
  std::vector<double> messages;
  for (const FlatRange& bucket : plan_buckets(params, bucket_bytes))
    messages.push_back(element_bytes * static_cast<double>(bucket.count()));
  return messages;
}

bool embeddings_first(const ParamStore& params, std::int64_t bucket_bytes) {
  return embeddings_first(plan_buckets(params, bucket_bytes));
}

StepPrediction predict_step(const StepWork& work, LinkCost cost, std::int64_t ranks) {
  StepPrediction p{.ranks = ranks};
  const double shrink = work.fixed_global_batch ? static_cast<double>(work.ranks) / static_cast<double>(ranks) : 1.0;
  const double compute = work.compute_s * shrink;
  const std::int64_t members = (ranks + work.ranks_per_member - 1) / work.ranks_per_member;
  const double bytes = std::accumulate(work.bucket_bytes.begin(), work.bucket_bytes.end(), 0.0);
  const std::int64_t rounds = std::max<std::int64_t>(1, (work.shards + ranks - 1) / ranks);
  const double backward = compute * kBackwardShare / static_cast<double>(rounds);
  double ready = compute - backward, end = 0, left = bytes;
  for (const double bucket : work.bucket_bytes) {
    if (work.embeddings_first && left == bytes)
      ready = compute - kWeightShare * backward;
    else
      ready += left > 0 ? (compute - ready) * bucket / left : 0;
    left -= bucket;
    const double time = all_reduce_seconds(cost, members, bucket);
    end = std::max(end, work.overlap ? ready : compute) + time;
    p.communication_s += time;
  }
  p.exposed_s = std::max(0.0, end - compute);
  p.step_s = compute + p.exposed_s + work.update_s;
  // Time of one rank for the work of all ranks.
  const double alone = compute * static_cast<double>(ranks) + work.update_s;
  const double whole = work.fixed_global_batch ? alone : static_cast<double>(ranks) * (compute + work.update_s);
  p.speed = whole / p.step_s;
  p.efficiency = p.speed / static_cast<double>(ranks);
  return p;
}

StepWork work_of_wait(double compute_s, double wait_s, double update_s, std::int64_t ranks, std::int64_t members,
                      LinkCost& cost) {
  cost = {.beta_s = members > 1 ? wait_s / factors(members, 1).beta : 0};
  return {.compute_s = compute_s,
          .update_s = update_s,
          .ranks = ranks,
          .ranks_per_member = (ranks + members - 1) / members,
          .bucket_bytes = {1},
          .overlap = false};
}

std::int64_t paying_members(const StepWork& work, LinkCost cost) {
  constexpr double kPays = 0.8;
  const auto per_sample = [&](std::int64_t members) {
    const double step = step_of(work, cost, members);
    return work.fixed_global_batch ? step : step / static_cast<double>(members);
  };
  std::int64_t members = 1;
  while (members < kMostMembers && per_sample(2 * members) <= kPays * per_sample(members)) members *= 2;
  return members;
}

std::string paying_text(const StepWork& work, LinkCost cost, const std::string& member, std::int64_t used) {
  const std::int64_t paying = paying_members(work, cost);
  std::string steps;
  for (const std::int64_t members : {paying / 2, paying, 2 * paying})
    if (members > 0)
      steps += join(steps.empty() ? "" : ", ", human_seconds(step_of(work, cost, members)), " on ", members);
  return join(member, "s that pay: ", paying == kMostMembers ? "at least " : "", paying, " (a step: ", steps, ")",
              used <= paying ? ""
                             : "; a larger batch or dist.compress = bf16 makes more of them pay, or train other seeds "
                               "on the others");
}

std::vector<std::int64_t> read_rank_range(const std::string& text) {
  const std::size_t dots = text.find("..");
  const std::int64_t first = whole_number(text.substr(0, dots), text);
  const std::int64_t last = dots == std::string::npos ? first : whole_number(text.substr(dots + 2), text);
  require_usage(first <= last, "option predict_ranks = ", text, ": the first number is larger than the last");
  std::vector<std::int64_t> ranks;
  for (std::int64_t n = first; n < last; n *= 2) ranks.push_back(n);
  ranks.push_back(last);
  return ranks;
}

}  // namespace lockstep
