#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/io/line_reader.hpp"
#include "lockstep/prep/har/har_signal.hpp"
#include "prep/har/har_options.hpp"

namespace lockstep::prep {

namespace {
namespace fs = std::filesystem;

/// Reads activity_labels.txt, a number and a name in each line. errors  data: naming file and line
std::map<std::int32_t, std::string> read_activities(const fs::path& path) {
  std::map<std::int32_t, std::string> names;
  LineReader lines(path);
  std::string line;
  for (int number = 1; lines.next(line); ++number) {
    if (trim(line).empty()) continue;
    std::istringstream words(line);
    std::int32_t id = 0;
    std::string name, more;
    require_data(words >> id >> name && !(words >> more), path.string(), ":", number, ": '", trim(line),
                 "' is not the number and name of an activity");
    require_data(is_clean_utf8(name), path.string(), ":", number, ": the name of activity ", id, " is not UTF-8 text");
    require_data(names.emplace(id, name).second, path.string(), ":", number, ": activity ", id, " is named twice");
  }
  require_data(!names.empty(), path.string(), ": no activities in it");
  return names;
}

/// Reads one integer per window. errors  data: naming file and line: another count
std::vector<std::int32_t> read_column(const TextTable& table, std::size_t windows, const fs::path& signals,
                                      const char* what) {
  require_data(table.rows() == windows, table.line_of(std::min(table.rows(), windows)), ": ", table.rows(), " ", what,
               "s, but '", signals.filename().string(), "' has ", windows, " windows");
  std::vector<std::int32_t> out(windows);
  for (std::size_t n = 0; n < windows; ++n) out[n] = whole_number(table, n, 0);
  return out;
}

/// Reads train/ or test/ into the set; appends the names of the files to `files`.
void read_part(const fs::path& folder, const std::string& part, std::uint8_t split, bool subjects,
               const std::map<std::int32_t, std::string>& activities, HarSet& set, std::vector<fs::path>& files) {
  const auto L = static_cast<std::size_t>(set.length);
  std::vector<TextTable> channels;
  for (const auto& channel : kHarChannels) {
    files.push_back(folder / part / "Inertial Signals" / (channel + "_" + part + ".txt"));
    channels.push_back(read_text_table(files.back(), L));
    const std::size_t rows = channels.back().rows(), expected = channels.front().rows();
    require_data(rows == expected, channels.back().line_of(std::min(rows, expected)), ": ", rows, " windows, but '",
                 channels.front().path.filename().string(), "' has ", expected);
  }
  const std::size_t windows = channels.front().rows();
  files.push_back(folder / part / ("y_" + part + ".txt"));
  const TextTable labels = read_text_table(files.back(), 1);
  const auto ids = read_column(labels, windows, channels.front().path, "label");
  std::vector<std::int32_t> subject(windows, -1);
  if (subjects) {
    files.push_back(folder / part / ("subject_" + part + ".txt"));
    const TextTable table = read_text_table(files.back(), 1);
    subject = read_column(table, windows, channels.front().path, "subject");
    for (std::size_t n = 0; n < windows; ++n)
      require_data(subject[n] >= 0, table.line_of(n), ": subject ", subject[n], " is negative");
  }
  for (std::size_t n = 0; n < windows; ++n) {
    const auto found = activities.find(ids[n]);
    require_data(found != activities.end(), labels.line_of(n), ": label ", ids[n],
                 " is not one of activity_labels.txt (", activities.begin()->first, " .. ", activities.rbegin()->first,
                 ")");
    for (const auto& channel : channels) {
      const auto first = channel.values.begin() + n * L;
      set.signals.insert(set.signals.end(), first, first + L);
    }
    set.labels.push_back(static_cast<std::int32_t>(std::distance(activities.begin(), found)));
    set.subject.push_back(subject[n]);
    set.recording.push_back(-1);
    set.start.push_back(-1);
    set.split.push_back(split);
  }
}

}  // namespace

bool run_uci_har(const Args& args) {
  Options options("lockstep-prep uci-har", "Windows of the UCI HAR data set as published.",
                  "The folder holds train/ and test/ with the nine files of 'Inertial Signals', y_*.txt and "
                  "subject_*.txt, and activity_labels.txt. Without subject files, validation windows "
                  "can only be drawn at random.");
  SourceOptions common(options, SourceOptions::Input::none);
  HarSplit split;
  std::string input;
  std::int64_t window = 0;
  options.add("input,i=DIR", &input, "", "the folder 'UCI HAR Dataset'").required();
  options.add("window", &window, std::int64_t{128}, at_least(2), "required samples per row");
  add_har_split_options(options, split, kHarValSubjects, TestPart::given);
  options.example("lockstep-prep uci-har --input 'UCI HAR Dataset' --output uci-har.h5",
                  "the official test subjects; subjects 5, 17, 25 and 30 for validation");
  options.example("lockstep-prep uci-har --input 'UCI HAR Dataset' --val-split random --output uci-har.h5",
                  "a random fifth of the training windows for validation, as in comparisons that ignore subjects");
  if (!options.parse(args)) return false;
  check_har_split(options, split);
  require_writable(common.output);

  const fs::path folder = input;
  require_usage(fs::is_directory(folder), "reading '", input, "': no such folder");
  const bool subjects = fs::exists(folder / "train/subject_train.txt") || fs::exists(folder / "test/subject_test.txt");
  if (!subjects && split.val_split == "subject")
    options.reject("split.val_split", join("'", input, "' has no train/subject_train.txt; use --val-split random"));
  std::vector<fs::path> files = {folder / "activity_labels.txt"};
  const auto activities = read_activities(files.front());
  HarSet set;
  set.length = window;
  set.sample_rate = 50;
  set.source = "uci-har";
  set.channel_names = kHarChannels;
  set.channel_units = kHarUnits;
  for (const auto& [id, name] : activities) set.class_names.push_back(name);
  read_part(folder, "train", 0, subjects, activities, set, files);
  read_part(folder, "test", 2, subjects, activities, set, files);
  require_writable(common.output, files);
  note_files(set, folder, files);
  split_validation(set, split);
  finish_har(common, set);
  return true;
}

}  // namespace lockstep::prep
