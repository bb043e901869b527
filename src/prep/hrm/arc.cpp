#include "lockstep/prep/hrm/arc.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/text.hpp"
#include "prep/hrm/puzzle_json.hpp"

namespace lockstep::prep {

namespace {

using Json = nlohmann::json;

ArcGrid grid_of(const Json& pair, const char* side, const std::string& where) {
  require_data(pair.is_object() && pair.contains(side), "reading ", where, ": no '", side, "'");
  const Json& rows = pair[side];
  ArcGrid grid;
  require_data(rows.is_array() && !rows.empty() && rows.size() <= kArcSide, "reading ", where, ": '", side,
               "' is not a list of 1 to 30 rows");
  grid.rows = static_cast<int>(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    require_data(rows[r].is_array() && !rows[r].empty() && rows[r].size() <= kArcSide, "reading ", where, ": row ",
                 r + 1, " of '", side, "' is not a list of 1 to 30 colours");
    if (r == 0) grid.columns = static_cast<int>(rows[r].size());
    require_data(static_cast<int>(rows[r].size()) == grid.columns, "reading ", where, ": row ", r + 1, " of '", side,
                 "' has ", rows[r].size(), " cells, the first ", grid.columns);
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const Json& cell = rows[r][c];
      require_data(cell.is_number_integer() && cell >= 0 && cell <= 9, "reading ", where, ": cell ", c + 1, " of row ",
                   r + 1, " of '", side, "' is ", json_text(cell), ", not a colour 0 .. 9");
      grid.cells.push_back(cell.get<std::uint8_t>());
    }
  }
  return grid;
}

/// All test pairs of a task may lack their outputs, or none.
std::vector<ArcPair> pairs_of(const Json& task, const std::string& split, const std::string& file) {
  require_data(task.is_object() && task.contains(split) && task[split].is_array() && !task[split].empty(), "reading '",
               file, "': no list '", split, "' with at least one pair");
  std::vector<ArcPair> pairs;
  for (std::size_t i = 0; i < task[split].size(); ++i) {
    const std::string where = join("'", file, "' ", split, " pair ", i + 1);
    const bool answered = split == "train" || (task[split][i].is_object() && task[split][i].contains("output"));
    pairs.push_back(
        {grid_of(task[split][i], "input", where), answered ? grid_of(task[split][i], "output", where) : ArcGrid{}});
    require_data(pairs[0].output.cells.empty() == pairs[i].output.cells.empty(), "reading ", where, ": it has ",
                 answered ? "an" : "no",
                 " output, unlike the first pair; give the outputs of all test pairs or of none");
  }
  return pairs;
}

/// The pairs of a variant, sorted: equal for two variants if and only if they have the same pairs.
std::vector<ArcPair> sorted_pairs(const ArcVariant& variant, const ArcTask& task) {
  std::vector<ArcPair> out;
  for (const auto* pairs : {&task.train, &task.test})
    for (const ArcPair& pair : *pairs)
      out.push_back({apply_arc_variant(variant, pair.input), apply_arc_variant(variant, pair.output)});
  std::ranges::sort(out);
  return out;
}

/// A task and its variants.
struct Drawn {
  ArcTask task;
  std::vector<ArcVariant> variants;
  std::vector<std::int32_t> identifiers;  ///< one per variant
};

/// The examples of one split, made on demand.
struct Examples {
  std::vector<const Drawn*> task;                   ///< per group
  std::vector<std::vector<ArcPair>> pairs;          ///< per group
  std::vector<std::int64_t> first_row;              ///< per group, then the total
  std::shared_ptr<const std::vector<Drawn>> owner;  ///< of the elements of `task`
};

/// Makes rows on demand; the row number determines group, variant and pair.
class ArcRows {
 public:
  ArcRows(std::shared_ptr<const Examples> examples, bool shift, std::uint64_t seed)
      : examples_(std::move(examples)), shift_(shift), seed_(seed) {}
  void operator()(std::int64_t row, std::span<std::uint8_t> inputs, std::span<std::uint8_t> labels) const {
    const Examples& e = *examples_;
    const auto group = static_cast<std::size_t>(std::upper_bound(e.first_row.begin(), e.first_row.end(), row) -
                                                e.first_row.begin() - 1);
    const auto inside = static_cast<std::size_t>(row - e.first_row[group]);
    const std::size_t variant = inside / e.pairs[group].size(), pair = inside % e.pairs[group].size();
    const Drawn& drawn = *e.task[group];
    const ArcGrid input = apply_arc_variant(drawn.variants[variant], e.pairs[group][pair].input);
    const ArcGrid output = apply_arc_variant(drawn.variants[variant], e.pairs[group][pair].output);
    int down = 0, right = 0;
    const Philox random(seed_, variant, "arc.offset", static_cast<std::uint64_t>(drawn.identifiers[0]));
    if (shift_ && random.below(e.pairs[group].size(), 0) != pair) {
      const auto offsets = [](int a, int b) { return static_cast<std::uint64_t>(kArcSide - std::max(a, b) + 1); };
      down = static_cast<int>(random.below(offsets(input.rows, output.rows), 1 + 2 * pair));
      right = static_cast<int>(random.below(offsets(input.columns, output.columns), 2 + 2 * pair));
    }
    arc_tokens(input, down, right, inputs);
    arc_tokens(output, down, right, labels);  // only padding, which the loss ignores, if the output is unknown
  }

