#include "lockstep/tasks/prediction_file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/report/progress_line.hpp"

namespace lockstep {
namespace {

enum class Format : std::uint8_t { hdf5, csv, jsonl };

/// errors  usage: an unknown extension
Format format_of(const PredictionOutput& output) {
  if (output.format == "hdf5") return Format::hdf5;
  if (output.format == "csv") return Format::csv;
  if (output.format == "jsonl") return Format::jsonl;
  const std::string extension = std::filesystem::path(output.path).extension();
  if (extension == ".h5" || extension == ".hdf5") return Format::hdf5;
  if (extension == ".csv") return Format::csv;
  require_usage(extension == ".jsonl" || extension == ".ndjson", "option output = ", output.path,
                ": unknown extension; use .h5, .csv or .jsonl, or set --format");
  return Format::jsonl;
}

/// Empty values of the type of a column.
PredictionValues values_of(H5Type type, std::size_t size) {
  switch (type) {
    case H5Type::i64:
      return std::vector<std::int64_t>(size);
    case H5Type::f32:
      return std::vector<float>(size);
    case H5Type::f64:
      return std::vector<double>(size);
    case H5Type::text:
      return std::vector<std::string>(size);
    default:
      throw Error(Fault::internal, join("predictions: no column of type ", name(type)));
  }
}

/// Appends the values to `bytes`, to send them to rank 0: numbers unchanged, texts with their lengths.
void pack(std::vector<std::byte>& bytes, const PredictionValues& values) {
  const auto append = [&](const void* data, std::size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), from, from + size);
  };
  if (const auto* texts = std::get_if<Texts>(&values)) {
    for (const std::string& text : *texts) {
      const std::uint64_t size = text.size();
      append(&size, sizeof size);
      append(text.data(), text.size());
    }
    return;
  }
  std::visit([&]<class T>(const std::vector<T>& numbers) { append(numbers.data(), numbers.size() * sizeof(T)); },
             values);
}

/// Fills values of known type and size, and advances `from` past their bytes.
void unpack(std::span<const std::byte>& from, PredictionValues& values) {
  const auto take = [&](void* to, std::size_t size) {
    if (size > 0) std::memcpy(to, from.data(), size);
    from = from.subspan(size);
  };
  if (auto* texts = std::get_if<Texts>(&values)) {
    for (std::string& text : *texts) {
      std::uint64_t size = 0;
      take(&size, sizeof size);
      text.resize(size);
      take(text.data(), size);
    }
    return;
  }
  std::visit([&]<class T>(std::vector<T>& numbers) { take(numbers.data(), numbers.size() * sizeof(T)); }, values);
}

/// An open file of predictions.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void write(std::int64_t first, std::int64_t count, const std::vector<PredictionValues>& values) = 0;
  virtual void close() = 0;
};

class Hdf5Writer final : public Writer {
 public:
  Hdf5Writer(const std::filesystem::path& path, const PredictionTable& table)
      : file_(H5File::create(path)), table_(table) {
    for (const PredictionColumn& column : table.columns) {
      std::vector<std::int64_t> shape = column.extents;
      shape.insert(shape.begin(), table.rows);
      if (column.type == H5Type::text)
        file_.create_text(dataset(column), shape, std::max<std::size_t>(column.longest, 1));
      else
        file_.create_dataset(dataset(column), column.type, shape);
    }
    for (const auto& [name, value] : table.attributes) file_.set_attribute("/", name, value);
  }
  void write(std::int64_t first, std::int64_t count, const std::vector<PredictionValues>& values) override {
    for (std::size_t c = 0; c < values.size(); ++c) {
      const std::string name = dataset(table_.columns[c]);
      std::visit(
          [&]<class T>(const std::vector<T>& some) {
            if constexpr (std::is_same_v<T, std::string>)
              file_.write_text_rows(name, first, count, some);
            else
              file_.write_rows<T>(name, first, count, some);
          },
          values[c]);
    }
  }
  void close() override {
    if (table_.finish) table_.finish(file_);
    file_.close();
  }

