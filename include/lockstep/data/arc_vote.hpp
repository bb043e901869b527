#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

inline constexpr std::int64_t kArcCells = 900;  ///< of a field, 30 x 30

/// The variant of an ARC task that a puzzle identifier's name tells: NAME_t3_0182736459 is dihedral image 3 with colours mapped to
/// these ten digits, NAME alone the task itself.
struct ArcName {
  std::uint64_t task = 0;  ///< hash of NAME
  std::uint8_t dihedral = 0;
  std::array<std::uint8_t, 10> colours = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
};
ArcName read_arc_name(std::string_view name);

/// What one variant of a task answers to one of its test inputs: hashes of grids, brought back to the task's own orientation and colours.
struct ArcBallot {
  std::uint64_t task = 0, input = 0;
  std::uint64_t answer = 0, truth = 0;
  double q_halt = 0;  ///< logit: how sure the network is

  auto operator<=>(const ArcBallot&) const = default;
};
/// Tokens are those of a 30 x 30 field: 0 padding, 1 end marker, colour + 2; a label that is ignored (-1) counts as padding. A grid is
/// the rectangle of colours at the top left with the largest area, the lowest one of equals.
/// shapes  inputs, labels, answer (kArcCells)
ArcBallot arc_ballot(const ArcName& name, std::span<const std::int32_t> inputs, std::span<const std::int32_t> labels,
                     std::span<const std::int32_t> answer, double q_halt);

/// For K = 1, 2, 10, 100, 1000 the share of tasks that are solved with K attempts: of all whose test inputs each the truth is among the
/// first K candidates. Variants vote; candidates stand in order of votes, then of their mean sigma(q_halt). The order of the ballots does
/// not matter. Nothing without ballots.
/// source  the evaluation of the HRM's public code; its headline is K = 2
std::vector<std::pair<int, double>> arc_pass_rates(std::vector<ArcBallot> ballots);

}  // namespace lockstep
