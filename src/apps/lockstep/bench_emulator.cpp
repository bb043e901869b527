#include "apps/lockstep/bench_emulator.hpp"

#include <algorithm>
#include <cmath>

#include "apps/lockstep/measure_step.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/tasks/emulator/emulator_config.hpp"

namespace lockstep::apps {

namespace {

/// Rows whose targets are a smooth function of standard normal inputs.
EmulatorData synthetic_data(const SyntheticRows& size, std::uint64_t seed, DataMemory& data_memory) {
  const std::int64_t n = size.rows, n_in = size.inputs, n_out = size.outputs;
  EmulatorData data;
  data.path = "(synthetic)";
  data.x = data_memory.place(DType::f32, {n, n_in}, [&](const Tensor& x) {
    const Philox draw(seed, 0, "bench.x");
    for (std::int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[i] = static_cast<float>(draw.normal(static_cast<std::uint64_t>(i)));
  });
  data.y = data_memory.place(DType::f32, {n, n_out}, [&](const Tensor& y) {
    for (std::int64_t r = 0; r < n; ++r) {
      const float* x = data.x.row<float>(r);
      for (std::int64_t o = 0; o < n_out; ++o)
        y.data<float>()[r * n_out + o] = std::sin(x[o % n_in] + 0.5F * x[(o + 1) % n_in] * x[(o + 2) % n_in]);
    }
  });
  data.order = data_memory.place(DType::i32, {n}, [](const Tensor& order) {
    for (std::int64_t r = 0; r < order.size(); ++r) order.data<std::int32_t>()[r] = static_cast<std::int32_t>(r);
  });
  const std::int64_t held_out = std::min<std::int64_t>(n / 10, 1000);
  data.count = {n - held_out, held_out, 0};
  data.moments = {std::vector<double>(n_in, 0.0), std::vector<double>(n_in, 1.0), std::vector<double>(n_out, 0.0),
                  std::vector<double>(n_out, 0.7)};
  EmulatorVariables& v = data.variables;
  for (std::int64_t i = 0; i < n_in; ++i) v.input_names.push_back(join("in", i));
  for (std::int64_t o = 0; o < n_out; ++o) v.output_names.push_back(join("out", o));
  v.input_cf = v.input_units = std::vector<std::string>(v.input_names.size());
  v.output_cf = v.output_units = std::vector<std::string>(v.output_names.size());
  v.input_level.assign(v.input_names.size(), 0);
  v.output_level.assign(v.output_names.size(), 0);
  return data;
}

}  // namespace

std::unique_ptr<Task> synthetic_model(const RunConfig& config, const SyntheticRows& size, DataMemory& data_memory) {
  require_usage(config.model_kind == "emulator", "model.kind = ", config.model_kind,
                ": set data.path; only the emulator has synthetic data");
  EmulatorTask::Options options = own<EmulatorConfig>(*config.task).model_options(config.dtype(), config.run.seed);
  options.arch.n_in = size.inputs;
  options.arch.n_out = size.outputs;
  return std::make_unique<EmulatorTask>(options, synthetic_data(size, config.run.seed, data_memory));
}

OperatorMeasurement measure_operator(World& world, const EmulatorTask& model, OperatorCall call, int threads,
                                     std::int64_t sweeps, double seconds) {
  Communicator& comm = world.communicator();
  const bool jacobian = call == OperatorCall::jacobian;
  const EmulatorData& data = model.data();
  const std::int64_t n_in = data.n_in(), n_out = data.n_out();
  const std::int64_t begin = data.rows() * world.rank() / world.size();
  const std::int64_t rows = data.rows() * (world.rank() + 1) / world.size() - begin;
  OperatorOptions options;
  options.threads = threads;
  const EmulatorOperators<float> operators(model.emulator(), options);
  std::vector<std::byte> workspace(operators.workspace_bytes(call));
  std::vector<float> result(rows * n_out * (jacobian ? n_in : 1));
  const StateView<const float> x{data.x.row<float>(begin), n_in, 1};
  const auto sweep = [&] {
    if (jacobian) {
      operators.jacobian<float>(rows, x, {}, JacobianUnits::physical, result.data(), workspace.data());
    } else {
      operators.predict<float>(rows, x, {result.data(), n_out, 1}, workspace.data());
    }
  };
  sweep();  // touches the pages
  const Stopwatch warm;
  sweep();
  if (sweeps == 0) sweeps = repetitions(comm, warm.seconds(), seconds, 5);
  OperatorMeasurement m;
  for (std::int64_t i = 0; i < sweeps; ++i) {
    comm.barrier("starting a sweep");
    const Stopwatch watch;
    sweep();
    comm.barrier("ending a sweep");
    m.samples_per_s.push_back(static_cast<double>(data.rows()) / watch.seconds());
  }
  const double passes = jacobian ? 1.0 + static_cast<double>(std::min(n_in, n_out)) : 1.0;
  m.flops_per_sample = 2 * static_cast<double>(model.emulator().arch().multiplications()) * passes;
  return m;
}

}  // namespace lockstep::apps
