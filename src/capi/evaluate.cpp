#include "capi.hpp"

using namespace lockstep;        // NOLINT: the functions themselves are C's
using namespace lockstep::capi;  // NOLINT

/// Each function of the interface calls a template over the type S of its states.
namespace {

constexpr std::size_t kAlign = 64;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

template <class S>
std::size_t operator_bytes(const lsem_model* m, OperatorCall call) {
  return aligned(m->with_operators<S>([&](const auto& operators) { return operators->workspace_bytes(call); }));
}

/// The workspace of the operators, followed by a tile of inputs and results for fields that are copied.
template <class S>
std::size_t workspace_bytes(const lsem_model* m, long n, OperatorCall call) {
  const auto columns =
      static_cast<std::size_t>(m->n_in()) +
      static_cast<std::size_t>(m->n_out()) * (call == OperatorCall::jacobian ? static_cast<std::size_t>(m->n_in()) : 1);
  return operator_bytes<S>(m, call) + static_cast<std::size_t>(tile_nodes(n, m->options.threads)) * columns * sizeof(S);
}

void check_call(const lsem_model* m, long n) {
  require_argument(m, "the model is null");
  require_argument(n >= 0, n, " nodes");
}

template <class S>
void check_rows(const S* data, long n, long stride, int least, const char* what) {
  require_argument(data || n == 0, what, " is null");
  require_argument(stride >= least, "ld", what, " is ", stride, ", must be >= ", least);
}

template <class S>
void predict_view(const lsem_model* m, long n, StateView<const S> x, StateView<S> y, void* ws) {
  m->with_operators<S>([&](const auto& operators) { operators->template predict<S>(n, x, y, ws); });
}

/// errors  Failure: `node`, the result of an operator, is a node and not -1
void require_finite(std::int64_t node, const char* result, const char* input) {
  if (node >= 0)
    throw Failure(LSEM_ERR_NOT_FINITE,
                  join("the ", result, " of node ", node, ", which is inside the domain, is not finite: ", input,
                       " is not, or is too large; correct it, or exclude the node by the mask"));
}

/// first  number of the first node in the caller's arrays, for messages
template <class S>
void jacobian_view(const lsem_model* m, long first, long n, StateView<const S> x, const S* mask, int physical, S* j,
                   void* ws) {
  const JacobianUnits units = physical ? JacobianUnits::physical : JacobianUnits::normalised;
  const std::int64_t node = m->with_operators<S>(
      [&](const auto& operators) { return operators->template jacobian<S>(n, x, {.mask = mask}, units, j, ws); });
  require_finite(node < 0 ? node : first + node, "Jacobian", "its state");
}

template <class S>
int predict(const lsem_model* m, long n, const S* x, long ldx, S* y, long ldy, void* ws) noexcept {
  return guarded([&] {
    check_call(m, n);
    check_rows(x, n, ldx, m->n_in(), "x");
    check_rows(y, n, ldy, m->n_out(), "y");
    if (n > 0) predict_view<S>(m, n, {x, ldx, 1}, {y, ldy, 1}, ws);
  });
}

template <class S>
int predict_fields(const lsem_model* m, long n, const S* const* x, const long* sx, S* const* y, const long* sy,
                   void* ws) noexcept {
  return guarded([&] {
    check_call(m, n);
    const Fields<const S> in{x, sx, m->n_in()};
    const Fields<S> out{y, sy, m->n_out()};
    check_fields(in, n, "x", false);
    check_fields(out, n, "y", true);
    if (n == 0) return;
    StateView<const S> x_view;
    StateView<S> y_view;
    if (as_view(in, x_view) && as_view(out, y_view)) return predict_view<S>(m, n, x_view, y_view, ws);
    const Workspace workspace(ws, workspace_bytes<S>(m, n, OperatorCall::predict));
    const long block = tile_nodes(n, m->options.threads);
    S* x_tile = reinterpret_cast<S*>(workspace.data() + operator_bytes<S>(m, OperatorCall::predict));
    S* y_tile = x_tile + block * in.count;
    for (long first = 0; first < n; first += block) {
      const long count = std::min(block, n - first);
      gather(in, first, count, x_tile);
      predict_view<S>(m, count, {x_tile, in.count, 1}, {y_tile, out.count, 1}, workspace.data());
      scatter(y_tile, out, first, count, StoreMode::store);
    }
  });
}

template <class S>
int jacobian(const lsem_model* m, long n, const S* x, long ldx, const S* mask, int physical, S* j, void* ws) noexcept {
  return guarded([&] {
    check_call(m, n);
    check_rows(x, n, ldx, m->n_in(), "x");
    require_argument(j || n == 0, "J is null");
    if (n > 0) jacobian_view<S>(m, 0, n, {x, ldx, 1}, mask, physical, j, ws);
  });
}

template <class S>
int jacobian_fields(const lsem_model* m, long n, const S* const* x, const long* sx, const S* mask, int physical,
                    S* const* j, const long* sj, void* ws) noexcept {
  return guarded([&] {
    check_call(m, n);
    const Fields<const S> in{x, sx, m->n_in()};
    const Fields<S> out{j, sj, m->n_out() * m->n_in()};
    check_fields(in, n, "x", false);
    check_fields(out, n, "J", true);
    if (n == 0) return;
    const Workspace workspace(ws, workspace_bytes<S>(m, n, OperatorCall::jacobian));
    const long block = tile_nodes(n, m->options.threads);
    S* x_tile = reinterpret_cast<S*>(workspace.data() + operator_bytes<S>(m, OperatorCall::jacobian));
    S* j_tile = x_tile + block * in.count;
    StateView<const S> x_view;
    const bool in_place = as_view(in, x_view);
    for (long first = 0; first < n; first += block) {
      const long count = std::min(block, n - first);
      if (!in_place) gather(in, first, count, x_tile);
      const StateView<const S> view = in_place ? x_view.from(first) : StateView<const S>{x_tile, in.count, 1};
      jacobian_view<S>(m, first, count, view, mask ? mask + first : nullptr, physical, j_tile, workspace.data());
      scatter(j_tile, out, first, count, StoreMode::store);
    }
  });
}

template <class S>
void linearize_view(const lsem_model* m, long n, StateView<const S> x, const S* mask, lsem_lin** out) {
  *out = m->with_operators<S>([&]<class T>(const std::shared_ptr<const EmulatorOperators<T>>& operators) {
    lsem_lin::Typed<T> typed{operators, operators->template linearize<S>(n, x, {.mask = mask})};
    return new lsem_lin{std::move(typed), std::is_same_v<S, double>, n, m->n_in(), m->n_out()};
  });
}

template <class S>
int linearize(const lsem_model* m, long n, const S* x, long ldx, const S* mask, lsem_lin** out) noexcept {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out, "the pointer for the linearisation is null");
    check_call(m, n);
    check_rows(x, n, ldx, m->n_in(), "x");
    linearize_view<S>(m, n, {x, ldx, 1}, mask, out);
  });
}

