#include "prep/hrm/puzzle_options.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/prep/files.hpp"

namespace lockstep::prep {

PuzzleOptions::PuzzleOptions(Options& options, std::uint64_t default_seed, Augment kind)
    : SourceOptions(options, Input::none) {
  options.add("seed", &seed, default_seed, "seed of every random choice");
  if (kind == Augment::option)
    options.choice("augment", &augment, "offline", {"offline", "online"},
                   "store the variants, or only their number, so that training draws the same variants");
  options.add("deflate", &deflate, 0, between(0, 9), "compression of the grids, 0 none");
}

void PuzzleOptions::apply(PuzzleSet& set) const {
  set.seed = seed;
  set.online = augment == "online";
}

void PuzzleOptions::write(const PuzzleSet& set) const {
  write_puzzle_set(output, set, deflate);
  if (quiet) return;
  const auto line = [](const char* split, const std::vector<PuzzlePart>& parts) {
    for (const auto& part : parts)
      std::cout << "  " << split << "/" << part.name << "  " << part.groups() << " groups, " << part.puzzles()
                << " puzzles, " << part.rows << " examples\n";
  };
  line("train", set.train);
  line("test ", set.test);
  if (set.num_aug > 0)
    std::cout << "  variants   " << set.num_aug << " of each training puzzle, "
              << (set.online ? "drawn while training" : "stored") << "\n";
  print_written();
}

BasePuzzles read_puzzles(const std::string& path, const PuzzleParser& parse, std::int64_t minimum) {
  BasePuzzles puzzles;
  if (path.empty()) return puzzles;
  std::ifstream in(path);
  require_usage(in.good() && !std::filesystem::is_directory(path), "reading '", path,
                "': ", errno != 0 ? std::strerror(errno) : "it is a directory");
  std::vector<std::uint8_t> question, answer;
  std::int64_t seen = 0;
  read_puzzle_csv(in, path, [&](const PuzzleRow& row) {
    require_data(minimum < 0 || row.rating.has_value(), "reading ", row.where,
                 ": no rating, which option min-difficulty = ", minimum, " needs");
    parse(row, question, answer);
    ++seen;
    if (minimum < 0 || *row.rating >= minimum) puzzles.add(row, question, answer);
  });
  require_data(puzzles.size() > 0, "reading '", path, "': none of ", seen, " puzzles has a rating of at least ",
               minimum);
  return puzzles;
}

BasePuzzles subsampled(BasePuzzles puzzles, std::int64_t count, std::uint64_t seed) {
  if (count == 0 || count >= puzzles.size()) return puzzles;
  auto rows = draw_permutation(puzzles.size(), seed, "puzzle.subsample");
  rows.resize(static_cast<std::size_t>(count));
  return puzzles.picked(rows);
}

void add_source_file(PuzzleSet& set, const std::string& path) {
  if (path.empty()) return;
  set.sources.push_back(std::filesystem::path(path).filename().string());
  set.sha256.push_back(sha256_of(path));
}

std::int64_t common_cells(const BasePuzzles& train, const BasePuzzles& test, const std::string& train_path,
                          const std::string& test_path) {
  require_data(test.size() == 0 || test.cells == train.cells, "reading '", test_path, "': grids of ", test.cells,
               " cells, '", train_path, "' has ", train.cells);
  return train.cells;
}

}  // namespace lockstep::prep
