#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/emulator/lorenz96.hpp"
#include "prep/emulator/emulator_output.hpp"
#include "prep/emulator/synthetic.hpp"

namespace lockstep::prep {

namespace {

ColumnNames numbered(const std::string& prefix, std::size_t n) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < n; ++i) names.push_back(prefix + std::to_string(i));
  return known_names(names);
}

/// errors  usage: the state has left the attractor
void require_bounded(const std::vector<double>& x) {
  for (const double value : x)
    require_usage(value < 1e6 && value > -1e6,
                  "integrating Lorenz 96: the model explodes with this forcing and time step; lower dt");
}

/// The initial state of a member: normal deviates around `rest`, then spin-up.
std::vector<double> spun_up(const auto& model, double rest, double amplitude, double dt, std::int64_t steps,
                            std::uint64_t seed, std::int64_t member, Site site) {
  Draws draws(seed, static_cast<std::uint64_t>(member), site);
  std::vector<double> x(model.size());
  for (double& value : x) value = rest + amplitude * draws.normal();
  for (std::int64_t step = 0; step < steps; ++step) rk4_step(model, dt, x);
  require_bounded(x);
  return x;
}

/// Adds the row x(t) -> x(t + dt) with the step's Jacobian and advances x.
void append_step(const auto& model, double dt, std::vector<double>& x, bool jacobian, EmulatorSet& set) {
  const std::size_t n = model.size();
  for (double& value : x)
    value = static_cast<double>(static_cast<float>(value));  // the step must start from the input as stored
  set.x.insert(set.x.end(), x.begin(), x.end());
  if (jacobian) {
    const std::size_t at = set.jac.size();
    set.jac.resize(at + n * n);
    rk4_columns(model, dt, x, [&](std::size_t i, const std::vector<double>& column) {
      for (std::size_t o = 0; o < n; ++o) set.jac[at + o * n + i] = static_cast<float>(column[o]);
    });
  }
  rk4_step(model, dt, x);
  require_bounded(x);
  set.y.insert(set.y.end(), x.begin(), x.end());
}

}  // namespace

bool run_synth_lorenz96(const Args& args) {
  Options options("lockstep-prep synth-lorenz96",
                  "Pairs x(t) -> x(t + dt) of the Lorenz 96 model, with the Jacobian of the step.");
  SourceOptions common(options, SourceOptions::Input::none);
  Synthetic synthetic(options, 0, Synthetic::Rows::derived);
  std::int64_t members = 0, steps = 0, spin_up = 0, n = 0;
  double forcing = 0, dt = 0;
  options.add("members", &members, std::int64_t{60}, between(1, 1e9), "independent trajectories");
  options.add("steps", &steps, std::int64_t{200}, between(1, 1e9), "pairs per trajectory");
  options.add("spin-up", &spin_up, std::int64_t{200}, non_negative, "steps before the first pair");
  options.add("size", &n, std::int64_t{40}, between(4, 100000), "variables on the ring");
  options.add("forcing", &forcing, 8.0, "forcing F");
  options.add("dt", &dt, 0.05, positive, "time step of the Runge-Kutta scheme");
  options.example("lockstep-prep synth-lorenz96 --output lorenz96.h5", "12000 pairs of 40 variables");
  if (!options.parse(args)) return false;
  require_usage(members * steps >= 3, "options members, steps: ", members * steps, " rows are too few");
  require_writable(common.output);

  const Lorenz96 model{static_cast<std::size_t>(n), forcing};
  EmulatorSet set;
  set.inputs = numbered("x", model.n);
  set.outputs = numbered("y", model.n);
  synthetic.reserve(set, members * steps, common.output, "lower members, steps or size, or add --no-jacobian");
  for (std::int64_t member = 0; member < members; ++member) {
    auto x = spun_up(model, forcing, 1.0, dt, spin_up, synthetic.seed, member, "lorenz96");
    for (std::int64_t step = 0; step < steps; ++step) append_step(model, dt, x, synthetic.jacobian, set);
  }
  synthetic.finish(set, static_cast<std::size_t>(members * steps));
  set.notes = {{"generator", std::string("lorenz96")}, {"dt", dt}, {"forcing", forcing}};
  write_generated(common, set);
  return true;
}

