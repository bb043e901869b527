/*
 * liblockstep: trained networks inside other programs, from C, C++ and Fortran. The functions lsem_* are for emulators
 * (forecast models, data assimilation) and also compute derivatives. The functions lsnet_* at the end are for the other
 * kinds.
 *
 * A model file (the .lsem or HDF5 file that `lockstep export` writes) holds a small network that maps a column of n_in
 * variables to n_out variables, y = M(x), in physical units. The library evaluates M, its Jacobian K = dy/dx, the
 * tangent linear dy = K dx and the adjoint dx = K' dy for any number of nodes at once.
 *
 * Layout     Element [node j, variable i] of a state is x[j * ldx + i] with ldx >= n_in: in Fortran an array x(n_in,
 *            n), without transposition. For one array per variable, use the *_soa functions. A Jacobian is J[(j * n_out
 *            + o) * n_in + i] = dy_o/dx_i at node j, without gaps: in Fortran J(n_in, n_out, n).
 * Errors     A function that returns int returns LSEM_OK (0) or one of the codes below. lsem_strerror describes a code,
 *            lsem_last_error this thread's last failure. The library prints nothing, never aborts, and no C++ exception
 *            leaves it. After an error the contents of the output arrays are undefined.
 * Threads    A model is constant after lsem_open and the lsem_set_* calls: any number of threads may use it, and any
 *            lsem_lin made from it, at the same time. During lsem_set_* and lsem_close no other thread may use the
 *            model. Only one call at a time may use a workspace. By default a call computes only in the calling thread,
 *            so it can be used in a threaded program. While lsem_open reads an HDF5 file, no other thread may use the
 *            HDF5 library, unless that is thread safe.
 * Memory     With a workspace (lsem_workspace_bytes) predict and jac allocate nothing. tl and ad allocate only a
 *            scratch buffer per thread, at its first call; if the variables of a *_soa call are not at equal distances,
 *            they also allocate a dense copy. Where a workspace may be null, the call allocates what it needs.
 * Precision  _f32 computes in single precision, _f64 in double. lsem_set_precision makes the _f64 functions evaluate
 *            the network in single precision; states, normalisation and results are still double.
 * Non-finite One rule for all functions with derivatives, whatever the size of the network:
 *              - A node is excluded if its mask value is outside the domain (also if that is NaN), or its state is not
 *                finite (a missing point). At excluded nodes, and for inactive inputs at all nodes, derivatives are
 *                exactly 0, whatever dx and dy hold there; with `accumulate` the result keeps its value.
 *              - At every other node a derivative that is not finite is an error (NOT_FINITE), never 0: because dy, or
 *                dx of an active input, is not finite there, or because the arithmetic overflows. The message names the
 *                first such node. The values that `accumulate` adds to are not checked.
 *              - Predictions know no mask: those of a node whose state is not finite are NaN, without an error.
 *            The lsem_gpu_* functions follow the same rule, but return before the work is done and so without this
 *            error: a value that is not finite remains so in the results that it enters.
 */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <stddef.h>

#if defined(__GNUC__)
#define LSEM_API __attribute__((visibility("default")))
#else
#define LSEM_API
#endif

/* The version of this interface. lsem_abi_version() of the loaded library must be equal. */
#define LSEM_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* A trained emulator, opened. */
typedef struct lsem_model lsem_model;
/* M linearised around a background state, for the tangent linear and the adjoint. */
typedef struct lsem_lin lsem_lin;

/* Status codes. */
enum {
  LSEM_OK = 0,
  LSEM_ERR_ARGUMENT = 1,   /* a null pointer, a negative count, a stride that is too small, an index out of range */
  LSEM_ERR_OPEN = 2,       /* the file does not exist or cannot be read */
  LSEM_ERR_FORMAT = 3,     /* not a model file, or of a kind or version that this library does not read */
  LSEM_ERR_DAMAGED = 4,    /* a model file whose checksum or contents are wrong */
  LSEM_ERR_SELFTEST = 5,   /* the network does not reproduce the self-test rows of its file */
  LSEM_ERR_MEMORY = 6,     /* out of memory */
  LSEM_ERR_BUFFER = 7,     /* a text did not fit; the part that fits was copied */
  LSEM_ERR_NOT_FOUND = 8,  /* no such entry */
  LSEM_ERR_INTERNAL = 9,   /* an error in this library */
  LSEM_ERR_GPU = 10,       /* no GPU, a library without CUDA, or a call of CUDA that failed */
  LSEM_ERR_NOT_FINITE = 11 /* a derivative at a node inside the domain is not finite; see above */
};

