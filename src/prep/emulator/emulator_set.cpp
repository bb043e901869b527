#include "lockstep/prep/emulator/emulator_set.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

bool RunningMoments::constant(std::size_t column) const {
  constexpr double kRelative = 1e-7, kSmallest = 1e-30;
  const double std = n_ > 0 ? std::sqrt(m2_[column] / static_cast<double>(n_)) : 0;
  return !(std > std::max(kRelative * std::abs(mean_[column]), kSmallest));
}

std::vector<double> RunningMoments::deviation() const {
  std::vector<double> out(m2_.size(), 1.0);
  for (std::size_t c = 0; c < out.size(); ++c) {
    if (!constant(c)) out[c] = std::sqrt(m2_[c] / static_cast<double>(n_));
  }
  return out;
}

std::int64_t EmulatorSet::rows_in(int part) const { return std::ranges::count(split, static_cast<std::uint8_t>(part)); }

ConstantColumns take_moments(EmulatorSet& set) {
  RunningMoments in(set.n_in()), out(set.n_out());
  for (std::size_t row = 0; row < set.split.size(); ++row) {
    if (set.moment_rows == MomentRows::train && set.split[row] != 0) continue;
    in.add(std::span<const float>(set.x).subspan(row * set.n_in(), set.n_in()));
    out.add(std::span<const float>(set.y).subspan(row * set.n_out(), set.n_out()));
  }
  require_data(in.rows() > 0, "taking moments: there are no ", set.moment_rows == MomentRows::train ? "training " : "",
               "rows");
  set.input_mean = in.mean();
  set.input_std = in.deviation();
  set.output_mean = out.mean();
  set.output_std = out.deviation();
  ConstantColumns constant;
  for (std::size_t c = 0; c < set.n_in(); ++c) {
    if (in.constant(c)) constant.inputs.push_back(set.inputs.names[c]);
  }
  for (std::size_t c = 0; c < set.n_out(); ++c) {
    if (out.constant(c)) constant.outputs.push_back(set.outputs.names[c]);
  }
  return constant;
}

namespace {
constexpr std::int64_t kChunkRows = 65536;

std::vector<std::string> or_blank(const std::vector<std::string>& values, std::size_t n) {
  return values.empty() ? std::vector<std::string>(n) : values;
}
std::vector<std::int32_t> or_zero(const std::vector<std::int32_t>& values, std::size_t n) {
  return values.empty() ? std::vector<std::int32_t>(n, 0) : values;
}
}  // namespace

