#include <algorithm>
#include <cmath>
#include <iostream>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/trainer.hpp"
#include "tasks/hrm/hrm_prediction.hpp"
#include "tasks/hrm/puzzle_rules.hpp"

namespace lockstep {
namespace {

/// The characters of tokens: '.' and digits for Sudoku, "# SGo" for mazes.
std::string alphabet(const std::string& task, std::int64_t vocab) {
  if (task == "sudoku") return std::string("?.123456789").substr(0, vocab);
  return "?# SGo";
}

struct Puzzle {
  std::int64_t line = 0;  ///< of the input
  std::vector<std::int32_t> tokens;
};

/// A line of the input. errors  data, beginning with `where`: the line is no puzzle
Puzzle read_puzzle(const std::string& line, const std::string& where, const std::string& letters,
                   const PuzzleData& data) {
  require_data(std::ssize(line) == data.seq_len, where, "the puzzle has ", line.size(),
               " cells; the network solves puzzles of ", data.seq_len,
               ", each on one line, or a row of it on each line");
  Puzzle puzzle;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = data.task == "sudoku" && line[i] == '0' ? '.' : line[i];
    const auto at = letters.find(c);
    require_data(at != std::string::npos && at > 0, where, "'", std::string(1, c), "' in cell ", i + 1, " is none of '",
                 letters.substr(1), "'");
    puzzle.tokens.push_back(static_cast<std::int32_t>(at));
  }
  for (const char cell : {'S', 'G'})
    require_data(data.task != "maze" || std::ranges::count(line, cell) == 1, where, "the maze has ",
                 std::ranges::count(line, cell), " cells '", std::string(1, cell), "', expected one");
  const std::string twice = data.task == "sudoku" ? sudoku_violation(puzzle.tokens) : "";
  require_data(twice.empty(), where, "the puzzle contradicts itself: ", twice);
  return puzzle;
}

/// The cells of a line of a Sudoku, without the blanks, bars and other signs between rows and boxes.
std::string cells_of(const std::string& line) {
  std::string cells = line;
  std::erase_if(cells, [](char c) { return std::string_view(" \t|,;:").find(c) != std::string_view::npos; });
  return cells.find_first_not_of("-+=") == std::string::npos ? "" : cells;
}

/// The puzzles of a file: one per line, or one row of a puzzle per line. Appends the message of each other line to
/// `bad`.
std::vector<Puzzle> read_puzzles(const std::string& path, const PuzzleData& data, std::vector<std::string>& bad) {
  const std::string letters = alphabet(data.task, data.vocab_size);
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(data.seq_len))));
  std::ifstream in = open_text(path);
  std::vector<Puzzle> puzzles;
  std::string line, rows;
  std::int64_t first = 0;  // line of the first one of `rows`
  const auto take = [&](const std::string& puzzle, std::int64_t from) {
    try {
      puzzles.push_back(read_puzzle(puzzle, join("reading '", path, "', line ", from, ": "), letters, data));
      puzzles.back().line = from;
    } catch (const Error& error) {
      bad.emplace_back(error.what());
    }
  };
  for (std::int64_t number = 0; next_line(in, line, number, path);) {
    if (data.task == "sudoku" && line.starts_with('#')) continue;
    const std::string cells = data.task == "sudoku" ? cells_of(line) : line;
    if (cells.empty()) continue;
    if (cells.size() != side) {
      take(cells, number);
      continue;
    }
    if (rows.empty()) first = number;
    rows += cells;
    if (rows.size() < side * side) continue;
    take(rows, first);
    rows.clear();
  }
  if (!rows.empty()) take(rows, first);
  require_data(!puzzles.empty(), bad.empty() ? join("reading '", path, "': no puzzles in it") : bad.front());
  return puzzles;
}

std::string line_text(const std::vector<std::int32_t>& tokens, const std::string& letters) {
  std::string out;
  for (const std::int32_t token : tokens) out += letters[token];
  return out;
}

/// A line as a grid.
std::string grid_text(const std::string& line) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(line.size()))));
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    out += line[i];
    out += (i + 1) % side == 0 ? '\n' : ' ';
  }
  return out;
}

/// Whether the output is a text file with an answer per line, instead of a table.
bool is_lines(const PredictionOutput& output) {
  const std::string extension = std::filesystem::path(output.path).extension();
  return output.format == "auto" && extension != ".h5" && extension != ".hdf5" && extension != ".csv" &&
         extension != ".jsonl" && extension != ".ndjson";
}

/// The combined answer to a puzzle.
struct Tried {
  PuzzleAnswer best;
  std::int64_t tries = 0, agreeing = 0;
};