 private:
  static std::string dataset(const PredictionColumn& column) { return "/" + column.name; }
  H5File file_;
  const PredictionTable& table_;
};

/// Appends a number with as many digits as its type has.
template <class T>
void append_number(std::string& line, T value) {
  char digits[40];
  std::to_chars_result end{};
  if constexpr (std::is_floating_point_v<T>)
    end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general,
                        std::numeric_limits<T>::max_digits10);
  else
    end = std::to_chars(digits, digits + sizeof digits, value);
  line.append(digits, end.ptr);
}

/// A text file, a line per row.
class LineWriter : public Writer {
 public:
  LineWriter(const std::filesystem::path& path, const PredictionTable& table)
      : table_(table), doing_("writing '" + path.string() + "': "), out_(path, std::ios::binary) {}
  void write(std::int64_t, std::int64_t count, const std::vector<PredictionValues>& values) override {
    for (std::int64_t row = 0; row < count; ++row) {
      append_row(row, values);
      text_ += '\n';
    }
    flush();
  }
  void close() override {
    flush();
    out_.close();
    require_good();
  }

 protected:
  virtual void append_row(std::int64_t row, const std::vector<PredictionValues>& values) = 0;
  const PredictionTable& table_;
  std::string text_;  ///< not yet written

 private:
  void flush() {
    errno = 0;
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    out_.flush();
    require_good();
    text_.clear();
  }
  void require_good() const {
    require(out_.good(), doing_, errno == 0 ? "the file cannot be written" : std::strerror(errno));
  }
  std::string doing_;  ///< first part of the message of a failure
  std::ofstream out_;
};

class CsvWriter final : public LineWriter {
 public:
  CsvWriter(const std::filesystem::path& path, const PredictionTable& table) : LineWriter(path, table) {
    for (const PredictionColumn& column : table.columns) {
      if (column.extents.empty()) append_field(column.name);
      for (std::int64_t i = 0; !column.extents.empty() && i < column.width(); ++i)
        append_field(column.name + "_" + label(column, i));
    }
    end_fields();
    text_ += '\n';
  }

 private:
  /// The label of value i of a column, or its indices from 1: "3", or "2_3" with two axes.
  static std::string label(const PredictionColumn& column, std::int64_t i) {
    if (!column.labels.empty()) return column.labels[i];
    std::string text;
    for (std::size_t axis = column.extents.size(); axis-- > 0; i /= column.extents[axis])
      text = std::to_string(i % column.extents[axis] + 1) + (text.empty() ? "" : "_" + text);
    return text;
  }
  void append_field(const std::string& value) {
    if (value.find_first_of(",\"\r\n") == std::string::npos) {
      text_ += value;
    } else {
      text_ += '"';
      for (const char c : value) text_ += c == '"' ? std::string("\"\"") : std::string(1, c);
      text_ += '"';
    }
    text_ += ',';
  }
  template <class T>
  void append_field(T value) {
    bool nan = false;
    if constexpr (std::is_floating_point_v<T>) nan = std::isnan(value);
    if (!nan) append_number(text_, value);
    text_ += ',';
  }
  void end_fields() {
    if (!text_.empty() && text_.back() == ',') text_.pop_back();
  }
  void append_row(std::int64_t row, const std::vector<PredictionValues>& values) override {
    for (std::size_t c = 0; c < values.size(); ++c) {
      const auto width = static_cast<std::size_t>(table_.columns[c].width()),
                 first = static_cast<std::size_t>(row) * width;
      std::visit(
          [&](const auto& some) {
            for (std::size_t i = 0; i < width; ++i) append_field(some[first + i]);
          },
          values[c]);
    }
    end_fields();
  }
};

class JsonWriter final : public LineWriter {
 public:
  using LineWriter::LineWriter;

