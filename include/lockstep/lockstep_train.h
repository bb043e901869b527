/*
 * liblockstep_train: an emulator that learns inside a program with MPI, from C, C++ and Fortran, while the program
 * runs. It also contains the lsem_* functions of liblockstep (lockstep.h); link one of the two.
 *
 * A session trains one network that maps a column of n_in variables to n_out variables. In each time step every rank
 * passes the columns that it computes (lsfit_observe_*), then all ranks take one training step over all of them
 * (lsfit_step): forward and backward pass, weighted mean over the communicator, clipping, update. Weights and optimizer
 * are the same on all ranks, in every bit.
 *
 * Config     The text of lsfit_open is the name of an INI file, or lines `key = value` such as "optim.lr = 1e-3". Keys
 *            and defaults are those of `lockstep train` for model.kind = emulator (docs/options.md): model.*, loss.*,
 *            optim.*, schedule.*, run.seed, run.reproducible, run.threads (default 1), run.isa, run.precision (fp32 or
 *            fp64), run.device, run.backend, run.graphs, dist.compress, dist.shards, dist.bucket_bytes, dist.timeout,
 *            dist.check_collectives; and reservoir.*, below. A schedule counts steps.
 * Device     With run.device = cuda, in a library built with CUDA, a rank computes on the GPU that is current for the
 *            calling thread in lsfit_open. Ranks with a GPU each add their gradients by NCCL.
 * Layout     As in lockstep.h: variable i of column j is x[j * ldx + i], or x[i][j * sx[i]] for *_soa. Columns are
 *            stored in single precision.
 * Moments    x and y are in physical units. They are normalised by the mean and standard deviation of the columns of
 *            the first step (1 for a constant variable), unless lsfit_set_moments gives both before. Later they do not
 *            change.
 * Ranks      Ranks may pass different numbers of columns, or none. The order of the columns is by identity if they have
 *            one (ids), otherwise by rank, then by call. With run.reproducible = true, the same order gives the same
 *            weights in every bit, however the columns are divided over ranks. Rows move between ranks where that
 *            balances the work.
 * Identity   The number of a column in the global grid, for example. Every rank learns the identities of a step's
 *            columns, 8 bytes each.
 * Reservoir  With reservoir.columns = N > 0 the session keeps N columns of past steps, over all ranks, and each step
 *            also trains on reservoir.batch of them (default 0: as many as are observed in the step). Each of the
 *            columns so far is among the N with the same probability. Which are kept and drawn depends on run.seed,
 *            identity and step alone. They belong to the state: a session on any number of ranks continues with them.
 * Collective lsfit_open, lsfit_step, lsfit_export, lsfit_save, lsfit_state_set and lsfit_close are called by all ranks
 *            of the communicator, in the same order; with a reservoir also lsfit_state_size and lsfit_state_get. All
 *            other calls are local.
 * Errors     A function returns LSEM_OK or another code of lockstep.h, or LSFIT_ERR_LOST. lsfit_error gives the
 *            message. An error of one rank in a collective call is an error on all ranks, and weights keep their values.
 *            After LSFIT_ERR_LOST (no answer of a rank within dist.timeout) only lsfit_close may follow. The library prints
 *            nothing, never ends the process, and sets neither signal handlers nor OpenMP settings. It uses no
 *            communicator but duplicates of the given one.
 * Threads    One call per session at a time; several sessions may be used by several threads with MPI_THREAD_MULTIPLE.
 */
#ifndef LOCKSTEP_LOCKSTEP_TRAIN_H
#define LOCKSTEP_LOCKSTEP_TRAIN_H

#include <mpi.h>

#include "lockstep/lockstep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A network in training. */
typedef struct lsfit_session lsfit_session;

enum {
  LSFIT_ERR_LOST = 12 /* a rank of the session has ended or does not answer */
};

/* Opens a session on all ranks of comm, which is duplicated. names: the n_in + n_out names of the variables,
 * separated by commas, inputs first, no two inputs or outputs alike; units: as many units. Each may be null. On failure
 * *session is null, and lsem_last_error has the message. Errors: ARGUMENT (also: the ranks differ in a value;
 * run.device = cuda without a GPU), MEMORY, INTERNAL, LOST. */
LSEM_API int lsfit_open(MPI_Comm comm, const char* config, int n_in, int n_out, const char* names, const char* units,
                        lsfit_session** session);
/* The same with the number of a communicator in Fortran. */
LSEM_API int lsfit_open_fortran(int comm, const char* config, int n_in, int n_out, const char* names, const char* units,
                                lsfit_session** session);
/* Ends a session; null is allowed. */
LSEM_API int lsfit_close(lsfit_session* session);
/* The message of the session's last failed call: what failed, on which rank, host and step. Never null. */
LSEM_API const char* lsfit_error(const lsfit_session* session);

/* Mean and standard deviation of the inputs (n_in) and outputs (n_out), the same on all ranks, before the first step.
 * Errors: ARGUMENT (a value that is not finite, a deviation <= 0, a step was taken before). */
