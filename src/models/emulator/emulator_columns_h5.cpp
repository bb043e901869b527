#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_columns.hpp"

namespace lockstep {
namespace {

/// Reads one string per column; empty strings if the file has no such dataset.
std::vector<std::string> texts(const H5File& file, const std::string& dataset, std::int64_t columns) {
  if (!file.has(dataset)) return std::vector<std::string>(columns);
  std::vector<std::string> values = file.read_text(dataset);
  require_data(std::ssize(values) == columns, "reading dataset '", dataset, "' of '", file.path().string(),
               "': ", values.size(), " entries: expected one for each of ", columns, " columns");
  return values;
}

std::vector<std::string> names(const H5File& file, const std::string& dataset, std::int64_t columns) {
  require_data(file.has(dataset), "opening dataset '", dataset, "' of '", file.path().string(),
               "': no such dataset; rebuild it with lockstep-prep");
  return texts(file, dataset, columns);
}

std::vector<std::int64_t> levels(const H5File& file, const std::string& dataset, std::int64_t columns) {
  std::vector<std::int64_t> values(columns, 0);
  if (file.has(dataset)) file.read_into<std::int64_t>(dataset, values, {columns});
  return values;
}

}  // namespace

Moments read_moments(const H5File& file, const std::string& group, std::int64_t n_in, std::int64_t n_out) {
  Moments moments;
  for (const auto& [name, part] : kMoments) moments.*part = file.read<double>(group + "/" + name);
  check_moments(moments, n_in, n_out, join("reading '", group, "' of '", file.path().string(), "'"));
  return moments;
}

void write_moments(H5File& file, const std::string& group, const Moments& moments) {
  for (const auto& [name, part] : kMoments)
    file.write<double>(group + "/" + name, moments.*part, {std::ssize(moments.*part)});
}

EmulatorVariables read_variables(const H5File& file, const std::string& group, std::int64_t n_in, std::int64_t n_out) {
  EmulatorVariables variables;
  variables.input_names = names(file, group + "/input_names", n_in);
  variables.output_names = names(file, group + "/output_names", n_out);
  variables.input_cf = texts(file, group + "/input_cf", n_in);
  variables.output_cf = texts(file, group + "/output_cf", n_out);
  variables.input_units = texts(file, group + "/input_units", n_in);
  variables.output_units = texts(file, group + "/output_units", n_out);
  variables.input_level = levels(file, group + "/input_level", n_in);
  variables.output_level = levels(file, group + "/output_level", n_out);
  if (file.has(group + "/input_source"))
    for (const std::string& source : file.read_text(group + "/input_source"))
      variables.input_source += (variables.input_source.empty() ? "" : ",") + source;
  return variables;
}

void write_variables(H5File& file, const std::string& group, const EmulatorVariables& variables) {
  file.write_text(group + "/input_names", variables.input_names);
  file.write_text(group + "/output_names", variables.output_names);
  file.write_text(group + "/input_cf", variables.input_cf);
  file.write_text(group + "/output_cf", variables.output_cf);
  file.write_text(group + "/input_units", variables.input_units);
  file.write_text(group + "/output_units", variables.output_units);
  const auto write_levels = [&](const char* name, const std::vector<std::int64_t>& values) {
    const std::vector<std::int32_t> narrow(values.begin(), values.end());
    file.write<std::int32_t>(group + "/" + name, narrow, {std::ssize(narrow)});
  };
  write_levels("input_level", variables.input_level);
  write_levels("output_level", variables.output_level);
  file.write_text(group + "/input_source", {variables.input_source});
}

}  // namespace lockstep