 private:
  void append_value(const std::string& value) { text_ += json_quoted(value); }
  template <class T>
  void append_value(T value) {
    if constexpr (std::is_floating_point_v<T>)
      if (!std::isfinite(value)) {
        text_ += "null";
        return;
      }
    append_number(text_, value);
  }
  /// The values from `at` on, as an array of these extents.
  template <class T>
  void append_array(const std::vector<T>& values, std::size_t& at, std::span<const std::int64_t> extents) {
    if (extents.empty()) return append_value(values[at++]);
    text_ += '[';
    for (std::int64_t i = 0; i < extents[0]; ++i) {
      if (i > 0) text_ += ", ";
      append_array(values, at, extents.subspan(1));
    }
    text_ += ']';
  }
  void append_row(std::int64_t row, const std::vector<PredictionValues>& values) override {
    for (std::size_t c = 0; c < values.size(); ++c) {
      const PredictionColumn& column = table_.columns[c];
      text_ += c == 0 ? "{" : ", ";
      append_value(column.name);
      text_ += ": ";
      auto at = static_cast<std::size_t>(row * column.width());
      std::visit([&](const auto& some) { append_array(some, at, column.extents); }, values[c]);
    }
    text_ += '}';
  }
};

std::unique_ptr<Writer> open_writer(Format format, const std::filesystem::path& path, const PredictionTable& table) {
  if (format == Format::hdf5) return std::make_unique<Hdf5Writer>(path, table);
  if (format == Format::csv) return std::make_unique<CsvWriter>(path, table);
  return std::make_unique<JsonWriter>(path, table);
}

/// Shows on rank 0 the progress of all ranks: a bar on a terminal, elsewhere a line every few seconds.
class Progress {
 public:
  explicit Progress(const PredictionTable& table) : table_(table) {}
  ~Progress() { log::status(""); }
  void show(std::int64_t done) {
    const double now = watch_.seconds(), rate = static_cast<double>(done) / std::max(now, 1e-9);
    if (done >= table_.rows || now - last_ < (log::on_terminal() ? 0.1 : 10)) return;
    last_ = now;
    if (log::on_terminal())
      log::status(progress_line({.step = done,
                                 .steps = table_.rows,
                                 .unit = table_.unit,
                                 .samples_per_s = rate,
                                 .seconds_left = static_cast<double>(table_.rows - done) / rate},
                                terminal_columns(), false));
    else
      log::info(done, " of ", table_.rows, " ", table_.unit, ", ", short_rate(rate), "/s");
  }
  std::string totals() const {
    const double seconds = watch_.seconds();
    const std::string names = listed(table_.columns, ", ", [](const PredictionColumn& column) { return column.name; });
    return join(table_.rows, " ", table_.unit, " (", names, "), ", human_seconds(seconds), ", ",
                short_rate(static_cast<double>(table_.rows) / std::max(seconds, 1e-9)), " ", table_.unit, "/s");
  }

 private:
  const PredictionTable& table_;
  Stopwatch watch_;
  double last_ = 0;
};

/// Computes all blocks of this rank. Rank 0 receives the blocks of all ranks; `writer` may be null.
void compute(World& world, const PredictionTable& table, Writer* writer, Progress* progress) {
  const std::int64_t ranks = world.size(), rank = world.rank(), round_rows = table.block_rows * ranks;
  for (std::int64_t round = 0; round < table.rows; round += round_rows) {
    const auto first_of = [&](std::int64_t r) { return std::min(table.rows, round + r * table.block_rows); };
    const auto count_of = [&](std::int64_t r) { return first_of(r + 1) - first_of(r); };
    const auto values_for = [&](std::int64_t r) {
      std::vector<PredictionValues> values;
      for (const PredictionColumn& column : table.columns)
        values.push_back(values_of(column.type, static_cast<std::size_t>(count_of(r) * column.width())));
      return values;
    };
    std::vector<PredictionValues> mine = values_for(rank);
    world.at("predictions", first_of(rank));
    world.together("computing predictions", [&] {
      if (count_of(rank) > 0) table.block(first_of(rank), count_of(rank), mine);
    });
    std::vector<std::byte> bytes;
    if (rank != 0)
      for (const PredictionValues& values : mine) pack(bytes, values);
    std::vector<std::span<const std::byte>> to(ranks);
    to[0] = bytes;
    Gathered parts;
    if (ranks > 1) parts = world.communicator().all_to_all(to, "predictions");
    for (std::int64_t r = 0; rank == 0 && r < ranks; ++r) {
      if (count_of(r) == 0) continue;
      if (r > 0) {
        mine = values_for(r);
        std::span<const std::byte> from = parts.of(static_cast<int>(r));
        for (PredictionValues& values : mine) unpack(from, values);
      }
      if (table.see) table.see(first_of(r), count_of(r), mine);
      if (writer) writer->write(first_of(r), count_of(r), mine);
    }
    if (progress) progress->show(first_of(ranks));
  }
  if (table.agree) table.agree();
}

