#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Folders of a run directory that are themselves run directories. The run of TaskConfig::pretraining():
inline constexpr const char* kPretrainingFolder = "pretrain";
/// A network of an ensemble, from 1: "member-1".
std::string member_folder(std::int64_t number);
/// A fold of a cross-validation, from 1: "fold-1".
std::string fold_folder(std::int64_t number);
/// A training of a search, from 1: "trial-1".
std::string trial_folder(std::int64_t number);
/// The file with a line for each training that a campaign has finished.
inline constexpr const char* kCampaignFile = "campaign.jsonl";

/// The folders of these names that exist in a run directory, in no particular order.
std::vector<std::filesystem::path> nested_runs(const std::filesystem::path& run_dir);

}  // namespace lockstep