/* Purposes of a workspace. */
enum { LSEM_WS_PREDICT_F32 = 0, LSEM_WS_PREDICT_F64 = 1, LSEM_WS_JAC_F32 = 2, LSEM_WS_JAC_F64 = 3 };

/* How the _f64 functions evaluate the network. */
enum {
  LSEM_NET_F64 = 0, /* in double (default) */
  LSEM_NET_F32 = 1  /* in single precision, about twice as fast; relative errors of 1e-6 */
};

/* ---- Opening, closing, errors ------------------------------------------------------------------------------------ */

/* LSEM_ABI_VERSION of the library. */
LSEM_API int lsem_abi_version(void);

/* A description of a status code in English. Never null; the text is constant. */
LSEM_API const char* lsem_strerror(int code);

/* The message of the calling thread's last failed call: file, place, expected and found value. Never null; valid until
 * this thread's next failed call. */
LSEM_API const char* lsem_last_error(void);

/* Opens a model file (.lsem, safetensors, ONNX, TorchScript, HDF5), verifies its checksum and recomputes its self-test
 * rows. A library that was built without HDF5 refuses HDF5 files (FORMAT). On failure *m is null. Errors: ARGUMENT,
 * OPEN, FORMAT, DAMAGED, SELFTEST, MEMORY. */
LSEM_API int lsem_open(const char* path, lsem_model** m);

/* The same from memory, for a program that reads the file once and broadcasts it. `buf` holds the `len` bytes of the
 * file and may be freed after the call. Formats: .lsem, safetensors, ONNX and TorchScript. An HDF5 image is refused
 * with LSEM_ERR_FORMAT. */
LSEM_API int lsem_open_mem(const void* buf, size_t len, lsem_model** m);

/* Frees a model; null is allowed. A lsem_lin made from it remains usable. */
LSEM_API void lsem_close(lsem_model* m);

/* Recomputes the prediction and the Jacobian of the self-test rows of the model file, in single and double precision.
 * Errors: ARGUMENT, SELFTEST, MEMORY. */
LSEM_API int lsem_selftest(const lsem_model* m);

/* ---- What the model is ------------------------------------------------------------------------------------------- */

/* Number of input and output variables; -1 for a null model. */
LSEM_API int lsem_n_in(const lsem_model* m);
LSEM_API int lsem_n_out(const lsem_model* m);

/* Copies to buf, with a final NUL, the short name ("sst"), the CF name ("sea_surface_temperature") or the units
 * ("degC") of variable i, counted from 0, of the inputs (is_output 0) or outputs (1); empty if the file does not have
 * it. Errors: ARGUMENT (index, null), BUFFER (len too small: truncated). */
LSEM_API int lsem_name(const lsem_model* m, int is_output, int i, char* buf, size_t len);
LSEM_API int lsem_cf_name(const lsem_model* m, int is_output, int i, char* buf, size_t len);
LSEM_API int lsem_units(const lsem_model* m, int is_output, int i, char* buf, size_t len);

/* The model level of a variable, as numbered in the training data (0 for surface and ocean variables); -1 for a wrong
 * argument. */
LSEM_API int lsem_level(const lsem_model* m, int is_output, int i);

/* The variable of the domain mask, and its inclusive range. Errors: ARGUMENT, BUFFER. */
LSEM_API int lsem_mask_name(const lsem_model* m, char* buf, size_t len);
LSEM_API int lsem_get_domain(const lsem_model* m, double* lo, double* hi);

