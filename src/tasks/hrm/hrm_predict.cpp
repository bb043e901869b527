#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/tasks/arguments.hpp"
#include "lockstep/tasks/hrm/hrm_config.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

/// The characters of tokens: '.' and digits for Sudoku, "# SGo" for mazes.
std::string alphabet(const std::string& task, std::int64_t vocab) {
  if (task == "sudoku") return std::string("?.123456789").substr(0, static_cast<std::size_t>(vocab));
  require_usage(task == "maze", "lockstep predict: puzzles of task ", task, " have no text form");
  return "?# SGo";
}

struct Puzzle {
  std::int64_t line = 0;  ///< of the input
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> answer;
  std::int64_t changed = 0;  ///< the last segment that changed the answer
  std::int64_t halted = 0;   ///< the first segment with q_halt > 0; 0: none
};

/// Describes a violated Sudoku rule, such as "digit 5 twice in row 3"; "" if there is none.
std::string contradiction(const std::vector<std::int32_t>& grid) {
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(grid.size()))));
  const auto box = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(side))));
  std::map<std::tuple<int, std::int64_t, std::int32_t>, int> seen;
  for (std::int64_t i = 0; i < side * side; ++i) {
    const std::int32_t token = grid[static_cast<std::size_t>(i)];
    if (token < 2) continue;
    const std::int64_t row = i / side, column = i % side;
    const char* names[] = {"row ", "column ", "box "};
    const std::int64_t units[] = {row, column, row / box * box + column / box};
    for (int k = 0; k < 3; ++k)
      if (++seen[{k, units[k], token}] > 1) return join("digit ", token - 1, " twice in ", names[k], units[k] + 1);
  }
  return "";
}

/// A line of the input. errors  data, beginning with `where`: the line is no puzzle
Puzzle read_puzzle(const std::string& line, const std::string& where, const std::string& letters,
                   const PuzzleData& data) {
  require_data(static_cast<std::int64_t>(line.size()) == data.seq_len, where, "the puzzle has ", line.size(),
               " characters; the network solves puzzles of ", data.seq_len);
  Puzzle puzzle;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = data.task == "sudoku" && line[i] == '0' ? '.' : line[i];
    const auto at = letters.find(c);
    require_data(at != std::string::npos && at > 0, where, "'", std::string(1, c), "' in cell ", i + 1, " is none of '",
                 letters.substr(1), "'");
    puzzle.tokens.push_back(static_cast<std::int32_t>(at));
  }
  const std::string twice = data.task == "sudoku" ? contradiction(puzzle.tokens) : "";
  require_data(twice.empty(), where, "the puzzle contradicts itself: ", twice);
  return puzzle;
}

/// The puzzles of a file. Appends the message of each other line to `bad`.
std::vector<Puzzle> read_puzzles(const std::string& path, const PuzzleData& data, std::vector<std::string>& bad) {
  const std::string letters = alphabet(data.task, data.vocab_size);
  std::ifstream in(path);
  require_usage(in.good(), "opening '", path, "': no such file, or not readable");
  std::vector<Puzzle> puzzles;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    try {
      puzzles.push_back(read_puzzle(line, join("reading '", path, "', line ", number, ": "), letters, data));
      puzzles.back().line = number;
    } catch (const Error& error) {
      bad.emplace_back(error.what());
    }
  }
  require_data(!puzzles.empty(), bad.empty() ? join("reading '", path, "': no puzzles in it") : bad.front());
  return puzzles;
}

std::string grid_text(const std::vector<std::int32_t>& tokens, const std::string& letters) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(tokens.size()))));
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    out += letters[static_cast<std::size_t>(tokens[i])];
    out += (i + 1) % side == 0 ? '\n' : ' ';
  }
  return out;
}

/// Rank r solves the puzzles r, r + ranks, ... in blocks, on its threads.
void solve(const HrmTask& model, std::vector<Puzzle>& puzzles, std::int64_t segments, int rank, int ranks,
           int threads) {
  std::vector<Puzzle*> mine;
  for (std::size_t i = static_cast<std::size_t>(rank); i < puzzles.size(); i += static_cast<std::size_t>(ranks))
    mine.push_back(&puzzles[i]);
  const auto cells = static_cast<std::size_t>(model.data().seq_len);
  const auto block = static_cast<std::size_t>(model.evaluation_block()), blocks = (mine.size() + block - 1) / block;
#pragma omp parallel num_threads(threads)
  {
    Stream stream;
    Arena arena;
#pragma omp for schedule(dynamic)
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t first = b * block, count = std::min(block, mine.size() - first);
      std::vector<std::int32_t> inputs, ids(count, 0);
      for (std::size_t i = 0; i < count; ++i)
        inputs.insert(inputs.end(), mine[first + i]->tokens.begin(), mine[first + i]->tokens.end());
      arena.reset();
      Tape tape(stream, arena, model.options().dtype, Tape::Mode::forward);
      model.solve(tape, inputs, ids, segments,
                  [&](std::int64_t segment, std::span<const std::int32_t> tokens, std::span<const double> q_halt) {
                    for (std::size_t i = 0; i < count; ++i) {
                      Puzzle& puzzle = *mine[first + i];
                      const auto now = tokens.subspan(i * cells, cells);
                      if (!std::equal(now.begin(), now.end(), puzzle.answer.begin(), puzzle.answer.end())) {
                        puzzle.answer.assign(now.begin(), now.end());
                        puzzle.changed = segment;
                      }
                      if (puzzle.halted == 0 && q_halt[i] > 0) puzzle.halted = segment;
                    }
                  });
    }
  }
}

