#include "lockstep/data/puzzle_data.hpp"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {
namespace {

constexpr const char* kFormat = "hrm-puzzles";
constexpr std::int64_t kVersion = 1;

/// Reads one part of a split; every array is checked where it is filled.
class PartReader {
 public:
  PartReader(const H5File& file, const PuzzleData& data, Placement& placement)
      : file_(file), data_(data), placement_(placement) {}

  PuzzlePart read(const std::string& split, const std::string& name) const {
    const std::string group = "/" + split + "/" + name;
    PuzzlePart part;
    part.name = name;
    part.inputs = tokens(group + "/inputs", false);
    part.labels = tokens(group + "/labels", true);
    const std::int64_t rows = part.inputs.shape()[0];
    require_data(part.labels.shape()[0] == rows, where(group + "/labels"), ": ", part.labels.shape()[0],
                 " rows, but inputs have ", rows);
    part.puzzle_identifiers = place<std::int32_t>(group + "/puzzle_identifiers", -1, [&](std::span<std::int32_t> ids) {
      const auto bad =
          std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id < 0 || id >= data_.identifiers; });
      require_data(bad == ids.end(), where(group + "/puzzle_identifiers"), ": identifier ", bad == ids.end() ? 0 : *bad,
                   " at row ", bad - ids.begin(), " is not in 0..", data_.identifiers - 1);
    });
    part.puzzle_indices = indices(group + "/puzzle_indices", part.puzzle_identifiers.size() + 1, rows);
    part.group_indices = indices(group + "/group_indices", -1, part.puzzle_identifiers.size());
    if (file_.has(group + "/rating")) part.rating = place<std::int32_t>(group + "/rating", part.groups(), [](auto) {});
    if (file_.has(group + "/source")) {
      const auto sources = static_cast<std::int32_t>(data_.source_names.size());
      part.source = place<std::int32_t>(group + "/source", part.groups(), [&](std::span<std::int32_t> all) {
        const auto bad = std::find_if(all.begin(), all.end(), [&](std::int32_t s) { return s < 0 || s >= sources; });
        require_data(bad == all.end(), where(group + "/source"), ": source ", bad == all.end() ? 0 : *bad, " at row ",
                     bad - all.begin(), " is not in 0..", sources - 1);
      });
    }
    return part;
  }

 private:
  std::string where(const std::string& dataset) const {
    return join("reading '", dataset, "' of '", file_.path().string(), "'");
  }
  H5Info info(const std::string& dataset) const {
    require_data(file_.has(dataset), where(dataset), ": no such dataset; rebuild it with lockstep-prep");
    return file_.info(dataset);
  }
  /// A one-dimensional array of `size` elements (-1: any), checked.
  template <class T, class Check>
  Tensor place(const std::string& dataset, std::int64_t size, const Check& check) const {
    const H5Info found = info(dataset);
    require_data(found.shape.size() == 1 && (size < 0 || found.shape[0] == size), where(dataset), ": ",
                 Shape(found.shape), " elements, expected ", size);
    return placement_.place(dtype_of<T>::value, Shape(found.shape), [&](const Tensor& to) {
      file_.read_into<T>(dataset, to.span<T>());
      check(to.span<T>());
    });
  }
  /// Rises strictly from 0 to `end`.
  Tensor indices(const std::string& dataset, std::int64_t size, std::int64_t end) const {
    return place<std::int64_t>(dataset, size, [&](std::span<std::int64_t> index) {
      require_data(!index.empty() && index.front() == 0 && index.back() == end, where(dataset),
                   ": must begin with 0 and end with ", end);
      const auto fall = std::adjacent_find(index.begin(), index.end(), std::greater_equal<>());
      require_data(fall == index.end(), where(dataset), ": does not rise at row ", fall - index.begin() + 1);
    });
  }
  Tensor tokens(const std::string& dataset, bool labels) const {
    const H5Info found = info(dataset);
    require_data(found.shape.size() == 2 && found.shape[1] == data_.seq_len && found.type == H5Type::u8, where(dataset),
                 ": ", Shape(found.shape), " of ", name(found.type), ", expected rows of ", data_.seq_len, " bytes");
    return placement_.place(DType::u8, Shape(found.shape), [&](const Tensor& to) {
      const std::span<std::uint8_t> all = to.span<std::uint8_t>();
      file_.read_into<std::uint8_t>(dataset, all);
      const auto bad = std::find_if(all.begin(), all.end(), [&](std::uint8_t t) { return t >= data_.vocab_size; });
      require_data(bad == all.end(), where(dataset), ": ", labels ? "label " : "token ",
                   bad == all.end() ? 0 : int{*bad}, " at row ", (bad - all.begin()) / data_.seq_len, " is not in 0..",
                   data_.vocab_size - 1);
    });
  }

  const H5File& file_;
  const PuzzleData& data_;
  Placement& placement_;
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
  for (const auto* split : {&data.train, &data.test})
    for (const PuzzlePart& p : *split)
      add(p.inputs), add(p.labels), add(p.puzzle_indices), add(p.group_indices), add(p.puzzle_identifiers);
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
  const auto width = static_cast<std::size_t>(seq_len);
  const std::uint8_t* in = example.part->inputs.data<std::uint8_t>() + example.row * seq_len;
  const std::uint8_t* out = example.part->labels.data<std::uint8_t>() + example.row * seq_len;
  std::array<std::uint8_t, 2 * 1024> variant;
  if (example.variant > 0) {
    require(online && 2 * width <= variant.size(), "reading variant ", example.variant, " of a row of ", width);
    const std::span to(variant);
    online->apply(static_cast<std::uint64_t>(example.group), static_cast<std::uint64_t>(example.variant), {in, width},
                  {out, width}, to.first(width), to.subspan(width, width));
    in = variant.data(), out = variant.data() + width;
  }
  for (std::size_t i = 0; i < width; ++i) {
    inputs[i] = in[i];
    labels[i] = out[i] == ignore_label_id ? -1 : out[i];
  }
}

