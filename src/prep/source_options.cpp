#include "prep/source_options.hpp"

#include <filesystem>
#include <iostream>

#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

SourceOptions::SourceOptions(Options& options, Input kind) {
  if (kind == Input::files) {
    options.add("input,i", &input, {}, "files or quoted patterns, concatenated in this order")
        .value_name("FILE,...")
        .required();
  }
  options.add("output,o", &output, "", "prepared file; replaced only when the new one is complete")
      .value_name("FILE.h5")
      .required();
  options.add("strict", &strict, false, "take every warning about the raw data for an error, and write nothing");
  options.add("quiet", &quiet, false, "print nothing but warnings and errors");
}

void SourceOptions::print_written() const {
  if (quiet) return;
  summary.print(std::cout);
  std::cout << "  written            " << output << " ("
            << human_bytes(static_cast<double>(std::filesystem::file_size(output))) << ")\n";
}

}  // namespace lockstep::prep