template <class S>
int linearize_fields(const lsem_model* m, long n, const S* const* x, const long* sx, const S* mask,
                     lsem_lin** out) noexcept {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out, "the pointer for the linearisation is null");
    check_call(m, n);
    const Fields<const S> in{x, sx, m->n_in()};
    check_fields(in, n, "x", false);
    StateView<const S> view;
    if (n == 0 || as_view(in, view)) return linearize_view<S>(m, n, view, mask, out);
    const auto dense =
        std::make_unique_for_overwrite<S[]>(static_cast<std::size_t>(n) * static_cast<std::size_t>(in.count));
    gather(in, 0, n, dense.get());
    linearize_view<S>(m, n, {dense.get(), in.count, 1}, mask, out);
  });
}

enum class Direction { tangent, adjoint };

template <class S>
void check_lin(const lsem_lin* lin) {
  require_argument(lin, "the linearisation is null");
  require_argument(lin->double_states == std::is_same_v<S, double>, "the linearisation was made by lsem_linearize",
                   lin->double_states ? "_f64" : "_f32", "; use the functions of that precision");
}

/// Scratch memory of the calling thread for tangent linear and adjoint, which run hundreds of times per linearisation
/// and have no workspace argument.
char* thread_scratch(std::size_t size_bytes) {
  thread_local std::vector<char> scratch;
  if (scratch.size() < size_bytes) scratch.resize(size_bytes);
  return scratch.data();
}

