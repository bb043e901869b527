#include "lockstep/prep/emulator/emulator_set.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "prep/set_file.hpp"

namespace lockstep::prep {

bool RunningMoments::constant(std::size_t column) const {
  constexpr double kRelative = 1e-7, kSmallest = 1e-30;
  const double std = n_ > 0 ? std::sqrt(m2_[column] / static_cast<double>(n_)) : 0;
  return !(std > std::max(kRelative * std::abs(mean_[column]), kSmallest));
}

std::vector<double> RunningMoments::deviation() const {
  std::vector<double> out(m2_.size(), 1.0);
  for (std::size_t c = 0; c < out.size(); ++c)
    if (!constant(c)) out[c] = std::sqrt(m2_[c] / static_cast<double>(n_));
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
  for (std::size_t c = 0; c < set.n_in(); ++c)
    if (in.constant(c)) constant.inputs.push_back(set.inputs.names[c]);
  for (std::size_t c = 0; c < set.n_out(); ++c)
    if (out.constant(c)) constant.outputs.push_back(set.outputs.names[c]);
  return constant;
}

namespace {
constexpr std::int64_t kChunkRows = 65536, kChunkElements = std::int64_t{1} << 20;

/// The last point of a grid; no limit without one.
std::int64_t last_point(const std::vector<std::int64_t>& shape) {
  std::int64_t points = 1;
  for (const std::int64_t length : shape) points = length > 0 && points <= INT64_MAX / length ? points * length : 0;
  return shape.empty() ? Range().most : points - 1;
}

void fields(SetFile& io, EmulatorSet& set) {
  std::int64_t n = set.rows(), n_in = std::ssize(set.inputs.names), n_out = std::ssize(set.outputs.names);
  io.attribute("mask_mode", set.mask_mode);
  io.attribute("min_ice", set.min_ice);
  io.size("n", n);
  io.size("n_in", n_in, 1, 1 << 20);
  io.size("n_out", n_out, 1, 1 << 20);
  io.attribute("seed", set.seed);
  io.attribute("sources", set.sources);
  io.attribute("sha256", set.sha256);
  if (io.has("moment_rows")) io.choice("moment_rows", set.moment_rows, {"train", "all"});
  io.optional("grid_dims", set.grid_dims);
  if (!set.grid_dims.empty()) io.attribute("grid_shape", set.grid_shape, std::ssize(set.grid_dims));

  io.storage({.rows = kChunkRows});
  io.array("/x", set.x, {n, n_in});
  io.array("/y", set.y, {n, n_out});
  io.array("/lat", set.lat, {n}, {{-90, 90}});
  io.array("/lon", set.lon, {n}, {{-360, 360}});
  io.array("/time", set.time, {n});
  io.array("/source", set.source, {n}, {{0, std::max<std::int64_t>(std::ssize(set.sources), 1) - 1}});
  io.array("/cell", set.cell, {n}, {{0, last_point(set.grid_shape)}});
  io.array("/split", set.split, {n}, {{0, 2}});
  io.storage({.elements = kChunkElements});
  if (io.part("/jac", !set.jac.empty())) io.array("/jac", set.jac, {n, n_out, n_in});
  io.storage({});
  io.array("/moments/input_mean", set.input_mean, {n_in});
  io.array("/moments/input_std", set.input_std, {n_in});
  io.array("/moments/output_mean", set.output_mean, {n_out});
  io.array("/moments/output_std", set.output_std, {n_out});
  const auto names = [&](const std::string& side, ColumnNames& columns, std::int64_t m) {
    io.text("/vars/" + side + "_names", columns.names, m);
    io.text("/vars/" + side + "_cf", columns.cf, m);
    io.text("/vars/" + side + "_units", columns.units, m);
    io.array("/vars/" + side + "_level", columns.level, {m});
  };
  names("input", set.inputs, n_in);
  names("output", set.outputs, n_out);
  std::vector<std::string> source = {set.input_source};
  io.text("/vars/input_source", source, 1);
  if (io.reads()) set.input_source = source.front();
}
}  // namespace

void write_emulator_set(const std::filesystem::path& path, const EmulatorSet& set) {
  write_set(path, kEmulatorFormat, set, fields);
}
EmulatorSet read_emulator_set(const H5File& file, Problems* problems) {
  return read_set(file, kEmulatorFormat, problems, fields);
}

}  // namespace lockstep::prep
