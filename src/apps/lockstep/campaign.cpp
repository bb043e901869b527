#include "apps/lockstep/campaign.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "apps/lockstep/describe.hpp"
#include "apps/lockstep/training_run.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/disk_sync.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/train/signals.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

/// Of the keys that decide the result of a training. The file of the campaign's results has it, because some of these
/// keys, such as the number of epochs, may change from start to start.
std::string fingerprint(const RunConfig& config) {
  std::string keys;
  for (const IniEntry& entry : read_ini(config.text, "the configuration"))
    if (!entry.key.starts_with("run.") && !entry.key.starts_with("dist.") && !entry.key.starts_with("checkpoint."))
      keys += ini_line(entry.key, entry.value);
  return hex64(hash64(keys));
}

/// Hands out the trainings and collects what has become of them. Rank 0 has it.
class Queue {
 public:
  Queue(const RunConfig& config, const Campaign& campaign) : campaign_(campaign), key_(fingerprint(config)) {
    const fs::path file = fs::path(config.run.dir) / kCampaignFile;
    const std::string text = read_if_there(file);
    for (const std::string& line : split(text, '\n')) {
      const Json known = Json::parse(line, nullptr, false);  // a start that was killed leaves half a line
      if (!known.is_object() || known.value("configuration", "") != key_) continue;
      const std::string name = known.at("name");
      // The results of many short trainings are enough. Other trainings are their files, which may have been removed.
      const bool kept = campaign.many || fs::exists(CheckpointFolder(fs::path(config.run.dir) / name).final_file());
      const int code = known.at("code");
      if (code != kExitDone && failed_.insert(name).second) continue;
      // A search leaves a training alone that has failed twice.
      if (code == kExitDone ? kept : campaign.many) ends_[name] = {code, known.at("text")};
    }
    file_ = AppendFile(file);
    if (!text.empty() && text.back() != '\n') file_.append("\n");
  }

  /// Answers {"ended": name, "code": ..., "text": ...} or {} with the next training, {"wait": true} or {"end": true}.
  std::string answer(const std::string& question) {
    const Json asked = Json::parse(question);
    if (asked.contains("ended")) note(asked);
    if (waiting_.empty() && std::exchange(changed_, false)) plan();
    if (waiting_.empty() || stopped_) return line_of({{running_.empty() ? "end" : "wait", true}}, -1);
    const Training next = std::move(waiting_.front());
    waiting_.pop_front();
    running_.insert(next.name());
    log::info(next.title);
    Json changes = Json::array();
    for (const auto& [key, value] : next.changes) changes.push_back({key, value});
    return line_of({{"folder", next.folder}, {"title", next.title}, {"until", next.until_epoch}, {"changes", changes}},
                   -1);
  }
  const TrainingEnds& ends() const { return ends_; }

 private:
  void plan() {
    std::vector<Training> all = campaign_.plan(ends_);
    std::erase_if(all, [&](const Training& t) { return ends_.count(t.name()) != 0 || running_.count(t.name()) != 0; });
    // Those that have failed in an earlier start come last: their failure may end this start, too.
    std::ranges::stable_partition(all, [&](const Training& t) { return failed_.count(t.name()) == 0; });
    waiting_.assign(std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
  }
  void note(const Json& asked) {
    const std::string name = asked.at("ended"), text = asked.at("text");
    const int code = asked.at("code");
    running_.erase(name);
    changed_ = true;
    if (code == kExitInterrupted) {
      stopped_ = true;
      return;
    }
    ends_[name] = {code, text};
    if (code != kExitDone) log::warning(name, " has failed: ", text);
    file_.append(line_of({{"configuration", key_}, {"name", name}, {"code", code}, {"text", text}}, -1));
    require(file_.failure().empty(), file_.failure());
  }

  const Campaign& campaign_;
  std::string key_;
  TrainingEnds ends_;
  std::deque<Training> waiting_;
  std::set<std::string> running_, failed_;  ///< failed_: in earlier starts
  bool changed_ = true;                     ///< whether the plan may have more than it had
  bool stopped_ = false;
  AppendFile file_;
};

Training training_of(const Json& answer) {
  Training training{answer.at("folder"), answer.at("title"), {}, answer.at("until")};
  for (const Json& change : answer.at("changes")) training.changes.emplace_back(change.at(0), change.at(1));
  return training;
}

/// Trains it, or continues it.
TrainingEnd train(World& group, const Options& options, const RunConfig& config, const Campaign& campaign,
                  const Training& training, const StopSignals& signals) {
  const std::unique_ptr<NestedRun> run = make_training(options, config, training.changes, training.folder);
  run->config.pause_after = training.until_epoch;
  if (campaign.many) run->config.searched = training.changes;
  std::optional<ForeignWeights> first_weights;
  if (campaign.first_weights != nullptr) first_weights = *campaign.first_weights;
  int code = training_run(group, run->options, run->config, TakeOver::no, "", std::move(first_weights), campaign.data);
  const fs::path dir = run->config.run.dir;
  const bool paused = training.until_epoch > 0 && signals.received() == 0;
  if (code != kExitDone && !(code == kExitInterrupted && paused)) return {code, ""};
  TrainingEnd end;
  group.together("reading the result of a training", [&] {
    if (group.rank() != 0) return;
    end.text = campaign.result(dir, training);
    release_run_directory(dir);
  });
  return end;
}

/// Gives a training the threads, the instruction set and the GPUs that its group has among all ranks.
void share_devices(World& world, World& group, RunConfig& config) {
  config.run.threads = prepare_cpu(world, config);
  config.run.isa = ops::name(ops::active_isa());
  if (config.run.device != "cuda" || config.threads_are_ranks()) return;
  const int gpu = choose_device(world, "cuda", config.dist.gpu_ids).index;
  config.dist.gpu_ids = group.node_communicator().all_gather_text(std::to_string(gpu), "GPUs of the group");
}

}  // namespace

