#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

inline constexpr std::int64_t kArcCells = 900;  ///< cells of a field, 30 x 30

/// A variant of an ARC task, parsed from a puzzle identifier's name: NAME_t3_0182736459 is dihedral image 3 of task
/// NAME with colours mapped to these ten digits; NAME alone is the task itself.
struct ArcName {
  std::uint64_t task = 0;  ///< hash of NAME
  std::size_t length = 0;  ///< of NAME
  std::uint8_t dihedral = 0;
  std::array<std::uint8_t, 10> colours = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
};
ArcName read_arc_name(std::string_view name);

/// A grid of colours in a task's own orientation.
struct ArcAnswer {
  int rows = 0, columns = 0;
  std::vector<std::uint8_t> cells;  ///< row-major
  std::uint64_t hash() const;
};
/// The grid of a field of one variant (see arc_ballot), mapped back; without cells if the field has none at its corner.
/// shapes  field (kArcCells)
ArcAnswer arc_answer(const ArcName& name, std::span<const std::int32_t> field);

/// The answer of one variant of a task to one test input: hashes of grids, mapped back to the task's own orientation
/// and colours.
struct ArcBallot {
  std::uint64_t task = 0, input = 0;
  std::uint64_t answer = 0, truth = 0;
  double q_halt = 0;  ///< halting logit, the network's confidence

  auto operator<=>(const ArcBallot&) const = default;
};
/// Makes a ballot from the tokens of 30 x 30 fields: 0 padding, 1 end marker, colour + 2; an ignored label (-1) counts
/// as padding. A grid is the rectangle of colours at the top left with the largest area; ties go to the one with fewer
/// rows.
/// shapes  inputs, labels, answer (kArcCells)
/// errors  Error if a field has another size
ArcBallot arc_ballot(const ArcName& name, std::span<const std::int32_t> inputs, std::span<const std::int32_t> labels,
                     std::span<const std::int32_t> answer, double q_halt);

/// A distinct answer to one test input.
struct ArcCandidate {
  std::uint64_t answer = 0;
  double votes = 0, confidence = 0;  ///< number of variants, sum of their sigma(q_halt)
};
/// The candidates of one test input, the best first: by votes, then by mean confidence, then by hash. An answer without
/// cells is none.
/// differs  from the public code, where it is one, which a submission cannot hold
/// shapes  ballots, sorted, all of one task and input
std::vector<ArcCandidate> arc_candidates(std::span<const ArcBallot> ballots);

/// The share of tasks solved with K attempts, for K = 1, 2, 10, 100, 1000. A task is solved if, for each of its test
/// inputs, the truth is among the first K candidates. Candidates are ranked by the votes of the variants, then by mean
/// sigma(q_halt). The order of the ballots does not matter; without ballots the result is empty.
/// source  the evaluation of the HRM's public code, whose headline metric is K = 2
std::vector<std::pair<int, double>> arc_pass_rates(std::vector<ArcBallot> ballots);

}  // namespace lockstep