/* The entry `key` of the file: "model_class", "optimizer", "training_data", ... Errors: ARGUMENT, BUFFER, NOT_FOUND. */
LSEM_API int lsem_meta(const lsem_model* m, const char* key, char* buf, size_t len);

/* ---- Settings: before the model is shared between threads -------------------------------------------------------- */

/* Active inputs: n_in bytes, 0 = background only (its column of the Jacobian is zero); null = all. A lsem_lin keeps the
 * setting of its creation. Errors: ARGUMENT, MEMORY. */
LSEM_API int lsem_set_active(lsem_model* m, const unsigned char* in_mask);

/* Replaces the range of the file: nodes whose mask value is outside [lo, hi] have a zero Jacobian. Infinite bounds are
 * allowed. Errors: ARGUMENT (null; lo > hi; not a number). */
LSEM_API int lsem_set_domain(lsem_model* m, double lo, double hi);

/* LSEM_NET_F64 or LSEM_NET_F32, for the _f64 functions. Errors: ARGUMENT. */
LSEM_API int lsem_set_precision(lsem_model* m, int precision);

/* Most threads of one call (OpenMP), 1..1024; default 1. A call with little work uses one. Results do not depend on it,
 * but the size of a workspace does: call lsem_workspace_bytes afterwards. Errors: ARGUMENT. */
LSEM_API int lsem_set_threads(lsem_model* m, int threads);

/* ---- Evaluation -------------------------------------------------------------------------------------------------- */

/* Bytes of workspace for a call with n nodes; `what` is LSEM_WS_PREDICT_F32 ... LSEM_WS_JAC_F64. At most a few blocks
 * of nodes per thread, however large n is. A workspace needs the alignment of malloc. 0 for a wrong argument. */
LSEM_API size_t lsem_workspace_bytes(const lsem_model* m, long n, int what);

/* y = M(x) for n >= 0 nodes, in physical units. x: n rows of ldx >= n_in; y: n rows of ldy >= n_out, no overlap with x.
 * `ws` may be null. Errors: ARGUMENT, MEMORY. */
LSEM_API int lsem_predict_f32(const lsem_model* m, long n, const float* x, long ldx, float* y, long ldy, void* ws);
LSEM_API int lsem_predict_f64(const lsem_model* m, long n, const double* x, long ldx, double* y, long ldy, void* ws);

/* The Jacobian at x, which is in physical units. J: n * n_out * n_in values. physical != 0: dy_o/dx_i in physical
 * units; 0: of normalised outputs by normalised inputs, that is physical * std(x_i) / std(y_o).
 * mask: n values of the mask variable, or null (all nodes are in the domain). Entries are zero for excluded nodes and
 * inactive inputs. `ws` may be null. Errors: ARGUMENT, MEMORY, NOT_FINITE. */
LSEM_API int lsem_jac_f32(const lsem_model* m, long n, const float* x, long ldx, const float* mask, int physical,
                          float* J, void* ws);
LSEM_API int lsem_jac_f64(const lsem_model* m, long n, const double* x, long ldx, const double* mask, int physical,
                          double* J, void* ws);

/* Linearises M around x once, for many tangent linear and adjoint calls. Domain and active inputs are treated as in
 * lsem_jac; a derivative that overflows is an error of the products. x and mask may be freed after the call. A lsem_lin
 * has the precision of its creation: pass it to functions with the same suffix. On failure *lin is null. Errors:
 * ARGUMENT, MEMORY. */
LSEM_API int lsem_linearize_f32(const lsem_model* m, long n, const float* x, long ldx, const float* mask,
                                lsem_lin** lin);
LSEM_API int lsem_linearize_f64(const lsem_model* m, long n, const double* x, long ldx, const double* mask,
                                lsem_lin** lin);

/* Number of nodes of a linearisation; -1 for null. */
LSEM_API long lsem_lin_nodes(const lsem_lin* lin);
/* Memory of a linearisation in bytes; 0 for null. */
LSEM_API size_t lsem_lin_bytes(const lsem_lin* lin);
/* Frees a linearisation; null is allowed. */
LSEM_API void lsem_lin_free(lsem_lin* lin);

