#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/models/har/har_weights.hpp"
#include "lockstep/tasks/har/har_folds.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Windows of inertial sensors with their activities, from a `lockstep-har` file (data/README.md). Windows are numbered
/// over all splits: training, then validation, then test.
struct HarData {
  std::filesystem::path path;
  std::vector<std::string> class_names, channel_names;
  std::vector<std::string> channel_units;         ///< one per channel; empty: unknown
  double sample_rate = 0;                         ///< Hz
  std::vector<double> channel_mean, channel_std;  ///< (C), over the training windows
  RowArray signals;                               ///< f64 (n, C, L)
  Tensor labels;                                  ///< i32 (n), 0 .. classes-1; -1 unknown
  /// i32 (n, 2): the next window of the same split, recording and class that overlaps or adjoins this one, and how many
  /// samples later it begins; (-1, 0) if there is none.
  Tensor following;
  std::array<std::int64_t, 3> count{};  ///< by Split
  std::uint64_t hash = 0;

  std::int64_t channels() const { return static_cast<std::int64_t>(channel_names.size()); }
  std::int64_t classes() const { return static_cast<std::int64_t>(class_names.size()); }
  std::int64_t windows() const { return labels.size(); }
  std::int64_t length() const { return signals.shape()[2]; }
  /// Number of the first window of a split.
  std::int64_t first_of(Split split) const;
  /// Signals (C, L) of window n.
  const double* window(std::int64_t n) const { return signals.row<double>(n); }
  std::int32_t label(std::int64_t n) const { return labels.data<std::int32_t>()[n]; }
  /// How these windows differ from those that a network was trained on, in classes, channels, units (where both are
  /// known), length and sampling rate: "classes: 2 (a, b) there, 2 (b, a) here; ...". Empty: they are alike.
  std::string differences(const HarMetadata& trained) const;

  /// Whether every window must have a label; optional: windows of the test split may lack it.
  enum class Labels : std::uint8_t { required, optional };
  /// With folds, the windows of the chosen fold are the test split, all others the training split, each in the order of
  /// the file; there is no validation split, and the moments are those of the training windows.
  ///
  /// errors  data, naming file, dataset and window: another format, a wrong shape or type, a value that is not finite,
  ///         a label that is not a class; with folds also those of stratified_folds(), and usage: no such fold
  static HarData read(const std::filesystem::path& path, DataMemory& data_memory, Labels labels = Labels::required,
                      const HarFolds& folds = {});
  /// The subjects that each fold of a file tests: "subject 7", "subjects 2, 9". errors  as read()
  static std::vector<std::string> folds(const std::filesystem::path& path, const std::string& how);
  /// The labels of the windows that a run trains on. With folds but without a number: of the fold with the most
  /// training windows.
  /// errors  as read()
  static std::vector<std::int32_t> train_labels(const std::filesystem::path& path, const HarFolds& folds);
};

/// The windows that a checkpoint was trained on.
HarMetadata trained_windows(const H5File& checkpoint);

}  // namespace lockstep
