#include "lockstep/tasks/emulator/emulator_rows.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kBlockRows = 16384;

std::string text(const std::vector<std::int64_t>& extents) {
  std::string out = "(";
  for (std::size_t i = 0; i < extents.size(); ++i) out += (i ? ", " : "") + std::to_string(extents[i]);
  return out + ")";
}

}  // namespace

void add_file_options(Options& options, EmulatorFiles& files, const std::string& written) {
  options.add("checkpoint", &files.checkpoint, "", "checkpoint with the emulator").value_name("FILE");
  options
      .add("model-file", &files.model_file, "",
           "model file with the emulator (h5model, lsem, safetensors), instead of a checkpoint")
      .value_name("FILE");
  options.add("input", &files.input, "", "states").value_name("FILE").required();
  options.add("output", &files.output, "", written + "; an existing file is replaced at the end, atomically")
      .value_name("FILE")
      .required();
  options.list_only({"run.threads", "run.precision", "dist.timeout", "dist.check_collectives"});
}

TrainedEmulator load_emulator(World& world, const std::string& checkpoint, const std::string& model_file) {
  std::optional<TrainedEmulator> emulator;
  world.together("loading the emulator", [&] {
    require_usage(checkpoint.empty() != model_file.empty(),
                  "options checkpoint and model-file: ", checkpoint.empty() ? "neither is set" : "both are set",
                  "; set exactly one");
    emulator.emplace(read_emulator(std::filesystem::path(checkpoint.empty() ? model_file : checkpoint)));
  });
  return std::move(*emulator);
}

std::string InputRows::where(const std::string& dataset) const {
  return join("reading dataset '", dataset, "' of '", file_.path().string(), "'");
}

InputRows::InputRows(const std::filesystem::path& path, const TrainedEmulator& emulator) : file_(H5File::open(path)) {
  require_data(file_.has("/x"), "opening dataset '/x' of '", path.string(),
               "': no such dataset; it must hold the states (rows, ", emulator.network.arch().n_in,
               ") in physical units");
  const H5Info info = file_.info("/x");
  const std::int64_t n_in = emulator.network.arch().n_in;
  require_data(info.type == H5Type::f32 || info.type == H5Type::f64, where("/x"), ": elements are ", name(info.type),
               ", expected f32 or f64");
  require_data(info.shape.size() == 2 && info.shape[1] == n_in, where("/x"), ": the shape is ", text(info.shape),
               ", expected (rows, ", n_in, ") for this emulator");
  rows_ = info.shape[0];
  if (!file_.has("/vars/input_names")) return;
  const std::vector<std::string> names = file_.read_text("/vars/input_names");
  const std::vector<std::string>& expected = emulator.metadata.variables.input_names;
  for (std::size_t i = 0; i < std::min(names.size(), expected.size()); ++i)
    require_data(names[i] == expected[i], where("/vars/input_names"), ": column ", i, " is '", names[i],
                 "', the emulator's is '", expected[i], "'");
  EmulatorVariables found;
  const auto texts = [&](const char* dataset, std::vector<std::string>& to) {
    if (file_.has(dataset)) to = file_.read_text(dataset);
  };
  const auto levels = [&](const char* dataset, std::vector<std::int64_t>& to) {
    if (file_.has(dataset)) to = file_.read<std::int64_t>(dataset);
  };
  texts("/vars/input_units", found.input_units);
  levels("/vars/input_level", found.input_level);
  if (file_.has("/vars/output_names") &&
      file_.read_text("/vars/output_names") == emulator.metadata.variables.output_names) {
    texts("/vars/output_units", found.output_units);
    levels("/vars/output_level", found.output_level);
  }
  require_same_units(emulator.metadata.variables, found, join("input '", path.string(), "'"));
}

bool InputRows::has(const std::string& dataset, std::int64_t columns) const {
  if (!file_.has(dataset)) return false;
  const std::vector<std::int64_t> expected =
      columns == 0 ? std::vector<std::int64_t>{rows_} : std::vector<std::int64_t>{rows_, columns};
  const H5Info info = file_.info(dataset);
  require_data(info.type == H5Type::f32 || info.type == H5Type::f64, where(dataset), ": elements are ", name(info.type),
               ", expected f32 or f64");
  require_data(info.shape == expected, where(dataset), ": the shape is ", text(info.shape), ", expected ",
               text(expected), " to match /x");
  return true;
}