void write_emulator_set(const std::filesystem::path& path, const EmulatorSet& set) {
  const std::int64_t n = set.rows();
  const auto n_in = static_cast<std::int64_t>(set.n_in()), n_out = static_cast<std::int64_t>(set.n_out());
  write_dataset(path, kEmulatorFormat, set.notes, [&](H5File& file) {
    const std::int64_t rows = std::max<std::int64_t>(1, std::min(n, kChunkRows));
    const auto column = [&]<class T>(const std::string& name, const std::vector<T>& values) {
      file.write<T>(name, std::span<const T>(values), {n}, {{rows}, 0});
    };
    file.write<float>("/x", set.x, {n, n_in}, {{rows, n_in}, 0});
    file.write<float>("/y", set.y, {n, n_out}, {{rows, n_out}, 0});
    column("/lat", set.lat);
    column("/lon", set.lon);
    column("/time", set.time);
    column("/source", set.source);
    column("/cell", set.cell);
    column("/split", set.split);
    if (!set.jac.empty()) {
      const std::int64_t jac_rows = std::max<std::int64_t>(1, std::min(n, (std::int64_t{1} << 20) / (n_in * n_out)));
      file.write<float>("/jac", set.jac, {n, n_out, n_in}, {{jac_rows, n_out, n_in}, 0});
    }
    const auto moments = [&](const std::string& name, const std::vector<double>& values) {
      file.write<double>("/moments/" + name, values, {static_cast<std::int64_t>(values.size())});
    };
    moments("input_mean", set.input_mean);
    moments("input_std", set.input_std);
    moments("output_mean", set.output_mean);
    moments("output_std", set.output_std);
    const auto names = [&](const std::string& side, const ColumnNames& columns) {
      const std::size_t m = columns.names.size();
      file.write_text("/vars/" + side + "_names", columns.names);
      file.write_text("/vars/" + side + "_cf", or_blank(columns.cf, m));
      file.write_text("/vars/" + side + "_units", or_blank(columns.units, m));
      const auto level = or_zero(columns.level, m);
      file.write<std::int32_t>("/vars/" + side + "_level", level, {static_cast<std::int64_t>(m)});
    };
    names("input", set.inputs);
    names("output", set.outputs);
    file.write_text("/vars/input_source", {set.input_source});

    file.set_attribute("/", "mask_mode", set.mask_mode);
    file.set_attribute("/", "min_ice", set.min_ice);
    file.set_attribute("/", "n", n);
    file.set_attribute("/", "n_in", n_in);
    file.set_attribute("/", "n_out", n_out);
    file.set_attribute("/", "seed", static_cast<std::int64_t>(set.seed));
    file.set_attribute("/", "sources", set.sources);
    file.set_attribute("/", "sha256", set.sha256);
    file.set_attribute("/", "moment_rows", std::string(set.moment_rows == MomentRows::train ? "train" : "all"));
    if (!set.grid_dims.empty()) {
      file.set_attribute("/", "grid_dims", set.grid_dims);
      file.set_attribute("/", "grid_shape", set.grid_shape);
    }
  });
}

EmulatorSet read_emulator_set(const H5File& file) {
  const DatasetFile stored(file, kEmulatorFormat);
  const std::int64_t n = stored.size("n"), n_in = stored.size("n_in", 1, 1 << 20),
                     n_out = stored.size("n_out", 1, 1 << 20);
  EmulatorSet set;
  const auto fill = [&]<class T>(const std::string& name, std::vector<T>& out, const std::vector<std::int64_t>& shape) {
    out = stored.read<T>(name, shape);
  };
  fill("/x", set.x, {n, n_in});
  fill("/y", set.y, {n, n_out});
  fill("/lat", set.lat, {n});
  fill("/lon", set.lon, {n});
  fill("/time", set.time, {n});
  fill("/source", set.source, {n});
  fill("/cell", set.cell, {n});
  fill("/split", set.split, {n});
  if (file.has("/jac")) fill("/jac", set.jac, {n, n_out, n_in});
  fill("/moments/input_mean", set.input_mean, {n_in});
  fill("/moments/input_std", set.input_std, {n_in});
  fill("/moments/output_mean", set.output_mean, {n_out});
  fill("/moments/output_std", set.output_std, {n_out});
  const auto names = [&](const std::string& side, ColumnNames& out, std::int64_t m) {
    out.names = stored.read_text("/vars/" + side + "_names", m);
    out.cf = stored.read_text("/vars/" + side + "_cf", m);
    out.units = stored.read_text("/vars/" + side + "_units", m);
    fill("/vars/" + side + "_level", out.level, {m});
  };
  names("input", set.inputs, n_in);
  names("output", set.outputs, n_out);
  set.input_source = stored.read_text("/vars/input_source", 1).front();
  set.mask_mode = file.text_attribute("/", "mask_mode");
  set.min_ice = file.real_attribute("/", "min_ice");
  set.seed = static_cast<std::uint64_t>(file.int_attribute("/", "seed"));
  set.sources = file.text_list("/", "sources");
  set.sha256 = file.text_list("/", "sha256");
  if (file.has_attribute("/", "grid_dims")) {
    set.grid_dims = file.text_list("/", "grid_dims");
    set.grid_shape = file.int_list("/", "grid_shape", std::ssize(set.grid_dims));
  }
  if (file.has_attribute("/", "moment_rows") && file.text_attribute("/", "moment_rows") == "all")
    set.moment_rows = MomentRows::all;
  return set;
}

}  // namespace lockstep::prep
