#include "prep/emulator/emulator_output.hpp"

namespace lockstep::prep {

void write_selected(SourceOptions& common, const Candidates& candidates, const Selection& selection) {
  SelectionReport report;
  EmulatorSet set = select_rows(candidates, selection, report);
  summarise(report, set, common.summary);
  write_generated(common, set);
}

void write_generated(SourceOptions& common, EmulatorSet& set) {
  common.summary.line("rows", set.rows(), " = ", set.rows_in(0), " train + ", set.rows_in(1), " validation + ",
                      set.rows_in(2), " test");
  common.settle(set.notes);
  write_emulator_set(common.output, set);
  common.print_written();
}

}  // namespace lockstep::prep
