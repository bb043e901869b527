#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/train/trainer.hpp"
#include "tasks/hrm/hrm_prediction.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;
/// Longest text of a 30 x 30 grid.
constexpr std::size_t kLongestGrid = 30 * (30 * 2 + 2) + 2;

Json json_of(const ArcAnswer& grid) {
  Json rows = Json::array();
  for (int r = 0; r < grid.rows; ++r) {
    const auto first = grid.cells.begin() + std::ptrdiff_t{r} * grid.columns;
    rows.push_back(std::vector<int>(first, first + grid.columns));
  }
  return rows;
}

ArcAnswer grid_of(const std::string& text) {
  ArcAnswer grid;
  for (const auto& row : parse_json(text)) {
    ++grid.rows;
    for (const auto& cell : row) grid.cells.push_back(cell.get<std::uint8_t>());
  }
  if (grid.rows > 0) grid.columns = static_cast<int>(grid.cells.size()) / grid.rows;
  return grid;
}

/// The votes for the test inputs of the tasks.
class Votes {
 public:
  void add(const std::string& task, std::int64_t input, const std::string& grid, double q_halt) {
    std::vector<ArcBallot>& ballots = tasks_[task][input];
    ballots.push_back({.task = 0, .input = 0, .answer = grid_of(grid).hash(), .truth = 0, .q_halt = q_halt});
    grids_.emplace(ballots.back().answer, grid);
  }
  std::size_t tasks() const { return tasks_.size(); }
  /// {task: [{"attempt_1": grid, "attempt_2": grid}, ...]}, inputs in their order. Without a second candidate both
  /// attempts are the first one; without any, [[0]].
  Json submission() const {
    Json all = Json::object();
    for (const auto& [task, inputs] : tasks_) {
      for (const auto& [input, votes] : inputs) {
        std::vector<ArcBallot> ballots = votes;
        std::ranges::sort(ballots);
        const std::vector<ArcCandidate> best = arc_candidates(ballots);
        const auto attempt = [&](std::size_t n) {
          return best.empty() ? parse_json("[[0]]") : parse_json(grids_.at(best[std::min(n, best.size() - 1)].answer));
        };
        all[task].push_back({{"attempt_1", attempt(0)}, {"attempt_2", attempt(1)}});
      }
    }
    return all;
  }

 private:
  std::map<std::string, std::map<std::int64_t, std::vector<ArcBallot>>> tasks_;
  std::map<std::uint64_t, std::string> grids_;  ///< by hash
};

}  // namespace

void predict_arc(World& world, const Args& args, const HrmPrediction& a, const RunConfig& config,
                 const CheckpointReader& reader, int threads) {
  const std::string& path = config.data.path;
  const auto data_memory = make_node_data_memory(world);
  world.together("checking the options", [&] {
    a.tries.check("arc");
    require_usage(a.input.empty(), "option input: puzzles of task arc have no text form; --data.path names a data set");
    require_usage(!a.output.path.empty() || !a.submission.empty(),
                  "options output and submission: neither is set; there is nothing to write");
    if (world.rank() != 0) return;
    if (!a.output.path.empty()) require_output(a.output, {path, a.checkpoint});
    if (a.submission.empty()) return;
    require_replaceable(a.submission, FileKind::text, a.output.force, {path, a.checkpoint});
    if (!a.output.path.empty()) require_different(a.output.path, a.submission);
  });
  const std::unique_ptr<Task> loaded = load_task(world, config, *data_memory, &reader.file());
  const auto& model = own<HrmTask>(*loaded);
  const PuzzleData& data = model.data();
  Texts names;
  world.together("loading the weights", [&] {
    require_data(data.task == "arc", path, ": its puzzles are of task ", data.task, ", the network's of task arc");
    if (!a.other_data) reader.require_data_of(*loaded, path);
    reader.load_average_or_weights(loaded->params());
    require_data(!data.arc_names.empty(), path, ": it has no names of identifiers, so its tasks have no names");
    require_data(model.tests() > 0, path, ": it has no test inputs");
    names = DatasetFile(H5File::open(path), kHrmFormat).read_text("/identifiers", -1);
  });
  std::size_t longest = 1;
  for (const std::string& name : names) longest = std::max(longest, name.size());

  PredictionTable table{
      .columns = {{.name = "task", .type = H5Type::text, .longest = longest},
                  {.name = "test", .type = H5Type::i64},
                  {.name = "variant", .type = H5Type::text, .longest = longest},
                  {.name = "answer", .type = H5Type::text, .longest = kLongestGrid}},
      .rows = model.tests(),
      .block_rows = 64,
      .unit = "test inputs",
      .attributes = describe_source("hrm", a.checkpoint, reader.data_hash(), "lockstep predict", args)};
  const std::size_t halting = add_halting_columns(table);
  table.block = [&](std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values) {
    std::vector<PuzzleExample> examples;
    for (std::int64_t i = first; i < first + count; ++i) examples.push_back(model.test(i));
    const PuzzleData::Rows rows = data.read(examples);
    const auto solved = solve_puzzles(model, rows.inputs, rows.identifiers, a.thinking, threads);
    for (std::size_t i = 0; i < solved.size(); ++i) {
      const PuzzleExample& example = examples[i];
      const ArcName& variant = data.arc_names[example.identifier];
      const std::string& name = names[example.identifier];
      std::get<Texts>(values[0])[i] = name.substr(0, variant.length);
      std::get<Integers>(values[1])[i] =
          example.row - example.part->first_example(example.part->puzzle_of(example.row));
      std::get<Texts>(values[2])[i] = name;
      std::get<Texts>(values[3])[i] = json_text(json_of(arc_answer(variant, solved[i].answer)));
      set_halting_columns(values, halting, i, solved[i]);
    }
  };
  Votes votes;
  table.see = [&](std::int64_t, std::int64_t count, const std::vector<PredictionValues>& values) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      votes.add(std::get<Texts>(values[0])[i], std::get<Integers>(values[1])[i], std::get<Texts>(values[3])[i],
                std::get<std::vector<double>>(values[halting + kQHalt])[i]);
  };
  write_predictions(world, a.output, table);
  if (world.rank() != 0 || a.submission.empty()) return;
  write_text_atomically(a.submission, json_text(votes.submission()) + "\n");
  std::cout << "wrote " << a.submission << ": two attempts at each test input of " << votes.tasks() << " tasks\n"
            << std::flush;
}

}  // namespace lockstep
