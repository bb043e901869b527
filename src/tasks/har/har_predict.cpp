#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/report/metric.hpp"
#include "lockstep/tasks/har/har_config.hpp"
#include "lockstep/tasks/prediction_file.hpp"
#include "lockstep/train/trainer.hpp"
#include "tasks/har/har_metrics.hpp"
#include "tasks/parallel_blocks.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kPassWindows = 64;  // of one forward pass: their activations stay in the cache
constexpr std::int64_t kBlockWindows = 16 * kPassWindows;

struct Arguments {
  RunConfig config;
  std::string checkpoint, input, split;
  PredictionOutput output, recordings;
};

Options make_options(Arguments& a) {
  Options options(
      "lockstep predict", "Classify windows of sensor signals.",
      "The windows are those of a prepared set: that of the training, or the one that --input names, such as "
      "lockstep-prep har --unlabelled makes from recordings without labels. Its "
      "channels, classes, window length and sampling rate must be those of the training, and so must its units where "
      "both are known. The output has a row per window: recording, subject, start, the most likely class and the "
      "probability of each class. --recordings writes a row per recording: the class with the most windows; of "
      "classes with equally many windows the one with the larger sum of probabilities. Where windows have labels, the "
      "command prints accuracy and confusion matrix.");
  options.add("checkpoint=FILE", &a.checkpoint, "", "checkpoint with the network").required();
  options.add("input=FILE.h5", &a.input, "", "prepared set with the windows; default: data.path");
  options.choice("split", &a.split, "test", {"train", "val", "test"}, "split of the data set")
      .value_alias("validation", "val")
      .value_alias("valid", "val");
  add_output_options(options, a.output, "predictions of windows").required();
  options.add("recordings=FILE", &a.recordings.path, "",
              "votes of recordings, in the format of the extension; empty: none. Windows of unknown recordings have no "
              "vote");
  options.example("lockstep predict --checkpoint run/checkpoints/best.h5 --input new.h5 --output windows.csv",
                  "the class of each window");
  options.example(
      "mpirun -n 4 lockstep predict --checkpoint run/checkpoints/best.h5 --input new.h5 --output windows.h5 "
      "--recordings recordings.csv",
      "the same on four ranks, and one class for each recording");
  options.list_only({"model.kind", "data.path", "data.stage", "run.device", "run.threads", "run.isa", "run.precision",
                     "dist.timeout", "dist.check_collectives", "dist.gpu_ids"});
  return options;
}

/// Recording, subject and start of each window of a split, as the input names them.
struct Origins {
  std::vector<std::int32_t> recording;                    ///< -1 unknown
  std::vector<std::int64_t> start;                        ///< -1 unknown
  std::vector<std::string> recording_name, subject_name;  ///< "" unknown

  Origins(const H5File& file, const std::string& group) {
    recording = file.read<std::int32_t>(group + "recording");
    start = file.read<std::int64_t>(group + "start");
    const auto subject = file.read<std::int32_t>(group + "subject");
    require_data(subject.size() == start.size(), "reading '", file.path().string(), "': ", subject.size(),
                 " subjects of ", start.size(), " windows");
    // Recording r of a manifest is the raw file r + 1: the manifest itself is the first.
    const std::vector<std::string> files = file.text_attribute("/", "source") == "har-manifest"
                                               ? file.text_list("/", "sources")
                                               : std::vector<std::string>{};
    const std::vector<std::string> subjects =
        file.has_attribute("/", "subject_names") ? file.text_list("/", "subject_names") : std::vector<std::string>{};
    const auto name = [](const std::vector<std::string>& names, std::int64_t at, std::int64_t number) {
      if (number < 0) return std::string();
      return at < std::ssize(names) ? names[at] : std::to_string(number);
    };
    for (const std::int32_t r : recording) recording_name.push_back(name(files, std::int64_t{r} + 1, r));
    for (const std::int32_t s : subject) subject_name.push_back(name(subjects, s, s));
  }
  std::size_t windows() const { return start.size(); }
};

std::size_t longest(const std::vector<std::string>& texts) {
  std::size_t most = 0;
  for (const std::string& text : texts) most = std::max(most, text.size());
  return most;
}

/// The votes of the windows of one recording.
struct Vote {
  std::size_t first = 0;              ///< one of its windows
  std::int32_t truth = -1;            ///< the label of all its windows; -1 if one has another, or none
  std::vector<std::int64_t> windows;  ///< by class
  std::vector<double> probability;    ///< sums, by class
  /// The class with the most windows, then with the larger sum of probabilities, then the lower one.
  std::int32_t winner() const {
    std::size_t best = 0;
    for (std::size_t k = 1; k < windows.size(); ++k)
      if (std::pair(windows[k], probability[k]) > std::pair(windows[best], probability[best])) best = k;
    return static_cast<std::int32_t>(best);
  }
};
using Votes = std::map<std::int32_t, Vote>;  ///< by number of the recording