template <class S>
void apply_view(const lsem_lin* lin, Direction direction, StateView<const S> from, StateView<S> to, StoreMode mode) {
  std::visit(
      [&](const auto& typed) {
        char* workspace = thread_scratch(typed.linearization.workspace_bytes());
        if (direction == Direction::tangent)
          require_finite(typed.linearization.template tangent<S>(from, to, mode, workspace), "tangent linear",
                         "its dx or K");
        else
          require_finite(typed.linearization.template adjoint<S>(from, to, mode, workspace), "adjoint", "its dy or K");
      },
      lin->typed);
}

template <class S>
int apply(const lsem_lin* lin, Direction direction, const S* from, long ld_from, S* to, long ld_to,
          int accumulate) noexcept {
  return guarded([&] {
    check_lin<S>(lin);
    const bool tangent = direction == Direction::tangent;
    check_rows(from, lin->nodes, ld_from, tangent ? lin->n_in : lin->n_out, tangent ? "dx" : "dy");
    check_rows(to, lin->nodes, ld_to, tangent ? lin->n_out : lin->n_in, tangent ? "dy" : "dx");
    if (lin->nodes > 0)
      apply_view<S>(lin, direction, {from, ld_from, 1}, {to, ld_to, 1}, accumulate ? StoreMode::add : StoreMode::store);
  });
}

template <class S>
int apply_fields(const lsem_lin* lin, Direction direction, const S* const* from, const long* s_from, S* const* to,
                 const long* s_to, int accumulate) noexcept {
  return guarded([&] {
    check_lin<S>(lin);
    const bool tangent = direction == Direction::tangent;
    const Fields<const S> in{from, s_from, tangent ? lin->n_in : lin->n_out};
    const Fields<S> out{to, s_to, tangent ? lin->n_out : lin->n_in};
    const long n = lin->nodes;
    check_fields(in, n, tangent ? "dx" : "dy", false);
    check_fields(out, n, tangent ? "dy" : "dx", true);
    if (n == 0) return;
    const StoreMode mode = accumulate ? StoreMode::add : StoreMode::store;
    StateView<const S> from_view;
    StateView<S> to_view;
    const bool from_in_place = as_view(in, from_view), to_in_place = as_view(out, to_view);
    std::unique_ptr<S[]> from_dense, to_dense;
    if (!from_in_place) {
      from_dense =
          std::make_unique_for_overwrite<S[]>(static_cast<std::size_t>(n) * static_cast<std::size_t>(in.count));
      gather(in, 0, n, from_dense.get());
      from_view = {from_dense.get(), in.count, 1};
    }
    if (to_in_place) return apply_view<S>(lin, direction, from_view, to_view, mode);
    to_dense = std::make_unique_for_overwrite<S[]>(static_cast<std::size_t>(n) * static_cast<std::size_t>(out.count));
    apply_view<S>(lin, direction, from_view, {to_dense.get(), out.count, 1}, StoreMode::store);
    scatter(to_dense.get(), out, 0, n, mode);
  });
}

}  // namespace

