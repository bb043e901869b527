#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The folders of a run directory that are run directories themselves. The run of TaskConfig::pretraining():
inline constexpr const char* kPretrainingFolder = "pretrain";
/// A network of an ensemble, from 1: "member-1".
std::string member_folder(std::int64_t number);
/// A part of a cross-validation, from 1: "fold-1".
std::string fold_folder(std::int64_t number);

/// Those of these folders that exist in a run directory, in no order.
std::vector<std::filesystem::path> nested_runs(const std::filesystem::path& run_dir);

}  // namespace lockstep