/// The log-probabilities of `count` windows from `first` on, numbered over all splits, (count, classes).
std::vector<double> classify(const HarTask& model, std::int64_t first, std::int64_t count, int threads) {
  const std::int64_t classes = model.data().classes();
  const ParamStore& params = model.network().params();
  std::vector<double> out(count * classes);
  parallel_blocks(params.device(), params.storage(), threads, count, std::min(kPassWindows, model.evaluation_block()),
                  [&](Tape& tape, std::int64_t at, std::int64_t rows) {
                    model.classify(tape, consecutive(rows, first + at),
                                   std::span(out).subspan(at * classes, rows * classes));
                  });
  return out;
}

/// The counts that rank 0 collects from the predictions.
struct Tally {
  Votes votes;
  MetricTable confusion;
};

/// The table of predictions of one split; rank 0 fills `tally`.
PredictionTable window_table(const HarTask& model, Split split, const Origins& origins, int threads, Tally& tally) {
  const HarData& data = model.data();
  const std::int64_t begin = data.first_of(split), count = data.classes();
  const std::int32_t* labels = data.labels.data<std::int32_t>() + begin;
  const auto classes = static_cast<std::size_t>(count);
  const Texts& names = data.class_names;
  PredictionTable table{
      .columns = {{.name = "window", .type = H5Type::i64},
                  {.name = "recording", .type = H5Type::text, .longest = longest(origins.recording_name)},
                  {.name = "subject", .type = H5Type::text, .longest = longest(origins.subject_name)},
                  {.name = "start", .type = H5Type::i64},
                  {.name = "start_s", .type = H5Type::f64},
                  {.name = "class", .type = H5Type::i64},
                  {.name = "label", .type = H5Type::text, .longest = longest(names)},
                  {.name = "probability", .type = H5Type::f64, .extents = {count}, .labels = names},
                  {.name = "truth", .type = H5Type::text, .longest = longest(names)}},
      .rows = data.count[static_cast<std::size_t>(split)],
      .block_rows = kBlockWindows,
      .unit = "windows"};
  table.block = [&, begin, labels, classes, threads](std::int64_t first, std::int64_t rows,
                                                     std::vector<PredictionValues>& values) {
    const std::vector<double> found = classify(model, begin + first, rows, threads);
    const auto texts = [&](std::size_t column) -> Texts& { return std::get<Texts>(values[column]); };
    const auto integers = [&](std::size_t column) -> auto& { return std::get<Integers>(values[column]); };
    const auto reals = [&](std::size_t column) -> auto& { return std::get<std::vector<double>>(values[column]); };
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
      const std::size_t row = static_cast<std::size_t>(first) + i;
      const std::int64_t start = origins.start[row];
      const std::span<const double> logs = std::span(found).subspan(i * classes, classes);
      const std::int64_t best = largest_class(logs);
      integers(0)[i] = static_cast<std::int64_t>(row);
      texts(1)[i] = origins.recording_name[row];
      texts(2)[i] = origins.subject_name[row];
      integers(3)[i] = start;
      reals(4)[i] =
          start < 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(start) / data.sample_rate;
      integers(5)[i] = best;
      texts(6)[i] = data.class_names[best];
      double sum = 0;
      for (const double value : logs) sum += std::exp(value);
      for (std::size_t k = 0; k < classes; ++k) reals(7)[i * classes + k] = std::exp(logs[k]) / sum;
      if (labels[row] >= 0) texts(8)[i] = data.class_names[labels[row]];
    }
  };
  tally.confusion = {"confusion", names, names, std::vector<double>(classes * classes)};
  table.see = [&, labels, classes](std::int64_t first, std::int64_t rows, const std::vector<PredictionValues>& values) {
    const auto& all = std::get<std::vector<double>>(values[7]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
      const std::size_t row = static_cast<std::size_t>(first) + i;
      const auto best = static_cast<std::size_t>(std::get<Integers>(values[5])[i]);
      if (labels[row] >= 0) tally.confusion.values[static_cast<std::size_t>(labels[row]) * classes + best] += 1;
      if (origins.recording[row] < 0) continue;
      Vote& vote = tally.votes[origins.recording[row]];
      if (vote.windows.empty())
        vote = {row, labels[row], std::vector<std::int64_t>(classes), std::vector<double>(classes)};
      if (labels[row] != vote.truth) vote.truth = -1;
      vote.windows[best] += 1;
      for (std::size_t k = 0; k < classes; ++k) vote.probability[k] += all[i * classes + k];
    }
  };
  return table;
}

