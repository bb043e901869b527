#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/files.hpp"
#include "lockstep/prep/hrm/arc.hpp"
#include "lockstep/prep/source.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

bool run_arc(const Args& args) {
  Options options(
      "lockstep-prep arc", "Tasks of the Abstraction and Reasoning Corpus, one JSON file each or all in one.",
      "Training uses the 'train' pairs of every task and the 'test' pairs of tasks outside folders called "
      "'evaluation'; the remaining 'test' pairs are the test split. A task with its variants is one group. Each "
      "variant has its own identifier, the same in both splits. Variants differ in their pairs; they are always "
      "stored. Tasks whose 'test' pairs have no outputs, as in a contest, are prepared for lockstep predict: their "
      "'test' pairs are in the test split without an answer.");
  std::vector<std::string> folders;
  std::int64_t num_aug = 0;
  options.add("input,i", &folders, {}, "folders of *.json, files of many tasks, or quoted patterns")
      .value_name("DIR,...")
      .required();
  options.add("num-aug", &num_aug, std::int64_t{1000}, between(0, 1e6),
              "variants of each task, made by a dihedral image and a permutation of the colours 1..9");
  PuzzleOptions common(options, 42, PuzzleOptions::Augment::none);
  options.example(
      "lockstep-prep arc --input 'ARC-AGI/data/training,ARC-AGI/data/evaluation,ConceptARC/corpus/*' --deflate 1 "
      "--output arc.h5",
      "the 960 tasks of ARC-1, 1000 variants each");
  options.example("lockstep-prep arc --input 'training,arc-agi_test_challenges.json' --output contest.h5",
                  "the tasks of a contest, beside training tasks");
  if (!options.parse(args)) return false;
  require_writable(common.output);

  std::vector<std::vector<ArcTask>> tasks;
  std::vector<std::string> sources, sums;
  for (const auto& folder : expand_files(folders)) {
    const bool one_file = std::filesystem::is_regular_file(folder);
    if (one_file && folder.extension() != ".json") continue;  // a pattern may match a README beside the folders
    tasks.push_back(read_arc_tasks(folder));
    for (const auto& task : tasks.back()) {
      const std::filesystem::path file = task.where;
      if (one_file && &task != &tasks.back().front()) break;
      sources.push_back((file.parent_path().filename() / file.filename()).string());
      sums.push_back(sha256_of(file));
      require_writable(common.output, {file});
    }
  }
  require_usage(!tasks.empty(), "option input: names no folder");
  PuzzleSet set = arc_set(tasks, num_aug, common.seed);
  common.apply(set);
  set.sources = std::move(sources);
  set.sha256 = std::move(sums);
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
