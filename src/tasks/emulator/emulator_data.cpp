#include "lockstep/tasks/emulator/emulator_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {
namespace {

/// The file of a data set, open as long as something reads its rows.
struct OpenSet {
  explicit OpenSet(H5File opened) : file(std::move(opened)), set(file, kEmulatorFormat) {}
  H5File file;
  DatasetFile set;
};

/// The rows of a dataset, each value checked. `column(c)` names column c in messages.
template <class Column>
RowColumn checked_rows(std::shared_ptr<const OpenSet> open, std::string dataset, const Shape& shape, Column column) {
  return {DType::f32, shape, [=](std::int64_t first_row, const Tensor& to) {
            std::vector<std::int64_t> extents;
            for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
            const std::int64_t width = shape.size() / shape[0];
            const auto check = [&](std::int64_t first, std::span<const float> values) {
              const auto bad =
                  std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
              if (bad == values.end()) return;
              const std::int64_t at = first + (bad - values.begin());
              throw Error(Fault::data,
                          join(open->set.reading(dataset), ": row ", at / width, ", column ", column(at % width),
                               " is ", *bad, "; drop such rows or rebuild the file with lockstep-prep"));
            };
            if (to.shape() == shape) return open->set.read_into<float>(dataset, extents, to.span<float>(), check);
            open->file.read_rows<float>(dataset, first_row, to.shape()[0], to.span<float>());
            check(first_row * width, to.span<const float>());
          }};
}

std::string column_name(const std::vector<std::string>& names, std::int64_t c) {
  return join(c, " ('", names[static_cast<std::size_t>(c)], "')");
}

/// Sorts the row numbers by split, ascending within each, and counts them.
template <class T>
void sort_by_split(const DatasetFile& set, std::span<T> order, std::array<std::int64_t, 3>& count) {
  const std::int64_t n = std::ssize(order);
  const std::vector<std::uint8_t> splits = set.read<std::uint8_t>("/split", {n});
  count = {};
  for (std::int64_t row = 0; row < n; ++row) {
    const std::uint8_t split = splits[static_cast<std::size_t>(row)];
    if (split > 2)
      throw Error(Fault::data, join(set.reading("/split"), ": row ", row, " is ", int{split},
                                    ": must be 0 (train), 1 (validation) or 2 (test)"));
    ++count[split];
  }
  for (const Split split : {Split::train, Split::validation})
    require_data(count[static_cast<std::size_t>(split)] > 0, set.reading("/split"), ": none of the ", n, " rows is a ",
                 name(split), " row; rebuild it with lockstep-prep and another validation split");
  std::array<std::size_t, 3> next = {0, static_cast<std::size_t>(count[0]),
                                     static_cast<std::size_t>(count[0] + count[1])};
  for (std::int64_t row = 0; row < n; ++row) order[next[splits[static_cast<std::size_t>(row)]]++] = static_cast<T>(row);
}

}  // namespace

std::int64_t EmulatorData::first_of(Split split) const {
  return split == Split::train ? 0 : split == Split::validation ? count[0] : count[0] + count[1];
}

std::vector<std::int64_t> EmulatorData::rows_of(Split split, std::int64_t first, std::int64_t n) const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n < 0 ? count[static_cast<std::size_t>(split)] - first : n));
  for (std::int64_t& row : rows) row = row_of(split, first++);
  return rows;
}

EmulatorData EmulatorData::read(const std::filesystem::path& path, DataMemory& data_memory) {
  const auto open = std::make_shared<const OpenSet>(data_memory.open(path));
  const H5File& file = open->file;
  const DatasetFile& set = open->set;
  const std::int64_t n = set.size("n", 1);
  const std::int64_t n_in = set.size("n_in", 1), n_out = set.size("n_out", 1);
  set.expect("/x", {H5Type::f32}, {n, n_in});
  set.expect("/y", {H5Type::f32}, {n, n_out});
  set.expect("/split", {H5Type::u8}, {n});
  const bool has_jacobian = file.has("/jac");
  if (has_jacobian) set.expect("/jac", {H5Type::f32, H5Type::f64}, {n, n_out, n_in});

  for (const char* small : {"/moments", "/vars"}) set.verify(small);

  EmulatorData data;
  data.path = path;
  if (file.has_attribute("/", "mask_mode")) data.mask_mode = file.text_attribute("/", "mask_mode");
  data.moments = read_moments(file, "/moments", n_in, n_out);
  data.variables = read_variables(file, "/vars", n_in, n_out);
  const std::vector<std::string>&in = data.variables.input_names, &out = data.variables.output_names;
  std::vector<std::string> names = {"/x", "/y"};
  std::vector<RowColumn> columns = {
      checked_rows(open, "/x", {n, n_in}, [in](std::int64_t c) { return column_name(in, c); }),
      checked_rows(open, "/y", {n, n_out}, [out](std::int64_t c) { return column_name(out, c); })};
  if (has_jacobian) {
    names.emplace_back("/jac");
    columns.push_back(checked_rows(open, "/jac", {n, n_out, n_in}, [in, out, n_in](std::int64_t c) {
      return join("d ", column_name(out, c / n_in), " / d ", column_name(in, c % n_in));
    }));
  }
  RowSource& rows = data_memory.rows();
  const std::vector<RowArray> arrays = rows.place(n, columns, path);
  data.x = arrays[0];
  data.y = arrays[1];
  if (has_jacobian) data.jacobian = arrays[2];
  data.source = &rows;
  std::array<std::int64_t, 3> count{};
  const bool narrow = n <= std::numeric_limits<std::int32_t>::max();
  data.order = data_memory.place(narrow ? DType::i32 : DType::i64, {n}, [&](const Tensor& to) {
    if (narrow)
      sort_by_split(set, to.span<std::int32_t>(), count);
    else
      sort_by_split(set, to.span<std::int64_t>(), count);
  });
  const Tensor counts =
      data_memory.place(DType::i64, {3}, [&](const Tensor& to) { std::ranges::copy(count, to.data<std::int64_t>()); });
  std::copy_n(counts.data<std::int64_t>(), 3, data.count.begin());

  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::uint64_t before = data.hash;
    data.hash = rows.hash(arrays[i], before);
    // Rows that were read in parts are compared with their checksum here; there is none of f64 that is read as f32.
    if (!rows.whole() && is_sealed(file) && file.info(names[i]).type == H5Type::f32) {
      const std::string defect = values_defect(file, names[i], before == 0 ? data.hash : rows.hash(arrays[i], 0));
      require_data(defect.empty(), set.opening(), ": ", defect,
                   "; the disk, a copy or another program has changed the file: copy it again, or rebuild it with "
                   "lockstep-prep");
    }
    if (i == 1)
      data.hash = data_memory.hash([&] { return hash64(data.order.raw(), data.order.size_bytes(), data.hash); });
  }
  for (const auto& [name, part] : kMoments) {
    const std::vector<double>& values = data.moments.*part;
    data.hash = hash64(values.data(), values.size() * sizeof(double), data.hash);
  }
  return data;
}

}  // namespace lockstep
