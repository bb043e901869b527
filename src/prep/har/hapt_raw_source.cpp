#include <algorithm>
#include <map>

#include "lockstep/prep/har/har_signal.hpp"
#include "prep/har/har_options.hpp"

namespace lockstep::prep {

namespace {
namespace fs = std::filesystem;

constexpr std::int64_t kWindow = 128, kStride = 64;
constexpr std::int32_t kActivities = 6, kWithTransitions = 12;

/// The nine channels of a recording. errors  data: the two sensors have different numbers of samples
std::vector<std::vector<double>> read_channels(const fs::path& acc_file, const fs::path& gyro_file) {
  const TextTable acc = read_text_table(acc_file, 3), gyro = read_text_table(gyro_file, 3);
  require_data(acc.rows() == gyro.rows(), gyro.line_of(std::min(acc.rows(), gyro.rows())), ": ", gyro.rows(),
               " samples, but '", acc_file.filename().string(), "' has ", acc.rows());
  std::vector<std::vector<double>> out(9);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    SplitSignal a = split_signal(acc.column(axis)), g = split_signal(gyro.column(axis));
    out[axis] = std::move(a.body);
    out[3 + axis] = std::move(g.body);
    out[6 + axis] = std::move(a.total);
  }
  return out;
}

}  // namespace

bool run_hapt_raw(const Args& args) {
  Options options(
      "lockstep-prep hapt-raw", "Windows of the raw recordings of the HAPT data set.",
      "Applies a median of 3 and a low-pass of 20 Hz, and separates gravity and slow drift at 0.3 Hz. Windows of 128 "
      "samples, one every 64, lie within the activities of labels.txt: the six basic ones, or with --transitions also "
      "the six postural transitions.");
  SourceOptions common(options, SourceOptions::Input::none);
  HarSplit split;
  std::string input;
  bool transitions = false;
  std::vector<std::string> test_subjects, official;
  for (const auto subject : kHarTestSubjects) official.push_back(std::to_string(subject));
  options.add("input,i=DIR", &input, "", "the folder 'HAPT Data Set', or its subfolder RawData").required();
  options.add("transitions", &transitions, false, "also make windows of the postural transitions: 12 classes");
  add_har_split_options(options, split, kHarValSubjects, TestPart::given);
  options.add("split.test_subjects,test-subjects=SUBJECT,...", &test_subjects, official,
              "test subjects; the default is the official split");
  options.example("lockstep-prep hapt-raw --input 'HAPT Data Set' --output hapt.h5",
                  "10,411 windows; official test subjects; subjects 5, 17, 25 and 30 for validation");
  options.example("lockstep-prep hapt-raw --input 'HAPT Data Set' --transitions --output hapt12.h5",
                  "12 classes, 10,929 windows: the 7767 and 3162 of the published split");
  if (!options.parse(args)) return false;
  check_har_split(options, split);
  require_writable(common.output);

  fs::path folder = input;
  require_usage(fs::is_directory(folder), "reading '", input, "': no such folder");
  if (fs::is_directory(folder / "RawData")) folder /= "RawData";
  HarSet set;
  set.length = kWindow;
  set.sample_rate = 50;
  set.source = "hapt-raw";
  set.channel_names = kHarChannels;
  set.channel_units = kHarUnits;
  set.class_names = kHarActivities;
  if (transitions) set.class_names.insert(set.class_names.end(), kHarTransitions.begin(), kHarTransitions.end());

  std::vector<fs::path> files = {folder / "labels.txt"};
  const TextTable labels = read_text_table(files.front(), 5);
  std::map<std::int32_t, std::int32_t> subject_of;  // of an experiment
  std::int32_t current = -1;
  std::vector<std::vector<double>> channels;
  std::size_t left_out = 0;
  std::vector<std::size_t> order(labels.rows());
  for (std::size_t row = 0; row < order.size(); ++row) order[row] = row;
  // Sorting by recording reads each recording once.
  std::ranges::stable_sort(order, [&](auto a, auto b) { return labels.at(a, 0) < labels.at(b, 0); });
  for (const std::size_t row : order) {
    const auto field = [&](std::size_t column) { return whole_number(labels, row, column); };
    const std::int32_t experiment = field(0), subject = field(1), activity = field(2), first = field(3),
                       last = field(4);
    require_data(experiment >= 0 && subject >= 0, labels.line_of(row), ": experiment ", experiment, " of user ",
                 subject, ": both must be >= 0");
    require_data(activity >= 1 && activity <= kWithTransitions, labels.line_of(row), ": activity ", activity,
                 " is not one of 1 .. ", kWithTransitions);
    const auto known = subject_of.emplace(experiment, subject).first->second;
    require_data(known == subject, labels.line_of(row), ": experiment ", experiment, " is of user ", subject,
                 ", elsewhere of user ", known);
    if (experiment != current) {
      const std::string name = printed("exp%02d_user%02d.txt", experiment, subject);
      files.push_back(folder / ("acc_" + name));
      files.push_back(folder / ("gyro_" + name));
      channels = read_channels(files[files.size() - 2], files.back());
      current = experiment;
    }
    const auto samples = std::ssize(channels.front());
    require_data(first >= 1 && first <= last && last <= samples, labels.line_of(row), ": samples ", first, " .. ", last,
                 " of a recording that has 1 .. ", samples);
    if (activity > kActivities && !transitions) {
      ++left_out;
      continue;
    }
    const bool test = std::ranges::find(test_subjects, std::to_string(subject)) != test_subjects.end();
    append_windows(set, channels, first - 1, last, kStride,
                   {activity - 1, subject, experiment, static_cast<std::uint8_t>(test ? 2 : 0)});
  }
  if (options.given("split.test_subjects"))
    for (const auto& wanted : test_subjects) {
      const bool found =
          std::ranges::any_of(subject_of, [&](const auto& entry) { return std::to_string(entry.second) == wanted; });
      if (!found) options.reject("split.test_subjects", join("no recording is of subject '", wanted, "'"));
    }
  set.notes.emplace_back("transitions_left_out", static_cast<std::int64_t>(left_out));
  if (left_out > 0)
    common.summary.line("left out", left_out, " postural transitions; --transitions makes windows of them");
  require_writable(common.output, files);
  note_files(set, folder, files);
  split_validation(set, split);
  finish_har(common, set);
  return true;
}

}  // namespace lockstep::prep
