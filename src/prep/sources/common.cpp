#include "prep/sources/common.hpp"

#include <filesystem>
#include <iostream>

#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

Common::Common(Options& options, Input kind) {
  if (kind == Input::files) {
    options.add("input", &input, {}, "files or quoted patterns, concatenated in this order")
        .value_name("FILE,...")
        .required();
    options.alias("input", "i");
  }
  options.add("output", &output, "", "prepared file to write; an existing one is replaced only by a whole one")
      .value_name("FILE.h5")
      .required();
  options.alias("output", "o");
  options.add("quiet", &quiet, false, "print nothing but errors");
}

void Common::write(const Candidates& candidates, const Selection& selection) const {
  SelectionReport report;
  const EmulatorSet set = select_rows(candidates, selection, report);
  write_emulator_set(output, set);
  if (quiet) return;
  print_report(report, set, std::cout);
  std::cout << "  written          " << output << " ("
            << human_bytes(static_cast<double>(std::filesystem::file_size(output))) << ")\n";
}

void Common::write(const EmulatorSet& set) const {
  write_emulator_set(output, set);
  if (quiet) return;
  std::cout << "  rows             " << set.rows() << " = " << set.rows_in(0) << " train + " << set.rows_in(1)
            << " validation + " << set.rows_in(2) << " test\n"
            << "  written          " << output << " ("
            << human_bytes(static_cast<double>(std::filesystem::file_size(output))) << ")\n";
}

}  // namespace lockstep::prep
