#include <algorithm>
#include <charconv>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/prep/har/har_signal.hpp"
#include "lockstep/prep/source.hpp"
#include "prep/har/har_options.hpp"
#include "lockstep/io/line_reader.hpp"

namespace lockstep::prep {

namespace {
namespace fs = std::filesystem;

struct ManifestRow {
  std::string where;  ///< "FILE:LINE"
  std::string path, label, subject;
  std::optional<std::uint8_t> split;
};

/// unlabelled: labels may be empty, and rows without a split are test rows.
std::vector<ManifestRow> read_manifest(const fs::path& path, bool unlabelled) {
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
    if (std::exchange(first, false) && fields == std::vector<std::string>{"path", "label", "subject", "split"})
      continue;
    require_data(fields.size() == 4, row.where, ": ", fields.size(),
                 " fields, expected path,label,subject,split (the last two may be empty)");
    row.path = fields[0];
    row.label = fields[1];
    row.subject = fields[2];
    require_data(!row.path.empty(), row.where, ": the path is empty");
    require_data(unlabelled || !row.label.empty(), row.where,
                 ": the label is empty; --unlabelled accepts recordings without labels, for lockstep predict");
    const auto [other, fresh] = seen.emplace(row.path, row.where);
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

std::optional<std::int64_t> as_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

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
  return static_cast<std::int32_t>(std::find(names.begin(), names.end(), name) - names.begin());
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

/// Rows without a split need a subject. A subject may not have rows with and without a split, since its windows could
/// then be in two parts.
void check_splits(const std::vector<ManifestRow>& rows) {
  std::map<std::string, const ManifestRow*> with;
  for (const auto& row : rows) {
    if (row.split) with.emplace(row.subject, &row);
  }
  for (const auto& row : rows) {
    if (row.split) continue;
    require_data(!row.subject.empty(), row.where, ": neither subject nor split");
    const auto other = with.find(row.subject);
    require_data(other == with.end(), row.where, ": subject '", row.subject, "' has no split here, but one in ",
                 other == with.end() ? "" : other->second->where, "; give it in all rows of a subject, or in none");
  }
}

}  // namespace

bool run_har(const Args& args) {
  Options options(
      "lockstep-prep har", "Windows of any sensor recordings: one text table per recording, listed in a file.",
      "A row of the manifest is path,label,subject,split. The path is relative to the manifest, the subject may be "
      "empty, and the split is train, val, test or empty. Fields may be quoted; lines that begin with # are comments. "
      "A table has one line per sample and one column per channel, separated by blanks or commas, with or without a "
      "line of channel names. Labels are numbered in sorted order. Rows without a split go to training or test by "
      "subject. Validation windows are taken from training unless a row says val. With --like, a manifest of test rows "
      "only makes a set for the evaluation of a trained model; with --unlabelled, a set for its predictions.");
  SourceOptions common(options, SourceOptions::Input::none);
  HarSet set;
  HarSplit split;
  std::string format, like;
  std::vector<std::string> manifest;
  ColumnChoice choice;
  bool unlabelled = false;
  double rate = 0;
  std::int64_t window = 0, stride = 0;
  options.positional("FILE", &manifest, "the manifest", 1, 1);
  options.choice("format", &format, "manifest", {"manifest"}, "format of FILE");
  options.add("rate", &rate, 0.0, positive, "samples per second").unit("Hz").required();
  options.add("window", &window, std::int64_t{0}, at_least(2), "samples in a window").required();
  options.add("stride", &stride, std::int64_t{0}, non_negative,
              "samples from one window to the next; 0: the window length");
  options
      .add("columns", &choice.take, {},
           "columns that become channels, in this order; names from the header, or channel_0, channel_1, ... without a "
           "header; default: all")
      .value_name("NAME,...");
  options.add("skip-columns", &choice.skip, {}, "columns that do not become channels, such as times")
      .value_name("NAME,...");
  options
      .add("like", &like, "",
           "prepared set that defines the classes, their numbers and the channels, and, for a set without training "
           "windows, the normalisation")
      .value_name("FILE.h5");
  options
      .add("units", &set.channel_units, {},
           "units of the channels, one for each, or one for all; default with --like: those of that set")
      .value_name("UNIT,...");
  options.add("unlabelled", &unlabelled, false, "labels may be empty; all rows are test rows");
  add_har_split_options(options, split, {}, TestPart::by_fraction);
  options.example(
      "lockstep-prep har --format manifest recordings.csv --rate 50 --window 128 --stride 64 --output own.h5",
      "windows of 2.56 s that overlap by half");
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
  const auto rows = read_manifest(list, unlabelled);
  check_splits(rows);
  std::vector<std::string> labels, subjects;
  for (const auto& row : rows) {
    if (!row.label.empty()) labels.push_back(row.label);
    if (!row.subject.empty()) subjects.push_back(row.subject);
  }
  set.length = window;
  set.sample_rate = rate;
  set.source = "har-manifest";
  set.class_names = sorted_names(labels);
  const bool tests_only = std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.split == 2; });
  require_usage(!tests_only || !like.empty(), list.string(), ": all ", rows.size(),
                " recordings are for tests; name the prepared training set by --like");
  std::vector<std::string> like_channels;
  if (!like.empty()) {
    require_writable(common.output, {like});
    like_channels = copy_metadata(set, like, tests_only);
    for (const auto& row : rows)
      require_data(row.label.empty() || std::ranges::find(set.class_names, row.label) != set.class_names.end(),
                   row.where, ": label '", row.label, "' is not a class of '", like, "'");
  }
  // Integer subjects keep their value; others are numbered, and their names stored.
  const bool numbered = std::all_of(subjects.begin(), subjects.end(), [](const auto& name) {
    const auto value = as_number(name);
    return value && *value >= 0 && *value <= INT32_MAX && std::to_string(*value) == name;
  });
  if (!numbered) set.subject_names = sorted_names(subjects);