bool run_synth_lorenz96_two_scale(const Args& args) {
  Options options(
      "lockstep-prep synth-lorenz96-two-scale", "The two-scale Lorenz 96 model.",
      "Task 'parametrisation': the effect U_k of the fast variables on a slow one, from the five slow variables "
      "around it. Task 'forecast': the whole state one time step later, with --jacobian also the Jacobian of "
      "the step (278 KB per row).");
  SourceOptions common(options, SourceOptions::Input::none);
  Synthetic synthetic(options, 0, Synthetic::Rows::derived, false);
  std::int64_t members = 0, steps = 0, spin_up = 0, every = 0;
  double dt = 0;
  std::string task;
  TwoScaleLorenz96 model;
  options.choice("task", &task, "parametrisation", {"parametrisation", "forecast"}, "what to learn");
  options.add("members", &members, std::int64_t{10}, between(1, 1e9), "independent trajectories");
  options.add("steps", &steps, std::int64_t{200}, between(1, 1e9), "samples per trajectory");
  options.add("every", &every, std::int64_t{10}, at_least(1), "time steps between samples");
  options.add("spin-up", &spin_up, std::int64_t{2000}, non_negative, "time steps before the first sample");
  options.add("forcing", &model.forcing, 20.0, "forcing F");
  options.add("h", &model.h, 1.0, "coupling h");
  options.add("b", &model.b, 10.0, positive, "ratio of amplitudes b");
  options.add("c", &model.c, 10.0, positive, "ratio of time scales c");
  options.add("dt", &dt, 0.005, positive, "time step of the Runge-Kutta scheme");
  options.example("lockstep-prep synth-lorenz96-two-scale --output two-scale.h5",
                  "16000 rows: five slow variables and the forcing of the fast ones");
  options.example(
      "lockstep-prep synth-lorenz96-two-scale --task forecast --members 2 --steps 100 --jacobian --output step.h5",
      "264 variables one step ahead");
  if (!options.parse(args)) return false;
  const bool forecast = task == "forecast";
  require_usage(forecast || !synthetic.jacobian,
                "option jacobian: the parametrisation is not a function of its inputs, so it has no true Jacobian");
  require_usage(members * steps >= 3, "options members, steps: ", members * steps, " samples are too few");
  require_writable(common.output);

  EmulatorSet set;
  set.inputs = forecast ? numbered("x", model.size()) : known_names({"x_km2", "x_km1", "x_k", "x_kp1", "x_kp2"});
  set.outputs = forecast ? numbered("y", model.size()) : known_names({"u_k"});
  synthetic.reserve(set, members * steps * (forecast ? 1 : static_cast<std::int64_t>(model.slow)), common.output,
                    "lower members or steps");
  for (std::int64_t member = 0; member < members; ++member) {
    auto x = spun_up(model, 0, 0.1, dt, spin_up, synthetic.seed, member, "lorenz96.two_scale");
    for (std::int64_t step = 0; step < steps; ++step) {
      if (forecast) {
        append_step(model, dt, x, synthetic.jacobian, set);
      } else {
        for (std::size_t k = 0; k < model.slow; ++k) {
          for (std::size_t around = 0; around < 5; ++around)
            set.x.push_back(static_cast<float>(x[(k + model.slow + around - 2) % model.slow]));
          set.y.push_back(static_cast<float>(model.forcing_of_fast(x, k)));
        }
        rk4_step(model, dt, x);
      }
      for (std::int64_t i = 1; i < every; ++i) rk4_step(model, dt, x);
      require_bounded(x);
    }
  }
  synthetic.finish(set, set.x.size() / set.n_in());
  set.notes = {
      {"generator", std::string("lorenz96_two_scale")}, {"task", task}, {"dt", dt}, {"forcing", model.forcing}};
  write_generated(common, set);
  return true;
}

}  // namespace lockstep::prep