 private:
  std::shared_ptr<const Examples> examples_;
  bool shift_;
  std::uint64_t seed_;
};

/// Makes the part of these tasks; `pick` selects a task's pairs of this split.
PuzzlePart arc_part(const std::shared_ptr<const std::vector<Drawn>>& tasks, bool shift, std::uint64_t seed, auto pick) {
  auto examples = std::make_shared<Examples>();
  examples->owner = tasks;
  PuzzlePart part;
  for (const Drawn& drawn : *tasks) {
    std::vector<ArcPair> pairs = pick(drawn.task);
    if (pairs.empty()) continue;
    examples->first_row.push_back(part.rows);
    for (const std::int32_t identifier : drawn.identifiers) {
      part.rows += std::ssize(pairs);
      part.puzzle_indices.push_back(part.rows);
      part.puzzle_identifiers.push_back(identifier);
    }
    part.group_indices.push_back(part.puzzles());
    examples->task.push_back(&drawn);
    examples->pairs.push_back(std::move(pairs));
  }
  examples->first_row.push_back(part.rows);
  part.tokens = ArcRows(std::move(examples), shift, seed);
  return part;
}

ArcTask task_of(const Json& json, const std::string& name, const std::string& where, bool evaluation) {
  ArcTask task{.name = name, .where = where, .evaluation = evaluation, .train = {}, .test = {}};
  task.train = pairs_of(json, "train", where);
  task.test = pairs_of(json, "test", where);
  if (json.contains("name")) {
    require_data(json["name"].is_string(), "reading '", where, "': 'name' is not a string");
    task.name = json["name"].get<std::string>();
  }
  task.evaluation |= task.test[0].output.cells.empty();
  return task;
}

/// "DIR/arc-agi_training" of DIR/arc-agi_training_challenges.json, with kind = challenges; "" for other files.
std::string contest_part(const std::filesystem::path& file, const std::string& kind) {
  const std::string stem = file.stem().string();
  const bool named = file.extension() == ".json" && (stem.ends_with("_" + kind) || stem.ends_with("-" + kind));
  return named ? (file.parent_path() / stem.substr(0, stem.size() - kind.size() - 1)).lexically_normal().string() : "";
}

/// The *.json files of a folder, by name; none of anything else.
std::vector<std::filesystem::path> json_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Whether a word of a name, without the digits at its end, is evaluation or test.
bool is_evaluation(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.' || c == ' '; }, '_');
  return std::ranges::any_of(split(name, '_'), [](const std::string& word) {
    const std::string letters = word.substr(0, word.find_last_not_of("0123456789") + 1);
    return letters == "evaluation" || letters == "test";
  });
}

/// Adds the outputs of the test pairs, {name: [grid, ...]}. A task that the file omits stays without them.
void add_answers(Json& tasks, const std::string& where, const std::filesystem::path& file) {
  const Json answers = read_json(file);
  require_data(answers.is_object(), "reading '", file.string(), "': expected an object of lists of grids by task");
  for (const auto& [name, grids] : answers.items()) {
    require_data(tasks.contains(name), "reading '", file.string(), "': task '", name, "' is not in '", where, "'");
    Json& task = tasks[name];
    const bool fits = task.is_object() && task.contains("test") && task["test"].is_array() && grids.is_array() &&
                      task["test"].size() == grids.size();
    require_data(fits, "reading '", file.string(), "': task '", name,
                 "' does not have one answer for each of its test pairs in '", where, "'");
    for (std::size_t i = 0; i < grids.size(); ++i) {
      Json& pair = task["test"][i];
      if (grids[i].is_null() || !pair.is_object()) continue;
      require_data(!pair.contains("output") || pair["output"] == grids[i], "reading '", file.string(), "': task '",
                   name, "': answer ", i + 1, " differs from the output in '", where, "'");
      pair["output"] = grids[i];
    }
  }
}

}  // namespace

