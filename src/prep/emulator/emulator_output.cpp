#include "prep/emulator/emulator_output.hpp"

namespace lockstep::prep {

namespace {
void write_rows(SourceOptions& common, EmulatorSet& set) {
  common.summary.line("rows", set.rows(), " = ", set.rows_in(0), " train + ", set.rows_in(1), " validation + ",
                      set.rows_in(2), " test");
  common.settle(set.notes);
  write_emulator_set(common.output, set);
  common.print_written();
}
}  // namespace

void write_selected(SourceOptions& common, Candidates candidates, const Selection& selection) {
  SelectionReport report;
  EmulatorSet set = select_rows(candidates, selection, report);
  common.summary = std::move(candidates.summary);
  summarise(candidates, selection, report, set, common.summary);
  write_rows(common, set);
}

void write_generated(SourceOptions& common, EmulatorSet& set) {
  summarise_columns(set, {}, common.summary);
  write_rows(common, set);
}

}  // namespace lockstep::prep