/// Solves all puzzles on all ranks together; every rank gets all answers. Collective.
std::vector<Tried> solve_all(World& world, const HrmTask& model, std::span<const Puzzle> puzzles,
                             const HrmPrediction& a, int threads) {
  std::vector<Tried> solved;
  for (std::int64_t first = 0; first < std::ssize(puzzles); first += kTriedPuzzles) {
    const auto some = puzzles.subspan(first).first(std::min(kTriedPuzzles, std::ssize(puzzles) - first));
    std::vector<std::int32_t> inputs;
    for (const Puzzle& puzzle : some) inputs.insert(inputs.end(), puzzle.tokens.begin(), puzzle.tokens.end());
    const std::vector<std::int32_t> identifiers(some.size());
    for (const PuzzleVote& vote :
         try_puzzles(world.communicator(), model, first, inputs, identifiers, a.tries, a.thinking, threads))
      solved.push_back({vote.best(), vote.tries(), vote.agreeing()});
    if (world.rank() == 0) log::status(join("solved ", solved.size(), " of ", puzzles.size(), " puzzles"));
  }
  if (world.rank() == 0) log::status("");
  return solved;
}

/// Solves the puzzles of a text file. Returns the exit code.
int predict_text(World& world, const Args& args, const HrmPrediction& a, const HrmConfig& hrm,
                 const CheckpointReader& reader, int threads) {
  std::unique_ptr<HrmTask> model;
  std::vector<Puzzle> puzzles;
  std::vector<std::string> bad;
  const bool as_lines = is_lines(a.output);
  world.together("loading network and puzzles", [&] {
    require_usage(!a.input.empty(), "option input: it must name a file of puzzles");
    require_usage(a.submission.empty(), "option submission = ", a.submission, ": only tasks of ARC have one");
    if (!a.output.path.empty() && world.rank() == 0) {
      if (as_lines)
        require_replaceable(a.output.path, FileKind::text, a.output.force, {a.input, a.checkpoint});
      else
        require_output(a.output, {a.input, a.checkpoint});
    }
    a.tries.check(reader.file().text_attribute("/", "task"));
    model = hrm.load_trained(reader.file(), a.config.dtype());
    reader.load_average_or_weights(model->params());
    puzzles = read_puzzles(a.input, model->data(), bad);
  });
  const std::string& task = model->data().task;
  const std::string letters = alphabet(task, model->data().vocab_size);
  const auto cells = static_cast<std::size_t>(model->data().seq_len);
  constexpr std::size_t kLongestDefect = 64;
  PredictionTable table{
      .columns = {{.name = "line", .type = H5Type::i64},
                  {.name = "puzzle", .type = H5Type::text, .longest = cells},
                  {.name = "answer", .type = H5Type::text, .longest = cells},
                  {.name = "defect", .type = H5Type::text, .longest = kLongestDefect}},
      .rows = std::ssize(puzzles),
      .block_rows = 256,
      .unit = "puzzles",
      .attributes = describe_source("hrm", a.checkpoint, reader.data_hash(), "lockstep predict", args)};
  const std::size_t halting = add_halting_columns(table), agreeing = table.columns.size();
  for (const char* column : {"tries", "agreeing"}) table.columns.push_back({.name = column, .type = H5Type::i64});
  const std::vector<Tried> solved = solve_all(world, *model, puzzles, a, threads);
  table.block = [&](std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const auto at = static_cast<std::size_t>(first) + i;
      std::get<Integers>(values[0])[i] = puzzles[at].line;
      std::get<Texts>(values[1])[i] = line_text(puzzles[at].tokens, letters);
      std::get<Texts>(values[2])[i] = line_text(solved[at].best.answer, letters);
      std::get<Texts>(values[3])[i] = puzzle_defect(task, puzzles[at].tokens, solved[at].best.answer);
      set_halting_columns(values, halting, i, solved[at].best);
      std::get<Integers>(values[agreeing])[i] = solved[at].tries;
      std::get<Integers>(values[agreeing + 1])[i] = solved[at].agreeing;
    }
  };
  std::int64_t right = 0, line = 1;  // `line`: number of the last line in `lines`
  std::string lines;
  table.see = [&](std::int64_t, std::int64_t count, const std::vector<PredictionValues>& values) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const auto integer = [&](std::size_t column) { return std::get<Integers>(values[column])[i]; };
      const std::string &answer = std::get<Texts>(values[2])[i], &defect = std::get<Texts>(values[3])[i];
      const std::int64_t halts = integer(halting + kHaltsAfter);
      right += defect.empty();
      std::cout << "line " << integer(0) << ": " << (defect.empty() ? "solved" : "not solved, " + defect)
                << "; settled after segment " << integer(halting + kSettledAfter) << " of "
                << integer(halting + kSegments)
                << (halts > 0 ? join(a.thinking.halt ? ", halted after " : ", would halt after ", halts) : "");
      if (a.tries.count > 1)
        std::cout << "; " << integer(agreeing + 1) << " of " << integer(agreeing) << " tries agree";
      std::cout << "\n" << grid_text(answer) << "\n";
      for (; line < integer(0); ++line) lines += '\n';
      lines += answer;
    }
  };
  write_predictions(world, as_lines ? PredictionOutput{} : a.output, table);
  const int code = bad.empty() ? 0 : static_cast<int>(Fault::data);
  if (world.rank() != 0) return code;
  for (const std::string& message : bad) log::warning(message);
  std::cout << right << " of " << puzzles.size() << " puzzles solved";
  if (a.tries.count > 1) std::cout << "; " << a.tries.count << " tries, combined by " << a.tries.combine;
  if (!bad.empty()) std::cout << "; " << bad.size() << (bad.size() == 1 ? " line is" : " lines are") << " no puzzle";
  std::cout << "\n" << std::flush;
  if (as_lines && !a.output.path.empty()) write_text_atomically(a.output.path, lines + "\n");
  return code;
}

}  // namespace

