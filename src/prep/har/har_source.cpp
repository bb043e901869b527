#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/io/line_reader.hpp"
#include "lockstep/prep/distinct_texts.hpp"
#include "lockstep/prep/har/har_signal.hpp"
#include "prep/har/har_options.hpp"
#include "prep/har/har_times.hpp"

namespace lockstep::prep {

namespace {
namespace fs = std::filesystem;

struct ManifestRow {
  std::string where;  ///< "FILE:LINE"
  std::string path, label, subject;
  std::optional<std::uint8_t> split;
};

/// unlabelled: labels may be empty, and rows without a split are test rows. Labels and subjects that columns of the
/// tables give must be empty; a row may then be a path alone.
std::vector<ManifestRow> read_manifest(const fs::path& path, bool unlabelled, const ColumnChoice& choice) {
  constexpr std::string_view kHeader = "path,label,subject,split";
  static const std::map<std::string, std::uint8_t> kSplits = {{"train", 0}, {"val", 1}, {"validation", 1}, {"test", 2}};
  std::vector<ManifestRow> rows;
  std::map<std::string, std::string> seen;  // path -> where
  LineReader lines(path);
  std::string line;
  std::vector<std::string> fields;
  bool first = true;
  for (std::size_t number = 1; lines.next(line); ++number) {
    line = trim(line);
    if (line.empty() || line.starts_with('#')) continue;
    ManifestRow row{join(path.string(), ":", number), "", "", "", {}};
    require_data(printable(line) == line, row.where, ": it is not UTF-8 text; save the list as UTF-8");
    require_data(split_csv(line, fields), row.where, ": ", kCsvDefect);
    for (auto& field : fields) field = trim(field);
    const auto lower = [](unsigned char c) { return std::tolower(c); };
    if (std::exchange(first, false) && std::ranges::equal(listed(fields, ","), kHeader, {}, lower)) continue;
    if (fields.size() == 1 && !choice.label.empty()) fields.resize(4);
    require_data(fields.size() == 4, row.where, ": ", fields.size(), " fields, expected ", kHeader,
                 " (the last two may be empty)");
    row.path = fields[0];
    row.label = fields[1];
    row.subject = fields[2];
    require_data(!row.path.empty(), row.where, ": the path is empty");
    require_data(unlabelled || !choice.label.empty() || !row.label.empty(), row.where,
                 ": the label is empty; --unlabelled accepts recordings without labels, for lockstep predict, and "
                 "--label-column takes labels from the table");
    require_data(choice.label.empty() || row.label.empty(), row.where, ": label '", row.label,
                 "', but --label-column takes labels from the table");
    require_data(choice.subject.empty() || row.subject.empty(), row.where, ": subject '", row.subject,
                 "', but --subject-column takes subjects from the table");
    const auto [other, fresh] = seen.emplace(fs::path(row.path).lexically_normal().string(), row.where);
    require_data(fresh, row.where, ": '", row.path, "' is named already in ", other->second);
    if (!fields[3].empty()) {
      const auto found = kSplits.find(fields[3]);
      require_data(found != kSplits.end(), row.where, ": split '", fields[3], "' is not one of train, val, test");
      row.split = found->second;
    }
    if (unlabelled) {
      require_data(row.split.value_or(2) == 2, row.where, ": split '", fields[3],
                   "', but with --unlabelled all recordings are for tests");
      row.split = 2;
    }
    rows.push_back(std::move(row));
  }
  require_data(!rows.empty(), path.string(), ": no recordings in it");
  return rows;
}

std::optional<std::int64_t> as_number(const std::string& text) { return number_in<std::int64_t>(text); }

/// The distinct names, sorted by value if all are integers, otherwise as text.
std::vector<std::string> sorted_names(const std::vector<std::string>& all) {
  const std::set<std::string> different(all.begin(), all.end());
  std::vector<std::string> names(different.begin(), different.end());
  if (std::all_of(names.begin(), names.end(), [](const auto& name) { return as_number(name).has_value(); }))
    std::stable_sort(names.begin(), names.end(),
                     [](const auto& a, const auto& b) { return *as_number(a) < *as_number(b); });
  return names;
}
std::int32_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::int32_t>(std::ranges::find(names, name) - names.begin());
}

/// Copies the classes of a prepared set, its units unless `set` has units, and its normalisation if `moments`. Returns
/// the names of its channels.
/// errors  data: another format, windows of another length or sampling rate
std::vector<std::string> copy_metadata(HarSet& set, const std::string& path, bool moments) {
  const H5File file = H5File::open(path);
  const DatasetFile stored(file, kHarFormat);
  const std::int64_t length = stored.expect("/train/signals", {H5Type::f64}, {-1, -1, -1})[2];
  const double rate = file.real_attribute("/", "sample_rate");
  require_data(length == set.length && rate == set.sample_rate, stored.opening(), ": windows of ", length,
               " samples at ", rate, " Hz, but options window = ", set.length, " and rate = ", set.sample_rate, " Hz");
  set.class_names = file.text_list("/", "class_names");
  std::vector<std::string> channels = file.text_list("/", "channel_names");
  if (set.channel_units.empty() && file.has_attribute("/", "channel_units"))
    set.channel_units = file.text_list("/", "channel_units", std::ssize(channels));
  if (moments) {
    set.channel_mean = file.real_list("/", "channel_mean", std::ssize(channels));
    set.channel_std = file.real_list("/", "channel_std", std::ssize(channels));
  }
  return channels;
}

/// Reads the tables of a manifest into windows. Labels and subjects are numbered in the order of their first use until
/// finish().
class Recordings {
 public:
  struct Options {
    ColumnChoice choice;
    std::vector<std::string> skip_labels;
    std::int64_t stride = 0;
    bool unlabelled = false;
  };
  Recordings(HarSet& set, Options options) : set_(set), options_(std::move(options)), times_(set.sample_rate) {}

