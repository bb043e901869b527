#include <algorithm>
#include <charconv>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpoint/checkpoint_parts.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/report/run_log.hpp"

namespace lockstep {

namespace {

/// N of "step-N.h5" and "rescue-N.h5", or -1 for other names.
std::int64_t step_in_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::size_t number = name.find('-') + 1;
  if ((!name.starts_with("step-") && !name.starts_with("rescue-")) || !name.ends_with(".h5")) return -1;
  std::int64_t step = -1;
  const char* end = name.data() + name.size() - 3;
  const auto [stop, error] = std::from_chars(name.data() + number, end, step);
  return error == std::errc() && stop == end ? step : -1;
}

/// The step of a file. An unreadable file counts as the last one, so that it is checked, and refused, first.
std::int64_t step_inside(const std::filesystem::path& path) {
  if (!checkpoint_defect(path).empty()) return std::numeric_limits<std::int64_t>::max();
  try {
    return H5File::open(path).int_attribute("/state", "step");
  } catch (const Error&) {
    return std::numeric_limits<std::int64_t>::max();
  }
}

/// The parts of a manifest that exist; none if the file is damaged or not a manifest.
std::vector<std::filesystem::path> parts_beside(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> parts;
  if (!end_mark_defect(path).empty()) return parts;
  try {
    const H5File file = H5File::open(path);
    if (is_manifest(file)) parts = part_files(file);
  } catch (const Error&) {
    return {};
  }
  std::erase_if(parts, [](const auto& part) { return !std::filesystem::exists(part); });
  return parts;
}

std::vector<std::pair<std::int64_t, std::filesystem::path>> step_files(const std::filesystem::path& folder) {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> files;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure))
    if (const std::int64_t step = step_in_name(entry.path()); step >= 0) files.emplace_back(step, entry.path());
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  return files;
}

}  // namespace

std::filesystem::path CheckpointFolder::step_file(std::int64_t step) const {
  return folder_ / join("step-", step, ".h5");
}

std::filesystem::path CheckpointFolder::rescue_file(std::int64_t step) const {
  return folder_ / join("rescue-", step, ".h5");
}

std::filesystem::path CheckpointFolder::best_file(std::int64_t place) const {
  return folder_ / (place == 1 ? std::string("best.h5") : join("best-", place, ".h5"));
}

void CheckpointFolder::make_room_for_best(std::int64_t place, std::int64_t keep, std::int64_t step) const {
  std::int64_t last = place;
  while (last < keep && std::filesystem::exists(best_file(last)) && step_inside(best_file(last)) != step) ++last;
  for (; last > place; --last) std::filesystem::rename(best_file(last - 1), best_file(last));
}

std::filesystem::path CheckpointFolder::previous_best(std::int64_t place) const {
  return folder_ / "previous-best" / best_file(place).filename();
}

void CheckpointFolder::set_best_aside() const {
  namespace fs = std::filesystem;
  const fs::path place = previous_best().parent_path(), unfinished = place.string() + ".tmp";
  if (fs::exists(place)) return;
  fs::remove_all(unfinished);
  fs::create_directories(unfinished);
  for (std::int64_t rank = 1; fs::exists(best_file(rank)); ++rank) {
    const fs::path copy = unfinished / best_file(rank).filename();
    std::error_code failed;
    fs::create_hard_link(best_file(rank), copy, failed);
    if (failed) fs::copy_file(best_file(rank), copy);  // the file system has no links
  }
  fs::rename(unfinished, place);
}

void CheckpointFolder::restore_best(std::int64_t step) const {
  namespace fs = std::filesystem;
  const fs::path place = previous_best().parent_path();
  fs::remove_all(place.string() + ".tmp");
  if (!fs::exists(place)) return;
  bool changed = !fs::exists(best_file());
  std::int64_t last = 0;
  for (; fs::exists(best_file(last + 1)) || fs::exists(previous_best(last + 1)); ++last)
    changed = changed || step_inside(best_file(last + 1)) > step;
  // Backwards: while an interrupted restoration is incomplete, a file of a later step is left.
  for (; changed && last >= 1; --last) {
    if (fs::exists(previous_best(last)))
      fs::rename(previous_best(last), best_file(last));
    else
      fs::remove(best_file(last));
  }
  fs::remove_all(place);
}

namespace {
std::filesystem::path protection_of(const std::filesystem::path& checkpoint) { return checkpoint.string() + ".keep"; }
}  // namespace

void set_protected(const std::filesystem::path& checkpoint, bool protect) {
  require_usage(std::filesystem::is_regular_file(checkpoint), "protecting ", checkpoint, ": no such file");
  if (protect) {
    write_text_atomically(protection_of(checkpoint), "lockstep checkpoint unkeep removes this protection\n");
  } else {
    std::filesystem::remove(protection_of(checkpoint));
  }
}

bool is_protected(const std::filesystem::path& checkpoint) {
  return std::filesystem::exists(protection_of(checkpoint));
}

std::vector<std::filesystem::path> CheckpointFolder::candidates() const {
  auto files = step_files(folder_);
  if (std::filesystem::exists(final_file())) files.emplace_back(step_inside(final_file()), final_file());
  std::stable_sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] : files) paths.push_back(std::move(path));
  return paths;
}

std::filesystem::path CheckpointFolder::set_aside_after(std::int64_t step) const {
  std::vector<std::filesystem::path> later;
  for (const auto& [named, path] : step_files(folder_))
    if (step_inside(path) > step) later.push_back(path);
  std::vector<std::filesystem::path> others = {final_file()};
  for (std::int64_t rank = 1; std::filesystem::exists(best_file(rank)); ++rank) others.push_back(best_file(rank));
  for (const auto& path : others)
    if (std::filesystem::exists(path) && step_inside(path) > step) later.push_back(path);
  if (later.empty()) return {};
  std::filesystem::path place = next_previous(folder_.parent_path()) / folder_.filename();
  create_directories_on_disk(place);
  std::error_code failure;
  const auto move = [&](const std::filesystem::path& file) {
    if (!failure) std::filesystem::rename(file, place / file.filename(), failure);
  };
  for (const std::filesystem::path& path : later) {
    for (const std::filesystem::path& part : parts_beside(path)) move(part);  // first: see prune()
    move(path);
    if (is_protected(path)) move(protection_of(path));
  }
  require(!failure, "moving the checkpoints after step ", step, " to ", place, ": ", failure.message());
  return place;
}

void CheckpointFolder::prune(std::int64_t keep) const {
  std::int64_t whole = 0;
  for (const auto& [step, path] : step_files(folder_)) {
    if (is_protected(path)) continue;
    if (whole >= keep) {
      std::error_code ignored;  // a file that cannot be removed does no harm
      std::filesystem::remove(path, ignored);
    } else if (checkpoint_defect(path).empty()) {
      ++whole;
    }
  }
  remove_orphaned_parts(folder_);
  std::error_code ignored;
  std::filesystem::remove_all(previous_best().parent_path(), ignored);
}

std::filesystem::path CheckpointFolder::newest_whole(std::vector<Rejected>& rejected) const {
  for (const std::filesystem::path& path : candidates()) {
    std::string defect = checkpoint_defect(path);
    if (defect.empty()) return path;
    rejected.push_back({path, std::move(defect)});
  }
  return {};
}

}  // namespace lockstep