/// The table of votes. Rank 0, which has them all, writes it as one block.
PredictionTable vote_table(const HarData& data, const Origins& origins, const Votes& votes) {
  std::set<std::int32_t> recordings(origins.recording.begin(), origins.recording.end());
  recordings.erase(-1);
  const Texts& names = data.class_names;
  PredictionTable table{
      .columns = {{.name = "recording", .type = H5Type::text, .longest = longest(origins.recording_name)},
                  {.name = "subject", .type = H5Type::text, .longest = longest(origins.subject_name)},
                  {.name = "windows", .type = H5Type::i64},
                  {.name = "class", .type = H5Type::i64},
                  {.name = "label", .type = H5Type::text, .longest = longest(names)},
                  {.name = "votes", .type = H5Type::i64, .extents = {std::ssize(names)}, .labels = names},
                  {.name = "truth", .type = H5Type::text, .longest = longest(names)}},
      .rows = std::ssize(recordings),
      .block_rows = std::max<std::int64_t>(1, std::ssize(recordings)),
      .unit = "recordings"};
  table.block = [&](std::int64_t, std::int64_t, std::vector<PredictionValues>& values) {
    std::size_t i = 0;
    for (const auto& [recording, vote] : votes) {
      const auto winner = static_cast<std::size_t>(vote.winner());
      std::get<Texts>(values[0])[i] = origins.recording_name[vote.first];
      std::get<Texts>(values[1])[i] = origins.subject_name[vote.first];
      std::get<Integers>(values[2])[i] = std::accumulate(vote.windows.begin(), vote.windows.end(), std::int64_t{0});
      std::get<Integers>(values[3])[i] = vote.winner();
      std::get<Texts>(values[4])[i] = data.class_names[winner];
      std::ranges::copy(vote.windows, std::get<Integers>(values[5]).begin() + i * vote.windows.size());
      if (vote.truth >= 0) std::get<Texts>(values[6])[i] = data.class_names[vote.truth];
      ++i;
    }
  };
  return table;
}

/// Prints the scores of the predictions against the labels.
void print_scores(const Tally& tally) {
  const MetricTable& confusion = tally.confusion;
  double windows = 0, correct = 0;
  for (std::size_t i = 0; i < confusion.values.size(); ++i) {
    windows += confusion.values[i];
    if (i % (confusion.rows.size() + 1) == 0) correct += confusion.values[i];
  }
  if (windows == 0) return;
  std::cout << "accuracy " << join(correct / windows) << " of " << windows << " labelled windows\n";
  std::int64_t recordings = 0, voted = 0;
  for (const auto& [recording, vote] : tally.votes) {
    if (vote.truth < 0) continue;
    ++recordings;
    voted += vote.winner() == vote.truth;
  }
  if (recordings > 0)
    std::cout << "votes are right for " << voted << " of " << recordings << " recordings with one label\n";
  std::cout << text_of(confusion) << text_of(class_scores(confusion)) << std::flush;
}

}  // namespace

int predict_har(World& world, const Args& args) {
  Arguments a;
  Options options = make_options(a);
  if (!parse(world, options, args, a.config)) return 0;
  if (!a.input.empty() && options.given("data.path")) options.reject("input", "data.path names the windows, too");
  const auto reader = open_checkpoint(world, a.checkpoint, args, options, a.config);
  if (!a.input.empty()) a.config.data.path = a.input;
  const Split split = a.split == "train" ? Split::train : a.split == "test" ? Split::test : Split::validation;
  std::optional<Origins> origins;
  world.together("opening the data set", [&] {
    own<HarConfig>(*a.config.task).read_for_prediction();
    if (world.rank() != 0) return;
    require_output(a.output, {a.config.data.path, a.checkpoint});
    if (a.recordings.path.empty()) return;
    a.recordings.force = a.output.force;
    require_output(a.recordings, {a.config.data.path, a.checkpoint});
    require_different(a.output.path, a.recordings.path);
  });
  const int threads = prepare_cpu(world, a.config);
  const auto data_memory = make_node_data_memory(world);
  const auto loaded = load_task(world, a.config, *data_memory, &reader->file());
  const auto& model = own<HarTask>(*loaded);
  world.together("loading the weights", [&] {
    reader->load_average_or_weights(loaded->params());
    const std::int64_t rows = model.data().count[static_cast<std::size_t>(split)];
    require_data(rows > 0, a.config.data.path, ": it has no ", name(split), " windows; --split names another part");
    origins.emplace(H5File::open(a.config.data.path), split == Split::train        ? "/train/"
                                                      : split == Split::validation ? "/val/"
                                                                                   : "/test/");
    if (world.rank() == 0 && !reader->file().has("/har/channel_units"))
      log::warning(a.checkpoint, ": it does not say the units of its channels; those of ", a.config.data.path, " are ",
                   model.data().channel_units.empty() ? "unknown, too" : listed(model.data().channel_units));
  });
  Stream stream(model.network().params().device());
  loaded->params().refresh(stream);
  const PredictionAttributes source =
      describe_source("har", a.checkpoint, reader->data_hash(), "lockstep predict", args);
  Tally tally;
  PredictionTable windows = window_table(model, split, *origins, threads, tally);
  windows.attributes = source;
  write_predictions(world, a.output, windows);
  if (!a.recordings.path.empty()) {
    PredictionTable votes = vote_table(model.data(), *origins, tally.votes);
    votes.attributes = source;
    write_predictions(world, a.recordings, votes);
  }
  if (world.rank() == 0) print_scores(tally);
  return 0;
}

}  // namespace lockstep
