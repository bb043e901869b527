#include "lockstep/train/ensemble.hpp"

#include <algorithm>
#include <charconv>

#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/train/stopping.hpp"

namespace lockstep {

std::int64_t member_count_in(const std::filesystem::path& directory) {
  const std::filesystem::path config = directory / "config.ini";
  if (!std::filesystem::exists(config)) return 0;
  std::int64_t members = 0;
  for (const IniEntry& entry : read_ini(read_text_file(config), config.string()))
    if (entry.key == kMembersKey) std::from_chars(entry.value.data(), entry.value.data() + entry.value.size(), members);
  return members;
}

std::vector<std::string> checkpoint_files(const std::string& text) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(text)) {
    if (text.empty() || fs::exists(text)) return {text};
    std::vector<std::string> files = split(text, ',');
    require_usage(std::ranges::none_of(files, &std::string::empty), "option checkpoint = '", text,
                  "': a name is missing before or after a comma; write A.h5,B.h5");
    return files;
  }
  const std::int64_t members = member_count_in(text);
  const fs::path best = CheckpointFolder(text).best_file();
  require_usage(members > 1, "opening '", text, "': a directory without an ensemble; name a checkpoint file",
                fs::exists(best) ? join(", such as ", best.string(), ",") : "", " or the run directory of an ensemble");
  std::vector<std::string> files;
  std::int64_t steps = -1;  // of the members that no stopping rule has ended
  for (std::int64_t number = 1; number <= members; ++number) {
    const CheckpointFolder folder(fs::path(text) / member_folder(number));
    std::vector<CheckpointFolder::Rejected> rejected;
    const fs::path last = folder.newest_whole(rejected);
    const TrainState state = last.empty() ? TrainState() : CheckpointReader(last, true).state();
    const bool whole_length = state.stop_reason == all_done(state.step);
    if (whole_length && steps < 0) steps = state.step;
    require_data(
        state.finished && (!whole_length || state.step == steps), "opening the ensemble '", text, "': the training of ",
        member_folder(number), " is not finished: ",
        last.empty() ? std::string("it has no whole checkpoint") : join("its last checkpoint is of step ", state.step),
        steps >= 0 ? join(" of ", steps) : "",
        "; repeat the command that trains the ensemble, or list the files of the other members, A.h5,B.h5");
    files.push_back((fs::exists(folder.best_file()) ? folder.best_file() : folder.final_file()).string());
  }
  return files;
}

}  // namespace lockstep
