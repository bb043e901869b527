#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "lockstep/prep/hrm/maze.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

bool run_synth_maze(const Args& args) {
  Options options("lockstep-prep synth-maze", "Synthetic square mazes with their shortest paths.",
                  "Carved mazes have one path between any two cells. In mazes with random walls there may be several "
                  "shortest paths: the answer is the one that, from the goal, prefers up, then left, then right, then "
                  "down; --unique keeps only mazes with one shortest path. No maze of a file is a rotated or mirrored "
                  "image of another. The rating is the number of steps.");
  MazeRecipe recipe;
  std::string kind;
  std::int64_t train = 0, test = 0, tries = 0;
  bool aug = false;
  options.choice("walls", &kind, "carved", {"carved", "random"},
                 "carved: corridors that form a tree; random: random walls");
  options.add("side", &recipe.side, 30, between(3, 64), "cells per side");
  options.add("density", &recipe.density, 0.35, below_one, "share of wall cells, with walls = random");
  options.add("min-path", &recipe.min_path, std::int64_t{0}, non_negative,
              "least number of steps from start to goal; 0: the side");
  options.add("unique", &recipe.unique, false, "drop mazes with several shortest paths");
  options.add("train", &train, std::int64_t{1000}, between(1, 1e9), "training mazes");
  options.add("test", &test, std::int64_t{200}, between(0, 1e9), "test mazes");
  options.add("aug", &aug, false, "add the seven rotated and mirrored images to each training group");
  options.add("max-tries", &tries, std::int64_t{20000}, at_least(1),
              "draws in a row without a new maze before giving up");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::option);
  common.add_val(options, "validation mazes");
  options.example("lockstep-prep synth-maze --side 30 --min-path 111 --output maze.h5",
                  "long paths, as in the published 30x30 set");
  options.example("lockstep-prep synth-maze --side 10 --walls random --unique --aug --output small.h5", "small mazes");
  if (!options.parse(args)) return false;
  recipe.carved = kind == "carved";
  if (recipe.min_path == 0) recipe.min_path = recipe.side;
  require_writable(common.output);
  common.require_room(train, test, aug ? 7 : 0, static_cast<std::int64_t>(recipe.side) * recipe.side);

  BasePuzzles all;
  std::unordered_set<std::string> known;
  std::uint64_t draw = 0;
  for (std::int64_t missed = 0; all.size() < train + test + common.val; ++draw) {
    Below below(common.seed, draw, "synth.maze");
    MazeGrid question, answer;
    if (!make_maze(recipe, std::ref(below), question, answer) ||
        !known.insert(canonical_maze(recipe.side, question)).second) {
      require_usage(++missed < tries, "making mazes: ", all.size(), " of ", train + test + common.val,
                    " found, none in the last ", tries, " draws; lower min-path = ", recipe.min_path,
                    " or density, ask for fewer, or raise max-tries");
      continue;
    }
    missed = 0;
    PuzzleRow row;
    row.where = join("maze ", all.size());
    row.rating = static_cast<std::int32_t>(1 + std::count(answer.begin(), answer.end(), kMazePath));
    all.add(row, question, answer);
  }
  const auto order = draw_permutation(train + test, common.seed, "synth.split");
  // The last mazes are for validation, so that train and test do not depend on their number.
  std::vector<std::int64_t> val(common.val);
  std::iota(val.begin(), val.end(), train + test);
  PuzzleSet set = maze_set(all.cells);
  common.apply(set);
  set.num_aug = aug ? 7 : 0;
  set.notes = {{"generator", std::string("synth-maze")}, {"walls", kind}, {"min_path", recipe.min_path}};
  if (!recipe.carved) set.notes.emplace_back("density", recipe.density);
  add_base_puzzles(set, all.picked({order.begin(), order.begin() + train}),
                   all.picked({order.begin() + train, order.end()}), all.picked(val));
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
