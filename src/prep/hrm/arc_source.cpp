#include <algorithm>

#include "lockstep/prep/hrm/arc.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

namespace {
/// What a folder or file of tasks holds.
void summarise(const ArcInput& input, const std::vector<ArcTask>& tasks, Summary& summary) {
  std::int64_t pairs = 0, tests = 0, answered = 0, held_out = 0;
  int least = kArcSide, most = 0;
  for (const ArcTask& task : tasks) {
    pairs += std::ssize(task.train);
    tests += std::ssize(task.test);
    held_out += task.evaluation;
    for (const auto* of : {&task.train, &task.test})
      for (const ArcPair& pair : *of) {
        answered += of == &task.test && !pair.output.cells.empty();
        for (const ArcGrid* grid : {&pair.input, &pair.output}) {
          if (grid->cells.empty()) continue;
          least = std::min({least, grid->rows, grid->columns});
          most = std::max({most, grid->rows, grid->columns});
        }
      }
  }
  const std::int64_t count = std::ssize(tasks);
  summary.line("tasks", "'", input.tasks.string(), "': ", count, ", with ", pairs, " train pairs and ", tests,
               " tests, ", answered, " of them answered", input.answers.empty() ? "" : " in ",
               input.answers.filename().string(), "; the tests are for ",
               held_out == 0       ? "training"
               : held_out == count ? "the test split"
                                   : join("the test split in ", held_out, " tasks, and for training in the others"),
               "; sides of ", least, " to ", most, " cells");
  const std::string file = input.tasks.filename().string();
  const auto at = file.rfind("challenges");
  if (at == std::string::npos || !input.answers.empty()) return;
  const auto beside = input.tasks.parent_path() / (file.substr(0, at) + "solutions.json");
  if (std::filesystem::exists(beside))
    summary.note("'", beside.string(), "' is not in the input, so these tasks have no answers");
}
}  // namespace

bool run_arc(const Args& args) {
  Options options(
      "lockstep-prep arc", "Tasks of the Abstraction and Reasoning Corpus, one JSON file each or all in one.",
      "Training uses the 'train' pairs of every task and the 'test' pairs of tasks outside folders and files whose "
      "name has the word 'evaluation' or 'test'; the remaining 'test' pairs are the test split. A task with its "
      "variants is one group. Each variant has its own identifier, the same in both splits. Variants differ in their "
      "pairs; they are always stored. Files X_challenges.json and X_solutions.json, as contests publish them, belong "
      "together. Tasks whose 'test' pairs have no outputs are prepared for lockstep predict: their 'test' pairs are in "
      "the test split without an answer.");
  std::vector<std::string> folders;
  std::string same_name;
  std::int64_t num_aug = 0;
  options.add("input,i=DIR,...", &folders, {}, "folders of *.json, files of many tasks, or quoted patterns").required();
  options.add("num-aug", &num_aug, std::int64_t{1000}, between(0, 1e6),
              "variants of each task, made by a dihedral image and a permutation of the colours 1..9");
  options.choice("same-name", &same_name, "refuse", {"refuse", "first", "last"},
                 "several tasks of one name, as in two releases of the corpus: an error, or only the first or last one "
                 "counts, in the order of the input");
  PuzzleOptions common(options, 42, PuzzleOptions::Augment::none);
  options.example(
      "lockstep-prep arc --input 'ARC-AGI/data/training,ARC-AGI/data/evaluation,ConceptARC/corpus/*' --deflate 1 "
      "--output arc.h5",
      "the 960 tasks of ARC-1, 1000 variants each");
  options.example("lockstep-prep arc --input arc-prize --output contest.h5",
                  "a folder of challenges and solutions, as a contest publishes it");
  if (!options.parse(args)) return false;
  require_writable(common.output);

  std::vector<std::filesystem::path> paths = expand_files(folders);
  std::erase_if(paths, [](const std::filesystem::path& path) {  // a pattern may match a README beside the folders
    return std::filesystem::is_regular_file(path) && path.extension() != ".json";
  });
  std::vector<std::string> left_aside;
  std::vector<std::vector<ArcTask>> tasks;
  PuzzleSet files;  // their names and checksums
  const auto add_source = [&](const std::filesystem::path& file) {
    files.sources.push_back((file.parent_path().filename() / file.filename()).string());
    files.sha256.push_back(sha256_of(file));
    require_writable(common.output, {file});
  };
  for (const ArcInput& input : arc_inputs(paths, left_aside)) {
    tasks.push_back(read_arc_tasks(input));
    if (std::filesystem::is_regular_file(input.tasks))
      add_source(input.tasks);
    else
      for (const ArcTask& task : tasks.back()) add_source(task.where);
    if (!input.answers.empty()) add_source(input.answers);
    summarise(input, tasks.back(), common.summary);
  }
  require_usage(!tasks.empty(), "option input: names no folder");
  if (!left_aside.empty()) common.summary.line("left aside", listed(left_aside));
  const SameName how = same_name == "first" ? SameName::first : same_name == "last" ? SameName::last : SameName::refuse;
  if (const std::int64_t others = choose_of_same_name(tasks, how); others > 0)
    common.summary.note(others, " tasks have the name of another one; only the ", same_name, " of each name counts");
  PuzzleSet set = arc_set(tasks, num_aug, common.seed);
  if (set.test.front().rows == 0)
    common.summary.warning(
        "the name of no folder or file has the word evaluation or test, so all tests are for training and nothing is "
        "left to evaluate; rename one");
  common.apply(set);
  set.sources = std::move(files.sources);
  set.sha256 = std::move(files.sha256);
  for (const std::string& remark : arc_repeats(set)) common.summary.note(remark);
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
