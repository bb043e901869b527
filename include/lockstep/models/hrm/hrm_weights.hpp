#pragma once
#include "lockstep/models/array_function.hpp"
#include "lockstep/models/hrm/hrm.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Entries of a weight file that describe a network, and the inverse. The arrays have the names of the public code.
void describe(WeightMetadata& metadata, HrmArch arch);
/// errors  data, beginning with `what`: a missing or malformed entry, an impossible architecture
HrmArch parse_hrm(const WeightMetadata& metadata, const std::string& what);

/// The entry of a weight file with the number of segments of an evaluation.
inline constexpr const char* kSegmentsEntry = "eval.segments";

/// tokens (seq_len), identifiers () i64, as in the prepared data set -> answers (seq_len) i64: the most likely tokens;
/// q_halt, q_continue () f32: the logits of halting and of continuing. The results are those of the last of "segments"
/// inner calls, a setting with the file's value as default.
///
/// errors  data, beginning with `what`: not a weight file of HRM, or damaged
std::unique_ptr<ArrayFunction> hrm_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
