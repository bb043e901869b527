#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

/// Windows of inertial sensors with their activities, as data/README.md describes them (`lockstep-har`).
struct HarSet {
  std::int64_t length = 0;              ///< L, samples in a window
  std::vector<double> signals;          ///< (n, C, L), units of the source
  std::vector<std::int32_t> labels;     ///< (n), 0 .. classes - 1; -1 unknown, in the test part only
  std::vector<std::int32_t> subject;    ///< (n), -1 unknown
  std::vector<std::int32_t> recording;  ///< (n), -1 unknown
  std::vector<std::int64_t> start;      ///< (n), first sample (0-based) in the recording; -1 unknown
  std::vector<std::uint8_t> split;      ///< (n), 0 train, 1 validation, 2 test
  std::vector<std::string> class_names, channel_names;
  std::vector<std::string> channel_units;  ///< one per channel; empty: unknown
  std::vector<std::string> subject_names;  ///< by number; empty when subjects have only numbers
  double sample_rate = 0;                  ///< Hz
  std::vector<double> channel_mean, channel_std;
  std::string source;                      ///< the command that wrote it
  std::vector<std::string> files, sha256;  ///< names and checksums of the raw files
  DatasetNotes notes;

  std::int64_t windows() const { return static_cast<std::int64_t>(labels.size()); }
  std::int64_t channels() const { return static_cast<std::int64_t>(channel_names.size()); }
  std::int64_t windows_in(int part) const;
  std::vector<std::int64_t> class_counts(int part) const;  ///< [class] windows
  std::int64_t unlabelled() const;                         ///< windows without a label
  std::span<const double> window(std::int64_t n) const;
  std::string subject_name(std::int32_t subject) const;
};

inline constexpr std::array<const char*, 3> kHarParts = {"train", "val", "test"};
/// Channels of the two published layouts, in their order.
inline const std::vector<std::string> kHarChannels = {"body_acc_x",  "body_acc_y",  "body_acc_z",
                                                      "body_gyro_x", "body_gyro_y", "body_gyro_z",
                                                      "total_acc_x", "total_acc_y", "total_acc_z"};
inline const std::vector<std::string> kHarActivities = {"WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS",
                                                        "SITTING", "STANDING",         "LAYING"};
/// The further classes of HAPT, 7 .. 12 in its files.
inline const std::vector<std::string> kHarTransitions = {"STAND_TO_SIT", "SIT_TO_STAND", "SIT_TO_LIE",
                                                         "LIE_TO_SIT",   "STAND_TO_LIE", "LIE_TO_STAND"};
/// Units of kHarChannels: accelerations, rotations, accelerations.
inline const std::vector<std::string> kHarUnits = {"g", "g", "g", "rad/s", "rad/s", "rad/s", "g", "g", "g"};
/// Subjects of the official test split.
inline constexpr std::array<std::int32_t, 9> kHarTestSubjects = {2, 4, 9, 10, 12, 13, 18, 20, 24};

/// Origin of a window.
struct HarOrigin {
  std::int32_t label = 0, subject = -1, recording = -1;
  std::uint8_t split = 0;
};
/// Appends the windows of samples [begin, end) of a recording, one every `stride` samples, while a whole window fits;
/// returns their number.
/// shapes  columns [C][sample]
std::int64_t append_windows(HarSet& set, const std::vector<std::vector<double>>& columns, std::int64_t begin,
                            std::int64_t end, std::int64_t stride, const HarOrigin& origin);

/// Computes mean and population standard deviation of each channel over all samples of the training windows, in double.
/// A deviation of at most 1e-10 of the mean, or of at most 1e-30, becomes 1. errors  data: no training windows
void take_channel_moments(HarSet& set);

/// How validation windows are chosen from training windows, and test windows from windows without a split.
struct HarSplit {
  std::string val_split;                  ///< subject | random
  std::vector<std::string> val_subjects;  ///< empty: drawn by the seed
  bool val_given = true;                  ///< the user named them
  double val_fraction = 0, test_fraction = 0;
  std::uint64_t seed = 0;
};
/// Moves whole subjects to `part`, so that it holds about `fraction` of these windows and of the windows of each class.
/// Draws subjects by the seed until there are enough windows, then moves and exchanges single subjects while this
/// brings the part closer to those shares. A missing window costs as much as five surplus windows; a class that loses
/// its last remaining window costs more than either. At least one subject stays.
/// errors  data: fewer than two subjects, a window without a subject
void split_subjects(HarSet& set, const std::vector<std::int64_t>& windows, double fraction, std::uint8_t part,
                    std::uint64_t seed, const char* site);
/// Moves training windows to the validation part and records the choice in `notes`.
/// errors  usage: a named subject without training windows; data: unknown subjects, nothing left for training
void split_validation(HarSet& set, const HarSplit& split);

/// Writes the file atomically. errors  internal: the disk is full; usage: not writable
void write_har_set(const std::filesystem::path& path, const HarSet& set);
/// Reads a file back, one part after another. errors  data: not of this format, a dataset missing or of another shape
/// or type
HarSet read_har_set(const H5File& file, std::vector<std::string>* problems = nullptr);

/// Notes on classes that only one subject, or only some of the parts with windows, have.
std::vector<std::string> class_notes(const HarSet& set);
/// Prints the windows of each class and part, and the number of its subjects.
void print_class_table(const HarSet& set, std::ostream& out);
/// Problems of a prepared file, one line each: schema, values beyond 32-bit floats, ranges, subjects on both sides of a
/// split by subject, moments that differ from the recomputed ones. Facts that are not errors, such as classes without
/// training windows, go to `remarks`.
std::vector<std::string> check_har_set(const H5File& file, std::vector<std::string>& remarks);
/// Prints a page about a prepared file: windows per part and class, subjects, channels with their ranges, origin.
void describe_har_set(const H5File& file, std::ostream& out);

}  // namespace lockstep::prep
