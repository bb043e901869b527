/* A model that learns while it runs, in C: Lorenz 96 on a ring of points that are divided over the
 * ranks. Every rank passes its columns as one array per variable, as a model has them.
 *
 *   mpirun -n 4 lorenz_c */
#include <lockstep/lockstep_train.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 240, HALO = 2, SPIN_UP = 1000, STEPS = 600 };

static lsfit_session* session;

static void check(int code) {
  if (code == LSEM_OK) return;
  fprintf(stderr, "lorenz: %s\n", lsfit_error(session));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  static double ring[HALO + POINTS + 1], slope[POINTS], learned[POINTS];
  int rank, ranks, k, step;
  double loss = 0, error = 0, size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int first = POINTS * rank / ranks, n = POINTS * (rank + 1) / ranks - first;
  double* const x = ring + HALO; /* x[-2] .. x[POINTS] */
  const double* const columns[4] = {x + first - 2, x + first - 1, x + first, x + first + 1};
  const double* const tendency[1] = {slope};
  double* const prediction[1] = {learned};

  check(lsfit_open(MPI_COMM_WORLD,
                   "run.reproducible = true\n"
                   "model.hidden_size = 32\n"
                   "optim.lr = 2e-3\n"
                   "optim.weight_decay = 0\n",
                   4, 1, "x_m2,x_m1,x,x_p1,tendency", NULL, &session));
  for (k = 0; k < POINTS; ++k) x[k] = 8 + 0.1 * (k * k % 17);
  for (step = -SPIN_UP; step <= STEPS; ++step) { /* the first columns that are observed determine the normalisation */
    x[-2] = x[POINTS - 2];
    x[-1] = x[POINTS - 1];
    x[POINTS] = x[0];
    for (k = 0; k < n; ++k) slope[k] = (columns[3][k] - columns[0][k]) * columns[1][k] - columns[2][k] + 8;
    if (step == STEPS) break;
    if (step >= 0) {
      check(lsfit_observe_soa_f64(session, n, columns, NULL, tendency, NULL, NULL, NULL));
      check(lsfit_step(session, &loss));
    }
    for (k = 0; k < POINTS; ++k) learned[k] = 0;
    for (k = 0; k < n; ++k) learned[first + k] = x[first + k] + 0.005 * slope[k];
    MPI_Allreduce(learned, x, POINTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  lsem_model* model;
  check(lsfit_model(session, &model));
  check(lsem_predict_soa_f64(model, n, columns, NULL, prediction, NULL, NULL));
  for (k = 0; k < n; ++k) {
    error += (learned[k] - slope[k]) * (learned[k] - slope[k]);
    size += slope[k] * slope[k];
  }
  if (rank == 0)
    printf("%ld steps, loss %.2e, relative squared error on rank 0 %.2e\n", lsfit_steps(session), loss, error / size);
  check(lsfit_close(session));
  MPI_Finalize();
  return error < 0.05 * size ? 0 : 1;
}
