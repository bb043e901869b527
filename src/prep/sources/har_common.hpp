#pragma once
#include <string>
#include <vector>

#include "lockstep/prep/har_set.hpp"
#include "prep/sources/common.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::prep {

/// Training subjects that become the validation part of the two published data sets.
inline const std::vector<std::string> kHarValSubjects = {"5", "17", "25", "30"};

/// --val-split and what belongs to it; with `test_by_fraction` also --test-fraction.
enum class TestPart : std::uint8_t { given, by_fraction };
void add_har_split_options(Options& options, HarSplit& split, const std::vector<std::string>& val_subjects,
                           TestPart test);
/// What no single option's check can see. errors  usage
void check_har_split(const Options& options, const HarSplit& split);

/// Sums of the raw files, named relative to `folder`.
void note_files(HarSet& set, const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files);
/// Takes the moments, writes the file and says what is in it.
void finish_har(const Common& common, HarSet& set);

}  // namespace lockstep::prep
