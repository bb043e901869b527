#include "lockstep/tasks/emulator/emulator_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep {
namespace {

/// Reads rows into `to` and checks each value. `column(c)` names column c in messages.
template <class Column>
void read_columns(const DatasetFile& set, const std::string& dataset, const std::vector<std::int64_t>& shape,
                  const Tensor& to, const Column& column) {
  const std::int64_t width = to.size() / shape[0];
  set.read_into<float>(dataset, shape, to.span<float>(), [&](std::int64_t first, std::span<const float> values) {
    const auto bad = std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return;
    const std::int64_t at = first + (bad - values.begin());
    throw Error(Fault::data, join(set.reading(dataset), ": row ", at / width, ", column ", column(at % width), " is ",
                                  *bad, "; drop such rows or rebuild the file with lockstep-prep"));
  });
}

std::string column_name(const std::vector<std::string>& names, std::int64_t c) {
  return join(c, " ('", names[static_cast<std::size_t>(c)], "')");
}

/// Sorts the row numbers by split, ascending within each, and counts them.
void sort_by_split(const DatasetFile& set, std::int64_t n, std::span<std::int32_t> order,
                   std::array<std::int64_t, 3>& count) {
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
  for (std::int64_t row = 0; row < n; ++row)
    order[next[splits[static_cast<std::size_t>(row)]]++] = static_cast<std::int32_t>(row);
}

std::uint64_t chain(const Tensor& t, std::uint64_t seed) { return hash64(t.raw(), t.size_bytes(), seed); }
std::uint64_t chain(const std::vector<double>& values, std::uint64_t seed) {
  return hash64(values.data(), values.size() * sizeof(double), seed);
}

}  // namespace

std::span<const std::int32_t> EmulatorData::rows_of(Split split) const {
  const auto s = static_cast<std::size_t>(split);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < s; ++i) first += count[i];
  return {order.data<std::int32_t>() + first, static_cast<std::size_t>(count[s])};
}

EmulatorData EmulatorData::read(const std::filesystem::path& path, DataMemory& data_memory) {
  const H5File file = data_memory.open(path);
  const DatasetFile set(file, kEmulatorFormat);
  const std::int64_t n = set.size("n", 1, std::numeric_limits<std::int32_t>::max());
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
  data.x = data_memory.place(DType::f32, {n, n_in}, [&](const Tensor& to) {
    read_columns(set, "/x", {n, n_in}, to, [&](std::int64_t c) { return column_name(data.variables.input_names, c); });
  });
  data.y = data_memory.place(DType::f32, {n, n_out}, [&](const Tensor& to) {
    read_columns(set, "/y", {n, n_out}, to,
                 [&](std::int64_t c) { return column_name(data.variables.output_names, c); });
  });
  if (has_jacobian)
    data.jacobian = data_memory.place(DType::f32, {n, n_out, n_in}, [&](const Tensor& to) {
      read_columns(set, "/jac", {n, n_out, n_in}, to, [&](std::int64_t c) {
        return join("d ", column_name(data.variables.output_names, c / n_in), " / d ",
                    column_name(data.variables.input_names, c % n_in));
      });
    });
  std::array<std::int64_t, 3> count{};
  data.order = data_memory.place(DType::i32, {n},
                                 [&](const Tensor& to) { sort_by_split(set, n, to.span<std::int32_t>(), count); });
  const Tensor summary = data_memory.place(DType::i64, {4}, [&](const Tensor& to) {
    std::copy(count.begin(), count.end(), to.data<std::int64_t>());
    std::uint64_t hash = chain(data.order, chain(data.y, chain(data.x, 0)));
    if (has_jacobian) hash = chain(data.jacobian, hash);
    for (const auto& [name, part] : kMoments) hash = chain(data.moments.*part, hash);
    to.data<std::int64_t>()[3] = static_cast<std::int64_t>(hash);
  });
  std::copy_n(summary.data<std::int64_t>(), 3, data.count.begin());
  data.hash = static_cast<std::uint64_t>(summary.data<std::int64_t>()[3]);
  return data;
}

}  // namespace lockstep
