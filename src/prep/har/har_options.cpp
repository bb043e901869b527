#include "prep/har/har_options.hpp"

#include <array>
#include <iostream>
#include <map>

#include "prep/har/har_plausible.hpp"

namespace lockstep::prep {

void add_har_split_options(Options& options, HarSplit& split, const std::vector<std::string>& val_subjects,
                           TestPart test) {
  options.section("split", "Training, validation and test");
  options.choice(
      "split.val_split,val-split", &split.val_split, "subject", {"subject", "random"},
      "draw whole subjects for validation, or single windows; overlapping single windows may lie in both parts");
  options.add("split.val_subjects,val-subjects=SUBJECT,...", &split.val_subjects, val_subjects,
              val_subjects.empty() ? "validation subjects; none: drawn by the seed" : "validation subjects");
  options.add("split.val_fraction,val-fraction", &split.val_fraction, 0.2, below_one,
              "share of the training windows to draw for validation");
  if (test == TestPart::by_fraction)
    options.add("split.test_fraction,test-fraction", &split.test_fraction, 0.2, below_one,
                "share of the windows without a split to draw for the test, as whole subjects");
  options.add("split.seed,seed", &split.seed, std::uint64_t{42}, "seed of every random choice");
}

void check_har_split(const Options& options, HarSplit& split) {
  split.val_given = options.given("split.val_subjects");
  if (split.val_split == "random" && options.given("split.val_subjects"))
    options.reject("split.val_subjects", "has no effect with split.val_split = random");
  if (split.val_split == "subject" && !split.val_subjects.empty() && options.given("split.val_fraction"))
    options.reject("split.val_fraction", join("has no effect with split.val_subjects = ",
                                              listed(split.val_subjects, ","), "; --val-subjects '' draws subjects"));
}

void note_files(HarSet& set, const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files) {
  for (const auto& path : files) {
    set.files.push_back(path.lexically_relative(folder).generic_string());
    set.sha256.push_back(sha256_of(path));
  }
}

void finish_har(SourceOptions& common, HarSet& set) {
  if (set.channel_mean.empty()) take_channel_moments(set);
  Summary& summary = common.summary;
  summary.line("windows", set.windows(), " = ", set.windows_in(0), " train + ", set.windows_in(1), " validation + ",
               set.windows_in(2), " test");
  summary.line("each", set.channels(), " channels x ", set.length, " samples at ", set.sample_rate, " Hz");
  const auto C = static_cast<std::size_t>(set.channels()), L = static_cast<std::size_t>(set.length);
  for (std::size_t c = 0; c < C; ++c) {
    std::vector<double> values;
    for (std::int64_t n = 0; n < set.windows(); ++n) {
      const auto x = set.window(n).subspan(c * L, L);
      values.insert(values.end(), x.begin(), x.end());
    }
    summary.column(set.channel_names[c], set.channel_units.empty() ? "" : set.channel_units[c], values);
  }
  std::map<std::int32_t, std::int64_t> subjects;
  for (const std::int32_t subject : set.subject) ++subjects[subject];
  std::vector<std::string> each;
  for (const auto& [subject, windows] : subjects)
    each.push_back(join(subject < 0 ? "unknown" : set.subject_name(subject), " ", windows));
  constexpr std::size_t kMost = 12;
  if (each.size() > kMost) each.resize(kMost), each.push_back(join("and ", subjects.size() - kMost, " more"));
  summary.line("subjects", subjects.size(), ", with windows: ", listed(each));
  for (const auto& note : class_notes(set)) summary.note(note);
  std::map<std::int32_t, std::array<bool, 3>> parts;
  for (std::size_t n = 0; n < set.split.size(); ++n) parts[set.subject[n]][set.split[n]] = true;
  std::vector<std::string> both;
  for (const auto& [subject, in] : parts)
    if (subject >= 0 && in[0] && in[2]) both.push_back(set.subject_name(subject));
  if (both.size() > kMost) both.resize(kMost), both.push_back("and more");
  if (!both.empty())
    summary.note("training and test both have windows of ", both.size() == 1 ? "subject " : "subjects ", listed(both),
                 ", so the test is easier than with new people");
  if (set.windows_in(0) > 0) {
    const auto train = set.class_counts(0);
    for (std::size_t k = 0; k < train.size(); ++k)
      if (train[k] == 0)
        summary.warning("class ", set.class_names[k], " has no training window, so it cannot be learnt");
  }
  look_at_classes(set, summary);
  look_at_units(set, summary);
  compare_scales(set, summary);
  common.settle(set.notes);
  write_har_set(common.output, set);
  if (!common.quiet) print_class_table(set, std::cout);
  common.print_written();
}

}  // namespace lockstep::prep
