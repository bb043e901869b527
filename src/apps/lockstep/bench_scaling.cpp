#include "apps/lockstep/bench_scaling.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::apps {

namespace {

using Json = nlohmann::ordered_json;

/// Median times of asynchronous all-reduces of growing size on the slowest rank; takes about two seconds.
std::vector<AllReduceTime> time_all_reduces(Communicator& comm, double gradient_bytes) {
  constexpr double kEach_s = 0.3;
  constexpr int kMost = 40;
  std::vector<AllReduceTime> times;
  for (const double size : {256.0, 8.0 * 1024, 64.0 * 1024, 512.0 * 1024, gradient_bytes}) {
    std::vector<float> message(static_cast<std::size_t>(std::max(size, 256.0)) / sizeof(float));
    std::vector<double> seconds;
    double spent = 0;
    while (seconds.size() < 3 || (spent < kEach_s && seconds.size() < kMost)) {
      comm.barrier("timing all-reduces");
      const Stopwatch watch;
      comm.start_all_reduce(std::span<float>(message), "timing")->wait();
      seconds.push_back(comm.all_reduced(watch.seconds(), ReduceOp::max, "time of an all-reduce"));
      spent += seconds.back();  // the same on all ranks: so is the number of repetitions
    }
    times.push_back({message.size() * sizeof(float), quantile(seconds)});
  }
  return times;
}

}  // namespace

std::int64_t link_members(const World& world) { return world.nodes() > 1 ? world.nodes() : world.size(); }

StepWork step_work(const World& world, const RunConfig& config, Task& model, const StepMeasurement& measured,
                   std::int64_t bucket_bytes) {
  StepWork work;
  work.compute_s = measured.compute_s;
  work.update_s = measured.update_s;
  work.ranks = world.size();
  work.ranks_per_member = world.nodes() > 1 ? (world.size() + world.nodes() - 1) / world.nodes() : 1;
  work.fixed_global_batch = config.batch.per_rank == 0;
  const double element = config.dist.compress == "bf16" ? 2 : static_cast<double>(size_bytes(model.params().dtype()));
  work.bucket_bytes = gradient_messages(model.params(), bucket_bytes, element);
  work.overlap = work.bucket_bytes.size() > 1;
  work.embeddings_first = embeddings_first(model.params(), bucket_bytes);
  work.shards = std::min(config.shards(), measured.batch / measured.facts.least_shard) / measured.threads;
  return work;
}

Json predict_scaling(World& world, const RunConfig& config, Task& model, const StepMeasurement& measured,
                     const ScalingQuestion& question) {
  const bool given = question.latency_s > 0 && question.bytes_per_s > 0;
  require_usage(given || world.size() > 1,
                "option predict_ranks: one rank cannot measure the cost of messages; start it on two nodes, or set "
                "--predict-latency and --predict-bandwidth");
  const StepWork work = step_work(world, config, model, measured, config.dist.bucket_bytes);
  const double bytes = std::accumulate(work.bucket_bytes.begin(), work.bucket_bytes.end(), 0.0);

  const LinkCost cost = given ? LinkCost{question.latency_s, 1 / question.bytes_per_s}
                              : fit_link_cost(time_all_reduces(world.communicator(), bytes), link_members(world));
  Json out;
  out["job"] = "predict_ranks";
  out["alpha_s"] = cost.alpha_s;
  out["bytes_per_s"] = cost.beta_s > 0 ? 1 / cost.beta_s : 0;
  out["between"] = world.nodes() > 1 ? "hosts" : "ranks";
  out["ranks_per_host"] = work.ranks_per_member;
  out["fixed_global_batch"] = config.batch.per_rank == 0;
  out["gradient_bytes"] = bytes;
  const StepPrediction here = predict_step(work, cost, world.size());
  out["measured"] = {{"ranks", world.size()},
                     {"step_s", measured.compute_s + measured.exposed_s + measured.update_s},
                     {"exposed_s", measured.exposed_s},
                     {"predicted_step_s", here.step_s},
                     {"predicted_exposed_s", here.exposed_s}};
  for (const std::int64_t ranks : read_rank_range(question.ranks)) {
    const StepPrediction p = predict_step(work, cost, ranks);
    out["predictions"].push_back({{"ranks", p.ranks},
                                  {"step_s", p.step_s},
                                  {"communication_s", p.communication_s},
                                  {"exposed_s", p.exposed_s},
                                  {"exposed_share", p.exposed_s / p.step_s},
                                  {"speed_up", p.speed},
                                  {"efficiency", p.efficiency}});
  }
  return out;
}

std::string scaling_text(const Json& r) {
  std::string text = join("prediction from alpha ", human_seconds(r["alpha_s"]), ", ",
                          human_bytes(r["bytes_per_s"].get<double>()), "/s between ", r["between"].get<std::string>(),
                          "; gradient ", human_bytes(r["gradient_bytes"].get<double>()), ", batch per ",
                          r["fixed_global_batch"].get<bool>() ? "step fixed" : "rank fixed",
                          "\n   ranks        step     messages  exposed   speed-up  efficiency\n");
  for (const Json& p : r["predictions"])
    text += printed("%8d  %10s  %11s  %6.1f %%  %9.1f  %8.1f %%\n", p["ranks"].get<int>(),
                    human_seconds(p["step_s"]).c_str(), human_seconds(p["communication_s"]).c_str(),
                    100 * p["exposed_share"].get<double>(), p["speed_up"].get<double>(),
                    100 * p["efficiency"].get<double>());
  const Json& m = r["measured"];
  return text + join("here, on ", m["ranks"].get<int>(), " ranks, a step took ", human_seconds(m["step_s"]), ", ",
                     human_seconds(m["exposed_s"]), " of it for messages; the model predicts ",
                     human_seconds(m["predicted_step_s"]), " and ", human_seconds(m["predicted_exposed_s"]), "\n");
}

}  // namespace lockstep::apps
