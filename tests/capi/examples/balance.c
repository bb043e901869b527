/* How a C program uses a trained emulator: predict, then linearise once and use the tangent linear and the adjoint many times.
 *
 *   balance MODEL.lsem
 */
#include <lockstep/lockstep.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(int status, const char* what) {
  if (status == LSEM_OK) return 0;
  fprintf(stderr, "%s: %s (%s)\n", what, lsem_strerror(status), lsem_last_error());
  return 1;
}

int main(int argc, char** argv) {
  lsem_model* model = NULL;
  lsem_lin* lin = NULL;
  const long n = 1000;
  long n_in, n_out, i, j;
  double *x, *y, *dx, *dy, *xhat, left = 0, right = 0, size = 0;
  char name[64];

  if (argc != 2) {
    fprintf(stderr, "usage: balance MODEL.lsem\n");
    return 2;
  }
  if (lsem_abi_version() != LSEM_ABI_VERSION) {
    fprintf(stderr, "liblockstep has another interface than its header\n");
    return 1;
  }
  if (failed(lsem_open(argv[1], &model), argv[1])) return 1;
  n_in = lsem_n_in(model);
  n_out = lsem_n_out(model);
  for (i = 0; i < n_in; ++i) {
    if (failed(lsem_name(model, 0, (int)i, name, sizeof name), "lsem_name")) return 1;
    printf("%s%s", name, i + 1 < n_in ? ", " : " -> ");
  }
  for (i = 0; i < n_out; ++i) {
    if (failed(lsem_name(model, 1, (int)i, name, sizeof name), "lsem_name")) return 1;
    printf("%s%s", name, i + 1 < n_out ? ", " : "\n");
  }

  /* A background state: node j, variable i is x[j * n_in + i]. Increments dx and dy are arbitrary. */
  x = malloc((size_t)(n * n_in) * sizeof *x);
  dx = malloc((size_t)(n * n_in) * sizeof *dx);
  xhat = malloc((size_t)(n * n_in) * sizeof *xhat);
  y = malloc((size_t)(n * n_out) * sizeof *y);
  dy = malloc((size_t)(n * n_out) * sizeof *dy);
  if (!x || !dx || !xhat || !y || !dy) return 1;
  for (j = 0; j < n * n_in; ++j) x[j] = sin(0.37 * (double)j), dx[j] = cos(0.61 * (double)j);
  for (j = 0; j < n * n_out; ++j) dy[j] = cos(1.7 * (double)j);

  if (failed(lsem_predict_f64(model, n, x, n_in, y, n_out, NULL), "lsem_predict_f64")) return 1;
  printf("prediction of node 0: %g\n", y[0]);

  if (failed(lsem_linearize_f64(model, n, x, n_in, NULL, &lin), "lsem_linearize_f64")) return 1;
  if (failed(lsem_tl_f64(lin, dx, n_in, y, n_out, 0), "lsem_tl_f64")) return 1;    /* y    = K dx  */
  if (failed(lsem_ad_f64(lin, dy, n_out, xhat, n_in, 0), "lsem_ad_f64")) return 1; /* xhat = K' dy */
  for (j = 0; j < n * n_out; ++j) left += y[j] * dy[j], size += fabs(y[j] * dy[j]);
  for (j = 0; j < n * n_in; ++j) right += dx[j] * xhat[j];
  printf("<K dx, dy> = %.15g   <dx, K' dy> = %.15g\n", left, right);

  lsem_lin_free(lin);
  lsem_close(model);
  free(x), free(dx), free(xhat), free(y), free(dy);
  if (!(size > 0) || fabs(left - right) > 1e-12 * size) {
    fprintf(stderr, "the adjoint is not the transpose of the tangent linear\n");
    return 1;
  }
  return 0;
}
