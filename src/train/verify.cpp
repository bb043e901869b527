#include "lockstep/train/verify.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "lockstep/base/text.hpp"
#include "lockstep/ops/gemm.hpp"
#include "train/verify_rows.hpp"

namespace lockstep {
namespace {

struct Entry {
  const char* model;
  void (*run)(World&, const H5File&, const VerifyOptions&, VerifyReport&);
};
constexpr Entry kEntries[] = {{"emulator", verify_emulator}, {"har", verify_har},
                              {"hrm", verify_hrm},           {"kgat", verify_kgat},
                              {"sasrec", verify_sequence},   {"tisasrec", verify_sequence}};

}  // namespace

std::vector<double> doubles(const Tensor& tensor) {
  const HostView host(tensor);
  return visit_storage(tensor.dtype(), [&]<class T>() {
    std::vector<double> values;
    for (const T x : host->span<T>()) {
      if constexpr (std::is_same_v<T, bf16>)
        values.push_back(static_cast<double>(from_bf16(x.bits)));
      else if constexpr (std::is_same_v<T, f16>)
        values.push_back(static_cast<double>(from_f16(x.bits)));
      else
        values.push_back(static_cast<double>(x));
    }
    return values;
  });
}

std::vector<double> Verifier::reference(const std::string& group, const std::string& name) const {
  const std::string dataset = path(group, name);
  const H5Type type = file_.info(dataset).type;
  if (type == H5Type::f32 || type == H5Type::f64) return file_.read<double>(dataset);
  const std::vector<std::int64_t> integers = file_.read<std::int64_t>(dataset);
  return {integers.begin(), integers.end()};
}

void Verifier::compare(const std::string& group, const std::string& name, std::span<const double> values,
                       double tolerance, bool absolute, const std::string& remark) {
  if (!has(group, name)) return;
  compare_with(reference(group, name), path(group, name).substr(1) + (remark.empty() ? "" : " (" + remark + ")"),
               values, tolerance, absolute);
}

void Verifier::selected(const std::string& group, const std::string& name, std::span<const double> values,
                        std::span<const std::int64_t> rows, double tolerance) {
  if (!has(group, name)) return;
  const std::vector<double> all = reference(group, name);
  const std::size_t width = rows.empty() ? 0 : values.size() / rows.size();
  std::vector<double> expected;
  for (const std::int64_t row : rows) {
    const std::size_t first = static_cast<std::size_t>(row) * width;
    if (first + width <= all.size())
      expected.insert(expected.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
                      all.begin() + static_cast<std::ptrdiff_t>(first + width));
  }
  compare_with(expected, path(group, name).substr(1), values, tolerance, false);
}

std::optional<double> Verifier::coarse(const std::string& row_name, double tolerance, bool absolute) const {
  if (digits_ == 0) return tolerance;
  const auto in = [&](const char* group) { return row_name.starts_with(group); };
  const bool gradient = in("grads") || in("steps/0/grads");  // also grads64, grads_f64
  const bool value = in("outputs") || in("trace") || in("steps/0/outputs");
  if (absolute || !(gradient || value) || row_name.find("after") != std::string::npos) return std::nullopt;
  // A value is rounded dozens of times on its way through a network, a gradient twice as often.
  return std::max(tolerance, std::ldexp(gradient ? 24 : 12, -digits_));
}

void Verifier::compare_with(const std::vector<double>& expected, const std::string& row_name,
                            std::span<const double> values, double single, bool absolute) {
  const std::optional<double> allowed = coarse(row_name, single, absolute);
  if (!allowed) return;
  const double tolerance = *allowed;
  VerifyRow row;
  row.name = row_name;
  row.tolerance = tolerance;
  row.absolute = absolute;
  if (values.size() != expected.size()) {
    row.error = std::numeric_limits<double>::infinity();
    row.name += join(" [", values.size(), " values, the reference has ", expected.size(), "]");
    report_.rows.push_back(row);
    return;
  }
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(values[i] - expected[i]);
    if (i > 0 && difference <= row.error) continue;
    row.error = difference, row.worst = static_cast<std::int64_t>(i), row.value = values[i],
    row.reference = expected[i];
    if (std::isnan(difference)) break;
  }
  if (!absolute && row.error != 0) row.error /= largest;  // a reference of zeros asks for zeros
  report_.rows.push_back(row);
}