PuzzleData PuzzleData::open(const std::filesystem::path& path, Placement& placement) {
  const H5File file = H5File::open(path);
  require_data(file.has_attribute("/", "format") && file.text_attribute("/", "format") == kFormat, "opening dataset '",
               path.string(), "': not a prepared puzzle file; make it with lockstep-prep");
  const std::int64_t version = file.int_attribute("/", "version");
  require_data(version == kVersion, "opening dataset '", path.string(), "': its format version is ", version,
               ", this program reads ", kVersion);
  PuzzleData data;
  data.path = path;
  data.task = file.text_attribute("/", "task");
  data.seq_len = file.int_attribute("/", "seq_len");
  data.vocab_size = file.int_attribute("/", "vocab_size");
  data.identifiers = file.int_attribute("/", "num_puzzle_identifiers");
  data.pad_id = file.int_attribute("/", "pad_id");
  data.ignore_label_id = file.int_attribute("/", "ignore_label_id");
  data.blank_identifier_id = file.int_attribute("/", "blank_identifier_id");
  require_data(data.seq_len >= 1 && data.vocab_size >= 1 && data.vocab_size <= 256 && data.identifiers >= 1,
               "opening dataset '", path.string(), "': seq_len ", data.seq_len, ", vocab_size ", data.vocab_size,
               ", num_puzzle_identifiers ", data.identifiers, " are out of range");
  if (file.text_attribute("/", "augment") == "online") {
    data.variants = 1 + file.int_attribute("/", "num_aug");
    const auto seed = static_cast<std::uint64_t>(file.int_attribute("/", "seed"));
    require_data(data.task == "sudoku" || data.task == "maze", "opening dataset '", path.string(), "': task '",
                 data.task, "' has no variants that are drawn while training");
    data.online.emplace(data.task == "sudoku" ? PuzzleTask::sudoku : PuzzleTask::maze, data.seq_len, seed);
  }
  if (file.has("/source_names")) data.source_names = file.read_text("/source_names");
  if (data.task == "arc" && file.has("/identifiers")) {
    const std::vector<std::string> names = file.read_text("/identifiers");
    require_data(static_cast<std::int64_t>(names.size()) == data.identifiers && data.seq_len == kArcCells,
                 "opening dataset '", path.string(), "': ", names.size(), " identifiers' names and fields of ",
                 data.seq_len, " cells, expected ", data.identifiers, " and ", kArcCells);
    std::transform(names.begin(), names.end(), std::back_inserter(data.arc_names), read_arc_name);
  }
  const PartReader reader(file, data, placement);
  for (const auto& [split, parts] : {std::pair{"train", &data.train}, std::pair{"test", &data.test}}) {
    if (!file.is_group(std::string("/") + split)) continue;
    for (const std::string& name : set_names(file, split)) parts->push_back(reader.read(split, name));
  }
  require_data(!data.train.empty(), "opening dataset '", path.string(), "': it has no training puzzles");
  data.hash = hash_of(data);
  return data;
}

}  // namespace lockstep
