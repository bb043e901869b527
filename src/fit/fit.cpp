#include <mpi.h>

#include <atomic>
#include <cstring>

#include "capi/capi.hpp"
#include "fit/session.hpp"
#include "lockstep/lockstep_train.h"

using namespace lockstep;        // NOLINT: the functions themselves are C's
using namespace lockstep::capi;  // NOLINT

struct lsfit_session {
  fit::Session session;
  std::unique_ptr<lsem_model> model;  ///< of lsfit_model
  std::vector<std::byte> state;       ///< of lsfit_state_size, for lsfit_state_get
  std::string error;
  std::atomic_flag busy;
};

namespace {

/// The codes of errors in the input and inside the library; they depend on the call.
struct Codes {
  int data = LSEM_ERR_NOT_FINITE, internal = LSEM_ERR_INTERNAL;
};

int code_of(const Error& error, const Codes& codes) {
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return LSEM_ERR_MEMORY;
  return error.fault() == Fault::usage ? LSEM_ERR_ARGUMENT : error.fault() == Fault::data ? codes.data : codes.internal;
}

/// Makes the session's GPU, if it has one, current for the calling thread.
struct OnItsGpu {
  explicit OnItsGpu(const fit::Session& session) {
    if (session.device().is_cuda()) current.emplace(session.device());
  }
  std::optional<CurrentGpu> current;
};

/// Runs the body of a call and converts exceptions to status codes.
int guarded_fit(lsfit_session* s, const auto& body, const Codes& codes = {}) noexcept {
  if (s == nullptr) return guarded([] { throw Failure(LSEM_ERR_ARGUMENT, "the session is null"); });
  if (s->busy.test_and_set())
    return guarded([] { throw Failure(LSEM_ERR_ARGUMENT, "another thread is using the session; one call at a time"); });
  const int code = guarded([&] {
    try {
      const OnItsGpu on(s->session);
      body(s->session);
    } catch (const Failure&) {
      throw;
    } catch (const LostRank& error) {
      throw Failure(LSFIT_ERR_LOST, join(s->session.where(), ": ", error.what()));
    } catch (const Error& error) {
      throw Failure(code_of(error, codes), error.what());
    }
  });
  if (code != LSEM_OK) {
    try {
      s->error = lsem_last_error();
    } catch (...) {
      s->error.clear();
    }
  }
  s->busy.clear();
  return code;
}

std::string text_of(const char* text) { return text != nullptr ? text : ""; }

/// One value per column, or none.
template <class T>
std::span<const T> optional(const T* values, long n) {
  return {values, values != nullptr ? static_cast<std::size_t>(n) : 0};
}

template <class S>
int observe(lsfit_session* s, long n, States<const S> x, States<const S> y, const S* weights,
            const long* ids) noexcept {
  return guarded_fit(s, [&](fit::Session& session) {
    require_argument(n >= 0, n, " columns");
    x.check(n, static_cast<int>(session.n_in()), "x");
    y.check(n, static_cast<int>(session.n_out()), "y");
    std::unique_ptr<S[]> copies[2];
    session.observe(n, x.view(n, copies[0]), y.view(n, copies[1]), optional(weights, n), optional(ids, n));
  });
}

/// A state in GPU memory, or, unless it `stays` there, a copy with its strides.
template <class S>
struct GpuState {
  GpuState(const Stream& stream, bool stays, const char* what, long n, std::int64_t count, const S* data, long node,
           long variable)
      : view(gpu_view(what, data, node, variable)) {
    if (stays) return;
    values.resize((n - 1) * node + (count - 1) * variable + 1);
    copy_bytes(stream, values.data(), data, values.size() * sizeof(S));
    view.data = values.data();
  }
  std::vector<S> values;
  StateView<const S> view;
};

template <class S>
int observe_gpu(lsfit_session* s, long n, const S* x, long x_node, long x_variable, const S* y, long y_node,
                long y_variable, const S* weights, const long* ids, void* native) noexcept {
  return guarded_fit(s, [&](fit::Session& session) {
    require_argument(n >= 0, n, " columns");
    if (n == 0) return;
    std::optional<GpuState<S>> inputs, outputs, factors;
    std::optional<Stream> stream;
    bool stay = false;
    const int code = on_gpu([&] {
      const Device gpu = current_gpu();
      const CurrentGpu current(gpu);
      stream.emplace(gpu, native);
      stay = session.takes_from(gpu);
      inputs.emplace(*stream, stay, "x", n, session.n_in(), x, x_node, x_variable);
      outputs.emplace(*stream, stay, "y", n, session.n_out(), y, y_node, y_variable);
      if (weights != nullptr) factors.emplace(*stream, false, "weights", n, 1, weights, 1, 1);
      stream->synchronize();
    });
    if (code != LSEM_OK) throw Failure(code, lsem_last_error());
    session.observe(n, inputs->view, outputs->view, optional(factors ? factors->values.data() : nullptr, n),
                    optional(ids, n), stay ? &*stream : nullptr);
  });
}

/// communicator  returns it, once MPI may be called
int open(const auto& communicator, const char* config, int n_in, int n_out, const char* names, const char* units,
         lsfit_session** session) {
  if (session) *session = nullptr;
  return guarded([&] {
    require_argument(session, "the pointer for the session is null");
    int ready = 0, ended = 0;
    MPI_Initialized(&ready);
    MPI_Finalized(&ended);
    require_argument(ready && !ended, "opening a session: MPI is not initialised, or has been finalised");
    const MPI_Comm comm = communicator();
    require_argument(comm != MPI_COMM_NULL, "opening a session: the communicator is MPI_COMM_NULL");
    try {
      *session =
          new lsfit_session{{&comm, text_of(config), n_in, n_out, text_of(names), text_of(units)}, nullptr, {}, "", {}};
    } catch (const LostRank& error) {
      throw Failure(LSFIT_ERR_LOST, error.what());
    } catch (const Error& error) {
      throw Failure(code_of(error, {.data = LSEM_ERR_ARGUMENT}), error.what());
    }
  });
}

}  // namespace

