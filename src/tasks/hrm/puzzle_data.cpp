#include "lockstep/tasks/hrm/puzzle_data.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/data/dataset_rows.hpp"
#include "lockstep/data/names.hpp"

namespace lockstep {
namespace {

/// Reads the parts of the splits; the process that fills an array also checks it.
class PartReader {
 public:
  PartReader(std::shared_ptr<const OpenSet> open, const PuzzleData& data, DataMemory& data_memory)
      : open_(std::move(open)), set_(open_->set), data_(data), data_memory_(data_memory) {}

  /// An array of the table of all parts: the dataset `name` of each of these groups.
  DatasetRows tokens(const std::vector<std::string>& groups, const std::string& name, const char* what) const {
    std::vector<DatasetPiece> pieces;
    for (const std::string& group : groups)
      pieces.push_back({group + name, 0, set_.expect(group + name, {H5Type::u8}, {-1, data_.seq_len})[0]});
    return dataset_rows<std::uint8_t>(open_, pieces,
                                      [open = open_, what, vocab = data_.vocab_size, width = data_.seq_len](
                                          const std::string& dataset, std::int64_t first, auto values) {
                                        open->set.require_ids(dataset, values, vocab, what, width, first);
                                      });
  }

  PuzzlePart read(const std::string& group, std::int64_t rows) const {
    PuzzlePart part;
    part.name = group.substr(group.rfind('/') + 1);
    part.puzzle_identifiers = ids(group + "/puzzle_identifiers", -1, data_.identifiers, "identifier");
    part.puzzle_indices = indices(group + "/puzzle_indices", part.puzzle_identifiers.size() + 1, rows);
    part.group_indices = indices(group + "/group_indices", -1, part.puzzle_identifiers.size());
    if (set_.file().has(group + "/rating"))
      part.rating = place_dataset<std::int32_t>(data_memory_, set_, group + "/rating", {part.groups()}, [](auto) {});
    if (set_.file().has(group + "/source"))
      part.source = ids(group + "/source", part.groups(), std::ssize(data_.source_names), "source");
    return part;
  }

 private:
  Tensor ids(const std::string& dataset, std::int64_t size, std::int64_t count, const char* what) const {
    return place_dataset<std::int32_t>(
        data_memory_, set_, dataset, set_.expect(dataset, {H5Type::i32}, {size}),
        [&](std::span<const std::int32_t> all) { set_.require_ids(dataset, all, count, what); });
  }
  Tensor indices(const std::string& dataset, std::int64_t size, std::int64_t end) const {
    return place_dataset<std::int64_t>(
        data_memory_, set_, dataset, set_.expect(dataset, {H5Type::i64}, {size}),
        [&](std::span<const std::int64_t> index) { set_.require_offsets(dataset, index, end, Rise::strict); });
  }

