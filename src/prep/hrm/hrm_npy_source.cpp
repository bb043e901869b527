#include <filesystem>
#include <limits>
#include <memory>

#include "lockstep/io/dataset_file.hpp"
#include "lockstep/prep/npy.hpp"
#include "prep/hrm/puzzle_json.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// An integer of a dataset.json; -1 for null if `null_is_none`.
std::int64_t number(const Json& json, const fs::path& file, const char* key, std::int64_t low, std::int64_t high,
                    bool null_is_none = false) {
  require_data(json.is_object() && json.contains(key), "reading '", file.string(), "': no '", key, "'");
  if (null_is_none && json[key].is_null()) return -1;
  require_data(json[key].is_number_integer() && json[key] >= low && json[key] <= high, "reading '", file.string(),
               "': '", key, "' is ", json_text(json[key]), ", expected a whole number ", low, " .. ", high);
  return json[key].get<std::int64_t>();
}

/// Reads the metadata, which both splits must share. `names`: the stated number of identifiers
void read_metadata(const Json& json, const fs::path& file, PuzzleSet& set, std::int64_t& names, bool first) {
  PuzzleSet found;
  found.seq_len = number(json, file, "seq_len", 1, 1 << 20);
  found.vocab_size = number(json, file, "vocab_size", 1, 256);
  found.pad_id = number(json, file, "pad_id", 0, found.vocab_size - 1);
  found.ignore_label_id = number(json, file, "ignore_label_id", 0, found.vocab_size - 1, true);
  const std::int64_t stated = number(json, file, "num_puzzle_identifiers", 1, std::numeric_limits<std::int32_t>::max());
  found.blank_identifier_id = number(json, file, "blank_identifier_id", 0, stated - 1);
  if (first) {
    set = found;
    names = stated;
    return;
  }
  require_data(found.seq_len == set.seq_len && found.vocab_size == set.vocab_size && found.pad_id == set.pad_id &&
                   found.ignore_label_id == set.ignore_label_id &&
                   found.blank_identifier_id == set.blank_identifier_id && stated == names,
               "reading '", file.string(), "': it differs from the other split's");
}

struct Reader {
  PuzzleSet& set;
  std::int64_t names;  ///< of identifiers
  fs::path folder;
  std::string name;

  /// Reads one field of a set and records its file as a source.
  NpyArray field(const char* what, std::size_t axes) const {
    const fs::path file = path(what);
    NpyArray array = read_npy(file);
    require_data(array.shape.size() == axes, "reading '", file.string(), "': ", array.shape.size(), " axes, expected ",
                 axes);
    set.sources.push_back((folder.filename() / file.filename()).string());
    set.sha256.push_back(sha256_of(file));
    return array;
  }
  fs::path path(const char* what) const { return folder / (name + "__" + what + ".npy"); }

  std::shared_ptr<std::vector<std::uint8_t>> tokens(const char* what, std::int64_t& rows) const {
    const NpyArray array = field(what, 2);
    require_data(array.shape[1] == set.seq_len && (rows < 0 || array.shape[0] == rows), "reading '",
                 path(what).string(), "': shape (", array.shape[0], ", ", array.shape[1], "), expected (",
                 rows < 0 ? std::string("N") : std::to_string(rows), ", ", set.seq_len, ")");
    rows = array.shape[0];
    auto out = std::make_shared<std::vector<std::uint8_t>>(array.values.size());
    for (std::size_t i = 0; i < array.values.size(); ++i) {
      require_data(array.values[i] >= 0 && array.values[i] < set.vocab_size, "reading '", path(what).string(), "' row ",
                   i / static_cast<std::size_t>(set.seq_len), ": token ", array.values[i], " is not in 0 .. ",
                   set.vocab_size - 1);
      (*out)[i] = static_cast<std::uint8_t>(array.values[i]);
    }
    return out;
  }

  std::vector<std::int64_t> indices(const char* what, std::int64_t end) const {
    NpyArray array = field(what, 1);
    const std::string defect = offsets_defect(array.values, end, Rise::strict);
    require_data(defect.empty(), "reading '", path(what).string(), "': it ", defect);
    return std::move(array.values);
  }

  PuzzlePart part() const {
    PuzzlePart part;
    part.name = name;
    part.rows = -1;
    auto inputs = tokens("inputs", part.rows);
    auto labels = tokens("labels", part.rows);
    part.puzzle_indices = indices("puzzle_indices", part.rows);
    part.group_indices = indices("group_indices", part.puzzles());
    const NpyArray identifiers = field("puzzle_identifiers", 1);
    require_data(std::ssize(identifiers.values) == part.puzzles(), "reading '", path("puzzle_identifiers").string(),
                 "': ", identifiers.values.size(), " identifiers for ", part.puzzles(), " puzzles");
    for (std::size_t i = 0; i < identifiers.values.size(); ++i) {
      const std::int64_t id = identifiers.values[i];
      require_data(id >= 0 && id < names, "reading '", path("puzzle_identifiers").string(), "' row ", i,
                   ": identifier ", id, " is not in 0 .. ", names - 1);
      part.puzzle_identifiers.push_back(static_cast<std::int32_t>(id));
    }
    part.tokens = [inputs, labels, width = set.seq_len](std::int64_t row, std::span<std::uint8_t> in,
                                                        std::span<std::uint8_t> out) {
      std::copy_n(inputs->begin() + row * width, width, in.begin());
      std::copy_n(labels->begin() + row * width, width, out.begin());
    };
    return part;
  }
};