int lsfit_open(MPI_Comm comm, const char* config, int n_in, int n_out, const char* names, const char* units,
               lsfit_session** session) {
  return open([&] { return comm; }, config, n_in, n_out, names, units, session);
}

int lsfit_open_fortran(int comm, const char* config, int n_in, int n_out, const char* names, const char* units,
                       lsfit_session** session) {
  return open([&] { return MPI_Comm_f2c(comm); }, config, n_in, n_out, names, units, session);
}

int lsfit_close(lsfit_session* session) {
  return guarded([&] {
    if (session == nullptr) return;
    const OnItsGpu on(session->session);
    delete session;
  });
}

const char* lsfit_error(const lsfit_session* session) {
  return session != nullptr ? session->error.c_str() : lsem_last_error();
}

int lsfit_set_moments(lsfit_session* s, const double* in_mean, const double* in_std, const double* out_mean,
                      const double* out_std) {
  return guarded_fit(
      s,
      [&](fit::Session& session) {
        require_argument(in_mean && in_std && out_mean && out_std, "an array of moments is null");
        const std::int64_t in = session.n_in(), out = session.n_out();
        session.set_moments(
            {{in_mean, in_mean + in}, {in_std, in_std + in}, {out_mean, out_mean + out}, {out_std, out_std + out}});
      },
      {.data = LSEM_ERR_ARGUMENT});
}

int lsfit_observe_f32(lsfit_session* s, long n, const float* x, long ldx, const float* y, long ldy,
                      const float* weights, const long* ids) {
  return observe<float>(s, n, {x, ldx}, {y, ldy}, weights, ids);
}
int lsfit_observe_f64(lsfit_session* s, long n, const double* x, long ldx, const double* y, long ldy,
                      const double* weights, const long* ids) {
  return observe<double>(s, n, {x, ldx}, {y, ldy}, weights, ids);
}
int lsfit_observe_soa_f32(lsfit_session* s, long n, const float* const* x, const long* sx, const float* const* y,
                          const long* sy, const float* weights, const long* ids) {
  return observe<float>(s, n, {x, sx}, {y, sy}, weights, ids);
}
int lsfit_observe_soa_f64(lsfit_session* s, long n, const double* const* x, const long* sx, const double* const* y,
                          const long* sy, const double* weights, const long* ids) {
  return observe<double>(s, n, {x, sx}, {y, sy}, weights, ids);
}

int lsfit_gpu_observe_f32(lsfit_session* s, long n, const float* x, long x_node, long x_variable, const float* y,
                          long y_node, long y_variable, const float* weights, const long* ids, void* stream) {
  return observe_gpu(s, n, x, x_node, x_variable, y, y_node, y_variable, weights, ids, stream);
}
int lsfit_gpu_observe_f64(lsfit_session* s, long n, const double* x, long x_node, long x_variable, const double* y,
                          long y_node, long y_variable, const double* weights, const long* ids, void* stream) {
  return observe_gpu(s, n, x, x_node, x_variable, y, y_node, y_variable, weights, ids, stream);
}

int lsfit_step(lsfit_session* s, double* loss) {
  return guarded_fit(s, [&](fit::Session& session) {
    s->model.reset();
    s->state = {};
    const double mean = session.step();
    if (loss) *loss = mean;
  });
}

long lsfit_steps(const lsfit_session* s) { return s != nullptr ? static_cast<long>(s->session.steps()) : -1; }

int lsfit_model(lsfit_session* s, lsem_model** m) {
  if (m) *m = nullptr;
  return guarded_fit(s, [&](fit::Session& session) {
    require_argument(m, "the pointer for the model is null");
    if (!s->model) {
      s->model = std::make_unique<lsem_model>(lsem_model{session.network(), {}, {}, LSEM_NET_F64, {}, {}});
      s->model->rebuild();
    }
    *m = s->model.get();
  });
}

int lsfit_export(lsfit_session* s, const char* path) {
  return guarded_fit(s, [&](fit::Session& session) { session.export_to(text_of(path)); },
                     {.data = LSEM_ERR_ARGUMENT, .internal = LSEM_ERR_OPEN});
}

int lsfit_save(lsfit_session* s, const char* path) {
  return guarded_fit(s, [&](fit::Session& session) { session.save(text_of(path)); }, {.internal = LSEM_ERR_OPEN});
}

int lsfit_state_size(lsfit_session* s, size_t* bytes) {
  return guarded_fit(s, [&](fit::Session& session) {
    require_argument(bytes, "the pointer for the size is null");
    s->state = session.state();
    *bytes = s->state.size();
  });
}

int lsfit_state_get(lsfit_session* s, void* buf, size_t len) {
  return guarded_fit(s, [&](fit::Session& session) {
    if (s->state.empty()) s->state = session.state();
    if (len < s->state.size() || buf == nullptr)
      throw Failure(LSEM_ERR_BUFFER, join("a buffer of ", s->state.size(), " bytes is needed, not ", len));
    std::memcpy(buf, s->state.data(), s->state.size());
    s->state = {};
  });
}

int lsfit_state_set(lsfit_session* s, const void* buf, size_t len) {
  return guarded_fit(s,
                     [&](fit::Session& session) {
                       s->model.reset();
                       s->state = {};
                       session.set_state({static_cast<const std::byte*>(buf), buf != nullptr ? len : 0});
                     },
                     {.data = LSEM_ERR_DAMAGED});
}