template <class T>
void write_rows(World& world, const std::filesystem::path& output, std::int64_t rows,
                const std::vector<OutputColumn>& columns, const RowBlock<T>& block, const std::function<void()>& agree,
                const std::function<void(H5File&)>& finish) {
  const std::int64_t ranks = world.size(), rank = world.rank();
  std::vector<std::int64_t> widths;
  for (const OutputColumn& column : columns) {
    widths.push_back(1);
    for (const std::int64_t extent : column.columns) widths.back() *= extent;
  }
  world.together("looking for space", [&] {
    const std::int64_t width = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    if (rank == 0) require_space(output, rows * width * static_cast<std::int64_t>(sizeof(T)));
  });
  const auto pass = [&](H5File* file) {
    std::vector<std::vector<T>> values(columns.size());
    for (std::int64_t round = 0; round < rows; round += kBlockRows * ranks) {
      const auto first_of = [&](std::int64_t r) { return std::min(rows, round + r * kBlockRows); };
      const auto count_of = [&](std::int64_t r) { return std::min(rows, round + (r + 1) * kBlockRows) - first_of(r); };
      for (std::size_t k = 0; k < columns.size(); ++k)
        values[k].resize(static_cast<std::size_t>(count_of(rank) * widths[k]));
      world.at("rows", first_of(rank));
      if (count_of(rank) > 0) block(first_of(rank), count_of(rank), values);
      for (std::size_t k = 0; k < columns.size(); ++k) {
        if (ranks == 1 && file) {
          file->write_rows<T>(columns[k].dataset, first_of(0), count_of(0), values[k]);
          continue;
        }
        const auto parts =
            world.communicator().all_gather(std::as_bytes(std::span(values[k])), columns[k].dataset.c_str());
        for (std::int64_t r = 0; file && r < ranks; ++r) {
          std::vector<T> part(static_cast<std::size_t>(count_of(r) * widths[k]));
          if (part.empty()) continue;
          std::memcpy(part.data(), parts[static_cast<std::size_t>(r)].data(), part.size() * sizeof(T));
          file->write_rows<T>(columns[k].dataset, first_of(r), count_of(r), part);
        }
      }
    }
    agree();
  };
  if (rank != 0) return pass(nullptr);
  write_atomically(output, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      std::vector<std::int64_t> shape = columns[k].columns;
      shape.insert(shape.begin(), rows);
      file.create_dataset(columns[k].dataset, h5_type_of<T>::value, shape);
    }
    pass(&file);
    finish(file);
    file.close();
  });
}
template void write_rows<float>(World&, const std::filesystem::path&, std::int64_t, const std::vector<OutputColumn>&,
                                const RowBlock<float>&, const std::function<void()>&,
                                const std::function<void(H5File&)>&);
template void write_rows<double>(World&, const std::filesystem::path&, std::int64_t, const std::vector<OutputColumn>&,
                                 const RowBlock<double>&, const std::function<void()>&,
                                 const std::function<void(H5File&)>&);

std::span<double> BlockSums::next_block() {
  blocks_.resize(blocks_.size() + count_, 0);
  return std::span(blocks_).last(count_);
}

std::vector<double> BlockSums::total(World& world) const {
  const auto parts = world.communicator().all_gather(std::as_bytes(std::span(blocks_)), "sums over rows");
  std::vector<double> sums(count_, 0);
  const std::size_t block_bytes = count_ * sizeof(double);
  for (std::size_t round = 0; round * block_bytes < parts[0].size(); ++round)  // rank 0 has the most blocks
    for (const auto& part : parts) {
      if ((round + 1) * block_bytes > part.size()) continue;
      std::vector<double> block(count_);
      std::memcpy(block.data(), part.data() + round * block_bytes, block_bytes);
      for (std::size_t k = 0; k < count_; ++k) sums[k] += block[k];
    }
  return sums;
}

}  // namespace lockstep