LSEM_API int lsfit_set_moments(lsfit_session* session, const double* in_mean, const double* in_std,
                               const double* out_mean, const double* out_std);

/* Adds n >= 0 columns to the next step. weights: n factors >= 0 of the columns in the loss, or null (1 each); a column
 * of weight 0 is left out, whatever it holds. ids: n identities of the columns, or null; each at most once per step on
 * all ranks. Errors: ARGUMENT (also: identities of some columns of a step only, or none with a reservoir), MEMORY;
 * NOT_FINITE (names variable and column): no column of the call is added, and the next lsfit_step fails on all ranks
 * and drops the columns. */
LSEM_API int lsfit_observe_f32(lsfit_session* session, long n, const float* x, long ldx, const float* y, long ldy,
                               const float* weights, const long* ids);
LSEM_API int lsfit_observe_f64(lsfit_session* session, long n, const double* x, long ldx, const double* y, long ldy,
                               const double* weights, const long* ids);
LSEM_API int lsfit_observe_soa_f32(lsfit_session* session, long n, const float* const* x, const long* sx,
                                   const float* const* y, const long* sy, const float* weights, const long* ids);
LSEM_API int lsfit_observe_soa_f64(lsfit_session* session, long n, const double* const* x, const long* sx,
                                   const double* const* y, const long* sy, const double* weights, const long* ids);
/* The same for x, y and weights in the memory of the calling thread's current GPU, with strides as in
 * lsem_gpu_predict_*, when the work of `stream` (a cudaStream_t) is complete. ids is in host memory. In a session on
 * this GPU x and y stay there. They go through the host in a session on CPUs, with a reservoir, in a step for which
 * columns in host memory are observed too, in the first step without lsfit_set_moments, and where columns move between
 * ranks or are not in the order of their identities; weights always do. For predictions on the GPU, lsem_gpu_open
 * copies the model of lsfit_model. Errors: also GPU. */
LSEM_API int lsfit_gpu_observe_f32(lsfit_session* session, long n, const float* x, long x_node, long x_variable,
                                   const float* y, long y_node, long y_variable, const float* weights, const long* ids,
                                   void* stream);
LSEM_API int lsfit_gpu_observe_f64(lsfit_session* session, long n, const double* x, long x_node, long x_variable,
                                   const double* y, long y_node, long y_variable, const double* weights,
                                   const long* ids, void* stream);

/* Takes one training step over the observed columns of all ranks, and drops them. *loss, which may be null, receives
 * the weighted mean loss before the update. If it fails, nothing is updated. Errors: ARGUMENT (no columns on any rank;
 * an identity of two columns; all weights zero; ranks that differ in their moments; a loss or gradient that is not
 * finite), NOT_FINITE (a column that a rank has observed), MEMORY, LOST. */
LSEM_API int lsfit_step(lsfit_session* session, double* loss);
/* The number of steps; -1 for null. */
LSEM_API long lsfit_steps(const lsfit_session* session);

/* The network with its current weights (their average with optim.ema), for lsem_predict_*, lsem_jac_*,
 * lsem_linearize_*, lsem_tl_*, lsem_ad_* and lsem_set_*. It belongs to the session and is valid until the next
 * lsfit_step, lsfit_state_set or lsfit_close. Errors: ARGUMENT (before the first step or state), MEMORY. */
LSEM_API int lsfit_model(lsfit_session* session, lsem_model** m);
/* Writes a model file, as `lockstep export` does: NAME.lsem, .onnx, .pt (TorchScript), .safetensors or .h5model. Rank 0
 * writes. Errors: ARGUMENT (another ending; no such folder; before the first step or state), OPEN (the disk). */
LSEM_API int lsfit_export(lsfit_session* session, const char* path);
/* Writes a checkpoint that `lockstep predict`, `eval` and `export` read, and `lockstep train --init`. Rank 0 writes it,
 * whole or not at all. Errors: ARGUMENT (no such folder; before the first step or state; a library without HDF5: use
 * lsfit_export or lsfit_state_get), OPEN (the disk). */
LSEM_API int lsfit_save(lsfit_session* session, const char* path);

/* The complete state as bytes, for the program's own restart file: weights, optimizer, average, moments, position and
 * reservoir, but no observed columns. It is the same on all ranks, and continues on any number of ranks. A session with
 * a smaller reservoir keeps a part of it. lsfit_state_size gives the length, lsfit_state_get writes the bytes. Errors:
 * ARGUMENT (before the first step or state), BUFFER (len too small). */
LSEM_API int lsfit_state_size(lsfit_session* session, size_t* bytes);
LSEM_API int lsfit_state_get(lsfit_session* session, void* buf, size_t len);
/* Continues from these bytes; all ranks pass the same. Errors: ARGUMENT (other variables or another network),
 * DAMAGED (cut or changed bytes), FORMAT (no state, or of another version), LOST. */
LSEM_API int lsfit_state_set(lsfit_session* session, const void* buf, size_t len);

#ifdef __cplusplus
}
#endif
#endif