/* Tangent linear dy = K dx, or dy += K dx with accumulate != 0. dx: rows of lddx >= n_in; dy: rows of lddy >= n_out;
 * physical units; no overlap. Errors: ARGUMENT (also: a lsem_lin of the other precision), MEMORY, NOT_FINITE. */
LSEM_API int lsem_tl_f32(const lsem_lin* lin, const float* dx, long lddx, float* dy, long lddy, int accumulate);
LSEM_API int lsem_tl_f64(const lsem_lin* lin, const double* dx, long lddx, double* dy, long lddy, int accumulate);

/* Adjoint dx = K' dy, or dx += K' dy with accumulate != 0: the transpose of the tangent linear. Same errors. */
LSEM_API int lsem_ad_f32(const lsem_lin* lin, const float* dy, long lddy, float* dx, long lddx, int accumulate);
LSEM_API int lsem_ad_f64(const lsem_lin* lin, const double* dy, long lddy, double* dx, long lddx, int accumulate);

/* ---- One array per variable -------------------------------------------------------------------------------------- */

/* The same functions with one array per variable: node j of variable i is x[i][j * sx[i]]. `x` points to n_in pointers,
 * `y` to n_out, `J` to n_out * n_in (entry o * n_in + i is the array of dy_o/dx_i). The stride arrays sx, sy, sJ have
 * as many entries, each >= 1; a null stride array means 1 everywhere. If an entry of y or J is null, that result is not
 * computed. Entries of x, dx and dy must not be null, except that the adjoint skips null entries of dx. A Fortran array
 * x(n, n_in) has the pointers x(1,1), x(1,2), ... and strides 1. */
LSEM_API int lsem_predict_soa_f32(const lsem_model* m, long n, const float* const* x, const long* sx, float* const* y,
                                  const long* sy, void* ws);
LSEM_API int lsem_predict_soa_f64(const lsem_model* m, long n, const double* const* x, const long* sx, double* const* y,
                                  const long* sy, void* ws);
LSEM_API int lsem_jac_soa_f32(const lsem_model* m, long n, const float* const* x, const long* sx, const float* mask,
                              int physical, float* const* J, const long* sJ, void* ws);
LSEM_API int lsem_jac_soa_f64(const lsem_model* m, long n, const double* const* x, const long* sx, const double* mask,
                              int physical, double* const* J, const long* sJ, void* ws);
LSEM_API int lsem_linearize_soa_f32(const lsem_model* m, long n, const float* const* x, const long* sx,
                                    const float* mask, lsem_lin** lin);
LSEM_API int lsem_linearize_soa_f64(const lsem_model* m, long n, const double* const* x, const long* sx,
                                    const double* mask, lsem_lin** lin);
LSEM_API int lsem_tl_soa_f32(const lsem_lin* lin, const float* const* dx, const long* sdx, float* const* dy,
                             const long* sdy, int accumulate);
LSEM_API int lsem_tl_soa_f64(const lsem_lin* lin, const double* const* dx, const long* sdx, double* const* dy,
                             const long* sdy, int accumulate);
LSEM_API int lsem_ad_soa_f32(const lsem_lin* lin, const float* const* dy, const long* sdy, float* const* dx,
                             const long* sdx, int accumulate);
LSEM_API int lsem_ad_soa_f64(const lsem_lin* lin, const double* const* dy, const long* sdy, double* const* dx,
                             const long* sdx, int accumulate);

/* ---- On a GPU ---------------------------------------------------------------------------------------------------- */

