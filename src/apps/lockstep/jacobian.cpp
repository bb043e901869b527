#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <span>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/tasks/emulator/emulator_rows.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {
namespace {

struct Arguments : EmulatorFiles {
  RunConfig config;
  std::vector<std::string> background_only;
  std::vector<double> domain;
  double min_abs_latitude = 0;
};

/// 1 for each input, except 0 for those of background-only.
std::vector<std::uint8_t> active_inputs(const Arguments& a, const TrainedEmulator& emulator) {
  const std::vector<std::string>& names = emulator.metadata.variables.input_names;
  std::vector<std::uint8_t> active(names.size(), 1);
  for (const std::string& name : a.background_only) {
    const auto at = std::find(names.begin(), names.end(), name);
    require_usage(at != names.end(), "option background-only = ", name, ": the emulator has no such input");
    active[at - names.begin()] = 0;
  }
  return active;
}

/// Where a node's mask value comes from: the input's /mask, or the column of /x that the emulator's metadata names.
struct MaskSource {
  bool dataset = false;
  std::int64_t column = -1;
  bool flags = false;  ///< no range is known: nodes whose value is 0 are outside
  bool any() const { return dataset || column >= 0; }
};

template <class T>
class Run {
 public:
  Run(World& world, const Arguments& a, const TrainedEmulator& emulator, int threads)
      : a_(a), emulator_(emulator), in_(emulator.network.arch().n_in), out_(emulator.network.arch().n_out) {
    world.together("opening the input", [&] {
      if (world.rank() == 0) require_output(a.output, a.inputs());
      rows_ = std::make_unique<InputRows>(a.input, emulator, world.rank() == 0);
      has_dx_ = rows_->has("/dx", in_);
      has_dy_ = rows_->has("/dy", out_);
      find_mask(emulator.metadata.mask);
      OperatorOptions options;
      options.active_inputs = active_inputs(a, emulator);
      options.mask_min = mask_.flags ? 1 : a.domain.empty() ? emulator.metadata.mask.min : a.domain.front();
      options.mask_max = mask_.flags ? 1 : a.domain.empty() ? emulator.metadata.mask.max : a.domain.back();
      options.min_abs_latitude = a.min_abs_latitude;
      options.threads = threads;
      operators_ = std::make_unique<EmulatorOperators<T>>(emulator.network, options);
    });
  }

  void execute(World& world, const Args& args) {
    constexpr H5Type kType = h5_type_of<T>::value;
    PredictionTable table = {.columns = {{.name = "jac", .type = kType, .extents = {out_, in_}},
                                         {.name = "jac_physical", .type = kType, .extents = {out_, in_}}},
                             .rows = rows_->size(),
                             .block_rows = kEmulatorBlock,
                             .unit = "states",
                             .attributes = describe_source(a_, "lockstep jacobian", args)};
    if (has_dx_) table.columns.push_back({.name = "tl", .type = kType, .extents = {out_}});
    if (has_dy_) table.columns.push_back({.name = "ad", .type = kType, .extents = {in_}});
    table.block = [&](std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values) {
      block(first, count, values);
    };
    table.agree = [&] {
      sums_ = blocks_.total(world);
      world.together("adjoint test", [&] {
        require_data(sums_[2] > 0 || rows_->size() == 0, "the Jacobians of '", a_.input,
                     "': every node is outside the domain (", selection(), "), or its state is not finite (", sums_[3],
                     " nodes); they would all be zero");
        check_adjoint();
      });
    };
    table.finish = [&](H5File& file) {
      file.write_text("/vars/input_names", emulator_.metadata.variables.input_names);
      file.write_text("/vars/output_names", emulator_.metadata.variables.output_names);
      file.set_attribute("/", "adjoint_lhs", sums_[0]);
      file.set_attribute("/", "adjoint_rhs", sums_[1]);
    };
    write_predictions(world, a_.output, table);
    if (world.rank() == 0) report();
  }

 private:
  void find_mask(const EmulatorMask& mask) {
    mask_.dataset = rows_->has("/mask", 0);
    if (!mask_.dataset && !mask.variable.empty()) {
      const std::vector<std::string>& names = emulator_.metadata.variables.input_names;
      const auto at = std::find(names.begin(), names.end(), mask.variable);
      if (at != names.end()) mask_.column = at - names.begin();
    }
    mask_.flags =
        mask_.dataset && a_.domain.empty() && mask.variable.empty() && std::isinf(mask.min) && std::isinf(mask.max);
    require_data(mask_.any() || a_.domain.empty(), "option domain: '", a_.input,
                 "' has no /mask, and the emulator's mask variable ",
                 mask.variable.empty() ? "is not set" : "'" + mask.variable + "' is none of its inputs");
    latitude_ = rows_->has("/lat", 0);
    require_data(latitude_ || a_.min_abs_latitude == 0, "option min-abs-latitude: '", a_.input, "' has no /lat");
  }

