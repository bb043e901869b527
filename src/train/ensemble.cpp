#include "lockstep/train/ensemble.hpp"

#include <filesystem>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace lockstep {

std::string member_folder(std::int64_t number) { return join("member-", number); }

std::vector<std::string> checkpoint_files(const std::string& text) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(text)) return text.empty() || fs::exists(text) ? std::vector{text} : split(text, ',');
  std::vector<std::string> files;
  for (std::int64_t number = 1; fs::exists(fs::path(text) / member_folder(number)); ++number) {
    const CheckpointFolder folder(fs::path(text) / member_folder(number));
    const fs::path file = fs::exists(folder.best_file()) ? folder.best_file() : folder.final_file();
    require_data(fs::exists(file), "opening the ensemble '", text, "': member ", number,
                 " has no checkpoint best.h5 or final.h5 yet; let its training end, or list the files of the others");
    files.push_back(file.string());
  }
  require_usage(!files.empty(), "opening '", text, "': a directory without ", member_folder(1),
                "; name a checkpoint file, or the run directory of an ensemble");
  return files;
}

}  // namespace lockstep
