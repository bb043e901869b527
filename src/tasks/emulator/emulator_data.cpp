#include "lockstep/tasks/emulator/emulator_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/data/dataset_rows.hpp"

namespace lockstep {
namespace {

/// The rows of a dataset, each value checked. `column(c)` names column c in messages.
DatasetRows checked_rows(const std::shared_ptr<const OpenSet>& open, const char* name, auto column) {
  const std::vector<std::int64_t> shape = open->file.info(name).shape;
  const std::int64_t width = Shape(shape).size() / shape[0];
  return dataset_rows<float>(
      open, {{name, 0, shape[0]}}, [=](const std::string& dataset, std::int64_t first, auto values) {
        const auto bad =
            std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
        if (bad == values.end()) return;
        const std::int64_t at = first + (bad - values.begin());
        throw Error(Fault::data, join(open->set.reading(dataset), ": row ", at / width, ", column ", column(at % width),
                                      " is ", *bad, "; drop such rows or rebuild the file with lockstep-prep"));
      });
}

std::string column_name(const std::vector<std::string>& names, std::int64_t c) {
  return join(c, " ('", names[c], "')");
}

/// Sorts the row numbers by split, ascending within each, and counts them.
template <class T>
void sort_by_split(const DatasetFile& set, std::span<T> order, std::array<std::int64_t, 3>& count) {
  const std::int64_t n = std::ssize(order);
  const std::vector<std::uint8_t> splits = set.read<std::uint8_t>("/split", {n});
  count = {};
  for (std::int64_t row = 0; row < n; ++row) {
    const std::uint8_t split = splits[row];
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
  for (std::int64_t row = 0; row < n; ++row) order[next[splits[row]]++] = static_cast<T>(row);
}

}  // namespace

std::string names_defect(const EmulatorVariables& variables) {
  for (const auto& [side, all] :
       {std::pair{"input", &variables.input_names}, std::pair{"output", &variables.output_names}}) {
    std::vector<std::string> names = *all;
    std::ranges::sort(names);
    if (!names.empty() && names.front().empty()) return join("an ", side, " has no name");
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) return join("two ", side, "s are named '", *twice, "'");
  }
  return "";
}

std::string columns_text(const EmulatorVariables& variables) {
  return listed(variables.input_names) + " -> " + listed(variables.output_names);
}

void EmulatorData::require_columns_of(const EmulatorVariables& its, const std::string& trained) const {
  require_data(its.input_names == variables.input_names && its.output_names == variables.output_names, trained,
               " was trained on other variables than those of '", path.string(), "': ", columns_text(its), " there, ",
               columns_text(variables), " here; name a data set with these columns in this order");
  require_same_units(its, variables, join("data set '", path.string(), "'"));
}

std::int64_t EmulatorData::first_of(Split split) const {
  return split == Split::train ? 0 : split == Split::validation ? count[0] : count[0] + count[1];
}

std::vector<std::int64_t> EmulatorData::rows_of(Split split, std::int64_t first, std::int64_t n) const {
  std::vector<std::int64_t> rows(n < 0 ? count[static_cast<std::size_t>(split)] - first : n);
  for (std::int64_t& row : rows) row = row_of(split, first++);
  return rows;
}

EmulatorData EmulatorData::read(const std::filesystem::path& path, DataMemory& data_memory) {
  const auto open = std::make_shared<const OpenSet>(data_memory.open(path), kEmulatorFormat);
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
  const std::string defect = names_defect(data.variables);
  require_data(defect.empty(), set.reading("/vars"), ": ", defect, "; give each column a name of its own");
  const std::vector<std::string>&in = data.variables.input_names, &out = data.variables.output_names;
  std::vector<DatasetRows> datasets = {checked_rows(open, "/x", [in](std::int64_t c) { return column_name(in, c); }),
                                       checked_rows(open, "/y", [out](std::int64_t c) { return column_name(out, c); })};
  if (has_jacobian)
    datasets.push_back(checked_rows(open, "/jac", [in, out, n_in](std::int64_t c) {
      return join("d ", column_name(out, c / n_in), " / d ", column_name(in, c % n_in));
    }));
  const std::vector<RowArray> arrays = place_rows(data_memory, datasets);
  data.x = arrays[0];
  data.y = arrays[1];
  if (has_jacobian) data.jacobian = arrays[2];
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
    data.hash = data_memory.rows().hash(arrays[i], data.hash);
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
