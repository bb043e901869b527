#include "lockstep/prep/arc.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/selection.hpp"
#include "lockstep/prep/source.hpp"
#include "prep/sources/puzzles.hpp"

namespace lockstep::prep {

bool run_arc(const Args& args) {
  Options options(
      "lockstep-prep arc", "Tasks of the Abstraction and Reasoning Corpus, a JSON file each.",
      "The 'train' pairs of every task are for training, and so are its 'test' pairs unless its folder is called "
      "'evaluation': those are the test split. A task with its variants is one group; each variant has its own "
      "identifier, the "
      "same in both splits. Variants must differ in their pairs, so they are chosen here and stored.");
  std::vector<std::string> folders;
  std::int64_t num_aug = 0;
  options.add("input", &folders, {}, "folders of *.json, or quoted patterns").value_name("DIR,...").required();
  options.alias("input", "i");
  options.add("num-aug", &num_aug, std::int64_t{1000}, between(0, 1e6),
              "variants of each task: a dihedral image and a permutation of the colours 1..9");
  PuzzleOptions common(options, 42, PuzzleOptions::Augment::none);
  options.example(
      "lockstep-prep arc --input 'ARC-AGI/data/training,ARC-AGI/data/evaluation,ConceptARC/corpus/*' --deflate 1 "
      "--output arc.h5",
      "the 960 tasks of ARC-1, 1000 variants each");
  if (!options.parse(args)) return false;
  require_writable(common.output);

  std::vector<std::vector<ArcTask>> tasks;
  std::vector<std::string> sources, sums;
  for (const auto& folder : expand_files(folders)) {
    if (std::filesystem::is_regular_file(folder)) continue;  // a README beside the folders of a pattern
    tasks.push_back(read_arc_folder(folder));
    for (const auto& task : tasks.back()) {
      const std::filesystem::path file = task.where;
      sources.push_back((file.parent_path().filename() / file.filename()).string());
      sums.push_back(sha256_of(file));
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
