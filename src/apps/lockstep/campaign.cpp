#include "apps/lockstep/campaign.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "apps/lockstep/describe.hpp"
#include "apps/lockstep/training_run.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
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
    if ((!entry.key.starts_with("run.") && !entry.key.starts_with("dist.") && !entry.key.starts_with("checkpoint.")) ||
        entry.key == "run.precision" || entry.key == "dist.compress")
      keys += ini_line(entry.key, entry.value);
  return hex64(hash64(keys));
}

/// Hands out the trainings and collects what has become of them. Rank 0 has it.
class Queue {
 public:
  Queue(const RunConfig& config, const Campaign& campaign, TrainingEnds& ends)
      : campaign_(campaign), key_(fingerprint(config)), ends_(ends) {
    const fs::path file = fs::path(config.run.dir) / kCampaignFile;
    const std::string text = read_if_there(file);
    for (const std::string& line : split(text, '\n')) {
      const Json known = parse_ordered_json(line);  // a start that was killed leaves half a line
      if (!known.is_object()) continue;
      const std::string name = known.at("name");
      if (known.value("configuration", "") != key_) {  // its files are no longer of an earlier line
        ends_.erase(name);
        failed_.erase(name);
        continue;
      }
      const std::string data = known.value("data", campaign.data_hash);
      require_data(data == campaign.data_hash, "run directory '", config.run.dir, "': ", name,
                   " was trained on other data (hash ", data, ") than ", config.data.path, " has now (hash ",
                   campaign.data_hash, "); choose another --run-dir, or --resume never to start again");
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

  /// Takes the name, code and text of a training that has ended, or "". Answers with the folder, last epoch and changes
  /// of the next one, "wait" or "end".
  std::string answer(const std::string& ended) {
    if (!ended.empty()) note(parse_ordered_json(ended));
    if (waiting_.empty() && std::exchange(changed_, false)) plan();
    if (waiting_.empty() || stopped_) return running_.empty() ? "end" : "wait";
    const Training next = std::move(waiting_.front());
    waiting_.pop_front();
    running_.insert(next.name());
    log::info(next.title);
    return line_of({next.folder, next.until_epoch, next.changes}, -1);
  }
  /// The result of train_campaign(), once all ranks have got "end".
  int code() const {
    int largest = kExitDone;
    for (const auto& [name, end] : ends_) largest = std::max(largest, end.code);
    return largest != kExitDone && !campaign_.many ? largest : stopped_ ? kExitInterrupted : kExitDone;
  }

 private:
  void plan() {
    std::vector<Training> all = campaign_.plan(ends_);
    std::erase_if(all, [&](const Training& t) { return ends_.contains(t.name()) || running_.contains(t.name()); });
    // Those that have failed in an earlier start come last: their failure may end this start, too.
    std::ranges::stable_partition(all, [&](const Training& t) { return !failed_.contains(t.name()); });
    waiting_.assign(all.begin(), all.end());
  }
  void note(const Json& ended) {
    const std::string name = ended.at(0), text = ended.at(2);
    const int code = ended.at(1);
    running_.erase(name);
    changed_ = true;
    stopped_ = stopped_ || code == kExitInterrupted;
    if (code == kExitInterrupted) return;
    ends_[name] = {code, text};
    if (code != kExitDone) log::warning(name, " has failed: ", text);
    Json line = {{"configuration", key_}, {"name", name}, {"code", code}, {"text", text}};
    if (!campaign_.data_hash.empty()) line["data"] = campaign_.data_hash;
    file_.append(line_of(line, -1));
    require(file_.failure().empty(), file_.failure());
  }

  const Campaign& campaign_;
  std::string key_;
  TrainingEnds& ends_;
  std::deque<Training> waiting_;
  std::set<std::string> running_, failed_;  ///< failed_: in earlier starts
  bool changed_ = true;                     ///< whether the plan may have more than it had
  bool stopped_ = false;
  AppendFile file_;
};

/// Trains it, or continues it.
TrainingEnd train(World& group, const Options& options, const RunConfig& config, const Campaign& campaign,
                  const Training& training) {
  const std::unique_ptr<NestedRun> run = make_training(options, config, training.changes, training.folder);
  run->config.pause_after = training.until_epoch;
  if (campaign.many) run->config.searched = training.changes;
  const bool shares =
      campaign.data && campaign.data->has_data_set() && campaign.data->rows().whole() &&
      std::ranges::none_of(training.changes, [](const auto& c) { return c.first.starts_with("data."); });
  TrainingEnd end;
  end.code = training_run(group, run->options, run->config, TakeOver::no, "", campaign.first_weights,
                          shares ? campaign.data : nullptr);
  group.together("reading the result of a training", [&] {
    if (group.rank() != 0 || end.code != kExitDone) return;
    end.text = campaign.result(run->config.run.dir, training);
    release_run_directory(run->config.run.dir);
  });
  return end;
}

/// Gives a training the threads, the instruction set and the GPUs that its group has among all ranks.
void share_devices(World& world, World& group, RunConfig& config) {
  config.run.threads = prepare_cpu(world, config);
  config.run.isa = name(ops::active_isa());
  if (config.run.device != "cuda" || config.threads_are_ranks()) return;
  const int gpu = choose_device(world, "cuda", config.dist.gpu_ids).index;
  config.dist.gpu_ids = group.node_communicator().all_gather_text(std::to_string(gpu), "GPUs of the group");
}

}  // namespace

std::string Training::name() const { return until_epoch > 0 ? join(folder, " to epoch ", until_epoch) : folder; }

int train_campaign(World& world, const Options& options, RunConfig& config, const Campaign& campaign,
                   TrainingEnds& ends) {
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
  std::unique_ptr<Queue> queue;
  world.together("reading the results of earlier starts", [&] {
    if (world.rank() == 0) queue = std::make_unique<Queue>(config, campaign, ends);
  });
  const auto answer = [&](const std::string& question) { return queue->answer(question); };
  std::unique_ptr<Desk> desk;  // null: rank 0 alone asks, of folds and members that all ranks train
  if (part || campaign.many) desk = world.open_desk(answer);
  const auto ask = [&](const std::string& question) { return desk ? desk->ask(question) : answer(question); };

  waits_for_disk = !campaign.many;
  const Speaker speaker = log::speaker();  // NOLINT(performance-unnecessary-copy-initialization): it changes below
  const bool silent = campaign.many || group.rank() != world.rank();
  for (std::string ended;;) {
    const std::string next =
        group.communicator().broadcast_text(group.rank() == 0 ? ask(ended) : "", 0, "next training");
    ended.clear();
    if (next == "end") break;
    if (next == "wait") {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    const Json parts = parse_ordered_json(next);
    const Training training{
        .folder = parts.at(0), .title = "", .changes = parts.at(2).get<Changes>(), .until_epoch = parts.at(1)};
    world.at(training.folder.c_str(), -1);
    world.on_loss([] { return true; });  // what the trainings have written is enough to continue
    const Stopwatch watch_of_training;
    TrainingEnd end{kExitInterrupted, ""};
    const auto told = [&] { return line_of({training.name(), end.code, end.text}, -1); };
    log::set_thread_speaker({group.rank(), group.size(), speaker.host, silent && group.rank() == 0});
    try {
      if (signals.received() == 0) end = train(group, options, config, campaign, training);
    } catch (const CollectiveError& error) {
      end = {static_cast<int>(error.fault()), error.what()};
    } catch (const std::exception& problem) {
      const Error error = log::as_error(problem);
      end = {static_cast<int>(error.fault()), error.what()};
      // The other ranks of the group wait for this one, and can only be ended with the job.
      if (group.size() > 1) {
        if (desk || queue) ask(told());
        world.abort(end.code, end.text);
      }
    }
    log::set_thread_speaker(speaker);
    busy_s += watch_of_training.seconds();
    ended = told();
  }
  waits_for_disk = true;
  world.on_loss({});
  const double all_busy_s = world.communicator().all_reduced(busy_s, ReduceOp::sum, "end of the trainings");
  // No rank asks any more.
  if (campaign.many && all_busy_s > 0)
    log::info("the trainings took ", human_seconds(watch.seconds()), "; the ranks were idle for ",
              printed("%.1f %%", 100 - 100 * all_busy_s / (watch.seconds() * world.size())), " of it");
  const std::int64_t code = queue ? queue->code() : kExitDone;
  return static_cast<int>(world.communicator().all_reduced(code, ReduceOp::max, "end of the campaign"));
}

void add_ranks_per_run(Options& options, std::int64_t* ranks, std::int64_t initial) {
  options.add(
      "ranks-per-run=N", ranks, initial, non_negative,
      "ranks that train one run together; several runs are trained at once. 0: all ranks train one run after the "
      "other");
}

}  // namespace lockstep::apps
