#include "lockstep/prep/golden_checks.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/columns.hpp"
#include "lockstep/prep/emulator_set.hpp"
#include "lockstep/prep/icecolumn.hpp"
#include "lockstep/prep/lorenz96.hpp"

namespace lockstep::prep {

namespace {

constexpr double kExact = 0, kFloatSums = 2e-6, kDouble = 1e-12;

template <class A, class B>
GoldenRow compare(const std::string& tensor, const std::vector<A>& ours, const std::vector<B>& theirs,
                  double tolerance) {
  GoldenRow row{tensor, 0, tolerance, ""};
  if (ours.size() != theirs.size()) {
    row.note = join(ours.size(), " values, the reference has ", theirs.size());
    return row;
  }
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = static_cast<double>(ours[i]), b = static_cast<double>(theirs[i]);
    largest = std::max(largest, std::abs(b));
    const double difference = std::abs(a - b);
    if (!std::isfinite(difference)) row.note = join("value ", i, " is not finite");
    worst = std::max(worst, difference);
  }
  row.error = largest > 0 ? worst / largest : worst;
  return row;
}

void compare_group(const H5File& golden, const std::string& group, std::vector<GoldenRow>& rows) {
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

  SelectionReport report;
  EmulatorSet set;
  if (group.starts_with("/history/")) {
    selection.ice_ge = true;
    set = select_rows(read_history({files, {}}, selection), selection, report);
  } else {
    require_data(files.size() == 2, "reading ", group, " of '", golden.path().string(), "': ", files.size(),
                 " companions, expected 2");
    set = select_rows(read_pair({{files[0]}, {files[1]}, {}, 127}, selection), selection, report);
  }
  const auto with = [&](const std::string& name, const auto& ours, double tolerance) {
    rows.push_back(compare(group.substr(1) + "/" + name, ours, golden.read<float>(group + "/" + name), tolerance));
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

template <class Model>
void compare_model(const H5File& golden, const std::string& group, const Model& model, std::vector<GoldenRow>& rows) {
  const double dt = golden.real_attribute(group, "dt");
  const auto x0 = golden.read<double>(group + "/x0"), dx = golden.read<double>(group + "/dx"),
             ly = golden.read<double>(group + "/ly");
  const std::size_t n = model.size();
  require_data(n > 0 && !x0.empty() && x0.size() % n == 0 && dx.size() == x0.size() && ly.size() == x0.size(),
               "reading ", group, " of '", golden.path().string(), "': states of ", n, " variables expected");
  std::vector<double> x1, tl, ad;
  for (std::size_t at = 0; at < x0.size(); at += n) {
    std::vector<double> x(x0.begin() + static_cast<std::ptrdiff_t>(at),
                          x0.begin() + static_cast<std::ptrdiff_t>(at + n));
    const auto t = rk4_tangent(model, dt, x, std::span(dx).subspan(at, n));
    const auto a = rk4_adjoint(model, dt, x, std::span(ly).subspan(at, n));
    rk4_step(model, dt, x);
    x1.insert(x1.end(), x.begin(), x.end());
    tl.insert(tl.end(), t.begin(), t.end());
    ad.insert(ad.end(), a.begin(), a.end());
  }
  const std::string name = group.substr(1);
  rows.push_back(compare(name + "/x1", x1, golden.read<double>(group + "/x1"), kDouble));
  rows.push_back(compare(name + "/tl", tl, golden.read<double>(group + "/tl"), kDouble));
  rows.push_back(compare(name + "/ad", ad, golden.read<double>(group + "/ad"), kDouble));
}

}  // namespace

GoldenKind golden_kind(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  if (golden.is_group("/history") && golden.is_group("/pair")) return GoldenKind::prep;
  if (golden.is_group("/icecolumn") && golden.is_group("/lorenz96")) return GoldenKind::synth;
  if (golden.is_group("/laplacian") && golden.has("/raw/kg_final.txt")) return GoldenKind::kg;
  if (golden.is_group("/sudoku") && golden.is_group("/maze") && golden.is_group("/arc")) return GoldenKind::puzzles;
  if (golden.is_group("/moments") && golden.has("/moments/raw")) return GoldenKind::moments;
  if (golden.has("/inputs/sequences") && golden.has("/outputs/mask") && golden.has("/outputs/x_coords"))
    return GoldenKind::line_plot;
  if (golden.has("/inputs/rows") && golden.has("/outputs/times_scaled")) return GoldenKind::sequences;
  return GoldenKind::other;
}

std::vector<GoldenRow> check_golden_prep(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  std::vector<GoldenRow> rows;
  for (const std::string layout : {"/history", "/pair"}) {
    for (const auto& name : golden.list(layout)) compare_group(golden, layout + "/" + name, rows);
  }
  return rows;
}

std::vector<GoldenRow> check_golden_synth(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  std::vector<GoldenRow> rows;
  const auto x = golden.read<double>("/icecolumn/x");
  require_data(x.size() % icecolumn::kInputs == 0, "reading '/icecolumn/x' of '", path.string(), "': rows of ",
               icecolumn::kInputs, " expected");
  std::vector<double> y, jac;
  for (std::size_t at = 0; at < x.size(); at += icecolumn::kInputs) {
    icecolumn::Input input;
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(at), icecolumn::kInputs, input.begin());
    icecolumn::Jacobian jacobian;
    const auto output = icecolumn::evaluate(input, &jacobian);
    y.insert(y.end(), output.begin(), output.end());
    for (const auto& line : jacobian) jac.insert(jac.end(), line.begin(), line.end());
  }
  rows.push_back(compare("icecolumn/y", y, golden.read<double>("/icecolumn/y"), kDouble));
  rows.push_back(compare("icecolumn/jac", jac, golden.read<double>("/icecolumn/jac"), kDouble));

  const auto real = [&](const char* group, const char* name) { return golden.real_attribute(group, name); };
  const auto shape = golden.info("/lorenz96/x0").shape;
  require_data(shape.size() == 2, "reading '/lorenz96/x0' of '", path.string(), "': two axes expected");
  compare_model(golden, "/lorenz96", Lorenz96{static_cast<std::size_t>(shape[1]), real("/lorenz96", "F")}, rows);
  const char* two = "/lorenz96_two_scale";
  const TwoScaleLorenz96 model{static_cast<std::size_t>(golden.int_attribute(two, "K")),
                               static_cast<std::size_t>(golden.int_attribute(two, "J")),
                               real(two, "F"),
                               real(two, "h"),
                               real(two, "b"),
                               real(two, "c")};
  compare_model(golden, two, model, rows);
  return rows;
}

std::vector<GoldenRow> check_golden_moments(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  const auto shape = golden.info("/moments/raw").shape;
  require_data(shape.size() == 2 && shape[1] > 0, "reading '/moments/raw' of '", path.string(), "': two axes expected");
  const auto raw = golden.read<float>("/moments/raw");
  const auto columns = static_cast<std::size_t>(shape[1]);
  RunningMoments moments(columns);
  for (std::size_t at = 0; at < raw.size(); at += columns) moments.add(std::span(raw).subspan(at, columns));
  return {compare("moments/mean", moments.mean(), golden.read<float>("/moments/mean"), kFloatSums),
          compare("moments/std", moments.deviation(), golden.read<float>("/moments/std"), kFloatSums)};
}

std::vector<GoldenRow> check_golden(const std::filesystem::path& path) {
  switch (golden_kind(path)) {
    case GoldenKind::kg:
      return check_golden_kg(path);
    case GoldenKind::prep:
      return check_golden_prep(path);
    case GoldenKind::synth:
      return check_golden_synth(path);
    case GoldenKind::moments:
      return check_golden_moments(path);
    case GoldenKind::line_plot:
      return check_golden_line_plot(path);
    case GoldenKind::puzzles:
      return check_golden_puzzles(path);
    case GoldenKind::sequences:
      return check_golden_sequences(path);
    case GoldenKind::other:
      break;
  }
  throw Error(Fault::data, join("verifying '", path.string(), "': no reference of a kind that this program knows"));
}

}  // namespace lockstep::prep