  void block(std::int64_t first, std::int64_t count, std::vector<PredictionValues>& columns) {
    const auto values = [&](std::size_t column) -> std::vector<T>& {
      return std::get<std::vector<T>>(columns[column]);
    };
    const std::vector<T> x = rows_->read<T>("/x", first, count, in_);
    std::vector<T> mask, latitude;
    if (mask_.dataset) mask = rows_->read<T>("/mask", first, count, 0);
    if (mask_.flags)
      for (T& value : mask) value = value > 0 || value < 0 ? 1 : 0;  // NaN is outside
    for (std::int64_t r = 0; mask_.column >= 0 && r < count; ++r) mask.push_back(x[r * in_ + mask_.column]);
    if (a_.min_abs_latitude > 0) latitude = rows_->read<T>("/lat", first, count, 0);
    const NodeSelection<T> select{mask.empty() ? nullptr : mask.data(), latitude.empty() ? nullptr : latitude.data()};
    const StateView<const T> state{x.data(), in_, 1};
    const auto require_finite = [&](std::int64_t row, const char* what, const char* dataset) {
      require_data(row < 0, "computing the ", what, " of row ", first + row, " of '", a_.input,
                   "': it is not finite, although the row is inside the domain: ", dataset,
                   " is not finite or too large there; correct it, or mask the row");
    };
    for (const auto& [units, column] : {std::pair(JacobianUnits::normalised, 0), std::pair(JacobianUnits::physical, 1)})
      require_finite(operators_->template jacobian<T>(count, state, select, units, values(column).data()), "Jacobian",
                     "/x");

    const auto linear = operators_->template linearize<T>(count, state, select);
    const std::vector<T> dx = has_dx_ ? rows_->read<T>("/dx", first, count, in_) : draw(first, count);
    std::vector<T> tl(count * out_), ad(static_cast<std::size_t>(count * in_));
    require_finite(linear.template tangent<T>({dx.data(), in_, 1}, {tl.data(), out_, 1}), "tangent", "/dx");
    const std::span<double> sums = blocks_.next_block();
    test_adjoint(linear, dx, tl, ad, sums);
    for (std::int64_t r = 0; r < count; ++r) {
      const OperatorOptions& o = operators_->options();
      const bool in_domain = mask.empty() || (mask[r] >= o.mask_min && mask[r] <= o.mask_max);
      const auto row = std::span(x).subspan(r * in_, in_);
      const bool finite = std::ranges::all_of(row, [](T value) { return std::isfinite(value); });
      sums[2] += finite && in_domain && (latitude.empty() || std::abs(latitude[r]) >= o.min_abs_latitude) ? 1 : 0;
      sums[3] += finite ? 0 : 1;
    }
    if (has_dx_) values(2) = tl;
    if (!has_dy_) return;
    const std::vector<T> dy = rows_->read<T>("/dy", first, count, out_);
    require_finite(linear.template adjoint<T>({dy.data(), out_, 1}, {ad.data(), in_, 1}), "adjoint", "/dy");
    values(has_dx_ ? 3 : 2) = ad;
  }

  /// <K dx, w> and <dx, K^T w> with w = K dx in normalised units, so that nothing cancels; dot products in double.
  void test_adjoint(const EmulatorLinearization<T>& linear, const std::vector<T>& dx, const std::vector<T>& tl,
                    std::vector<T>& ad, std::span<double> sum) {
    std::vector<T> w = tl;
    for (std::size_t k = 0; k < w.size(); ++k) {
      const double std = emulator_.network.moments().output_std[k % static_cast<std::size_t>(out_)];
      w[k] = static_cast<T>(static_cast<double>(w[k]) / (std * std));
    }
    linear.template adjoint<T>({w.data(), out_, 1}, {ad.data(), in_, 1});
    for (std::size_t k = 0; k < w.size(); ++k) sum[0] += static_cast<double>(tl[k]) * static_cast<double>(w[k]);
    for (std::size_t k = 0; k < dx.size(); ++k) {
      if (ad[k] != 0)
        sum[1] += static_cast<double>(dx[k]) * static_cast<double>(ad[k]);  // skips masked nodes, whose dx is arbitrary
    }
  }

  /// Increments of one standard deviation, by row.
  std::vector<T> draw(std::int64_t first, std::int64_t count) const {
    std::vector<T> dx;
    for (std::int64_t r = first; r < first + count; ++r) {
      const Philox normal(0, 0, "adjoint test", static_cast<std::uint64_t>(r));
      for (std::int64_t i = 0; i < in_; ++i)
        dx.push_back(
            static_cast<T>(normal.normal(static_cast<std::uint64_t>(i)) * emulator_.network.moments().input_std[i]));
    }
    return dx;
  }

  /// Describes the nodes without a Jacobian.
  std::string selection() const {
    std::string text = mask_.flags   ? "/mask is 0"
                       : mask_.any() ? join("mask values outside ", operators_->options().mask_min, " .. ",
                                            operators_->options().mask_max)
                                     : "";
    if (a_.min_abs_latitude > 0)
      text += join(text.empty() ? "" : " or ", "|/lat| below ", a_.min_abs_latitude, "; /lat is 0 where it is unknown");
    return text;
  }