/// Broadcasts every rank's answers to all ranks.
void share(Communicator& comm, std::vector<Puzzle>& puzzles) {
  for (std::size_t i = 0; i < puzzles.size(); ++i) {
    Puzzle& p = puzzles[i];
    p.answer.resize(p.tokens.size());
    const int owner = static_cast<int>(i % static_cast<std::size_t>(comm.size()));
    comm.broadcast(std::as_writable_bytes(std::span(p.answer)), owner, "answer");
    std::int64_t numbers[2] = {p.changed, p.halted};
    comm.broadcast(std::as_writable_bytes(std::span<std::int64_t>(numbers)), owner, "segments");
    p.changed = numbers[0];
    p.halted = numbers[1];
  }
}

}  // namespace

int predict_hrm(World& world, const Args& args) {
  RunConfig config;
  std::string checkpoint, input, output;
  std::int64_t segments = 0;
  Options options(
      "lockstep predict", "Solve puzzles from a text file.",
      "One puzzle per line: for Sudoku the digits row by row, with '.' or '0' for an empty cell; for mazes the "
      "characters '#', ' ', 'S' and 'G'. A line that is no puzzle is reported and skipped; the exit code is 3 then. "
      "Each answer is printed as a grid, with the segment after which it "
      "no longer changed, and whether it breaks a rule or changes a given cell.");
  options.add("checkpoint", &checkpoint, "", "checkpoint with the network").value_name("FILE").required();
  options.add("input", &input, "", "puzzles, one per line").value_name("FILE").required();
  options
      .add("output", &output, "",
           "file for the answers, each on the line of its puzzle and in the format of the input; empty: none")
      .value_name("FILE");
  options.add("segments", &segments, 0, non_negative, "segments; 0: as in evaluations");
  options.example("lockstep predict --checkpoint runs/hrm-laptop/checkpoints/best.h5 --input puzzles.txt",
                  "print solved grids");
  options.list_only({"model.kind", "run.threads", "run.precision", "dist.timeout", "dist.check_collectives"});
  if (!parse(world, options, args, config)) return 0;
  world.configure({.timeout_s = config.dist.timeout, .check_collectives = config.dist.check_collectives});
  std::unique_ptr<HrmTask> model;
  std::vector<Puzzle> puzzles;
  std::vector<std::string> bad;
  world.together("loading network and puzzles", [&] {
    if (!output.empty() && world.rank() == 0) require_writable(output, {input, checkpoint});
    const CheckpointReader reader(checkpoint);
    RunConfig stored;
    Options table("lockstep predict");
    add_options(table, stored, reader.model_kind());
    table.parse_ini(reader.config(), checkpoint);
    const auto* hrm = dynamic_cast<const HrmConfig*>(stored.task.get());
    require_data(hrm != nullptr, "checkpoint ", checkpoint, ": its model is ", reader.model_kind(), ", not hrm");
    model = hrm->load_trained(reader.file(), config.dtype());
    reader.load_average_or_weights(model->params());
    puzzles = read_puzzles(input, model->data(), bad);
  });
  if (segments == 0) segments = model->options().eval_segments;
  solve(*model, puzzles, segments, world.rank(), world.size(), prepare_cpu(world, config));
  share(world.communicator(), puzzles);
  const int code = bad.empty() ? 0 : static_cast<int>(Fault::data);
  if (world.rank() != 0) return code;

  const std::string letters = alphabet(model->data().task, model->data().vocab_size);
  std::int64_t right = 0;
  std::int64_t line = 1;  // that `lines` ends with
  std::string lines;
  for (const Puzzle& p : puzzles) {
    std::string verdict;
    if (model->data().task == "sudoku") {
      verdict = contradiction(p.answer);
      for (std::size_t c = 0; c < p.tokens.size() && verdict.empty(); ++c) {
        if (p.answer[c] < 2) verdict = join("cell ", c + 1, " is empty");
        if (p.tokens[c] >= 2 && p.tokens[c] != p.answer[c]) verdict = join("given cell ", c + 1, " was changed");
      }
    } else {
      for (std::size_t c = 0; c < p.tokens.size() && verdict.empty(); ++c)
        if (p.answer[c] != p.tokens[c] && !(p.tokens[c] == 2 && p.answer[c] == 5))
          verdict = join("cell ", c + 1, " was changed");
    }
    right += verdict.empty();
    std::cout << "line " << p.line << ": " << (verdict.empty() ? "solved" : "not solved, " + verdict)
              << "; settled after segment " << p.changed << " of " << segments
              << (p.halted > 0 ? join(", would halt after ", p.halted) : "") << "\n"
              << grid_text(p.answer, letters) << "\n";
    for (; line < p.line; ++line) lines += '\n';
    for (const std::int32_t token : p.answer) lines += letters[static_cast<std::size_t>(token)];
  }
  lines += '\n';
  for (const std::string& message : bad) log::warning(message);
  std::cout << right << " of " << puzzles.size() << " puzzles solved";
  if (!bad.empty()) std::cout << "; " << bad.size() << (bad.size() == 1 ? " line is" : " lines are") << " no puzzle";
  std::cout << "\n" << std::flush;
  if (!output.empty())
    write_atomically(output, [&](const std::filesystem::path& temporary) {
      std::ofstream out(temporary, std::ios::binary);
      out << lines;
      out.close();
      require(out.good(), "writing ", output, ": the disk is full, or the file cannot be written");
    });
  return code;
}

}  // namespace lockstep