  void read(const ManifestRow& row, const fs::path& path, std::int32_t recording) {
    const TextTable table = read_table(path);
    const auto rows = static_cast<std::int64_t>(table.rows());
    std::vector<std::vector<double>> channels;
    for (std::size_t c = 0; c < table.columns; ++c) channels.push_back(table.column(c));
    look_for_times(channels);
    const auto label = labels_of(row, table), subject = subjects_of(row, table);
    std::vector<bool> usable(table.rows()), joined(table.rows());
    for (std::size_t i = 0; i < usable.size(); ++i) {
      const bool whole = std::ranges::none_of(channels, [&](const auto& x) { return std::isnan(x[i]); }) &&
                         (table.times.empty() || std::isfinite(table.times[i]));
      for (std::size_t c = 0; c < channels.size(); ++c) missing_of_[c] += std::isnan(channels[c][i]);
      const bool known = subject[i] >= 0 || row.split || table.subjects.of_row.empty();
      usable[i] = whole && label[i] >= kUnlabelled && known;
      joined[i] = i > 0 && label[i] == label[i - 1] && subject[i] == subject[i - 1];
      ++samples_;
      skipped_ += label[i] == kSkipped;
      without_label_ += label[i] == kMissing;
      missing_ += label[i] >= kUnlabelled && !whole;
      without_subject_ += label[i] >= kUnlabelled && whole && !known;
    }
    const std::vector<std::int64_t> lacking = times_.lacking(table, joined);
    std::int64_t lost = 0, made = 0;  // samples that lack before the current row; windows of the recording
    for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
      // Windows of two people or on both sides of a gap must not seem to follow one another.
      if (begin > 0) lost += std::max<std::int64_t>(lacking[begin], subject[begin] != subject[begin - 1]);
      const auto goes_on = [&](std::int64_t i) { return usable[i] && joined[i] && lacking[i] == 0; };
      for (end = begin + 1; end < rows && usable[begin] && goes_on(end); ++end) {
      }
      if (!usable[begin]) continue;
      const HarOrigin origin{label[begin], subject[begin], recording, row.split.value_or(0)};
      const auto windows = append_windows(set_, channels, begin, end, options_.stride, origin);
      for (auto n = set_.start.end() - windows; n != set_.start.end(); ++n) *n += lost;
      made += windows;
      short_ += windows == 0 ? end - begin : 0;
    }
    too_short_ += made == 0;
    unsplit_.resize(set_.windows(), !row.split);
  }

