/* How a C program uses a trained network of another kind than an emulator: what it takes and gives, then the scores of a batch.
 *
 *   scores MODEL.safetensors OUTPUT INPUT...
 *
 * Each INPUT is a file with the elements of one input, for as many samples as it holds; OUTPUT gets those of the first output.
 */
#include <lockstep/lockstep.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(int status, const char* what) {
  if (status == LSEM_OK) return 0;
  fprintf(stderr, "%s: %s (%s)\n", what, lsem_strerror(status), lsem_last_error());
  return 1;
}

/* Bytes of one sample; prints the array's description. */
static size_t describe(const lsnet_model* model, int is_output, int i) {
  char name[64] = "";
  const int type = lsnet_array_type(model, is_output, i);
  size_t bytes = type == LSNET_I64 ? sizeof(int64_t) : sizeof(float);
  int axis;
  if (failed(lsnet_array_name(model, is_output, i, name, sizeof name), "lsnet_array_name")) exit(1);
  printf("%s %s: %s [n]", is_output ? "output" : "input", name, type == LSNET_I64 ? "int64_t" : "float");
  for (axis = 1; axis < lsnet_array_rank(model, is_output, i); ++axis) {
    printf("[%ld]", lsnet_array_extent(model, is_output, i, axis));
    bytes *= (size_t)lsnet_array_extent(model, is_output, i, axis);
  }
  printf("\n");
  return bytes;
}

int main(int argc, char** argv) {
  lsnet_model* model = NULL;
  const void* inputs[4];
  void* scores;
  size_t each;
  long n = 0;
  int i;
  FILE* file;

  if (argc < 4 || argc > 7) {
    fprintf(stderr, "usage: scores MODEL.safetensors OUTPUT INPUT...\n");
    return 2;
  }
  if (failed(lsnet_open(argv[1], &model), argv[1])) return 1;
  if (lsnet_arrays(model, 0) != argc - 3) {
    fprintf(stderr, "%s has %d inputs\n", argv[1], lsnet_arrays(model, 0));
    return 2;
  }
  for (i = 0; i < argc - 3; ++i) {
    long size;
    void* data;
    each = describe(model, 0, i);
    file = fopen(argv[3 + i], "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) return perror(argv[3 + i]), 1;
    if (i > 0 && size / (long)each != n) return fprintf(stderr, "%s is not for %ld samples\n", argv[3 + i], n), 1;
    n = size / (long)each;
    rewind(file);
    data = malloc((size_t)size);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) return perror(argv[3 + i]), 1;
    fclose(file);
    inputs[i] = data;
  }

  each = describe(model, 1, 0);
  scores = malloc((size_t)n * each);
  if (!scores || failed(lsnet_predict(model, n, inputs, &scores, NULL), "lsnet_predict")) return 1;
  file = fopen(argv[2], "wb");
  if (!file || fwrite(scores, each, (size_t)n, file) != (size_t)n || fclose(file) != 0) return perror(argv[2]), 1;
  printf("%ld samples\n", n);
  for (i = 0; i < argc - 3; ++i) free((void*)inputs[i]);
  free(scores);
  lsnet_close(model);
  return 0;
}
