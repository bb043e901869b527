#include "lockstep/prep/reference.hpp"

#include <algorithm>
#include <vector>

namespace lockstep::prep {

ReferenceReport verify_reference(const H5File& golden) {
  struct Kind {
    std::vector<const char*> objects;  ///< that only files of this kind have
    void (*verify)(const H5File&, ReferenceReport&);
  };
  static const Kind kKinds[] = {
      {{"/history", "/pair"}, verify_emulator_rows},
      {{"/icecolumn", "/lorenz96"}, verify_generators},
      {{"/laplacian", "/raw/kg_final.txt"}, verify_kg_graph},
      {{"/sudoku", "/maze", "/arc"}, verify_puzzles},
      {{"/moments/raw"}, verify_moments},
      {{"/inputs/sequences", "/outputs/mask", "/outputs/x_coords"}, verify_line_plots},
      {{"/inputs/rows", "/outputs/times_scaled"}, verify_sequences},
  };
  ReferenceReport report;
  for (const Kind& kind : kKinds) {
    if (!std::ranges::all_of(kind.objects, [&](const char* object) { return golden.has(object); })) continue;
    kind.verify(golden, report);
    return report;
  }
  return report;
}

}  // namespace lockstep::prep