std::size_t add_halting_columns(PredictionTable& table) {
  const std::size_t first = table.columns.size();
  for (const char* column : {"segments", "settled_after", "halts_after"})
    table.columns.push_back({.name = column, .type = H5Type::i64});
  for (const char* column : {"q_halt", "q_continue"}) table.columns.push_back({.name = column, .type = H5Type::f64});
  return first;
}

void set_halting_columns(std::vector<PredictionValues>& values, std::size_t first, std::size_t row,
                         const PuzzleAnswer& answer) {
  std::get<Integers>(values[first + kSegments])[row] = answer.segments;
  std::get<Integers>(values[first + kSettledAfter])[row] = answer.changed;
  std::get<Integers>(values[first + kHaltsAfter])[row] = answer.halted;
  std::get<std::vector<double>>(values[first + kQHalt])[row] = answer.q_halt;
  std::get<std::vector<double>>(values[first + kQContinue])[row] = answer.q_continue;
}

int predict_hrm(World& world, const Args& args) {
  HrmPrediction a;
  Options options(
      "lockstep predict", "Solve puzzles: Sudokus and mazes of a text file, or the test tasks of an ARC data set.",
      "Text has one puzzle per line: for Sudoku the digits row by row, with '.' or '0' for an empty cell; for mazes "
      "the characters '#', ' ', 'S' and 'G'. A line that is not a puzzle is reported and skipped; the exit code is "
      "then 3. Each answer is printed as a grid, with the segment after which it no longer changed, and whether it "
      "breaks a rule or changes a given cell. A network of ARC answers the test inputs of its data set, or of "
      "--data.path, in all variants; --submission writes the two answers with the most votes.");
  options.add("checkpoint=FILE", &a.checkpoint, "", "checkpoint with the network").required();
  options.add("input=FILE", &a.input, "", "Sudokus or mazes, one per line, or one row of a puzzle per line");
  add_output_options(options, a.output,
                     "answers and halting values, as a table; with another extension, of Sudokus and mazes, a text "
                     "file: each answer on the line of its puzzle, in the format of the input");
  options.add("submission=FILE", &a.submission, "", "ARC: file for two attempts per test input, as JSON");
  options.add("segments", &a.thinking.segments, 0, between(0, 1000), "segments; 0: as in evaluations");
  options.add("other-data", &a.other_data, false,
              "ARC: accept a data set other than that of the training; its tasks must have the same identifiers");
  options.example("lockstep predict --checkpoint runs/hrm-laptop/checkpoints/best.h5 --input puzzles.txt",
                  "print solved grids");
  options.example(
      "mpirun -n 4 lockstep predict --checkpoint runs/hrm-laptop/checkpoints/best.h5 --input puzzles.txt --tries 32",
      "32 tries at each puzzle");
  options.example("mpirun -n 4 lockstep predict --checkpoint runs/arc/checkpoints/best.h5 --submission submission.json",
                  "two attempts at each test input of ARC");
  options.list_only({"model.kind", "data.path", "data.stage", "eval.tries", "eval.combine", "eval.noise", "eval.halt",
                     "run.seed", "run.threads", "run.isa", "run.precision", "dist.timeout", "dist.check_collectives"});
  if (!parse(world, options, args, a.config)) return 0;
  world.configure({.timeout_s = a.config.dist.timeout, .check_collectives = a.config.dist.check_collectives});
  std::unique_ptr<CheckpointReader> reader;
  RunConfig stored;
  world.together("opening the checkpoint", [&] {
    reader = std::make_unique<CheckpointReader>(a.checkpoint);
    require_data(reader->model_kind() == "hrm", "checkpoint ", a.checkpoint, ": its model is ", reader->model_kind(),
                 ", not hrm");
    Options table("lockstep predict");
    add_options(table, stored, reader->model_kind());
    table.parse_ini(reader->config(), a.checkpoint);
    require_same_network(options, reader->config(), "checkpoint " + a.checkpoint, !Options::config_files(args).empty());
    const auto& asked = own<HrmConfig>(*a.config.task);
    a.tries = asked.tries();
    a.tries.seed = a.config.run.seed;
    a.thinking.halt = asked.halts();
  });
  const int threads = prepare_cpu(world, a.config);
  if (reader->file().text_attribute("/", "task") != "arc")
    return predict_text(world, args, a, own<HrmConfig>(*stored.task), *reader, threads);
  if (options.given("data.path")) stored.data.path = a.config.data.path;
  stored.data.stage = a.config.data.stage;
  stored.run = a.config.run;
  predict_arc(world, args, a, stored, *reader, threads);
  return 0;
}

}  // namespace lockstep
