#include "apps/lockstep/comm_share.hpp"

#include <algorithm>

#include "apps/lockstep/bench_scaling.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::apps {

namespace {

constexpr double kTie = 0.01;  // smallest gain that justifies another setting, as a fraction of a step

/// The configured size, the whole gradient, and powers of two below it.
std::vector<std::int64_t> bucket_sizes(std::int64_t configured, double gradient_bytes) {
  std::vector<std::int64_t> sizes = {configured, static_cast<std::int64_t>(gradient_bytes)};
  for (std::int64_t size = std::int64_t{16} << 20; size >= std::int64_t{32} << 10; size /= 2)
    if (static_cast<double>(size) < gradient_bytes) sizes.push_back(size);
  return sizes;
}

}  // namespace

CommShare comm_share(World& world, const RunConfig& config, Task& model, const CommReport& report, int threads,
                     double seconds) {
  CommShare share;
  share.kind = config.model_kind;
  share.measured =
      measure_step(world, config, model, threads, {.steps = 0, .warmup = 1, .seconds = seconds, .least = 1});
  std::vector<AllReduceTime> times;
  for (const CommTiming& t : report.timings)
    if (t.collective == "start_all_reduce") times.push_back({t.bytes, t.median_s});
  if (world.size() == 1 || times.size() < 2 || !share.measured.facts.sends_buckets) return share;
  share.cost = fit_link_cost(times, link_members(world));
  for (const std::int64_t size : bucket_sizes(config.dist.bucket_bytes, share.measured.gradient_bytes)) {
    const StepWork work = step_work(world, config, model, share.measured, size);
    const std::size_t messages = work.bucket_bytes.size();
    if (std::any_of(share.choices.begin(), share.choices.end(),
                    [&](const CommShare::Choice& c) { return c.messages == messages; }))
      continue;  // the same buckets
    share.choices.push_back({size, messages, predict_step(work, share.cost, world.size())});
  }
  for (std::size_t c = 1; c < share.choices.size(); ++c) {
    const double margin = share.best == 0 ? 1 - kTie : 1;
    if (share.choices[c].step.step_s < margin * share.choices[share.best].step.step_s) share.best = c;
  }
  share.paying = paying_text(step_work(world, config, model, share.measured, share.choices[share.best].bucket_bytes),
                             share.cost, world.nodes() > 1 ? "node" : "rank", link_members(world));
  return share;
}

std::string comm_share_text(const CommShare& share) {
  const StepMeasurement& m = share.measured;
  std::string text = join("\n", share.kind, ": ", m.batch, " samples a step, gradient ", human_bytes(m.gradient_bytes),
                          "; measured: compute ", human_seconds(m.compute_s), ", update ", human_seconds(m.update_s));
  if (m.ranks == 1) return text + "; one rank: no messages\n";
  text += printed(", waiting for messages %s: %.1f %% of a step (with waiting for slower ranks %.1f %%)\n",
                  human_seconds(m.exposed_s).c_str(), 100 * m.exposed_s / m.mean_s, 100 * m.reduce_s / m.mean_s);
  if (share.choices.empty())
    return text + (m.facts.sends_buckets ? "No prediction: only messages of one size were timed.\n"
                                         : "No prediction: the gradient does not travel in buckets.\n");
  text += join("expected from alpha ", human_seconds(share.cost.alpha_s), " and ",
               human_bytes(share.cost.beta_s > 0 ? 1 / share.cost.beta_s : 0),
               "/s:\n  dist.bucket_bytes  messages  all of them   waited for  of a step\n");
  for (std::size_t c = 0; c < share.choices.size(); ++c) {
    const CommShare::Choice& choice = share.choices[c];
    text += printed("  %17lld  %8zu  %11s  %11s  %7.1f %%%s%s\n", static_cast<long long>(choice.bucket_bytes),
                    choice.messages, human_seconds(choice.step.communication_s).c_str(),
                    human_seconds(choice.step.exposed_s).c_str(), 100 * choice.step.exposed_s / choice.step.step_s,
                    c == 0 ? "  as configured" : "", c == share.best ? "  recommended" : "");
  }
  return text + share.paying + "\n";
}

nlohmann::ordered_json comm_share_json(const CommShare& share) {
  const StepMeasurement& m = share.measured;
  nlohmann::ordered_json json = {{"kind", share.kind},
                                 {"batch", m.batch},
                                 {"gradient_bytes", m.gradient_bytes},
                                 {"step_s", m.mean_s},
                                 {"compute_s", m.compute_s},
                                 {"update_s", m.update_s},
                                 {"exposed_s", m.exposed_s},
                                 {"exposed_share", m.exposed_s / m.mean_s}};
  if (share.choices.empty()) return json;
  json["alpha_s"] = share.cost.alpha_s;
  json["bytes_per_s"] = share.cost.beta_s > 0 ? 1 / share.cost.beta_s : 0;
  json["recommended_bucket_bytes"] = share.choices[share.best].bucket_bytes;
  for (const CommShare::Choice& c : share.choices) {
    json["expected"].push_back({{"bucket_bytes", c.bucket_bytes},
                                {"messages", c.messages},
                                {"communication_s", c.step.communication_s},
                                {"exposed_s", c.step.exposed_s},
                                {"exposed_share", c.step.exposed_s / c.step.step_s}});
  }
  return json;
}

}  // namespace lockstep::apps
