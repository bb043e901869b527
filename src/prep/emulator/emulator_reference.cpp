#include <algorithm>
#include <numeric>

#include "lockstep/base/text.hpp"
#include "lockstep/prep/emulator/columns.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "lockstep/prep/emulator/icecolumn.hpp"
#include "lockstep/prep/emulator/lorenz96.hpp"
#include "lockstep/prep/reference.hpp"
namespace lockstep::prep {

namespace {

constexpr double kExact = 0, kFloatSums = 2e-6, kDouble = 1e-12;

void compare_group(const H5File& golden, const std::string& group, ReferenceReport& report) {
  Selection selection;
  selection.inputs = split(golden.text_attribute(group, "input_variables"), ',');
  selection.outputs = split(golden.text_attribute(group, "output_variables"), ',');
  selection.mask_mode = golden.text_attribute(group, "mask_mode");
  selection.min_ice = golden.real_attribute(group, "min_ice_concentration");
  selection.max_patterns = golden.int_attribute(group, "max_patterns");
  selection.subsample = "first";
  selection.pole = "all";
  selection.missing = "error";
  selection.split_by = "random";
  selection.moments = "all";
  std::vector<std::filesystem::path> files;
  for (const auto& name : split(golden.text_attribute(group, "files"), ','))
    files.push_back(golden.path().parent_path() / name);

  SelectionReport kept;
  EmulatorSet set;
  if (group.starts_with("/history/")) {
    selection.ice_ge = true;
    set = select_rows(read_history({files, {}}, selection), selection, kept);
  } else {
    require_data(files.size() == 2, "reading ", group, " of '", golden.path().string(), "': ", files.size(),
                 " companions, expected 2");
    set = select_rows(read_pair({{files[0]}, {files[1]}, {}, 127}, selection), selection, kept);
  }
  const auto with = [&](const std::string& name, const auto& ours, double tolerance) {
    report.compare(golden, group + "/" + name, ours, tolerance);
  };
  with("inputs", set.x, kExact);
  with("targets", set.y, kExact);
  with("lat", set.lat, kExact);
  with("lon", set.lon, kExact);
  with("input_mean", set.input_mean, kFloatSums);
  with("input_std", set.input_std, kFloatSums);
  with("output_mean", set.output_mean, kFloatSums);
  with("output_std", set.output_std, kFloatSums);
}

void compare_model(const H5File& golden, const std::string& group, const auto& model, ReferenceReport& report) {
  const double dt = golden.real_attribute(group, "dt");
  const auto x0 = golden.read<double>(group + "/x0"), dx = golden.read<double>(group + "/dx"),
             ly = golden.read<double>(group + "/ly");
  const std::size_t n = model.size();
  require_data(n > 0 && !x0.empty() && x0.size() % n == 0 && dx.size() == x0.size() && ly.size() == x0.size(),
               "reading ", group, " of '", golden.path().string(), "': states of ", n, " variables expected");
  std::vector<double> x1, tl, ad;
  for (std::size_t at = 0; at < x0.size(); at += n) {
    std::vector<double> x(x0.begin() + at, x0.begin() + at + n);
    const auto t = rk4_tangent(model, dt, x, std::span(dx).subspan(at, n));
    rk4_columns(model, dt, x, [&](std::size_t, const std::vector<double>& column) {
      ad.push_back(std::inner_product(column.begin(), column.end(), ly.begin() + at, 0.0));
    });
    rk4_step(model, dt, x);
    x1.insert(x1.end(), x.begin(), x.end());
    tl.insert(tl.end(), t.begin(), t.end());
  }
  report.compare(golden, group + "/x1", x1, kDouble);
  report.compare(golden, group + "/tl", tl, kDouble);
  report.compare(golden, group + "/ad", ad, kDouble);
}

}  // namespace

void verify_emulator_rows(const H5File& golden, ReferenceReport& report) {
  for (const std::string layout : {"/history", "/pair"})
    for (const auto& name : golden.list(layout)) compare_group(golden, layout + "/" + name, report);
}

void verify_generators(const H5File& golden, ReferenceReport& report) {
  const auto x = golden.read<double>("/icecolumn/x");
  require_data(x.size() % icecolumn::kInputs == 0, "reading '/icecolumn/x' of '", golden.path().string(), "': rows of ",
               icecolumn::kInputs, " expected");
  std::vector<double> y, jac;
  for (std::size_t at = 0; at < x.size(); at += icecolumn::kInputs) {
    icecolumn::Input input;
    std::copy_n(x.begin() + at, icecolumn::kInputs, input.begin());
    icecolumn::Jacobian jacobian;
    const auto output = icecolumn::evaluate(input, &jacobian);
    y.insert(y.end(), output.begin(), output.end());
    for (const auto& line : jacobian) jac.insert(jac.end(), line.begin(), line.end());
  }
  report.compare(golden, "/icecolumn/y", y, kDouble);
  report.compare(golden, "/icecolumn/jac", jac, kDouble);

  const auto real = [&](const char* group, const char* name) { return golden.real_attribute(group, name); };
  const auto shape = golden.info("/lorenz96/x0").shape;
  require_data(shape.size() == 2, "reading '/lorenz96/x0' of '", golden.path().string(), "': two axes expected");
  compare_model(golden, "/lorenz96", Lorenz96{static_cast<std::size_t>(shape[1]), real("/lorenz96", "F")}, report);
  const char* two = "/lorenz96_two_scale";
  const TwoScaleLorenz96 model{static_cast<std::size_t>(golden.int_attribute(two, "K")),
                               static_cast<std::size_t>(golden.int_attribute(two, "J")),
                               real(two, "F"),
                               real(two, "h"),
                               real(two, "b"),
                               real(two, "c")};
  compare_model(golden, two, model, report);
}

void verify_moments(const H5File& golden, ReferenceReport& report) {
  const auto shape = golden.info("/moments/raw").shape;
  require_data(shape.size() == 2 && shape[1] > 0, "reading '/moments/raw' of '", golden.path().string(),
               "': two axes expected");
  const auto raw = golden.read<float>("/moments/raw");
  const auto columns = static_cast<std::size_t>(shape[1]);
  RunningMoments moments(columns);
  for (std::size_t at = 0; at < raw.size(); at += columns) moments.add(std::span(raw).subspan(at, columns));
  report.compare(golden, "/moments/mean", moments.mean(), kFloatSums);
  report.compare(golden, "/moments/std", moments.deviation(), kFloatSums);
}

}  // namespace lockstep::prep
