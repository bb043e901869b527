#include "support/random_puzzles.hpp"

#include "lockstep/base/philox.hpp"

namespace lockstep::test {
namespace {

template <class T>
Tensor place(Shape shape, const auto& value) {
  static LocalDataMemory data_memory;
  return data_memory.place(dtype_of<T>::value, shape, [&](const Tensor& to) {
    for (std::int64_t i = 0; i < to.size(); ++i) to.data<T>()[i] = static_cast<T>(value(i));
  });
}

Tensor starts(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> index = {0};
  for (const std::int64_t size : sizes) index.push_back(index.back() + size);
  return place<std::int64_t>({std::ssize(index)}, [&](std::int64_t i) { return index[static_cast<std::size_t>(i)]; });
}

PuzzlePart plain_part(std::int64_t rows, std::int64_t cells, std::int64_t vocab, std::int64_t identifiers,
                      const char* site) {
  const auto token = [&](std::int64_t i) {
    return 1 + static_cast<std::int64_t>(
                   Philox(3, 0, site).below(static_cast<std::uint64_t>(vocab - 1), static_cast<std::uint64_t>(i)));
  };
  PuzzlePart part;
  part.name = "all";
  part.inputs = place<std::uint8_t>({rows, cells}, token);
  // The answer increments every token cyclically and ignores some cells.
  part.labels =
      place<std::uint8_t>({rows, cells}, [&](std::int64_t i) { return i % 11 == 5 ? 0 : 1 + token(i) % (vocab - 1); });
  part.puzzle_indices = part.group_indices = place<std::int64_t>({rows + 1}, [](std::int64_t i) { return i; });
  part.puzzle_identifiers = place<std::int32_t>({rows}, [&](std::int64_t i) { return i % identifiers; });
  return part;
}

}  // namespace

PuzzleData random_puzzles(std::int64_t groups, std::int64_t cells, std::int64_t vocab, std::int64_t identifiers) {
  PuzzleData data;
  data.path = "(synthetic)";
  data.task = "sudoku";
  data.seq_len = cells;
  data.vocab_size = vocab;
  data.identifiers = identifiers;
  data.train.push_back(plain_part(groups, cells, vocab, identifiers, "train"));
  data.test.push_back(plain_part(groups / 3, cells, vocab, identifiers, "test"));
  return data;
}

PuzzlePart uneven_part(const std::vector<std::int64_t>& puzzles_of_group,
                       const std::vector<std::int64_t>& examples_of_puzzle, std::int64_t cells) {
  std::int64_t rows = 0;
  for (const std::int64_t examples : examples_of_puzzle) rows += examples;
  PuzzlePart part;
  part.name = "all";
  part.inputs = part.labels = place<std::uint8_t>({rows, cells}, [&](std::int64_t i) { return i / cells % 7; });
  part.puzzle_indices = starts(examples_of_puzzle);
  part.group_indices = starts(puzzles_of_group);
  part.puzzle_identifiers = place<std::int32_t>({std::ssize(examples_of_puzzle)}, [](std::int64_t i) { return i; });
  return part;
}

}  // namespace lockstep::test
