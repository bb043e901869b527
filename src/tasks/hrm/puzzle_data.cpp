#include "lockstep/tasks/hrm/puzzle_data.hpp"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/data/names.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep {
namespace {

/// Reads one part of a split; the process that fills an array also checks it.
class PartReader {
 public:
  PartReader(const DatasetFile& set, const PuzzleData& data, DataMemory& data_memory)
      : set_(set), data_(data), data_memory_(data_memory) {}

  PuzzlePart read(const std::string& split, const std::string& name) const {
    const std::string group = "/" + split + "/" + name;
    PuzzlePart part;
    part.name = name;
    part.inputs = tokens(group + "/inputs", "token");
    part.labels = tokens(group + "/labels", "label");
    const std::int64_t rows = part.inputs.shape()[0];
    require_data(part.labels.shape()[0] == rows, set_.reading(group + "/labels"), ": ", part.labels.shape()[0],
                 " rows, but inputs have ", rows);
    part.puzzle_identifiers = ids(group + "/puzzle_identifiers", -1, data_.identifiers, "identifier");
    part.puzzle_indices = indices(group + "/puzzle_indices", part.puzzle_identifiers.size() + 1, rows);
    part.group_indices = indices(group + "/group_indices", -1, part.puzzle_identifiers.size());
    if (set_.file().has(group + "/rating"))
      part.rating = place<std::int32_t>(group + "/rating", {part.groups()}, [](auto) {});
    if (set_.file().has(group + "/source"))
      part.source = ids(group + "/source", part.groups(), std::ssize(data_.source_names), "source");
    return part;
  }

 private:
  /// An array of this shape (-1: any extent), checked.
  template <class T, class Check>
  Tensor place(const std::string& dataset, const std::vector<std::int64_t>& shape, const Check& check) const {
    const std::vector<std::int64_t> found = set_.expect(dataset, {h5_type_of<T>::value}, shape);
    return data_memory_.place(dtype_of<T>::value, Shape(found), [&](const Tensor& to) {
      set_.read_into<T>(dataset, found, to.span<T>());
      check(std::span<const T>(to.span<T>()));
    });
  }
  Tensor ids(const std::string& dataset, std::int64_t size, std::int64_t count, const char* what) const {
    return place<std::int32_t>(dataset, {size},
                               [&](std::span<const std::int32_t> all) { set_.require_ids(dataset, all, count, what); });
  }
  Tensor indices(const std::string& dataset, std::int64_t size, std::int64_t end) const {
    return place<std::int64_t>(dataset, {size}, [&](std::span<const std::int64_t> index) {
      set_.require_offsets(dataset, index, end, Rise::strict);
    });
  }
  Tensor tokens(const std::string& dataset, const char* what) const {
    return place<std::uint8_t>(dataset, {-1, data_.seq_len}, [&](std::span<const std::uint8_t> all) {
      set_.require_ids(dataset, all, data_.vocab_size, what, data_.seq_len);
    });
  }

  const DatasetFile& set_;
  const PuzzleData& data_;
  DataMemory& data_memory_;
};

std::vector<std::string> set_names(const H5File& file, const std::string& split) {
  std::vector<std::string> sets;
  for (const std::string& name : file.list("/" + split))
    if (file.is_group("/" + split + "/" + name)) sets.push_back(name);
  return sets;
}

std::uint64_t hash_of(const PuzzleData& data) {
  std::uint64_t hash = 0;
  const auto add = [&](const Tensor& t) { hash = hash64(t.raw(), t.size_bytes(), hash); };
  for (const auto* split : {&data.train, &data.test, &data.val})
    for (const PuzzlePart& p : *split)
      for (const Tensor* t : {&p.inputs, &p.labels, &p.puzzle_indices, &p.group_indices, &p.puzzle_identifiers})
        add(*t);
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
  const std::uint8_t* in = example.part->inputs.data<std::uint8_t>() + example.row * seq_len;
  const std::uint8_t* out = example.part->labels.data<std::uint8_t>() + example.row * seq_len;
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

PuzzleData PuzzleData::open(const std::filesystem::path& path, DataMemory& data_memory) {
  const H5File file = data_memory.open(path);
  const DatasetFile set(file, kHrmFormat);
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
      require_data(static_cast<std::int64_t>(names.size()) == data.identifiers && data.seq_len == kArcCells,
                   set.opening(), ": ", names.size(), " identifiers' names and fields of ", data.seq_len,
                   " cells, expected ", data.identifiers, " and ", kArcCells);
      std::transform(names.begin(), names.end(), std::back_inserter(data.arc_names), read_arc_name);
    }
  }
  const PartReader reader(set, data, data_memory);
  for (const auto& [split, parts] :
       {std::pair{"train", &data.train}, std::pair{"val", &data.val}, std::pair{"test", &data.test}}) {
    if (!file.is_group(std::string("/") + split)) continue;
    for (const std::string& name : set_names(file, split)) parts->push_back(reader.read(split, name));
  }
  require_data(!data.train.empty(), set.opening(), ": it has no training puzzles");
  data.hash = hash_of(data);
  return data;
}

}  // namespace lockstep