/* For programs with states in GPU memory (CUDA, OpenACC, OpenMP offloading) and a library that was built with CUDA.
 *
 * Layout     Element [node j, variable i] is x[j * node + i * variable], with a pair of strides for each state: (ldx,
 *            1) for C arrays x[n][ldx] and Fortran arrays x(ldx, n), and (1, ldx) for one column per variable, x(ldx,
 *            n_in). A Jacobian is J[(j * n_out + o) * n_in + i].
 * Streams    A call enqueues its work on `stream`, a cudaStream_t (null: the default stream), and returns. Arrays are
 *            in the memory of the model's GPU and must stay valid until the work is complete. A fault of a kernel is
 *            reported by the next CUDA call that waits. Calls allocate nothing and can be captured in a CUDA graph.
 * Threads    Any number of threads and streams may share a lsem_gpu. The calling thread's current GPU does not change.
 * Results    They agree with those of the CPU to rounding, and a node's results depend on that node alone. */

/* A copy of an emulator in the memory of a GPU. */
typedef struct lsem_gpu lsem_gpu;

/* Copies the model with its active inputs, domain and precision to a GPU: `device` is CUDA's number, or -1 for the
 * calling thread's current GPU. Later changes of the model do not affect the copy. On failure *g is null. Errors:
 * ARGUMENT, MEMORY, GPU (no GPU; a network whose values exceed the shared memory of a block). */
LSEM_API int lsem_gpu_open(const lsem_model* m, int device, lsem_gpu** g);

/* Frees the copy after all work on its GPU; null is allowed. */
LSEM_API void lsem_gpu_close(lsem_gpu* g);

/* y = M(x), as lsem_predict. Errors: ARGUMENT, GPU. */
LSEM_API int lsem_gpu_predict_f32(const lsem_gpu* g, long n, const float* x, long x_node, long x_variable, float* y,
                                  long y_node, long y_variable, void* stream);
LSEM_API int lsem_gpu_predict_f64(const lsem_gpu* g, long n, const double* x, long x_node, long x_variable, double* y,
                                  long y_node, long y_variable, void* stream);

/* The Jacobian at x, as lsem_jac; `mask` is null or n values in GPU memory. Entries of excluded nodes and inactive
 * inputs are -0, and no others: so lsem_gpu_tl and lsem_gpu_ad recognise them. Errors: ARGUMENT, GPU. */
LSEM_API int lsem_gpu_jac_f32(const lsem_gpu* g, long n, const float* x, long x_node, long x_variable,
                              const float* mask, int physical, float* J, void* stream);
LSEM_API int lsem_gpu_jac_f64(const lsem_gpu* g, long n, const double* x, long x_node, long x_variable,
                              const double* mask, int physical, double* J, void* stream);

/* Tangent linear dy = K dx and adjoint dx = K' dy, added to the result if `accumulate` is not 0, with the Jacobians J
 * that lsem_gpu_jac computed once: for dx and dy in physical units with physical != 0. Entries -0 of J are left out,
 * whatever dx and dy hold there. Errors: ARGUMENT, GPU. */
LSEM_API int lsem_gpu_tl_f32(const lsem_gpu* g, long n, const float* J, const float* dx, long dx_node, long dx_variable,
                             float* dy, long dy_node, long dy_variable, int accumulate, void* stream);
LSEM_API int lsem_gpu_tl_f64(const lsem_gpu* g, long n, const double* J, const double* dx, long dx_node,
                             long dx_variable, double* dy, long dy_node, long dy_variable, int accumulate,
                             void* stream);
LSEM_API int lsem_gpu_ad_f32(const lsem_gpu* g, long n, const float* J, const float* dy, long dy_node, long dy_variable,
                             float* dx, long dx_node, long dx_variable, int accumulate, void* stream);
LSEM_API int lsem_gpu_ad_f64(const lsem_gpu* g, long n, const double* J, const double* dy, long dy_node,
                             long dy_variable, double* dx, long dx_node, long dx_variable, int accumulate,
                             void* stream);

/* ---- Other networks: activity recognition, recommenders ---------------------------------------------------------- */