std::string guess_task(const PuzzleSet& set) {
  if (set.vocab_size == 11 && set.seq_len == 81) return "sudoku";
  if (set.vocab_size == 12 && set.seq_len == 900) return "arc";
  if (set.vocab_size == 6 && set.seq_len != 16) return "maze";
  throw Error(Fault::usage, join("option task: seq_len ", set.seq_len, ", vocab_size ", set.vocab_size,
                                 " do not determine the task; name it"));
}

void read_split(const fs::path& folder, PuzzleSet& set, std::int64_t& names, std::vector<PuzzlePart>& parts,
                bool first) {
  const fs::path file = folder / "dataset.json";
  const Json json = read_json(file);
  read_metadata(json, file, set, names, first);
  require_data(json.contains("sets") && json["sets"].is_array() && !json["sets"].empty(), "reading '", file.string(),
               "': no list 'sets'");
  for (const Json& name : json["sets"]) {
    require_data(
        name.is_string() && !name.get<std::string>().empty() && name.get<std::string>().find('/') == std::string::npos,
        "reading '", file.string(), "': ", json_text(name), " is not the name of a set");
    parts.push_back(Reader{set, names, folder, name.get<std::string>()}.part());
  }
  std::int64_t groups = 0;
  for (const auto& part : parts) groups += part.groups();
  const std::int64_t stated = number(json, file, "total_groups", 0, std::int64_t{1} << 40);
  require_data(groups == stated, "reading '", file.string(), "': ", stated, " groups, the index arrays have ", groups);
}

/// Names the identifiers, as identifiers.json does if it exists. errors  data: `names` exceeds what the folder
/// describes
void name_identifiers(const fs::path& folder, std::int64_t names, PuzzleSet& set) {
  const fs::path file = folder / "identifiers.json";
  const bool named = fs::exists(file);
  const Json json = named ? read_json(file) : Json::array();
  require_data(!named || (json.is_array() && std::ssize(json) == names), "reading '", file.string(),
               "': expected a list of ", names, " names");
  std::int64_t puzzles = 0;
  for (const auto* parts : {&set.train, &set.test})
    for (const PuzzlePart& part : *parts) puzzles += part.puzzles();
  require_data(named || names <= puzzles + 1, "reading '", (folder / "train/dataset.json").string(),
               "': 'num_puzzle_identifiers' is ", names, ", but there are ", puzzles,
               " puzzles, which have at most one identifier each and the blank one, and no '", file.string(),
               "' names others");
  set.identifiers.assign(names, "");
  set.identifiers[set.blank_identifier_id] = "<blank>";
  for (std::size_t i = 0; i < json.size(); ++i) {
    require_data(json[i].is_string(), "reading '", file.string(), "': entry ", i, " is not a string");
    set.identifiers[i] = json[i].get<std::string>();
  }
}

}  // namespace

bool run_hrm_npy(const Args& args) {
  Options options(
      "lockstep-prep hrm-npy",
      "A folder written by the builders of the HRM or TRM repository: {train,test}/dataset.json and NumPy arrays.",
      "Copies the rows unchanged, variants included. Names of identifiers come from identifiers.json if it exists.");
  std::string folder, task;
  options.add("input,i,from-npy=DIR", &folder, "", "folder with train/ and test/").required();
  options.choice("task", &task, "auto", {"auto", "sudoku", "maze", "arc"},
                 "kind of puzzles; auto: determined by the sizes");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::none);
  options.example("lockstep-prep hrm-npy --input data/sudoku-extreme-1k-aug-1000 --output sudoku.h5",
                  "the same puzzles in one file");
  if (!options.parse(args)) return false;
  require_writable(common.output);
  require_usage(fs::is_directory(fs::path(folder) / "train"), "option input = '", folder, "': no folder 'train' in it");

  PuzzleSet set;
  std::int64_t names = 0;
  std::vector<PuzzlePart> train, test;
  read_split(fs::path(folder) / "train", set, names, train, true);
  if (fs::is_directory(fs::path(folder) / "test")) read_split(fs::path(folder) / "test", set, names, test, false);
  const fs::path root = folder;
  std::vector<fs::path> inputs = {root / "train/dataset.json", root / "test/dataset.json", root / "identifiers.json"};
  for (const std::string& name : set.sources) inputs.push_back(root / name);
  require_writable(common.output, inputs);
  set.train = std::move(train);
  set.test = std::move(test);
  const std::string chosen = task == "auto" ? guess_task(set) : task;
  set.task = static_cast<PuzzleTask>(std::ranges::find(kPuzzleTasks, chosen) - kPuzzleTasks.begin());
  name_identifiers(root, names, set);
  common.summary.line("puzzles", name(set.task), task == "auto" ? ", by the sizes" : "", "; ", set.seq_len,
                      " tokens per grid, vocabulary ", set.vocab_size, ", padding ", set.pad_id, "; ", names,
                      " identifiers");
  common.apply(set);
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
