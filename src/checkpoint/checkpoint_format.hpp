#pragma once
#include <filesystem>
#include <string>

#include "lockstep/checkpoint/train_state.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

inline constexpr const char* kCheckpointFormat = "lockstep-checkpoint";
inline constexpr std::int64_t kCheckpointVersion = 1;

/// "/optim" or "/optim/<name>".
inline std::string group_of_optimizer(const std::string& name) { return name.empty() ? "/optim" : "/optim/" + name; }

void write_state(H5File& file, const TrainState& state);
TrainState read_state(const H5File& file);

/// Why the contents of a checkpoint, or of a manifest without its parts, are not whole, or "". Reads all values, but
/// not the end mark.
std::string checkpoint_contents_defect(const std::filesystem::path& path);

}  // namespace lockstep
