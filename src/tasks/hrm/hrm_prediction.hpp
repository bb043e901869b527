#pragma once
// Shared by the two forms of lockstep predict for puzzles: text files (hrm_predict.cpp) and ARC (arc_predict.cpp).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/tasks/hrm/hrm_config.hpp"
#include "lockstep/tasks/hrm/puzzle_tries.hpp"
#include "lockstep/tasks/prediction_file.hpp"

namespace lockstep {

/// The arguments of the command.
struct HrmPrediction {
  RunConfig config;
  std::string checkpoint, input, submission;
  PredictionOutput output;
  Thinking thinking;
  Tries tries;
  bool other_data = false;
};

/// Solves puzzles in blocks, on this rank's threads.
/// shapes  inputs (B, seq_len), identifiers (B)
std::vector<PuzzleAnswer> solve_puzzles(const HrmTask& model, std::span<const std::int32_t> inputs,
                                        std::span<const std::int32_t> identifiers, const Thinking& thinking,
                                        int threads, const HrmTask::StateNoise& noise = {});

/// The last columns of a table of answers, counted from the column that add_halting_columns() returns.
enum HaltingColumn : std::uint8_t { kSegments, kSettledAfter, kHaltsAfter, kQHalt, kQContinue };
std::size_t add_halting_columns(PredictionTable& table);
void set_halting_columns(std::vector<PredictionValues>& values, std::size_t first, std::size_t row,
                         const PuzzleAnswer& answer);

/// Answers every test input of the data set of `config`, and writes a.output and a.submission, if they are set.
void predict_arc(World& world, const Args& args, const HrmPrediction& a, const RunConfig& config,
                 const CheckpointReader& reader, int threads);

}  // namespace lockstep