  std::shared_ptr<const OpenSet> open_;
  const DatasetFile& set_;
  const PuzzleData& data_;
  DataMemory& data_memory_;
};

std::uint64_t hash_of(const PuzzleData& data, RowSource& rows) {
  std::uint64_t hash = 0;
  for (const auto* split : {&data.train, &data.test, &data.val})
    for (const PuzzlePart& p : *split) {
      for (const RowArray* array : {&p.inputs, &p.labels}) hash = rows.hash(*array, hash, p.first, p.examples());
      for (const Tensor* t : {&p.puzzle_indices, &p.group_indices, &p.puzzle_identifiers})
        hash = hash64(t->raw(), t->size_bytes(), hash);
    }
  return hash;
}

std::int64_t segment_of(const Tensor& starts, std::int64_t at) {
  const std::span<const std::int64_t> all = starts.span<const std::int64_t>();
  return std::upper_bound(all.begin(), all.end(), at) - all.begin() - 1;
}

}  // namespace

std::int64_t PuzzlePart::puzzle_of(std::int64_t example) const { return segment_of(puzzle_indices, example); }
std::int64_t PuzzlePart::group_of(std::int64_t puzzle) const { return segment_of(group_indices, puzzle); }

void PuzzleData::read(const PuzzleExample& example, std::span<std::int32_t> inputs,
                      std::span<std::int32_t> labels) const {
  const auto* in = example.part->inputs.row<std::uint8_t>(example.table_row());
  const auto* out = example.part->labels.row<std::uint8_t>(example.table_row());
  for (std::size_t i = 0; i < static_cast<std::size_t>(seq_len); ++i) {
    inputs[i] = in[i];
    labels[i] = out[i] == ignore_label_id ? -1 : out[i];
  }
}

PuzzleData::Rows PuzzleData::read(std::span<const PuzzleExample> examples) const {
  const auto cells = static_cast<std::size_t>(seq_len);
  Rows rows = {
      std::vector<std::int32_t>(examples.size() * cells), std::vector<std::int32_t>(examples.size() * cells), {}};
  for (std::size_t i = 0; i < examples.size(); ++i) {
    read(examples[i], std::span(rows.inputs).subspan(i * cells, cells),
         std::span(rows.labels).subspan(i * cells, cells));
    rows.identifiers.push_back(examples[i].identifier);
  }
  return rows;
}

PuzzleData::Rows PuzzleData::fetch(std::span<const PuzzleExample> examples) const {
  std::vector<std::int64_t> rows;
  for (const PuzzleExample& example : examples) rows.push_back(example.table_row());
  if (!rows.empty()) examples.front().part->inputs.fetch(std::move(rows));
  return read(examples);
}

PuzzleData PuzzleData::open(const std::filesystem::path& path, DataMemory& data_memory) {
  const auto open = std::make_shared<const OpenSet>(data_memory.open(path), kHrmFormat);
  const H5File& file = open->file;
  const DatasetFile& set = open->set;
  PuzzleData data;
  data.path = path;
  data.task = file.text_attribute("/", "task");
  data.seq_len = set.size("seq_len", 1);
  data.vocab_size = set.size("vocab_size", 1, 256);
  data.identifiers = set.size("num_puzzle_identifiers", 1);
  data.pad_id = file.int_attribute("/", "pad_id");
  data.ignore_label_id = file.int_attribute("/", "ignore_label_id");
  data.blank_identifier_id = file.int_attribute("/", "blank_identifier_id");
  if (file.text_attribute("/", "augment") == "online") {
    data.variants = 1 + file.int_attribute("/", "num_aug");
    const auto seed = static_cast<std::uint64_t>(file.int_attribute("/", "seed"));
    require_data(data.task == "sudoku" || data.task == "maze", set.opening(), ": task '", data.task,
                 "' has no variants that are drawn while training");
    data.online = {data.task == "sudoku" ? PuzzleTask::sudoku : PuzzleTask::maze, data.seq_len, seed};
  }
  if (file.has("/source_names")) data.source_names = set.read_text("/source_names", -1);
  if (file.has("/identifiers")) {
    const std::vector<std::string> names = set.read_text("/identifiers", -1);
    data.identifier_names = hash_of_names(names);
    if (data.task == "arc") {
      require_data(std::ssize(names) == data.identifiers && data.seq_len == kArcCells, set.opening(), ": ",
                   names.size(), " identifiers' names and fields of ", data.seq_len, " cells, expected ",
                   data.identifiers, " and ", kArcCells);
      std::transform(names.begin(), names.end(), std::back_inserter(data.arc_names), read_arc_name);
    }
  }
  const PartReader reader(open, data, data_memory);
  std::vector<std::string> groups;
  std::vector<std::vector<PuzzlePart>*> parts;  // that the groups belong to
  for (const auto& [split, of_split] :
       {std::pair{"/train", &data.train}, std::pair{"/val", &data.val}, std::pair{"/test", &data.test}})
    if (file.is_group(split))
      for (const std::string& name : file.list(split))
        if (const std::string group = join(split, "/", name); file.is_group(group))
          groups.push_back(group), parts.push_back(of_split);
  require_data(!parts.empty() && parts.front() == &data.train, set.opening(), ": it has no training puzzles");
  const DatasetRows inputs = reader.tokens(groups, "/inputs", "token"),
                    labels = reader.tokens(groups, "/labels", "label");
  for (std::size_t i = 0; i < groups.size(); ++i)
    require_data(labels.pieces[i].count == inputs.pieces[i].count, set.reading(labels.pieces[i].dataset), ": ",
                 labels.pieces[i].count, " rows, but inputs have ", inputs.pieces[i].count);
  const std::vector<RowArray> table = place_rows(data_memory, {inputs, labels});
  std::int64_t first = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    PuzzlePart& part = parts[i]->emplace_back(reader.read(groups[i], inputs.pieces[i].count));
    part.inputs = table[0];
    part.labels = table[1];
    part.first = std::exchange(first, first + part.examples());
  }
  data.hash = hash_of(data, data_memory.rows());
  return data;
}

}  // namespace lockstep