  /// Numbers the classes, unless the set has them, and the subjects. Sets the names of classes, subjects and channels.
  /// errors  data: a label that is no class of `like`; a subject with and without a split
  void finish(const std::string& like) {
    if (like.empty()) set_.class_names = sorted_names(labels_.ids());
    std::vector<std::int32_t> classes, subjects;
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      classes.push_back(index_of(set_.class_names, labels_.id(i)));
      require_data(classes.back() < std::ssize(set_.class_names), labels_.place(i), ": label '", labels_.id(i),
                   "' is not a class of '", like, "'");
    }
    // Integer subjects keep their value; others are numbered, and their names stored.
    const std::vector<std::string> names = subjects_.ids();
    const bool numbered = std::ranges::all_of(names, [](const auto& name) {
      const auto value = as_number(name);
      return value && *value >= 0 && *value <= INT32_MAX && std::to_string(*value) == name;
    });
    if (!numbered) set_.subject_names = sorted_names(names);
    for (const auto& name : names)
      subjects.push_back(numbered ? static_cast<std::int32_t>(*as_number(name)) : index_of(set_.subject_names, name));
    for (auto& label : set_.labels) label = label < 0 ? -1 : classes[label];
    for (auto& subject : set_.subject) subject = subject < 0 ? -1 : subjects[subject];
  }

  /// The windows that have no split of their own.
  std::vector<std::int64_t> unsplit() const {
    std::vector<std::int64_t> windows;
    for (std::size_t n = 0; n < unsplit_.size(); ++n)
      if (unsplit_[n]) windows.push_back(static_cast<std::int64_t>(n));
    return windows;
  }

  void report(Summary& summary, std::size_t recordings) const {
    summary.line("channels", listed(set_.channel_names));
    if (!aside_.empty()) summary.line("left aside", "columns ", listed(aside_));
    times_.report(summary);
    if (const std::string text = left_out(recordings); !text.empty()) summary.line("left out", text);
    const auto samples = static_cast<double>(samples_);
    for (std::size_t c = 0; c < missing_of_.size(); ++c)
      if (static_cast<double>(missing_of_[c]) > 0.2 * samples)
        summary.warning("column ", set_.channel_names[c], " lacks ", missing_of_[c], " of ", samples_,
                        " values, and its missing samples are left out; without --skip-columns ", set_.channel_names[c],
                        " little is left");
    for (const std::string& label : options_.skip_labels)
      if (!skipped_labels_.contains(label))
        summary.warning("no sample has the label ", label, " of --skip-labels; the labels are ",
                        listed(set_.class_names));
    if (!comma_decimals_.empty())
      summary.warning(comma_decimals_,
                      ": every second column holds whole numbers only, written like decimals (07, -0): "
                      "if commas are decimal commas, separate the columns by semicolons or blanks");
    const auto steps = static_cast<double>(samples_ - static_cast<std::int64_t>(recordings));
    for (std::size_t c = 0; c < rises_.size(); ++c) {
      if (static_cast<double>(rises_[c]) < std::max(5.0, 0.01 * steps) ||
          static_cast<double>(falls_[c]) > 0.001 * steps)
        continue;
      const std::string& name = set_.channel_names[c];
      summary.warning(name, " never falls within a recording, as a time or a counter: if it is one, --time-column ",
                      name, " compares it with the rate and finds gaps, --skip-columns ", name, " leaves it aside");
    }
  }

  /// Samples and recordings that give no window, by reason.
  std::string left_out(std::size_t recordings) const {
    std::vector<std::string> reasons;
    const auto reason = [&](std::int64_t n, const auto&... parts) {
      if (n > 0) reasons.push_back(join(n, parts...));
    };
    reason(too_short_, " of ", recordings, " recordings, which have no piece as long as a window");
    reason(without_label_, " of ", samples_, " samples without a label");
    reason(skipped_, " samples of --skip-labels ", listed(options_.skip_labels, ","));
    reason(without_subject_, " of ", samples_, " samples without a subject");
    std::vector<std::string> columns;
    for (std::size_t c = 0; c < missing_of_.size(); ++c)
      if (missing_of_[c] > 0) columns.push_back(join(set_.channel_names[c], " ", missing_of_[c]));
    reason(missing_, " of ", samples_, " samples with missing values", columns.empty() ? "" : " in ", listed(columns));
    reason(short_, " samples in pieces shorter than a window");
    return listed(reasons, "; ");
  }

  /// Rows without a split need a subject. A subject may not have rows with and without a split, since its windows could
  /// then be in two parts.
  void check_splits() const {
    for (const auto& [subject, uses] : uses_) {
      const auto& [with, without] = uses;
      require_data(subject >= 0 || without.empty(), without, ": neither subject nor split");
      require_data(subject < 0 || with.empty() || without.empty(), without, ": subject '",
                   subject < 0 ? "" : subjects_.id(subject), "' has no split here, but one in ", with,
                   "; give it in all rows of a subject, or in none");
    }
  }

 private:
  static constexpr std::int32_t kUnlabelled = -1, kMissing = -2, kSkipped = -3;  // labels of samples

  TextTable read_table(const fs::path& path) {
    ColumnChoice& choice = options_.choice;
    TextTable table = read_text_table(path, fields_, Header::optional, choice);
    if (choice.header.empty()) choice.header = table.header;
    require_data(table.header.empty() || table.header == choice.header, table.path.string(),
                 ":1: other channel names than in the recordings before it");
    require_data(fields_ == 0 || table.columns == rises_.size(), table.path.string(), ":1: ", table.columns,
                 " channels, but ", rises_.size(),
                 " in the recordings before it, which have no line of names; list a "
                 "table with names first, or give --time-column none");
    if (fields_ == 0 || !table.header.empty()) set_.channel_names = table.names;
    fields_ = table.fields;
    aside_ = table.aside;
    if (table.comma_decimals && comma_decimals_.empty()) comma_decimals_ = path.string();
    return table;
  }

  void look_for_times(const std::vector<std::vector<double>>& channels) {
    rises_.resize(channels.size());
    falls_.resize(channels.size());
    missing_of_.resize(channels.size());
    for (std::size_t c = 0; c < channels.size(); ++c)
      for (std::size_t i = 1; i < channels[c].size(); ++i) {
        rises_[c] += channels[c][i] > channels[c][i - 1];
        falls_[c] += channels[c][i] < channels[c][i - 1];
      }
  }

  /// The number of each sample's label, or one of the constants.
  std::vector<std::int32_t> labels_of(const ManifestRow& row, const TextTable& table) {
    const auto number = [&](const std::string& label, const std::string& where) {
      if (std::ranges::find(options_.skip_labels, label) != options_.skip_labels.end()) {
        skipped_labels_.insert(label);
        return kSkipped;
      }
      require_data(printable(label) == label, where, ": the label is not UTF-8 text");
      return labels_.intern(label, where);
    };
    if (table.labels.of_row.empty())
      return std::vector<std::int32_t>(table.rows(), row.label.empty() ? kUnlabelled : number(row.label, row.where));
    return column(table, table.labels, number, options_.unlabelled ? kUnlabelled : kMissing);
  }

  std::vector<std::int32_t> subjects_of(const ManifestRow& row, const TextTable& table) {
    const auto number = [&](const std::string& subject, const std::string& where) {
      require_data(printable(subject) == subject, where, ": the subject is not UTF-8 text");
      return subjects_.intern(subject, where);
    };
    std::vector<std::int32_t> out(table.rows(), -1);
    if (!table.subjects.of_row.empty())
      out = column(table, table.subjects, number, -1);
    else if (!row.subject.empty())
      std::ranges::fill(out, number(row.subject, row.where));
    for (const std::int32_t subject : std::set(out.begin(), out.end())) {
      if (subject < 0 && !table.subjects.of_row.empty()) continue;
      auto& [with, without] = uses_[subject];
      std::string& use = row.split ? with : without;
      if (use.empty()) use = row.where;
    }
    return out;
  }

  static std::vector<std::int32_t> column(const TextTable& table, const TextColumn& texts, const auto& number,
                                          std::int32_t missing) {
    std::vector<std::int32_t> of_word(texts.words.size()), out(table.rows());
    std::vector<bool> known(of_word.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto w = static_cast<std::size_t>(texts.of_row[i]);
      if (!known[w]) of_word[w] = is_missing(texts.words[w]) ? missing : number(texts.words[w], table.line_of(i));
      known[w] = true;
      out[i] = of_word[w];
    }
    return out;
  }

  HarSet& set_;
  Options options_;
  SampleTimes times_;
  DistinctTexts<std::string> labels_, subjects_;                      ///< and the places of their first use
  std::map<std::int32_t, std::pair<std::string, std::string>> uses_;  ///< of a subject: a row with, one without split
  std::set<std::string> skipped_labels_;
  std::vector<std::string> aside_;
  std::string comma_decimals_;                            ///< a table that seems to have decimal commas
  std::vector<std::int64_t> rises_, falls_, missing_of_;  ///< of each channel
  std::vector<bool> unsplit_;
  std::size_t fields_ = 0;
  std::int64_t samples_ = 0, without_label_ = 0, skipped_ = 0, without_subject_ = 0, missing_ = 0, short_ = 0,
               too_short_ = 0;
};

}  // namespace

