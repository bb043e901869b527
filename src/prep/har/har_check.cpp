#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "prep/page.hpp"
#include "prep/problems.hpp"

namespace lockstep::prep {

namespace {

void check_values(const HarSet& set, Problems& problems) {
  std::int64_t lost = 0;
  for (std::size_t n = 0; n < set.split.size(); ++n) lost += set.split[n] != 2 && set.labels[n] == -1;
  if (lost > 0) problems.push_back(join(lost, " training or validation windows have no label"));
  const auto C = static_cast<std::size_t>(set.channels()), L = static_cast<std::size_t>(set.length);
  std::size_t bad = 0, first = 0;
  for (std::size_t i = 0; i < set.signals.size(); ++i) {
    if (std::abs(set.signals[i]) <= std::numeric_limits<float>::max()) continue;
    if (bad++ == 0) first = i;
  }
  if (bad == 0) return;
  const std::size_t window = first / (C * L);
  const auto part = std::ranges::lower_bound(set.split, set.split[window]) - set.split.begin();
  problems.push_back(join("/", kHarParts[set.split[window]], "/signals window ",
                          static_cast<std::int64_t>(window) - part, ", channel ", set.channel_names[first / L % C],
                          ", sample ", first % L, ": ", set.signals[first], " is no finite 32-bit float (", bad,
                          " such values in all)"));
}

/// Shared subjects between two parts bias the evaluation; shared windows do so even more.
void check_overlap(const HarSet& set, const std::string& val_split, Problems& problems, Problems& remarks) {
  std::array<std::set<std::int32_t>, 3> subjects;
  std::map<std::pair<std::int32_t, std::int64_t>, std::size_t> windows;
  std::size_t twice = 0;
  for (std::size_t n = 0; n < set.split.size(); ++n) {
    if (set.subject[n] >= 0) subjects[set.split[n]].insert(set.subject[n]);
    if (set.recording[n] >= 0 && set.start[n] >= 0)
      twice += !windows.emplace(std::pair(set.recording[n], set.start[n]), n).second;
  }
  if (twice > 0) problems.push_back(join(twice, " windows have the recording and start of another"));
  const auto shared = [&](std::size_t a, std::size_t b) {
    std::size_t count = 0;
    for (const auto subject : subjects[a]) count += subjects[b].contains(subject);
    return count;
  };
  for (const auto& [a, b] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 2}, {1, 2}}) {
    const std::size_t count = shared(a, b);
    if (count == 0) continue;
    const std::string text =
        join(count, count == 1 ? " subject is" : " subjects are", " in both ", kHarParts[a], " and ", kHarParts[b]);
    (val_split == "subject" && a == 0 && b == 1 ? problems : remarks).push_back(text);
  }
}

}  // namespace

std::vector<std::string> check_har_set(const H5File& file, std::vector<std::string>& remarks) {
  Problems problems;
  HarSet set = read_har_set(file, &problems);
  check_names(set.class_names, "class_names", problems);
  check_names(set.channel_names, "channel_names", problems);
  if (!set.subject_names.empty()) check_names(set.subject_names, "subject_names", problems);
  if (!(set.sample_rate > 0) || !std::isfinite(set.sample_rate))
    problems.push_back(join("sample_rate is ", set.sample_rate, ", must be > 0"));
  check_sums(set.files, set.sha256, problems);
  if (set.windows() == 0) problems.emplace_back("there are no windows");
  const char* const parts[] = {"training", "validation", "test"};
  for (int part = 0; part < 3; ++part)
    if (set.windows_in(part) == 0) remarks.push_back(join("there are no ", parts[part], " windows"));
  if (set.unlabelled() > 0)
    remarks.push_back(join(set.unlabelled(), " windows have no label: the set serves lockstep predict"));
  check_values(set, problems);
  if (!problems.empty()) return problems;

  const std::string val_split = file.has_attribute("/", "val_split") ? file.text_attribute("/", "val_split") : "";
  check_overlap(set, val_split, problems, remarks);
  if (set.windows_in(0) == 0) return problems;
  const auto mean = set.channel_mean, std = set.channel_std;
  take_channel_moments(set);
  check_moments(set.channel_names, {mean, std}, {set.channel_mean, set.channel_std}, problems, remarks);
  std::ranges::copy(class_notes(set), std::back_inserter(remarks));
  const auto counts = set.class_counts(0);
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k] == 0) remarks.push_back(join("there are no training windows of ", set.class_names[k]));
  return problems;
}

