// A model that learns while it runs, in C++: the part of Lorenz 96 that each rank has is a std::span. A session is
// closed by its owner.
//
//   mpirun -n 4 lorenz_cpp
#include <lockstep/lockstep_train.h>

#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

using Session = std::unique_ptr<lsfit_session, decltype(&lsfit_close)>;

void check(int code, const lsfit_session* session = nullptr) {
  if (code != LSEM_OK) throw std::runtime_error(lsfit_error(session));
}

Session open_session(MPI_Comm comm, const char* config, int n_in, int n_out) {
  lsfit_session* session = nullptr;
  check(lsfit_open(comm, config, n_in, n_out, nullptr, nullptr, &session));
  return {session, lsfit_close};
}

// Columns (n, 4): the neighbours of a point; and its tendency (n).
void observe(const Session& session, std::span<const float> columns, std::span<const float> tendency) {
  check(lsfit_observe_f32(session.get(), static_cast<long>(tendency.size()), columns.data(), 4, tendency.data(), 1,
                          nullptr, nullptr),
        session.get());
}

int run() {
  constexpr int kPoints = 240, kSpinUp = 1000, kSteps = 600;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int first = kPoints * rank / ranks, n = kPoints * (rank + 1) / ranks - first;
  std::vector<float> x(kPoints), next(kPoints), columns(static_cast<std::size_t>(n) * 4),
      tendency(static_cast<std::size_t>(n));
  for (int k = 0; k < kPoints; ++k) x[static_cast<std::size_t>(k)] = 8 + 0.1F * static_cast<float>(k * k % 17);
  const auto at = [&](int k) { return x[static_cast<std::size_t>((k + kPoints) % kPoints)]; };

  const Session session =
      open_session(MPI_COMM_WORLD, "model.hidden_size = 32\noptim.lr = 2e-3\noptim.weight_decay = 0\n", 4, 1);
  double loss = 0;
  for (int step = -kSpinUp; step < kSteps; ++step) {  // the first columns determine the normalisation
    next.assign(x.size(), 0);
    for (int j = 0; j < n; ++j) {
      const int k = first + j;
      const auto row = static_cast<std::size_t>(j);
      for (int i = 0; i < 4; ++i) columns[row * 4 + static_cast<std::size_t>(i)] = at(k - 2 + i);
      tendency[row] = (at(k + 1) - at(k - 2)) * at(k - 1) - at(k) + 8;
      next[static_cast<std::size_t>(k)] = at(k) + 0.005F * tendency[row];
    }
    if (step >= 0) {
      observe(session, columns, tendency);
      check(lsfit_step(session.get(), &loss), session.get());
    }
    MPI_Allreduce(next.data(), x.data(), kPoints, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  if (rank == 0) std::printf("%ld steps, loss %.2e\n", lsfit_steps(session.get()), loss);
  return loss < 0.05 ? 0 : 1;  // of normalised outputs: 1 is the loss of their mean
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 1;
  try {
    code = run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "lorenz: %s\n", problem.what());
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  MPI_Finalize();
  return code;
}