std::string Training::name() const { return until_epoch > 0 ? join(folder, " to epoch ", until_epoch) : folder; }

TrainingEnds train_campaign(World& world, const Options& options, RunConfig& config, const Campaign& campaign) {
  const StopSignals signals;
  const Stopwatch watch;
  double busy_s = 0;
  const std::int64_t ranks = campaign.ranks_per_run > 0 ? campaign.ranks_per_run : world.size();
  world.together("dividing the ranks", [&] {
    require_usage(world.size() % ranks == 0, "option ranks-per-run = ", ranks, ": ", world.size(),
                  " ranks cannot be divided into groups of this size");
  });
  require_shared_directory(world, config);
  std::unique_ptr<World> part;
  if (ranks < world.size()) {
    part = world.part(world.rank() / static_cast<int>(ranks));
    share_devices(world, *part, config);
  }
  World& group = part ? *part : world;
  std::optional<NoDiskSync> no_sync;
  if (campaign.many) no_sync.emplace();
  std::unique_ptr<Queue> queue;
  world.together("reading the results of earlier starts", [&] {
    if (world.rank() == 0) queue = std::make_unique<Queue>(config, campaign);
  });
  std::unique_ptr<Desk> desk;  // null: rank 0 alone asks, of folds and members that all ranks train
  if (part || campaign.many)
    desk = world.open_desk([&](const std::string& question) { return queue->answer(question); });
  const auto ask = [&](const Json& question) {
    return desk ? desk->ask(line_of(question, -1)) : queue->answer(line_of(question, -1));
  };

  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): set_thread_speaker() replaces what it refers to
  const Speaker speaker = log::speaker();
  const bool silent = campaign.many || group.rank() != world.rank();
  for (Json question = Json::object();;) {
    const Json answer =
        Json::parse(group.communicator().broadcast_text(group.rank() == 0 ? ask(question) : "", 0, "next training"));
    question = Json::object();
    if (answer.contains("end")) break;
    if (answer.contains("wait")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    const Training training = training_of(answer);
    world.at(training.folder.c_str(), -1);
    world.on_loss([] { return true; });  // what the trainings have written is enough to continue
    const Stopwatch watch_of_training;
    TrainingEnd end;
    log::set_thread_speaker({group.rank(), group.size(), speaker.host, silent && group.rank() == 0});
    try {
      end = signals.received() != 0 ? TrainingEnd{kExitInterrupted, ""}
                                    : train(group, options, config, campaign, training, signals);
    } catch (const CollectiveError& error) {
      end = {static_cast<int>(error.fault()), error.what()};
    } catch (const std::exception& problem) {
      const Error error = log::as_error(problem);
      end = {static_cast<int>(error.fault()), error.what()};
      // The other ranks of the group wait for this one, and can only be ended with the job.
      if (group.size() > 1) {
        if (desk || queue) ask({{"ended", training.name()}, {"code", end.code}, {"text", end.text}});
        world.abort(end.code, end.text);
      }
    }
    log::set_thread_speaker(speaker);
    busy_s += watch_of_training.seconds();
    question = {{"ended", training.name()}, {"code", end.code}, {"text", end.text}};
  }
  world.on_loss({});
  const double all_busy_s = world.communicator().all_reduced(busy_s, ReduceOp::sum, "end of the trainings");
  // No rank asks any more.
  if (campaign.many && all_busy_s > 0)
    log::info("the trainings took ", human_seconds(watch.seconds()), "; the ranks were idle for ",
              printed("%.1f %%", 100 - 100 * all_busy_s / (watch.seconds() * world.size())), " of it");
  Json list = Json::object();
  if (queue)
    for (const auto& [name, end] : queue->ends()) list[name] = {end.code, end.text};
  list = Json::parse(world.communicator().broadcast_text(line_of(list, -1), 0, "results of the trainings"));
  TrainingEnds ends;
  for (const auto& [name, end] : list.items()) ends[name] = {end.at(0), end.at(1)};
  return ends;
}

bool is_complete(const Campaign& campaign, const TrainingEnds& ends) {
  return std::ranges::all_of(campaign.plan(ends), [&](const Training& t) { return ends.count(t.name()) != 0; });
}

int failure_of(const TrainingEnds& ends) {
  int code = kExitDone;
  for (const auto& [name, end] : ends) code = std::max(code, end.code);
  return code;
}

void add_ranks_per_run(Options& options, std::int64_t* ranks, std::int64_t initial) {
  options
      .add("ranks-per-run", ranks, initial, non_negative,
           "ranks that train one run together; several runs are trained at once. 0: all ranks train one run after the "
           "other")
      .value_name("N");
}

}  // namespace lockstep::apps