/* A trained network as a function from arrays to arrays, from the .safetensors file that `lockstep export` writes. For
 * a batch of n samples each input and output is one array without gaps, [n][...] in C, (..., n) in Fortran:
 *
 *   kind      inputs                                             outputs
 *   har       x f32 [n][channels][length]: the raw signals of    scores f32 [n][classes]: logits (mode independent:
 *             a window (model.input = signal)                    means over the channels of their log-probabilities)
 *   sasrec    items i64 [n][slots]: histories, the newest item   scores f32 [n][items] of items 1, 2, ... as next item
 *             last, 0 in the slots before the first
 *   tisasrec  items, times i64 [n][slots]: also the times as     scores f32 [n][items]
 *             the prepared data set has them: (t - the user's
 *             first t) / (the user's smallest difference > 0),
 *             rounded, + 1; 0 where items is 0
 *   bprmf     users i64 [n], items i64 [n][K]: their numbers     scores f32 [n][K]
 *             from 0; K: see lsnet_set, default 1. Also files
 *             of `lockstep export --tables` from kgat
 *   hrm       tokens i64 [n][cells], identifiers i64 [n] of      answers i64 [n][cells]: tokens; q_halt, q_continue f32
 *             puzzles, as the prepared data set has them         [n]: logits; after the last segment
 *
 * A model is constant after lsnet_open and lsnet_set: any number of threads may use it. A call computes in the
 * calling thread. */
typedef struct lsnet_model lsnet_model;
/* Memory that calls reuse. Only one call at a time may use it. */
typedef struct lsnet_workspace lsnet_workspace;

/* Types of elements. */
enum {
  LSNET_F32 = 0, /* float */
  LSNET_I64 = 1  /* int64_t */
};

/* Opens a model file, or the `len` bytes of one, verifies its checksum, names and shapes. On failure *m is null.
 * Errors: ARGUMENT, OPEN, FORMAT (also: a kind that is not in the table), DAMAGED, MEMORY. */
LSEM_API int lsnet_open(const char* path, lsnet_model** m);
LSEM_API int lsnet_open_mem(const void* buf, size_t len, lsnet_model** m);
/* Frees a network; null is allowed. */
LSEM_API void lsnet_close(lsnet_model* m);

/* The entry `key` of the file: "kind", "model.items", "data.class_names" (a JSON list), ... Errors: ARGUMENT, BUFFER,
 * NOT_FOUND. */
LSEM_API int lsnet_meta(const lsnet_model* m, const char* key, char* buf, size_t len);

/* Number of inputs (is_output 0) or outputs (1); -1 for a null model. */
LSEM_API int lsnet_arrays(const lsnet_model* m, int is_output);
/* Name of input or output i, counted from 0. Errors: ARGUMENT, BUFFER. */
LSEM_API int lsnet_array_name(const lsnet_model* m, int is_output, int i, char* buf, size_t len);
/* LSNET_F32 or LSNET_I64; the number of axes, including the batch; the extent of an axis, in C's order: 0 for axis 0,
 * the batch. -1 for a wrong argument. */
LSEM_API int lsnet_array_type(const lsnet_model* m, int is_output, int i);
LSEM_API int lsnet_array_rank(const lsnet_model* m, int is_output, int i);
LSEM_API long lsnet_array_extent(const lsnet_model* m, int is_output, int i, int axis);

/* Sets a number that the file does not hold; extents depend on it. Call it before threads share the model. Settings:
 * "items_per_user" of bprmf, the number of items that a call scores for each user; "segments" of hrm, by default the
 * number in evaluations during training. Errors: ARGUMENT (no such setting, out of range), MEMORY. */
LSEM_API int lsnet_set(lsnet_model* m, const char* setting, long value);

/* Null if out of memory. */
LSEM_API lsnet_workspace* lsnet_workspace_new(void);
LSEM_API void lsnet_workspace_free(lsnet_workspace* ws);

/* Computes all outputs of n >= 0 samples, in blocks of samples, so its memory does not grow with n. inputs: one address
 * per input, outputs: one per output, in their order. If `ws` is null, the call allocates its memory. Errors: ARGUMENT
 * (also a user, item or token that does not exist, or a history without items), MEMORY. */
LSEM_API int lsnet_predict(const lsnet_model* m, long n, const void* const* inputs, void* const* outputs,
                           lsnet_workspace* ws);

#ifdef __cplusplus
}
#endif

#endif
