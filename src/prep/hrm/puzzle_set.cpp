#include "lockstep/prep/hrm/puzzle_set.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "prep/set_file.hpp"

namespace lockstep::prep {

namespace {

constexpr std::int64_t kChunkBytes = 256 << 10, kBlockBytes = 4 << 20;

void write_tokens(H5File& file, const std::string& where, const PuzzlePart& part, std::int64_t seq_len, int deflate) {
  const H5Layout layout{{std::max<std::int64_t>(kChunkBytes / seq_len, 1), seq_len}, deflate};
  file.create_dataset(where + "/inputs", H5Type::u8, {part.rows, seq_len}, layout);
  file.create_dataset(where + "/labels", H5Type::u8, {part.rows, seq_len}, layout);
  // Blocks of whole chunks: each chunk is compressed once.
  const std::int64_t chunk_rows = layout.chunk[0], block_rows = chunk_rows * (kBlockBytes / kChunkBytes);
  std::vector<std::uint8_t> inputs, labels;
  for (std::int64_t first = 0; first < part.rows; first += block_rows) {
    const std::int64_t count = std::min(block_rows, part.rows - first);
    inputs.resize(count * seq_len);
    labels.resize(inputs.size());
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t at = r * seq_len;
      part.tokens(first + r, std::span(inputs).subspan(at, seq_len), std::span(labels).subspan(at, seq_len));
    }
    file.write_rows<std::uint8_t>(where + "/inputs", first, count, inputs);
    file.write_rows<std::uint8_t>(where + "/labels", first, count, labels);
  }
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
      inputs_.resize(count_ * seq_len_);
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

void part_fields(SetFile& io, PuzzlePart& part, const std::string& where, const PuzzleSet& set) {
  if (io.reads()) {
    const DatasetFile& stored = io.in();
    part.rows = stored.expect(where + "/inputs", {H5Type::u8}, {-1, set.seq_len})[0];
    stored.expect(where + "/labels", {H5Type::u8}, {part.rows, set.seq_len});
    part.tokens = Rows(stored.file(), where, part.rows, set.seq_len);
  } else {
    write_tokens(io.out(), where, part, set.seq_len, io.deflate());
  }
  io.offsets(where + "/puzzle_indices", part.puzzle_indices, -1, part.rows, Rise::strict);
  io.offsets(where + "/group_indices", part.group_indices, -1, part.puzzles(), Rise::strict);
  if (io.reads())
    require_data(!part.puzzle_indices.empty() && !part.group_indices.empty(), io.in().opening(),
                 ": the index arrays of '", where, "' are empty; they hold at least a 0");
  io.array(where + "/puzzle_identifiers", part.puzzle_identifiers, {part.puzzles()},
           {{0, std::ssize(set.identifiers) - 1}});
  if (io.part(where + "/rating", !part.rating.empty())) io.array(where + "/rating", part.rating, {part.groups()});
  if (io.part(where + "/source", !part.source.empty()))
    io.array(where + "/source", part.source, {part.groups()}, {{0, std::ssize(set.source_names) - 1}});
}

void fields(SetFile& io, PuzzleSet& set) {
  std::string kind = kHrmFormat.name;
  std::int64_t identifiers = std::ssize(set.identifiers);
  if (io.has("kind")) io.attribute("kind", kind);
  io.choice("task", set.task, kPuzzleTasks);
  io.attribute("pad_id", set.pad_id);
  io.attribute("ignore_label_id", set.ignore_label_id);
  io.attribute("blank_identifier_id", set.blank_identifier_id);
  io.size("vocab_size", set.vocab_size, 1, 256);
  io.size("seq_len", set.seq_len, 1, 1 << 20);
  io.size("num_puzzle_identifiers", identifiers, 1);
  io.attribute("seed", set.seed);
  io.size("num_aug", set.num_aug);
  io.choice("augment", set.online, {"offline", "online"});
  io.attribute("sources", set.sources);
  io.attribute("sha256", set.sha256);
  io.put_attributes();
  if (io.reads()) {
    io.size("pad_id", set.pad_id, 0, set.vocab_size - 1);
    io.size("ignore_label_id", set.ignore_label_id, -1, set.vocab_size - 1);
    io.size("blank_identifier_id", set.blank_identifier_id, 0, identifiers - 1);
  }
  io.text("/identifiers", set.identifiers, identifiers);
  if (io.part("/source_names", !set.source_names.empty())) io.text("/source_names", set.source_names, -1);
  for (const auto& [split, parts] :
       {std::pair{"/train", &set.train}, std::pair{"/test", &set.test}, std::pair{"/val", &set.val}}) {
    if (parts == &set.val && !io.part(split, !parts->empty())) continue;
    if (io.reads())
      for (const std::string& name : io.in().file().text_list(split, "sets")) parts->emplace_back().name = name;
    else
      io.out().create_group(split);
    std::vector<std::string> names;
    for (PuzzlePart& part : *parts) {
      part_fields(io, part, join(split, "/", part.name), set);
      names.push_back(part.name);
    }
    if (io.reads()) continue;
    const PuzzleTotals totals(*parts);
    io.out().set_attribute(split, "total_groups", totals.groups);
    io.out().set_attribute(split, "total_puzzles", totals.puzzles);
    io.out().set_attribute(split, "mean_puzzle_examples", totals.mean());
    io.out().set_attribute(split, "sets", names);
  }
}

}  // namespace

PuzzleTotals::PuzzleTotals(const std::vector<PuzzlePart>& parts) {
  for (const PuzzlePart& part : parts) {
    groups += part.groups();
    puzzles += part.puzzles();
    rows += part.rows;
  }
}

void write_puzzle_set(const std::filesystem::path& path, const PuzzleSet& set, int deflate) {
  write_set(path, kHrmFormat, set, fields, deflate);
}
PuzzleSet read_puzzle_set(const H5File& file, Problems* problems) {
  return read_set(file, kHrmFormat, problems, fields);
}

}  // namespace lockstep::prep
