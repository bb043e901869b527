#include "lockstep/prep/hrm/puzzle_set.hpp"

#include <algorithm>
#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

namespace {

constexpr std::int64_t kChunkBytes = 256 << 10, kBlockBytes = 4 << 20;
constexpr std::array kTaskNames = {"sudoku", "maze", "arc"};

void write_tokens(H5File& file, const std::string& where, const PuzzlePart& part, std::int64_t seq_len, int deflate) {
  const H5Layout layout{{std::max<std::int64_t>(kChunkBytes / seq_len, 1), seq_len}, deflate};
  file.create_dataset(where + "/inputs", H5Type::u8, {part.rows, seq_len}, layout);
  file.create_dataset(where + "/labels", H5Type::u8, {part.rows, seq_len}, layout);
  // Blocks of whole chunks: each chunk is compressed once.
  const std::int64_t chunk_rows = layout.chunk[0], block_rows = chunk_rows * (kBlockBytes / kChunkBytes);
  const auto width = static_cast<std::size_t>(seq_len);
  std::vector<std::uint8_t> inputs, labels;
  for (std::int64_t first = 0; first < part.rows; first += block_rows) {
    const std::int64_t count = std::min(block_rows, part.rows - first);
    inputs.resize(static_cast<std::size_t>(count) * width);
    labels.resize(inputs.size());
    for (std::int64_t r = 0; r < count; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * width;
      part.tokens(first + r, std::span(inputs).subspan(at, width), std::span(labels).subspan(at, width));
    }
    file.write_rows<std::uint8_t>(where + "/inputs", first, count, inputs);
    file.write_rows<std::uint8_t>(where + "/labels", first, count, labels);
  }
}

void write_split(H5File& file, const std::string& split, const std::vector<PuzzlePart>& parts, std::int64_t seq_len,
                 int deflate) {
  const std::string group = "/" + split;
  file.create_group(group);
  std::int64_t groups = 0, puzzles = 0, examples = 0;
  std::vector<std::string> names;
  for (const PuzzlePart& part : parts) {
    const std::string where = group + "/" + part.name;
    write_tokens(file, where, part, seq_len, deflate);
    file.write<std::int64_t>(where + "/puzzle_indices", part.puzzle_indices, {part.puzzles() + 1});
    file.write<std::int64_t>(where + "/group_indices", part.group_indices, {part.groups() + 1});
    file.write<std::int32_t>(where + "/puzzle_identifiers", part.puzzle_identifiers, {part.puzzles()});
    if (!part.rating.empty()) file.write<std::int32_t>(where + "/rating", part.rating, {part.groups()});
    if (!part.source.empty()) file.write<std::int32_t>(where + "/source", part.source, {part.groups()});
    names.push_back(part.name);
    groups += part.groups();
    puzzles += part.puzzles();
    examples += part.rows;
  }
  file.set_attribute(group, "total_groups", groups);
  file.set_attribute(group, "total_puzzles", puzzles);
  file.set_attribute(group, "mean_puzzle_examples",
                     puzzles == 0 ? 0.0 : static_cast<double>(examples) / static_cast<double>(puzzles));
  file.set_attribute(group, "sets", names);
}

/// Reads the rows of a part block by block, so that one pass reads each row once.
class Rows {
 public:
  Rows(const H5File& file, std::string where, std::int64_t rows, std::int64_t seq_len)
      : file_(file),
        where_(std::move(where)),
        rows_(rows),
        seq_len_(seq_len),
        block_rows_(std::max<std::int64_t>(kBlockBytes / seq_len, 1)) {}
  void operator()(std::int64_t row, std::span<std::uint8_t> inputs, std::span<std::uint8_t> labels) {
    if (row < first_ || row >= first_ + count_) {
      first_ = row - row % block_rows_;
      count_ = std::min(block_rows_, rows_ - first_);
      inputs_.resize(static_cast<std::size_t>(count_ * seq_len_));
      labels_.resize(inputs_.size());
      file_.read_rows<std::uint8_t>(where_ + "/inputs", first_, count_, inputs_);
      file_.read_rows<std::uint8_t>(where_ + "/labels", first_, count_, labels_);
    }
    const auto at = static_cast<std::ptrdiff_t>((row - first_) * seq_len_);
    std::copy_n(inputs_.begin() + at, seq_len_, inputs.begin());
    std::copy_n(labels_.begin() + at, seq_len_, labels.begin());
  }

 private:
  const H5File& file_;
  std::string where_;
  std::int64_t rows_, seq_len_, block_rows_, first_ = 0, count_ = 0;
  std::vector<std::uint8_t> inputs_, labels_;
};

PuzzlePart read_part(const DatasetFile& stored, const std::string& where, const std::string& name,
                     std::int64_t seq_len) {
  const H5File& file = stored.file();
  PuzzlePart part;
  part.name = name;
  part.rows = stored.expect(where + "/inputs", {H5Type::u8}, {-1, seq_len})[0];
  stored.expect(where + "/labels", {H5Type::u8}, {part.rows, seq_len});
  const auto fill = [&]<class T>(const std::string& field, std::vector<T>& out, std::int64_t length) {
    out = stored.read<T>(where + "/" + field, {length});
  };
  fill("puzzle_indices", part.puzzle_indices, -1);
  fill("group_indices", part.group_indices, -1);
  require_data(!part.puzzle_indices.empty() && !part.group_indices.empty(), stored.opening(), ": the index arrays of '",
               where, "' are empty; they hold at least a 0");
  fill("puzzle_identifiers", part.puzzle_identifiers, part.puzzles());
  if (file.has(where + "/rating")) fill("rating", part.rating, part.groups());
  if (file.has(where + "/source")) fill("source", part.source, part.groups());
  part.tokens = Rows(file, where, part.rows, seq_len);
  return part;
}

}  // namespace