bool run_har(const Args& args) {
  Options options(
      "lockstep-prep har", "Windows of any sensor recordings: one text table per recording, listed in a file.",
      "A row of the manifest is path,label,subject,split. The path is relative to the manifest, the subject may be "
      "empty, and the split is train, val, test or empty. Fields may be quoted; lines that begin with # are comments. "
      "A table has one line per sample and one column per channel, separated by semicolons, tabs, commas or blanks, "
      "with or without a line of names. Labels and subjects may be columns of the tables instead: --label-column, "
      "--subject-column. A window lies within one activity of one subject, has no missing sample and crosses no gap "
      "in time. Labels are numbered in sorted order. Rows without a split go to training or test by subject. "
      "Validation windows are taken from training unless a row says val. With --like, a manifest of test rows "
      "only makes a set for the evaluation of a trained model; with --unlabelled, a set for its predictions.");
  SourceOptions common(options, SourceOptions::Input::none);
  HarSet set;
  HarSplit split;
  std::string format, like;
  std::vector<std::string> manifest;
  Recordings::Options reading;
  ColumnChoice& choice = reading.choice;
  choice.missing = true;
  bool& unlabelled = reading.unlabelled;
  double rate = 0;
  std::int64_t window = 0, &stride = reading.stride;
  options.positional("FILE", &manifest, "the manifest", 1, 1);
  options.choice("format", &format, "manifest", {"manifest"}, "format of FILE");
  options.add("rate", &rate, 0.0, positive, "samples per second").unit("Hz").required();
  options.add("window", &window, std::int64_t{0}, at_least(2), "samples in a window").required();
  options.add("stride", &stride, std::int64_t{0}, non_negative,
              "samples from one window to the next; 0: the window length");
  options.add(
      "columns=NAME,...", &choice.take, {},
      "columns that become channels, in this order; names from the header, or channel_0, channel_1, ... without a "
      "header; default: all");
  options.add("skip-columns=NAME,...", &choice.skip, {}, "columns that do not become channels");
  options.add("label-column=NAME", &choice.label, "",
              "column with the label of each sample; the manifest then has none");
  options.add("subject-column=NAME", &choice.subject, "",
              "column with the subject of each sample; the manifest then has none");
  options.add(
      "time-column=NAME", &choice.time, "",
      "column with the time of each sample, as numbers in s, ms, us or ns or as dates: it becomes no channel, is "
      "compared with the rate, and windows end at its gaps; default: the first column whose name says time; none: "
      "no column");
  options.add("skip-labels=LABEL,...", &reading.skip_labels, {},
              "labels whose samples are left out, such as 0 for other activities; those without a label always are");
  options.add("like=FILE.h5", &like, "",
              "prepared set that defines the classes, their numbers and the channels, and, for a set without training "
              "windows, the normalisation");
  options.add("units=UNIT,...", &set.channel_units, {},
              "units of the channels, one for each, or one for all; default with --like: those of that set");
  options.add("unlabelled", &unlabelled, false, "labels may be empty; all rows are test rows");
  add_har_split_options(options, split, {}, TestPart::by_fraction);
  options.example(
      "lockstep-prep har --format manifest recordings.csv --rate 50 --window 128 --stride 64 --output own.h5",
      "windows of 2.56 s that overlap by half");
  options.example(
      "lockstep-prep har list.csv --label-column activity --subject-column user --time-column timestamp --rate 20 "
      "--window 60 --output own.h5",
      "tables with many activities and people: a row of list.csv is their path alone");
  options.example(
      "lockstep-prep har tests.csv --rate 50 --window 128 --like own.h5 --skip-columns time --output new-tests.h5",
      "recordings that the manifest names as test, for a model that was trained on own.h5");
  options.example("lockstep-prep har new.csv --unlabelled --rate 50 --window 128 --like own.h5 --output new.h5",
                  "recordings without labels, for lockstep predict");
  if (!options.parse(args)) return false;
  check_har_split(options, split);
  require_usage(choice.take.empty() || choice.skip.empty(), "options columns and skip-columns: give one of them");
  require_usage(std::set(choice.take.begin(), choice.take.end()).size() == choice.take.size(),
                "option columns = ", listed(choice.take), ": a column is named twice");
  require_writable(common.output, {manifest.front()});
  if (stride == 0) stride = window;

  const fs::path list = manifest.front();
  const auto rows = read_manifest(list, unlabelled, choice);
  set.length = window;
  set.sample_rate = rate;
  set.source = "har-manifest";
  const bool tests_only = std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.split == 2; });
  require_usage(!tests_only || !like.empty(), list.string(), ": all ", rows.size(),
                " recordings are for tests; name the prepared training set by --like");
  std::vector<std::string> like_channels;
  if (!like.empty()) {
    require_writable(common.output, {like});
    like_channels = copy_metadata(set, like, tests_only);
  }
  std::vector<fs::path> files = {list};
  Recordings recordings(set, reading);
  for (const auto& row : rows) {
    files.push_back(list.parent_path() / row.path);
    std::error_code too_long;
    require_usage(fs::is_regular_file(files.back(), too_long), row.where, ": '", files.back().string(),
                  "': no such file");
    recordings.read(row, files.back(), static_cast<std::int32_t>(files.size()) - 2);
  }
  recordings.check_splits();
  recordings.finish(like);
  require_writable(common.output, files);
  require_data(set.windows() > 0, list.string(), ": no window of ", window, " samples: left out are ",
               recordings.left_out(rows.size()), "; --skip-columns leaves columns aside");
  require_data(like.empty() || set.channel_names == like_channels, "reading '", list.string(), "': its channels ",
               listed(set.channel_names), " are not those of '", like, "', ", listed(like_channels),
               "; choose them with --columns");
  if (set.channel_units.size() == 1) set.channel_units.resize(set.channel_names.size(), set.channel_units.front());
  require_usage(set.channel_units.empty() || std::ssize(set.channel_units) == set.channels(),
                "option units: ", set.channel_units.size(), " units for ", set.channels(), " channels (",
                listed(set.channel_names), ")");
  note_files(set, list.parent_path(), files);

  const auto chosen_by_manifest = [&](const std::string& option, const char* what) {
    if (options.given(option) && options.value(option) != "0")
      options.reject(option, join("the manifest already chooses the recordings for ", what));
  };
  if (const auto windows = recordings.unsplit(); !windows.empty())
    split_subjects(set, windows, split.test_fraction, 2, split.seed, "prep.har.test");
  else
    chosen_by_manifest("split.test_fraction", "the test");
  if (set.windows_in(1) == 0 && !tests_only) {
    split_validation(set, split);
  } else {
    for (const char* option : {"split.val_split", "split.val_subjects", "split.val_fraction"})
      chosen_by_manifest(option, "validation");
    set.notes.emplace_back("val_split", std::string("manifest"));
    set.notes.emplace_back("seed", static_cast<std::int64_t>(split.seed));
  }
  set.notes.emplace_back("stride", stride);
  recordings.report(common.summary, rows.size());
  finish_har(common, set);
  return true;
}

}  // namespace lockstep::prep
