#include "lockstep/train/evaluator.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/models/hrm_model.hpp"

namespace lockstep {

std::int64_t evaluation_pieces(std::int64_t sums) { return sums <= 512 ? 256 : 64; }

namespace {

/// The figures that are no sums: variants of ARC tasks vote, wherever they were evaluated.
void add_votes(Communicator& comm, const HrmModel& model, std::vector<Metric>& figures) {
  Gathered all;
  comm.all_gather(std::as_bytes(std::span(model.ballots())), all, "votes");
  std::vector<ArcBallot> ballots(all.bytes.size() / sizeof(ArcBallot));
  if (!ballots.empty()) std::memcpy(ballots.data(), all.bytes.data(), all.bytes.size());
  for (const auto& [attempts, rate] : arc_pass_rates(std::move(ballots)))
    figures.push_back({join("pass@", attempts), rate, true});
}

}  // namespace

std::vector<Metric> evaluate(Communicator& comm, Model& model, Split split, int threads,
                             std::vector<MetricTable>* tables) {
  model.begin_evaluation();
  const std::int64_t size = model.size(split), sums = model.sum_count(), block = model.evaluation_block();
  const std::int64_t pieces = evaluation_pieces(sums);
  const ShardRange mine = shards_of(pieces, comm.rank(), comm.size());
  std::vector<double> storage(static_cast<std::size_t>(mine.count() * sums), 0);
  std::vector<std::span<double>> local;
  for (std::int64_t i = 0; i < mine.count(); ++i) {
    local.push_back(std::span(storage).subspan(static_cast<std::size_t>(i * sums), static_cast<std::size_t>(sums)));
  }
  const Device device = model.params().device();
  if (device.is_cuda()) threads = 1;  // one thread keeps a GPU busy
  std::deque<Arena> arenas;
  for (int t = 0; t < threads; ++t) arenas.emplace_back(device);
  Stream main(device);
  model.params().refresh(main);
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    Stream stream(device);
    Arena& arena = arenas[static_cast<std::size_t>(omp_get_thread_num())];
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < mine.count(); ++i) {
      try {
        const std::int64_t piece = mine.begin + i, end = size * (piece + 1) / pieces;
        for (std::int64_t first = size * piece / pieces; first < end; first += block) {
          arena.reset();
          Tape tape(stream, arena, model.params().storage(), Tape::Mode::forward);
          model.evaluate(tape, split, first, std::min(block, end - first), local[static_cast<std::size_t>(i)].data());
        }
      } catch (...) {
#pragma omp critical(evaluator_error)
        error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
  std::vector<double> total(static_cast<std::size_t>(sums));
  tree_all_reduce<double>(comm, pieces, local, total, "evaluation sums");
  if (tables) *tables = model.tables(split, total);
  std::vector<Metric> figures = model.metrics(split, total);
  if (const auto* hrm = dynamic_cast<const HrmModel*>(&model)) add_votes(comm, *hrm, figures);
  return figures;
}

}  // namespace lockstep