const char* name(PuzzleTask task) { return kTaskNames[static_cast<std::size_t>(task)]; }

PuzzleTask puzzle_task(const std::string& text, const std::string& where) {
  for (std::size_t i = 0; i < kTaskNames.size(); ++i) {
    if (text == kTaskNames[i]) return static_cast<PuzzleTask>(i);
  }
  throw Error(Fault::data, join(where, ": task '", text, "' is not one of sudoku, maze, arc"));
}

PuzzlePart grouped_part(const PuzzleSet& set, std::shared_ptr<const std::vector<std::uint8_t>> inputs,
                        std::shared_ptr<const std::vector<std::uint8_t>> labels, std::int64_t stored_variants) {
  PuzzlePart part;
  const auto width = static_cast<std::size_t>(set.seq_len);
  const std::int64_t groups = static_cast<std::int64_t>(inputs->size() / width), size = 1 + stored_variants;
  part.rows = groups * size;
  for (std::int64_t row = 0; row < part.rows; ++row) part.puzzle_indices.push_back(row + 1);
  for (std::int64_t group = 0; group < groups; ++group) part.group_indices.push_back((group + 1) * size);
  part.puzzle_identifiers.assign(static_cast<std::size_t>(part.rows), 0);
  part.tokens = [inputs, labels, width, size, variants = PuzzleVariants(set.task, set.seq_len, set.seed)](
                    std::int64_t row, std::span<std::uint8_t> out_inputs, std::span<std::uint8_t> out_labels) {
    const auto group = static_cast<std::size_t>(row / size);
    variants.apply(group, static_cast<std::uint64_t>(row % size), std::span(*inputs).subspan(group * width, width),
                   std::span(*labels).subspan(group * width, width), out_inputs, out_labels);
  };
  return part;
}

void write_puzzle_set(const std::filesystem::path& path, const PuzzleSet& set, int deflate) {
  write_dataset(path, kHrmFormat, set.notes, [&](H5File& file) {
    file.set_attribute("/", "kind", std::string(kHrmFormat.name));
    file.set_attribute("/", "task", std::string(name(set.task)));
    file.set_attribute("/", "pad_id", set.pad_id);
    file.set_attribute("/", "ignore_label_id", set.ignore_label_id);
    file.set_attribute("/", "blank_identifier_id", set.blank_identifier_id);
    file.set_attribute("/", "vocab_size", set.vocab_size);
    file.set_attribute("/", "seq_len", set.seq_len);
    file.set_attribute("/", "num_puzzle_identifiers", static_cast<std::int64_t>(set.identifiers.size()));
    file.set_attribute("/", "seed", static_cast<std::int64_t>(set.seed));
    file.set_attribute("/", "num_aug", set.num_aug);
    file.set_attribute("/", "augment", std::string(set.online ? "online" : "offline"));
    file.set_attribute("/", "sources", set.sources);
    file.set_attribute("/", "sha256", set.sha256);
    file.write_text("/identifiers", set.identifiers);
    if (!set.source_names.empty()) file.write_text("/source_names", set.source_names);
    write_split(file, "train", set.train, set.seq_len, deflate);
    write_split(file, "test", set.test, set.seq_len, deflate);
    if (!set.val.empty()) write_split(file, "val", set.val, set.seq_len, deflate);
  });
}

PuzzleSet read_puzzle_set(const H5File& file) {
  const DatasetFile stored(file, kHrmFormat);
  const std::string& opening = stored.opening();
  PuzzleSet set;
  set.task = puzzle_task(file.text_attribute("/", "task"), opening);
  set.seq_len = stored.size("seq_len", 1, 1 << 20);
  set.vocab_size = stored.size("vocab_size", 1, 256);
  set.pad_id = stored.size("pad_id", 0, set.vocab_size - 1);
  set.ignore_label_id = stored.size("ignore_label_id", -1, set.vocab_size - 1);
  set.num_aug = stored.size("num_aug");
  set.seed = static_cast<std::uint64_t>(file.int_attribute("/", "seed"));
  const std::string augment = file.text_attribute("/", "augment");
  require_data(augment == "online" || augment == "offline", opening, ": attribute 'augment' is '", augment,
               "', not offline or online");
  set.online = augment == "online";
  const std::int64_t identifiers = stored.size("num_puzzle_identifiers", 1);
  set.identifiers = stored.read_text("/identifiers", identifiers);
  set.blank_identifier_id = stored.size("blank_identifier_id", 0, identifiers - 1);
  if (file.has("/source_names")) set.source_names = stored.read_text("/source_names", -1);
  set.sources = file.text_list("/", "sources");
  set.sha256 = file.text_list("/", "sha256");
  for (const std::string split : {"/train", "/test", "/val"}) {
    if (split == "/val" && !file.has(split)) continue;
    auto& parts = split == "/train" ? set.train : split == "/test" ? set.test : set.val;
    for (const auto& part : file.text_list(split, "sets"))
      parts.push_back(read_part(stored, split + "/" + part, part, set.seq_len));
  }
  return set;
}

}  // namespace lockstep::prep
