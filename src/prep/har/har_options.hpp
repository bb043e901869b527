#pragma once
#include <string>
#include <vector>

#include "lockstep/prep/har/har_set.hpp"
#include "prep/source_options.hpp"

namespace lockstep::prep {

/// Default validation subjects of the two published data sets.
inline const std::vector<std::string> kHarValSubjects = {"5", "17", "25", "30"};

/// Adds --val-split and related options; with `by_fraction` also --test-fraction.
enum class TestPart : std::uint8_t { given, by_fraction };
void add_har_split_options(Options& options, HarSplit& split, const std::vector<std::string>& val_subjects,
                           TestPart test);
/// Checks combinations of options, and notes whether the validation subjects were given. errors  usage
void check_har_split(const Options& options, HarSplit& split);

/// Records names, relative to `folder`, and checksums of raw files.
void note_files(HarSet& set, const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files);
/// Computes the moments if the caller has none, writes the file, and prints a summary with the windows of each class.
void finish_har(SourceOptions& common, HarSet& set);

}  // namespace lockstep::prep