std::vector<ArcInput> arc_inputs(const std::vector<std::filesystem::path>& paths,
                                 std::vector<std::string>& left_aside) {
  std::vector<ArcInput> inputs;
  std::map<std::string, std::filesystem::path> answers;
  const auto take = [&](const std::filesystem::path& file) {
    if (const std::string part = contest_part(file, "solutions"); !part.empty())
      answers[part] = file;
    else if (file.stem() == "sample_submission")
      left_aside.push_back(file.string());
    else
      inputs.push_back({file, ""});
  };
  for (const std::filesystem::path& path : paths) {
    const std::vector<std::filesystem::path> files = json_files(path);
    const auto of_contest = [](const auto& file) {
      return !contest_part(file, "challenges").empty() || !contest_part(file, "solutions").empty();
    };
    const bool contest = std::ranges::any_of(files, of_contest);
    if (!contest) {
      take(path);
      continue;
    }
    for (const auto& file : files) {
      if (of_contest(file))
        take(file);
      else
        left_aside.push_back(file.string());
    }
  }
  for (ArcInput& input : inputs) {
    const auto found = answers.find(contest_part(input.tasks, "challenges"));
    if (found == answers.end()) continue;
    input.answers = found->second;
    answers.erase(found);
  }
  require_usage(answers.empty(), "option input: '", answers.empty() ? "" : answers.begin()->second.string(),
                "' holds the answers of tasks in a file of the same name with 'challenges'; name that file too");
  return inputs;
}

std::vector<ArcTask> read_arc_tasks(const ArcInput& input) {
  const std::filesystem::path& path = input.tasks;
  std::error_code error;
  std::vector<ArcTask> tasks;
  auto absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  const bool evaluation = is_evaluation(absolute.stem().string());
  if (std::filesystem::is_regular_file(path, error)) {
    Json all = read_json(path);
    require_data(all.is_object() && !all.empty() && !all.contains("train"), "reading '", path.string(),
                 "': expected an object of tasks by name; put the file of a single task into a folder");
    if (!input.answers.empty()) add_answers(all, path.string(), input.answers);
    for (const auto& [name, json] : all.items()) {
      const bool grids = json.is_array() && !json.empty() && json[0].is_array();
      require_data(!grids, "reading '", path.string(), "': task '", name,
                   "' is a list of grids, as in a file of solutions; name the file of its challenges too, and call "
                   "the two X_challenges.json and X_solutions.json");
      tasks.push_back(task_of(json, name, join(path.string(), "' task '", name), evaluation));
      tasks.back().where = path.string();
    }
    return tasks;
  }
  require_usage(std::filesystem::is_directory(path, error), "reading '", path.string(), "': no such folder");
  const std::vector<std::filesystem::path> files = json_files(path);
  require_data(!files.empty(), "reading '", path.string(), "': no .json file in it");
  for (const auto& file : files)
    tasks.push_back(task_of(read_json(file), file.stem().string(), file.string(), evaluation));
  return tasks;
}

std::int64_t choose_of_same_name(std::vector<std::vector<ArcTask>>& folders, SameName how) {
  std::map<std::string, const ArcTask*> chosen;
  std::int64_t others = 0;
  for (const auto& folder : folders)
    for (const ArcTask& task : folder) {
      const auto [other, fresh] = chosen.emplace(task.name, &task);
      if (fresh) continue;
      require_data(how != SameName::refuse, "reading '", task.where, "': task '", task.name, "' is also in '",
                   other->second->where, "'; keep one of them with --same-name first or last");
      if (how == SameName::last) other->second = &task;
      ++others;
    }
  std::vector<std::vector<ArcTask>> kept;
  for (const auto& folder : folders) {
    kept.emplace_back();
    for (const ArcTask& task : folder)
      if (chosen.at(task.name) == &task) kept.back().push_back(task);
  }
  std::erase_if(kept, [](const auto& folder) { return folder.empty(); });
  folders = std::move(kept);
  return others;
}

void arc_tokens(const ArcGrid& grid, int row, int column, std::span<std::uint8_t> field) {
  std::fill(field.begin(), field.end(), std::uint8_t{0});
  const auto at = [&](int r, int c) -> std::uint8_t& { return field[(row + r) * kArcSide + column + c]; };
  for (int r = 0; r < grid.rows; ++r)
    for (int c = 0; c < grid.columns; ++c)
      at(r, c) = static_cast<std::uint8_t>(grid.cells[r * grid.columns + c] + kArcColour);
  if (row + grid.rows < kArcSide)
    for (int c = 0; c < grid.columns; ++c) at(grid.rows, c) = kArcEnd;
  if (column + grid.columns < kArcSide)
    for (int r = 0; r < grid.rows; ++r) at(r, grid.columns) = kArcEnd;
}

