#include "prep/emulator/emulator_output.hpp"

#include <iostream>

namespace lockstep::prep {

void write_selected(const SourceOptions& common, const Candidates& candidates, const Selection& selection) {
  SelectionReport report;
  const EmulatorSet set = select_rows(candidates, selection, report);
  write_emulator_set(common.output, set);
  if (common.quiet) return;
  print_report(report, set, std::cout);
  common.print_written();
}

void write_generated(const SourceOptions& common, const EmulatorSet& set) {
  write_emulator_set(common.output, set);
  if (common.quiet) return;
  std::cout << "  rows             " << set.rows() << " = " << set.rows_in(0) << " train + " << set.rows_in(1)
            << " validation + " << set.rows_in(2) << " test\n";
  common.print_written();
}

}  // namespace lockstep::prep
