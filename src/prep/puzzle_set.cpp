#include "lockstep/prep/puzzle_set.hpp"

#include <algorithm>
#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep::prep {

namespace {

constexpr const char* kFormat = "hrm-puzzles";
constexpr std::int64_t kVersion = 1;
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

/// Rows of a part, read in blocks: a pass over all of them reads each once.
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

std::vector<std::string> texts(const H5File& file, const std::string& object, const std::string& attribute) {
  const H5Value value = file.attribute(object, attribute);
  const auto* found = std::get_if<std::vector<std::string>>(&value);
  require_data(found != nullptr, "reading '", file.path().string(), "': attribute '", attribute, "' of '", object,
               "' is no list of strings");
  return *found;
}

PuzzlePart read_part(const H5File& file, const std::string& where, const std::string& name, std::int64_t seq_len) {
  const std::string reading = "reading '" + file.path().string() + "'";
  PuzzlePart part;
  part.name = name;
  const H5Info inputs = file.info(where + "/inputs"), labels = file.info(where + "/labels");
  require_data(inputs.type == H5Type::u8 && labels.type == H5Type::u8 && inputs.shape.size() == 2 &&
                   inputs.shape == labels.shape && inputs.shape[1] == seq_len,
               reading, ": '", where, "/inputs' and '/labels' must both be u8 (N, ", seq_len, ")");
  part.rows = inputs.shape[0];
  const auto fill = [&]<class T>(const std::string& field, std::vector<T>& out, std::int64_t length) {
    const H5Info info = file.info(where + "/" + field);
    require_data(info.type == h5_type_of<T>::value && info.shape.size() == 1 && (length < 0 || info.shape[0] == length),
                 reading, ": '", where, "/", field, "' must be ", lockstep::name(h5_type_of<T>::value), " of one axis",
                 length < 0 ? "" : join(" with ", length, " values"));
    out = file.read<T>(where + "/" + field);
  };
  fill("puzzle_indices", part.puzzle_indices, -1);
  fill("group_indices", part.group_indices, -1);
  require_data(!part.puzzle_indices.empty() && !part.group_indices.empty(), reading, ": the index arrays of '", where,
               "' are empty; they hold at least a 0");
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
  throw Error(Fault::data, join(where, ": task '", text, "' is none of sudoku, maze, arc"));
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
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary, H5Strings::variable);
    file.set_attribute("/", "format", std::string(kFormat));
    file.set_attribute("/", "kind", std::string(kFormat));
    file.set_attribute("/", "version", kVersion);
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
    for (const auto& [attribute, value] : set.notes) file.set_attribute("/", attribute, value);
    file.write_text("/identifiers", set.identifiers);
    if (!set.source_names.empty()) file.write_text("/source_names", set.source_names);
    write_split(file, "train", set.train, set.seq_len, deflate);
    write_split(file, "test", set.test, set.seq_len, deflate);
    seal_contents(file);
    file.close();
  });
}

PuzzleSet read_puzzle_set(const H5File& file) {
  const std::string reading = "reading '" + file.path().string() + "'";
  require_data(file.has_attribute("/", "kind"), reading, ": no attribute 'kind'; it was not written by lockstep-prep");
  const std::string kind = file.text_attribute("/", "kind");
  require_data(kind == kFormat, reading, ": expected kind '", kFormat, "', found '", kind, "'");
  const std::int64_t version = file.int_attribute("/", "version");
  require_data(version == kVersion, reading, ": format version ", version, ", this program reads ", kVersion);
  PuzzleSet set;
  set.task = puzzle_task(file.text_attribute("/", "task"), reading);
  set.pad_id = file.int_attribute("/", "pad_id");
  set.ignore_label_id = file.int_attribute("/", "ignore_label_id");
  set.blank_identifier_id = file.int_attribute("/", "blank_identifier_id");
  set.vocab_size = file.int_attribute("/", "vocab_size");
  set.seq_len = file.int_attribute("/", "seq_len");
  set.seed = static_cast<std::uint64_t>(file.int_attribute("/", "seed"));
  set.num_aug = file.int_attribute("/", "num_aug");
  require_data(set.seq_len > 0 && set.seq_len <= (1 << 20) && set.vocab_size > 0 && set.vocab_size <= 256 &&
                   set.num_aug >= 0 && set.ignore_label_id >= -1 && set.ignore_label_id < set.vocab_size &&
                   set.pad_id >= 0 && set.pad_id < set.vocab_size,
               reading, ": impossible seq_len ", set.seq_len, ", vocab_size ", set.vocab_size, ", num_aug ",
               set.num_aug, ", pad_id ", set.pad_id, " or ignore_label_id ", set.ignore_label_id);
  const std::string augment = file.text_attribute("/", "augment");
  require_data(augment == "online" || augment == "offline", reading, ": attribute 'augment' is '", augment,
               "', not offline or online");
  set.online = augment == "online";
  set.identifiers = file.read_text("/identifiers");
  const std::int64_t identifiers = file.int_attribute("/", "num_puzzle_identifiers");
  require_data(static_cast<std::int64_t>(set.identifiers.size()) == identifiers && set.blank_identifier_id >= 0 &&
                   set.blank_identifier_id < identifiers,
               reading, ": ", set.identifiers.size(), " names for ", identifiers, " identifiers, of which ",
               set.blank_identifier_id, " is blank");
  if (file.has("/source_names")) set.source_names = file.read_text("/source_names");
  set.sources = texts(file, "/", "sources");
  set.sha256 = texts(file, "/", "sha256");
  for (const std::string split : {"/train", "/test"}) {
    auto& parts = split == "/train" ? set.train : set.test;
    for (const auto& part : texts(file, split, "sets"))
      parts.push_back(read_part(file, split + "/" + part, part, set.seq_len));
  }
  return set;
}

std::string index_defect(std::span<const std::int64_t> indices, std::int64_t end) {
  if (indices.empty()) return "is empty";
  if (indices.front() != 0) return join("starts with ", indices.front(), ", not with 0");
  for (std::size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] <= indices[i - 1])
      return join("does not rise at row ", i, ": ", indices[i], " after ", indices[i - 1]);
  }
  if (indices.back() != end) return join("ends with ", indices.back(), " for ", end, " rows");
  return "";
}

}  // namespace lockstep::prep