void Verifier::relative(const std::string& group, const std::string& name, std::span<const double> values,
                        double tolerance, const std::string& remark) {
  compare(group, name, values, tolerance, false, remark);
}
void Verifier::absolute(const std::string& group, const std::string& name, std::span<const double> values,
                        double tolerance, const std::string& remark) {
  compare(group, name, values, tolerance, true, remark);
}
void Verifier::relative(const std::string& group, const std::string& name, const Tensor& values, double tolerance,
                        const std::string& remark) {
  compare(group, name, doubles(values), tolerance, false, remark);
}

void Verifier::value(const std::string& name, double value, double reference, double tolerance) {
  if (digits_ != 0) return;
  VerifyRow row;
  row.name = name;
  row.tolerance = tolerance;
  row.error = std::abs(value - reference) / std::max(std::abs(reference), 1e-300);
  if (value == reference) row.error = 0;
  row.worst = 0, row.value = value, row.reference = reference;
  report_.rows.push_back(row);
}

void Verifier::parameters(const std::string& group, const ParamStore& params, const Tensor& flat, double tolerance,
                          bool absolute, double scale, const std::string& remark) {
  const std::vector<double> all = doubles(flat);
  for (const Param& p : params.all()) {
    std::vector<double> values(all.begin() + p.offset, all.begin() + p.offset + p.shape.size());
    for (double& value : values) value *= scale;
    compare(group, p.name, values, tolerance, absolute, remark);
  }
}

bool run_prep(World& world, const std::filesystem::path& golden) {
  int failed = 0;
  if (world.rank() == 0) {
    const std::filesystem::path program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lockstep-prep";
    require(std::filesystem::exists(program), "verifying '", golden.string(), "': no program '", program.string(),
            "'; install it beside lockstep");
    std::string quoted = "'";
    for (const char c : golden.string()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    const int status = std::system(
        ("'" + program.string() + "' verify --golden " + quoted + "'").c_str());  // NOLINT: our own program, quoted
    failed = status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  return world.communicator().agree(failed == 0, "result of lockstep-prep verify");
}

bool VerifyReport::passed() const {
  return (!rows.empty() || helpers > 0) && helpers_passed &&
         std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.ok(); });
}

std::string VerifyReport::text() const {
  std::size_t width = 6;
  for (const VerifyRow& row : rows) width = std::max(width, row.name.size());
  if (rows.empty()) return "";
  std::string out;
  char line[512];
  std::snprintf(line, sizeof line, "%-*s  %10s  %10s  %-4s  %s\n", static_cast<int>(width), "tensor", "max error",
                "tolerance", "", "worst");
  out += line;
  std::size_t failed = 0;
  for (const VerifyRow& row : rows) {
    failed += row.ok() ? 0 : 1;
    std::snprintf(line, sizeof line, "%-*s  %10.2e  %10.1e%s %-4s  [%lld] %.9g, expected %.9g\n",
                  static_cast<int>(width), row.name.c_str(), row.error, row.tolerance, row.absolute ? "a" : " ",
                  row.ok() ? "ok" : "FAIL", static_cast<long long>(row.worst), row.value, row.reference);
    out += line;
  }
  std::snprintf(line, sizeof line, "%zu of %zu arrays agree%s\n", rows.size() - failed, rows.size(),
                std::any_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.absolute; })
                    ? " (a: absolute, the others of the largest value)"
                    : "");
  return out + line;
}

std::vector<std::string> verifiable_models() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.model);
  return names;
}

VerifyReport verify(World& world, const std::string& model, const std::filesystem::path& golden,
                    const VerifyOptions& options) {
  const auto entry =
      std::find_if(std::begin(kEntries), std::end(kEntries), [&](const Entry& e) { return model == e.model; });
  const std::string near = nearest(model, verifiable_models());
  require_usage(entry != std::end(kEntries), "option model = ", model, ": no such model",
                near.empty() ? "" : "; did you mean " + near + "?");
  const bool coarse = is_half(options.storage) || options.tf32;
  require_usage(
      !coarse || (options.device.is_cuda() && !options.f64 && model != "kgat"),
      "option precision: bf16, fp16 and tf32 need --device cuda, without --double, and a model other than kgat");
  ops::allow_tf32(options.tf32);
  VerifyReport report;
  const H5File file = H5File::open(golden);
  entry->run(world, file, options, report);
  require_usage(!coarse || !report.rows.empty(), "option precision: '", golden.string(),
                "' has nothing that it changes; use fp32");
  return report;
}

}  // namespace lockstep
