#include "lockstep/tasks/verify.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/ops/gemm.hpp"
#include "lockstep/tasks/registry.hpp"
#include "tasks/verifier.hpp"

namespace lockstep {
std::vector<double> doubles(const Tensor& tensor) {
  const HostView host(tensor);
  if (tensor.dtype() == DType::i32) {
    const auto integers = host->span<const std::int32_t>();
    return {integers.begin(), integers.end()};
  }
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

std::vector<std::pair<std::string, std::vector<double>>> by_parameter(const ParamStore& params, const Tensor& flat,
                                                                      double scale) {
  std::vector<double> all = doubles(flat);
  for (double& value : all) value *= scale;
  std::vector<std::pair<std::string, std::vector<double>>> parts;
  for (const Param& p : params.all()) {
    const auto first = all.begin() + p.offset;
    parts.emplace_back(p.name, std::vector(first, first + p.shape.size()));
  }
  return parts;
}

void Verifier::compare(const std::string& group, const std::string& name, const Values& values, Tolerance tolerance,
                       bool absolute, const std::string& remark) {
  if (!has(group, name)) return;
  compare_with(reference(group, name), path(group, name).substr(1) + (remark.empty() ? "" : " (" + remark + ")"),
               values, tolerance, absolute);
}

void Verifier::selected(const std::string& group, const std::string& name, const Values& values,
                        std::span<const std::int64_t> rows, Tolerance tolerance) {
  if (!has(group, name)) return;
  const std::vector<double> all = reference(group, name);
  const std::size_t width = rows.empty() ? 0 : values.all.size() / rows.size();
  std::vector<double> expected;
  for (const std::int64_t row : rows) {
    const std::size_t first = static_cast<std::size_t>(row) * width;
    if (first + width <= all.size()) expected.insert(expected.end(), all.begin() + first, all.begin() + first + width);
  }
  compare_with(expected, path(group, name).substr(1), values, tolerance, false);
}

std::optional<double> Verifier::coarse(const std::string& row_name, double tolerance, bool absolute) const {
  if (digits_ == 0) return tolerance;
  const auto in = [&](const char* group) { return row_name.starts_with(group); };
  const bool gradient = in("grads") || in("steps/0/grads");  // also grads64, grads_f64
  const bool value = in("outputs") || in("trace") || in("steps/0/outputs");
  if (absolute || !(gradient || value) || row_name.find("after") != std::string::npos) return std::nullopt;
  // A network rounds a value dozens of times, and a gradient twice as often.
  return std::max(tolerance, std::ldexp(gradient ? 24 : 12, -digits_));
}

void Verifier::compare_with(const std::vector<double>& expected, const std::string& row_name, const Values& values,
                            Tolerance fine, bool absolute) {
  const std::optional<double> tolerance = coarse(row_name, f64_ ? fine.f64 : fine.f32, absolute);
  if (!tolerance) return;
  report_.compare(row_name, values.all, expected, *tolerance, absolute ? Difference::absolute : Difference::relative);
}

void Verifier::relative(const std::string& group, const std::string& name, const Values& values, Tolerance tolerance,
                        const std::string& remark) {
  compare(group, name, values, tolerance, false, remark);
}
void Verifier::absolute(const std::string& group, const std::string& name, const Values& values, Tolerance tolerance,
                        const std::string& remark) {
  compare(group, name, values, tolerance, true, remark);
}

void Verifier::value(const std::string& name, double value, double reference, double tolerance) {
  if (digits_ == 0) report_.compare(name, std::vector{value}, std::vector{reference}, tolerance);
}

std::vector<std::string> verifiable_kinds() {
  std::vector<std::string> names;
  for (const TaskKind& kind : task_kinds())
    if (kind.verify) names.emplace_back(kind.name);
  return names;
}

ReferenceReport verify(World& world, const std::string& kind_name, const std::filesystem::path& golden,
                       const VerifyOptions& options) {
  const TaskKind& kind = task_kind(kind_name);
  require_usage(kind.verify != nullptr, "option model = ", kind.name, ": this kind has no reference files");
  const bool coarse = is_half(options.storage) || options.tf32;
  require_usage(!coarse || (options.device.is_cuda() && !options.f64),
                "option precision: bf16, fp16 and tf32 need --device cuda, without --double");
  ops::allow_tf32(options.tf32);
  ReferenceReport report;
  const H5File file = H5File::open(golden);
  kind.verify(world, file, options, report);
  require_usage(!coarse || !report.rows().empty(), "option precision: '", golden.string(),
                "' does not depend on it; use fp32");
  return report;
}

}  // namespace lockstep
