#include "lockstep/train/evaluator.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/data/row_source.hpp"
#include "lockstep/train/comparison.hpp"
#include "lockstep/train/signals.hpp"

namespace lockstep {

std::int64_t evaluation_chunks(std::int64_t sums, std::int64_t samples) {
  constexpr std::int64_t kMost = 4096, kSamples = 256, kMostSums = std::int64_t{1} << 22;  // sums of one rank: 32 MiB
  std::int64_t chunks = sums <= 512 ? 256 : 64;
  while (2 * chunks <= kMost && 2 * chunks * kSamples <= samples && 2 * chunks * sums <= kMostSums) chunks *= 2;
  return chunks;
}

std::vector<Metric> evaluate(Communicator& comm, Task& model, Split split, int threads,
                             std::vector<MetricTable>* tables, const EvaluationOptions& options) {
  require(model.evaluates(split), "model.kind = ", model.kind(), " does not evaluate its ", name(split), " samples");
  const Baseline* baseline = options.baseline;
  if (baseline == nullptr) model.begin_evaluation();
  const std::int64_t size = model.size(split), used = evaluated_samples(size, options.most_samples),
                     sums = model.sum_count(), block = model.evaluation_block();
  const std::int64_t chunks = evaluation_chunks(sums, used);
  const ShardRange mine = shards_of(chunks, comm.rank(), comm.size());
  std::vector<double> storage(mine.count() * sums, 0);
  const auto first_of = [&](std::int64_t chunk) { return size * chunk / chunks; };
  const SampleTask* samples = options.samples;
  std::vector<double> each;  // the sums of this rank's samples
  if (samples != nullptr) each.resize((first_of(mine.end) - first_of(mine.begin)) * sums);
  std::vector<std::span<double>> local;
  for (std::int64_t i = 0; i < mine.count(); ++i) local.push_back(std::span(storage).subspan(i * sums, sums));
  const Device device = model.params().device();
  if (device.is_cuda()) threads = 1;  // one thread keeps a GPU busy
  std::deque<Arena> arenas;
  for (int t = 0; t < threads; ++t) arenas.emplace_back(device);
  Stream main(device);
  model.params().refresh(main);
  std::exception_ptr error;
  const auto interrupted = [&] { return options.signals != nullptr && options.signals->received() != 0; };
  // The number of evenly spread samples that fall into a chunk; the chunk evaluates as many from its start.
  const auto count_of = [&](std::int64_t chunk) {
    const auto before = [&](std::int64_t sample) { return size == 0 ? 0 : (sample * used + size - 1) / size; };
    return before(first_of(chunk + 1)) - before(first_of(chunk));
  };
  const auto compute = [&](std::int64_t first_chunk, std::int64_t last_chunk) {
#pragma omp parallel num_threads(threads)
    {
      Stream stream(device);
      Arena& arena = arenas[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
      for (std::int64_t i = first_chunk; i < last_chunk; ++i) {
        try {
          const std::int64_t chunk = mine.begin + i, begin = first_of(chunk), end = begin + count_of(chunk);
          for (std::int64_t first = begin; first < end && !interrupted(); first += block) {
            const profile::Span span("evaluation block", profile::Kind::phase);
            arena.reset();
            Tape tape(stream, arena, model.params().storage(), Tape::Mode::forward);
            const std::int64_t count = std::min(block, end - first);
            double* to = local[i].data();
            if (baseline != nullptr) {
              baseline->evaluate(tape, split, first, count, to);
            } else if (samples != nullptr) {
              double* rows = each.data() + (first - first_of(mine.begin)) * sums;
              samples->evaluate_each(tape, split, first, count, rows);
              for (std::int64_t k = 0; k < count * sums; ++k) to[k % sums] += rows[k];
            } else {
              model.evaluate(tape, split, first, count, to);
            }
          }
        } catch (...) {
#pragma omp critical(evaluator_error)
          error = std::current_exception();
        }
      }
    }
  };
  RowSource* rows = model.row_source();
  if (rows == nullptr || rows->whole()) {
    compute(0, mine.count());
  } else {
    // The rows of some chunks at a time; those of the next ones come during the computation.
    const std::int64_t most = (chunks + comm.size() - 1) / comm.size(),
                       each_round =
                           std::clamp<std::int64_t>(rows->fetch_rows() / comm.size() / (size / chunks + 1), 1, most);
    const auto end_of = [&](std::int64_t round) { return std::min(mine.count(), (round + 1) * each_round); };
    const auto start = [&](std::int64_t round) {
      std::vector<std::int64_t> wanted;
      for (std::int64_t i = round * each_round; i < end_of(round); ++i)
        model.reads(split, first_of(mine.begin + i), count_of(mine.begin + i), wanted);
      rows->start(std::move(wanted));
    };
    start(0);
    for (std::int64_t round = 0; round * each_round < most; ++round) {
      rows->finish();
      if ((round + 1) * each_round < most) start(round + 1);
      compute(round * each_round, end_of(round));
    }
  }
  if (error) std::rethrow_exception(error);
  if (options.signals != nullptr && !comm.agree(!interrupted(), "signals during the evaluation")) return {};
  std::vector<double> total(sums);
  tree_all_reduce<double>(comm, chunks, local, total, "evaluation sums");
  if (samples != nullptr) *options.each = gather_samples(comm, *samples, split, chunks, each);
  if (tables) *tables = model.tables(split, total);
  std::vector<Metric> metrics = model.metrics(split, total);
  if (baseline != nullptr) {
    std::erase_if(metrics, [](const Metric& m) { return !std::isfinite(m.value); });
    return metrics;
  }
  const std::vector<Metric> more = model.collective_metrics(comm, split, threads);
  metrics.insert(metrics.end(), more.begin(), more.end());
  return metrics;
}

std::string Task::protocol(Split split) const { return join(size(split), " samples"); }

std::string protocol_of(const Task& model, Split split, std::int64_t most_samples) {
  const std::int64_t size = model.size(split), used = evaluated_samples(size, most_samples);
  return join(name(split), split == Split::validation && model.validates_on_test() ? " (= test)" : "", ", ",
              used < size ? join(used, " of ") : "", model.protocol(split));
}

EvalRecord record_of(const Task& model, const std::filesystem::path& data, Split split, std::int64_t most_samples,
                     std::vector<Metric> metrics, std::vector<MetricTable> tables, double seconds) {
  const Metric* loss = find_metric(metrics, "loss");
  const auto samples = static_cast<double>(evaluated_samples(model.size(split), most_samples));
  return {.split = name(split),
          .loss = loss != nullptr ? std::optional(loss->value) : std::nullopt,
          .metrics = std::move(metrics),
          .samples_per_s = samples / std::max(seconds, 1e-9),
          .seconds = seconds,
          .tables = std::move(tables),
          .protocol = protocol_of(model, split, most_samples),
          .data_file = data.filename().string(),
          .data_hash = hex64(model.data_hash())};
}

std::vector<BaselineMetrics> evaluate_baselines(Communicator& comm, Task& model, Split split, int threads,
                                                const StopSignals* signals) {
  std::vector<BaselineMetrics> all;
  for (const Baseline& baseline : model.baselines()) {
    all.push_back(
        {baseline.name, evaluate(comm, model, split, threads, nullptr, {.signals = signals, .baseline = &baseline})});
    if (all.back().metrics.empty()) return {};
  }
  return all;
}

}  // namespace lockstep
