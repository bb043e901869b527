// bench_session: a training step through liblockstep_train beside the same step of the trainer on rows in memory, in one
// thread of one rank: observing, moving and normalising columns is all that differs.
//
//   bench_session [HIDDEN LAYERS]      the default is 64 3, with 14 inputs and 1 output
//
// Prints one JSON line per batch; processor time, median of the ratios of alternating rounds.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "bench/timing.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/lockstep_train.h"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "support/emulator_file.hpp"

using namespace lockstep;

namespace {
double seconds_of(const std::function<void()>& work) {
  const double begin = bench::now_s(bench::Clock::processor);
  work();
  return bench::now_s(bench::Clock::processor) - begin;
}
double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}
}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  constexpr std::int64_t kIn = 14, kOut = 1, kSteps = 20, kRounds = 15;
  EmulatorTask::Options options;
  if (argc > 2) options.arch = {.hidden = std::atoll(argv[1]), .layers = std::atoll(argv[2])};
  for (const std::int64_t batch : {std::int64_t{1000}, std::int64_t{16000}}) {
    const test::EmulatorContents rows = test::emulator_contents(batch * 20 / 14 + 20, kIn, kOut);
    EmulatorTask task(options, test::read_data(rows));
    const auto alone = make_self_communicator();
    const auto step = make_sharded_step(*alone, task, {});
    const auto ranges = trainable_ranges(task.params());
    const auto optimizer = make_optimizer({}, task.params(), ranges);
    lsfit_session* session = nullptr;
    const std::string config = join("model.hidden_size = ", options.arch.hidden,
                                    "\nmodel.hidden_layers = ", options.arch.layers, "\noptim.weight_decay = 0\n");
    if (lsfit_open(MPI_COMM_WORLD, config.c_str(), kIn, kOut, nullptr, nullptr, &session) != LSEM_OK) {
      std::fprintf(stderr, "%s\n", lsem_last_error());
      return 1;
    }
    const auto offline = [&] {
      for (std::int64_t s = 0; s < kSteps; ++s) {
        const StepSums sums = step->run({.step = s, .first = 0, .count = batch});
        optimizer->step(step->gradient(), 1e-4, 1 / sums.weight);
        gradient_norm(step->gradient(), ranges);  // as each step does
      }
    };
    const auto online = [&] {
      for (std::int64_t s = 0; s < kSteps; ++s) {
        lsfit_observe_f32(session, batch, rows.x.data(), kIn, rows.y.data(), kOut, nullptr, nullptr);
        if (lsfit_step(session, nullptr) != LSEM_OK) std::fprintf(stderr, "%s\n", lsfit_error(session));
      }
    };
    offline();
    online();
    std::vector<double> ratios, times;
    for (std::int64_t i = 0; i < kRounds; ++i) {
      const double one = seconds_of(offline), other = seconds_of(online);
      ratios.push_back(other / one);
      times.push_back(other / kSteps);
    }
    std::printf(
        "{\"batch\": %lld, \"session_ms\": %.3f, \"session_over_trainer\": %.3f, \"least\": %.3f, \"most\": %.3f}\n",
        static_cast<long long>(batch), 1e3 * median(times), median(ratios), *std::ranges::min_element(ratios),
        *std::ranges::max_element(ratios));
    lsfit_close(session);
  }
  MPI_Finalize();
}