std::string arc_field_defect(std::span<const std::uint8_t> field) {
  int top = kArcSide, left = kArcSide, bottom = -1, right = -1;
  for (int r = 0; r < kArcSide; ++r)
    for (int c = 0; c < kArcSide; ++c) {
      if (field[r * kArcSide + c] < kArcColour) continue;
      top = std::min(top, r), left = std::min(left, c), bottom = std::max(bottom, r), right = std::max(right, c);
    }
  if (bottom < 0) return "holds no colours";
  for (int r = 0; r < kArcSide; ++r) {
    for (int c = 0; c < kArcSide; ++c) {
      const bool in_rows = r >= top && r <= bottom, in_columns = c >= left && c <= right;
      const std::uint8_t token = field[r * kArcSide + c];
      const bool good = in_rows && in_columns                                            ? token >= kArcColour
                        : (in_columns && r == bottom + 1) || (in_rows && c == right + 1) ? token == kArcEnd
                                                                                         : token == 0;
      if (!good)
        return join("has token ", int{token}, " in row ", r + 1, ", column ", c + 1,
                    ", where one rectangle with its end markers has none");
    }
  }
  return "";
}

std::string ArcVariant::suffix() const {
  std::string text = join("_t", dihedral, "_");
  for (const auto colour : colours) text += static_cast<char>('0' + colour);
  return text;
}

ArcGrid apply_arc_variant(const ArcVariant& variant, const ArcGrid& grid) {
  ArcGrid out{grid.rows, grid.columns, std::vector<std::uint8_t>(grid.cells.size())};
  if (dihedral_turns(variant.dihedral)) std::swap(out.rows, out.columns);
  dihedral(variant.dihedral, grid.rows, grid.columns, grid.cells, out.cells);
  for (auto& cell : out.cells) cell = variant.colours[cell];
  return out;
}

std::vector<ArcVariant> draw_arc_variants(const ArcTask& task, std::int64_t num_aug, std::uint64_t seed,
                                          std::uint64_t task_number) {
  std::vector<ArcVariant> variants(1);
  std::set<std::vector<ArcPair>> seen = {sorted_pairs(variants[0], task)};
  for (std::int64_t trial = 0; trial < 5 * num_aug && std::ssize(variants) <= num_aug; ++trial) {
    const Philox random(seed, static_cast<std::uint64_t>(trial), "arc.variant", task_number);
    ArcVariant variant{.dihedral = static_cast<int>(random.below(8, 0))};
    for (std::uint64_t i = 9; i > 1; --i) std::swap(variant.colours[i], variant.colours[1 + random.below(i, 10 - i)]);
    if (seen.insert(sorted_pairs(variant, task)).second) variants.push_back(variant);
  }
  return variants;
}

PuzzleSet arc_set(const std::vector<std::vector<ArcTask>>& folders, std::int64_t num_aug, std::uint64_t seed) {
  PuzzleSet set;
  set.task = PuzzleTask::arc;
  set.seq_len = kArcCells;
  set.vocab_size = kArcVocab;
  set.num_aug = num_aug;
  set.seed = seed;
  auto tasks = std::make_shared<std::vector<Drawn>>();
  std::uint64_t folder_number = 0;
  for (const auto& folder : folders) {
    const Philox random(seed, folder_number++, "arc.order");
    std::vector<std::size_t> order(folder.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
    for (const std::size_t at : order) {
      const ArcTask& task = folder[at];
      Drawn drawn{task, draw_arc_variants(task, num_aug, seed, tasks->size()), {}};
      for (std::size_t v = 0; v < drawn.variants.size(); ++v) {
        drawn.identifiers.push_back(static_cast<std::int32_t>(set.identifiers.size()));
        set.identifiers.push_back(task.name + (v == 0 ? "" : drawn.variants[v].suffix()));
      }
      tasks->push_back(std::move(drawn));
    }
  }
  set.train.push_back(arc_part(tasks, true, seed, [](const ArcTask& task) {
    auto pairs = task.train;
    if (!task.evaluation) pairs.insert(pairs.end(), task.test.begin(), task.test.end());
    return pairs;
  }));
  set.test.push_back(arc_part(
      tasks, false, seed, [](const ArcTask& task) { return task.evaluation ? task.test : std::vector<ArcPair>{}; }));
  return set;
}

}  // namespace lockstep::prep