  double gap() const {
    const double size = std::max(std::abs(sums_[0]), std::abs(sums_[1]));
    if (!std::isfinite(sums_[0] - sums_[1])) return std::numeric_limits<double>::infinity();
    return size > 0 ? std::abs(sums_[0] - sums_[1]) / size : 0;
  }
  static constexpr double kTolerance = sizeof(T) == 8 ? 1e-13 : 1e-6;

  void check_adjoint() const {
    require_data(!has_dx_ || (std::isfinite(sums_[0]) && std::isfinite(sums_[1])), "reading '", a_.input,
                 "': /dx has values that are too large: <K dx, dy> = ", sums_[0], "; correct them, or mask these rows");
    require(gap() <= kTolerance, "adjoint test: <K dx, dy> = ", sums_[0], " and <dx, K^T dy> = ", sums_[1],
            " differ by ", gap(), " of the larger one, more than ", kTolerance);
  }

  void report() const {
    if (sums_[3] > 0) std::cout << sums_[3] << " nodes have a state that is not finite: their Jacobian is zero\n";
    if (const double masked = static_cast<double>(rows_->size()) - sums_[2] - sums_[3]; masked > 0)
      std::cout << masked << " nodes are outside the domain (" << selection() << "): their Jacobian is zero\n";
    std::cout << "adjoint test: <K dx, dy> = " << join(sums_[0]) << ", <dx, K^T dy> = " << join(sums_[1])
              << ", relative difference " << join(gap()) << " (at most " << join(kTolerance) << "): passed"
              << std::endl;
  }

  const Arguments& a_;
  const TrainedEmulator& emulator_;
  std::int64_t in_, out_;
  std::unique_ptr<InputRows> rows_;
  std::unique_ptr<EmulatorOperators<T>> operators_;
  bool has_dx_ = false, has_dy_ = false, latitude_ = false;
  MaskSource mask_;
  BlockSums blocks_{4};
  std::vector<double> sums_;  ///< <K dx, w>, <dx, K^T w>, nodes with a Jacobian, nodes whose state is not finite
};

}  // namespace

int run_jacobian(World& world, const Args& args) {
  const std::string kind = model_kind(world, args);
  world.together("choosing the model", [&] {
    require_usage(kind.empty() || kind == "emulator", "lockstep jacobian: not available for model.kind = ", kind);
  });
  Arguments a;
  Options options(
      "lockstep jacobian", "Jacobians, tangents and adjoints of a trained emulator at given states.",
      "The input is an HDF5 file, such as a prepared data set, with /x (rows, inputs) in physical units. The "
      "output has /jac, d y_norm / d z, and /jac_physical, d y / d x, both (rows, outputs, inputs). If the "
      "input has /dx (rows, inputs) the output also has /tl = K dx; if it has /dy (rows, outputs), /ad = K^T "
      "dy. The Jacobian is zero at nodes outside the domain: where /mask, or the emulator's mask variable, is outside "
      "the range of --domain or of the emulator, or, without a range, where /mask is 0. It is also zero at nodes whose "
      "state is not finite. There /dx and /dy may hold anything; at other nodes a result that is not finite is an "
      "error. The command always makes the adjoint test <K dx, dy> = <dx, K^T dy> over all rows, and writes no output "
      "if it fails. The ranks share the rows.");
  add_file_options(options, a, "Jacobians");
  options.add("background-only=NAME,...", &a.background_only, {}, "inputs whose columns of the Jacobian are zero");
  options.add("domain=MIN,MAX", &a.domain, {},
              "smallest and largest mask value of the domain, instead of those of the emulator");
  options
      .add("min-abs-latitude", &a.min_abs_latitude, 0, between(0, 90),
           "zero Jacobian at latitudes (of /lat) nearer to the equator than this")
      .unit("degrees");
  options.example("lockstep jacobian --checkpoint runs/ice/checkpoints/best.h5 --input states.h5 --output jacobians.h5",
                  "the best weights of a run");
  options.example(
      "lockstep jacobian --model-file ice.lsem --input states.h5 --output j.h5 --background-only tair,tsfc "
      "--min-abs-latitude 40",
      "for a balance operator of the polar regions");
  if (!parse(world, options, args, a.config)) return 0;
  world.configure({.timeout_s = a.config.dist.timeout, .check_collectives = a.config.dist.check_collectives});
  world.together("reading the options", [&] {
    if (!a.domain.empty() && (a.domain.size() != 2 || !(a.domain[0] <= a.domain[1])))
      options.reject("domain", "must be MIN,MAX with MIN <= MAX");
    require_precision(options);
  });
  const TrainedEmulator emulator = load_emulator(world, a);
  const int threads = prepare_cpu(world, a.config);
  if (a.config.run.precision == "fp64")
    Run<double>(world, a, emulator, threads).execute(world, args);
  else
    Run<float>(world, a, emulator, threads).execute(world, args);
  return 0;
}

}  // namespace lockstep::apps