namespace {
/// The known subjects of each class.
std::vector<std::set<std::int32_t>> class_subjects(const HarSet& set) {
  std::vector<std::set<std::int32_t>> subjects(set.class_names.size());
  for (std::size_t n = 0; n < set.labels.size(); ++n)
    if (set.labels[n] >= 0 && set.subject[n] >= 0) subjects[set.labels[n]].insert(set.subject[n]);
  return subjects;
}
}  // namespace

std::vector<std::string> class_notes(const HarSet& set) {
  std::vector<std::string> notes;
  const auto subjects = class_subjects(set);
  const auto train = set.class_counts(0), test = set.class_counts(2);
  const std::set<std::int32_t> all(set.subject.begin(), set.subject.end());
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    const std::string& name = set.class_names[k];
    if (subjects[k].size() == 1 && all.size() > 2)
      notes.push_back(join("class ", name, " has windows of one subject only, ", set.subject_name(*subjects[k].begin()),
                           ": no other subject can test it"));
    else if (train[k] > 0 && test[k] == 0 && set.windows_in(2) > 0)
      notes.push_back(join("class ", name, " has no test window, so test metrics do not show how well it is found"));
  }
  return notes;
}

void print_class_table(const HarSet& set, std::ostream& out) {
  out << printed("  %-24s %10s %10s %10s %10s\n", "class", "train", "val", "test", "subjects");
  const std::array counts = {set.class_counts(0), set.class_counts(1), set.class_counts(2)};
  const auto subjects = class_subjects(set);
  for (std::size_t k = 0; k < set.class_names.size(); ++k)
    out << printed("  %-24s %10lld %10lld %10lld %10zu\n", set.class_names[k].c_str(),
                   static_cast<long long>(counts[0][k]), static_cast<long long>(counts[1][k]),
                   static_cast<long long>(counts[2][k]), subjects[k].size());
  if (set.unlabelled() > 0)
    out << printed("  %-24s %10d %10d %10lld\n", "without a label", 0, 0, static_cast<long long>(set.unlabelled()));
}

void describe_har_set(const H5File& file, std::ostream& out) {
  const HarSet set = read_har_set(file);
  Page page(out, file, "activity windows");
  page.line("windows", set.windows(), " = ", set.windows_in(0), " train + ", set.windows_in(1), " validation + ",
            set.windows_in(2), " test");
  page.line("window", set.channels(), " channels x ", set.length, " samples at ", set.sample_rate,
            " Hz = ", static_cast<double>(set.length) / set.sample_rate, " s");
  page.line("classes", set.class_names.size());
  page.line("source", set.source);
  for (int part = 0; part < 3; ++part) {
    std::map<std::int32_t, std::int64_t> subjects;
    for (std::size_t n = 0; n < set.split.size(); ++n)
      if (set.split[n] == part) ++subjects[set.subject[n]];
    std::string names;
    for (const auto& [subject, windows] : subjects)
      names += (names.empty() ? "" : " ") + (subject < 0 ? "unknown" : set.subject_name(subject));
    page.line(part == 0 ? "subjects" : "", kHarParts[part], ": ", names.empty() ? "none" : names);
  }
  page.sources(set.files, set.sha256);
  page.attributes("/", set.notes);
  out << "\n";
  print_class_table(set, out);
  page.print("\n  %-24s %12s %12s %12s %12s  %s\n", "channel", "mean", "std", "min", "max", "unit");
  const auto C = static_cast<std::size_t>(set.channels()), L = static_cast<std::size_t>(set.length);
  for (std::size_t c = 0; c < C; ++c) {
    double low = INFINITY, high = -INFINITY;
    for (std::size_t n = 0; n < set.split.size(); ++n) {
      const auto begin = set.signals.begin() + (n * C + c) * L;
      const auto [least, most] = std::minmax_element(begin, begin + L);
      low = std::min(low, *least);
      high = std::max(high, *most);
    }
    page.print("  %-24s %12.5g %12.5g %12.5g %12.5g  %s\n", set.channel_names[c].c_str(), set.channel_mean[c],
               set.channel_std[c], low, high, set.channel_units.empty() ? "unknown" : set.channel_units[c].c_str());
  }
}

}  // namespace lockstep::prep