  std::vector<fs::path> files = {list};
  std::size_t fields = 0;
  std::vector<bool> rising;  // of each channel: whether all recordings rise from sample to sample
  std::int64_t too_short = 0;
  std::vector<bool> unsplit;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    files.push_back(list.parent_path() / row.path);
    std::error_code too_long;
    require_usage(fs::is_regular_file(files.back(), too_long), row.where, ": '", files.back().string(),
                  "': no such file");
    const TextTable table = read_text_table(files.back(), fields, Header::optional, choice);
    fields = table.fields;
    if (choice.header.empty()) choice.header = table.header;
    require_data(table.header.empty() || table.header == choice.header, table.path.string(),
                 ":1: other channel names than in the recordings before it");
    if (r == 0 || !table.header.empty()) set.channel_names = table.names;
    std::vector<std::vector<double>> channels;
    rising.resize(table.columns, true);
    for (std::size_t c = 0; c < table.columns; ++c) {
      channels.push_back(table.column(c));
      rising[c] =
          rising[c] && std::ranges::adjacent_find(channels[c], std::ranges::greater_equal{}) == channels[c].end();
    }
    HarOrigin origin{row.label.empty() ? -1 : index_of(set.class_names, row.label), -1, static_cast<std::int32_t>(r),
                     row.split.value_or(0)};
    if (!row.subject.empty())
      origin.subject =
          numbered ? static_cast<std::int32_t>(*as_number(row.subject)) : index_of(set.subject_names, row.subject);
    const auto made = append_windows(set, channels, 0, static_cast<std::int64_t>(table.rows()), stride, origin);
    too_short += made == 0;
    unsplit.resize(static_cast<std::size_t>(set.windows()), !row.split);
  }
  require_writable(common.output, files);
  require_data(set.windows() > 0, list.string(), ": all ", rows.size(), " recordings are shorter than a window of ",
               window, " samples");
  require_data(like.empty() || set.channel_names == like_channels, "reading '", list.string(), "': its channels ",
               listed(set.channel_names), " are not those of '", like, "', ", listed(like_channels),
               "; choose them with --columns");
  if (set.channel_units.size() == 1) set.channel_units.resize(set.channel_names.size(), set.channel_units.front());
  require_usage(set.channel_units.empty() || std::ssize(set.channel_units) == set.channels(),
                "option units: ", set.channel_units.size(), " units for ", set.channels(), " channels (",
                listed(set.channel_names), ")");
  note_files(set, list.parent_path(), files);

  std::vector<std::int64_t> free;
  for (std::size_t n = 0; n < unsplit.size(); ++n) {
    if (unsplit[n]) free.push_back(static_cast<std::int64_t>(n));
  }
  if (!free.empty()) split_subjects(set, free, split.test_fraction, 2, split.seed, "prep.har.test");
  if (set.windows_in(1) == 0 && !tests_only) {
    split_validation(set, split);
  } else {
    if (options.given("split.val_split") || options.given("split.val_subjects"))
      options.reject(options.given("split.val_split") ? "split.val_split" : "split.val_subjects",
                     "the manifest already chooses the recordings for validation");
    set.notes.emplace_back("val_split", std::string("manifest"));
    set.notes.emplace_back("seed", static_cast<std::int64_t>(split.seed));
  }
  set.notes.emplace_back("stride", stride);
  if (too_short > 0)
    common.summary.line("left out", too_short, " of ", rows.size(), " recordings, which are shorter than a window");
  for (std::size_t c = 0; c < rising.size(); ++c) {
    if (rising[c])
      common.summary.note(set.channel_names[c],
                          " rises with each sample of each recording; if it counts time, leave it out "
                          "with --skip-columns ",
                          set.channel_names[c]);
  }
  finish_har(common, set);
  return true;
}

}  // namespace lockstep::prep
