#pragma once
#include "lockstep/models/array_function.hpp"

namespace lockstep {

/// The entry of a weight file with the number of segments of an evaluation.
inline constexpr const char* kSegmentsEntry = "eval.segments";

/// tokens (seq_len), identifiers () i64, as the prepared data set has them -> answers (seq_len) i64: the most likely
/// tokens; q_halt, q_continue () f32: the logits of halting and of continuing. All are those after the last of
/// "segments" inner calls, a setting; at first it is that of the file.
///
/// errors  data, beginning with `what`: not a weight file of HRM, or damaged
std::unique_ptr<ArrayFunction> hrm_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