size_t lsem_workspace_bytes(const lsem_model* m, long n, int what) {
  size_t bytes = 0;
  guarded([&] {
    check_call(m, n);
    require_argument(what >= LSEM_WS_PREDICT_F32 && what <= LSEM_WS_JAC_F64, "no workspace of kind ", what);
    const bool predicts = what == LSEM_WS_PREDICT_F32 || what == LSEM_WS_PREDICT_F64,
               single = what == LSEM_WS_PREDICT_F32 || what == LSEM_WS_JAC_F32;
    const OperatorCall call = predicts ? OperatorCall::predict : OperatorCall::jacobian;
    bytes = single ? workspace_bytes<float>(m, n, call) : workspace_bytes<double>(m, n, call);
  });
  return bytes;
}

long lsem_lin_nodes(const lsem_lin* lin) { return lin ? lin->nodes : -1; }
size_t lsem_lin_bytes(const lsem_lin* lin) {
  return lin ? std::visit([](const auto& typed) { return typed.linearization.size_bytes(); }, lin->typed) : 0;
}
void lsem_lin_free(lsem_lin* lin) { delete lin; }

// The functions of one precision. C has no templates, so each has a name of its own.
#define LSEM_FUNCTIONS(S, suffix)                                                                                   \
  int lsem_predict_##suffix(const lsem_model* m, long n, const S* x, long ldx, S* y, long ldy, void* ws) {          \
    return predict(m, n, x, ldx, y, ldy, ws);                                                                       \
  }                                                                                                                 \
  int lsem_predict_soa_##suffix(const lsem_model* m, long n, const S* const* x, const long* sx, S* const* y,        \
                                const long* sy, void* ws) {                                                         \
    return predict_fields(m, n, x, sx, y, sy, ws);                                                                  \
  }                                                                                                                 \
  int lsem_jac_##suffix(const lsem_model* m, long n, const S* x, long ldx, const S* mask, int physical, S* J,       \
                        void* ws) {                                                                                 \
    return jacobian(m, n, x, ldx, mask, physical, J, ws);                                                           \
  }                                                                                                                 \
  int lsem_jac_soa_##suffix(const lsem_model* m, long n, const S* const* x, const long* sx, const S* mask,          \
                            int physical, S* const* J, const long* sJ, void* ws) {                                  \
    return jacobian_fields(m, n, x, sx, mask, physical, J, sJ, ws);                                                 \
  }                                                                                                                 \
  int lsem_linearize_##suffix(const lsem_model* m, long n, const S* x, long ldx, const S* mask, lsem_lin** out) {   \
    return linearize(m, n, x, ldx, mask, out);                                                                      \
  }                                                                                                                 \
  int lsem_linearize_soa_##suffix(const lsem_model* m, long n, const S* const* x, const long* sx, const S* mask,    \
                                  lsem_lin** out) {                                                                 \
    return linearize_fields(m, n, x, sx, mask, out);                                                                \
  }                                                                                                                 \
  int lsem_tl_##suffix(const lsem_lin* lin, const S* dx, long lddx, S* dy, long lddy, int accumulate) {             \
    return apply(lin, Direction::tangent, dx, lddx, dy, lddy, accumulate);                                          \
  }                                                                                                                 \
  int lsem_ad_##suffix(const lsem_lin* lin, const S* dy, long lddy, S* dx, long lddx, int accumulate) {             \
    return apply(lin, Direction::adjoint, dy, lddy, dx, lddx, accumulate);                                          \
  }                                                                                                                 \
  int lsem_tl_soa_##suffix(const lsem_lin* lin, const S* const* dx, const long* sdx, S* const* dy, const long* sdy, \
                           int accumulate) {                                                                        \
    return apply_fields(lin, Direction::tangent, dx, sdx, dy, sdy, accumulate);                                     \
  }                                                                                                                 \
  int lsem_ad_soa_##suffix(const lsem_lin* lin, const S* const* dy, const long* sdy, S* const* dx, const long* sdx, \
                           int accumulate) {                                                                        \
    return apply_fields(lin, Direction::adjoint, dy, sdy, dx, sdx, accumulate);                                     \
  }
LSEM_FUNCTIONS(float, f32)
LSEM_FUNCTIONS(double, f64)