/// Bytes of one value in an HDF5 file.
std::int64_t stored_bytes(const PredictionColumn& column) {
  if (column.type == H5Type::text) return static_cast<std::int64_t>(column.longest);
  return column.type == H5Type::f32 ? 4 : 8;
}

}  // namespace

std::int64_t PredictionColumn::width() const {
  std::int64_t width = 1;
  for (const std::int64_t extent : extents) width *= extent;
  return width;
}

Option& add_output_options(Options& options, PredictionOutput& output, const std::string& written) {
  options.choice("format", &output.format, "auto", {"auto", "hdf5", "csv", "jsonl"},
                 "format of the output; auto: by its extension, .h5, .csv or .jsonl (JSON lines)");
  options.add("force", &output.force, false,
              "replace an existing file of another kind, or one in a folder named checkpoints");
  return options.add("output=FILE", &output.path, "",
                     written + "; an existing file is replaced at the end, atomically");
}

void require_output(const PredictionOutput& output, const std::vector<std::string>& inputs) {
  const FileKind kind = format_of(output) == Format::hdf5 ? FileKind::predictions : FileKind::text;
  require_replaceable(output.path, kind, output.force, {inputs.begin(), inputs.end()});
}

PredictionAttributes describe_source(const std::string& kind, const std::string& checkpoint,
                                     const std::string& data_hash, const std::string& command, const Args& args) {
  // Options that do not affect predictions.
  static const std::set<std::string> left_out = {"--output", "--run.threads", "--threads", "--num_threads",
                                                 "--num-threads"};
  std::string line = command;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--force") continue;
    if (left_out.contains(args[i]))
      ++i;  // skips its value, too
    else if (!left_out.contains(args[i].substr(0, args[i].find('='))))
      line += args[i].find_first_of(" '\"") == std::string::npos ? " " + args[i] : " '" + args[i] + "'";
  }
  PredictionAttributes attributes = {
      {"kind", kind}, {"checkpoint", checkpoint}, {"command", line}, {"lockstep", build_info().version}};
  if (!data_hash.empty()) attributes.emplace_back("data_hash", data_hash);
  return attributes;
}

void write_predictions(World& world, const PredictionOutput& output, const PredictionTable& table) {
  world.together("looking for space", [&] {
    if (world.rank() != 0 || output.path.empty() || format_of(output) != Format::hdf5) return;
    std::int64_t row_bytes = 0;
    for (const PredictionColumn& column : table.columns) row_bytes += column.width() * stored_bytes(column);
    require_space(output.path, table.rows * row_bytes);
  });
  if (world.rank() != 0) return compute(world, table, nullptr, nullptr);
  Progress progress(table);
  if (output.path.empty()) return compute(world, table, nullptr, &progress);
  write_atomically(output.path, [&](const std::filesystem::path& temporary) {
    const std::unique_ptr<Writer> writer = open_writer(format_of(output), temporary, table);
    compute(world, table, writer.get(), &progress);
    writer->close();
  });
  std::cout << "wrote " << output.path << ": " << progress.totals() << std::endl;
}

}  // namespace lockstep
