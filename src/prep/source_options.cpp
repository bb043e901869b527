#include "prep/source_options.hpp"

#include <filesystem>
#include <iostream>

#include "lockstep/io/interaction_file.hpp"

namespace lockstep::prep {

SourceOptions::SourceOptions(Options& options, Input kind) {
  if (kind == Input::files)
    options.add("input,i=FILE,...", &input, {}, "files or quoted patterns, concatenated in this order").required();
  options.add("output,o=FILE.h5", &output, "", "prepared file; replaced only when the new one is complete").required();
  options.add("strict", &strict, false, "take every warning about the raw data for an error, and write nothing");
  options.add("quiet", &quiet, false, "print nothing but warnings and errors");
}

void SourceOptions::print_written() {
  if (quiet) return;
  summary.line("written", output, " (", human_bytes(static_cast<double>(std::filesystem::file_size(output))), ")");
  summary.print(std::cout);
}

void add_interaction_options(Options& options, InteractionOptions& table) {
  auto formats = interaction_formats();
  formats.insert(formats.begin(), "auto");
  options.choice("input.format,format", &table.format, "auto", formats, "format of the lines");
  options.add(
      "input.columns,columns=NAME,...", &table.columns, {},
      "names of all columns of a file without a header, by position: user, item, time where there are times, - or "
      "any other name for the rest");
  options.add("input.user_column,user-column", &table.user_column, "",
              "csv, json: column of users; default: user_id, user, userId or reviewerID");
  options.add("input.item_column,item-column", &table.item_column, "",
              "csv, json: column of items; default: item_id, item, itemId, movieId or asin");
  options.add("input.time_column,time-column", &table.time_column, "",
              "csv, json: column of times, - for none; default: timestamp, time or unixReviewTime, if present");
  options.choice("input.time_unit,time-unit", &table.time_unit, "s", time_units(),
                 "what times that are numbers count since 1970; yyyymmdd: digits of a date, with hhmmss or without");
  options.add(
      "input.where,where=CONDITION,...", &table.where, {},
      "read only lines for which all these conditions on columns hold, such as 'rating >= 4': = != < <= > >= on "
      "numbers, times or texts; an empty field is neither less nor greater");
}

}  // namespace lockstep::prep
