#include "capi.hpp"

using namespace lockstep;        // NOLINT: the functions themselves are C's
using namespace lockstep::capi;  // NOLINT

/// Each function of the interface calls a template over the type S of its states.
namespace {

constexpr std::size_t kAlign = 64;
/// The `ld` of an array whose rows have no distance.
constexpr long kDense = std::numeric_limits<long>::max();
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
int predict(const lsem_model* m, long n, States<const S> x, States<S> y, void* ws) noexcept {
  return guarded([&] {
    check_call(m, n);
    x.check(n, m->n_in(), "x");
    y.check(n, m->n_out(), "y");
    if (n == 0) return;
    const auto x_view = x.view();
    const auto y_view = y.view();
    if (x_view && y_view) return predict_view<S>(m, n, *x_view, *y_view, ws);
    const Workspace workspace(ws, workspace_bytes<S>(m, n, OperatorCall::predict));
    const long block = tile_nodes(n, m->options.threads);
    S* x_tile = reinterpret_cast<S*>(workspace.data() + operator_bytes<S>(m, OperatorCall::predict));
    S* y_tile = x_tile + block * x.variables();
    for (long first = 0; first < n; first += block) {
      const long count = std::min(block, n - first);
      x.gather(first, count, x_tile);
      predict_view<S>(m, count, {x_tile, x.variables(), 1}, {y_tile, y.variables(), 1}, workspace.data());
      y.scatter(y_tile, first, count, StoreMode::store);
    }
  });
}

/// j  fields, or a dense array, whose `ld` is kDense
template <class S>
int jacobian(const lsem_model* m, long n, States<const S> x, const S* mask, int physical, States<S> j,
             void* ws) noexcept {
  return guarded([&] {
    check_call(m, n);
    x.check(n, m->n_in(), "x");
    j.check(n, m->n_out() * m->n_in(), "J");
    if (n == 0) return;
    const auto x_view = x.view();
    if (x_view && j.rows()) return jacobian_view<S>(m, 0, n, *x_view, mask, physical, j.rows(), ws);
    const Workspace workspace(ws, workspace_bytes<S>(m, n, OperatorCall::jacobian));
    const long block = tile_nodes(n, m->options.threads);
    S* x_tile = reinterpret_cast<S*>(workspace.data() + operator_bytes<S>(m, OperatorCall::jacobian));
    S* j_tile = x_tile + block * x.variables();
    for (long first = 0; first < n; first += block) {
      const long count = std::min(block, n - first);
      if (!x_view) x.gather(first, count, x_tile);
      const StateView<const S> view = x_view ? x_view->from(first) : StateView<const S>{x_tile, x.variables(), 1};
      jacobian_view<S>(m, first, count, view, mask ? mask + first : nullptr, physical, j_tile, workspace.data());
      j.scatter(j_tile, first, count, StoreMode::store);
    }
  });
}

template <class S>
int linearize(const lsem_model* m, long n, States<const S> x, const S* mask, lsem_lin** out) noexcept {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out, "the pointer for the linearisation is null");
    check_call(m, n);
    x.check(n, m->n_in(), "x");
    std::unique_ptr<S[]> copy;
    const StateView<const S> view = x.view(n, copy);
    *out = m->with_operators<S>([&]<class T>(const std::shared_ptr<const EmulatorOperators<T>>& operators) {
      lsem_lin::Typed<T> typed{operators, operators->template linearize<S>(n, view, {.mask = mask})};
      lsem_lin lin{std::move(typed), std::is_same_v<S, double>, n, m->n_in(), m->n_out()};
      return std::make_unique<lsem_lin>(std::move(lin)).release();
    });
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
int apply(const lsem_lin* lin, Direction direction, States<const S> from, States<S> to, int accumulate) noexcept {
  return guarded([&] {
    check_lin<S>(lin);
    const bool tangent = direction == Direction::tangent;
    const long n = lin->nodes;
    from.check(n, tangent ? lin->n_in : lin->n_out, tangent ? "dx" : "dy");
    to.check(n, tangent ? lin->n_out : lin->n_in, tangent ? "dy" : "dx");
    if (n == 0) return;
    const StoreMode mode = accumulate ? StoreMode::add : StoreMode::store;
    std::unique_ptr<S[]> copy;
    const StateView<const S> from_view = from.view(n, copy);
    if (const auto in_place = to.view()) return apply_view<S>(lin, direction, from_view, *in_place, mode);
    const std::unique_ptr<S[]> tile = to.tile(n);
    apply_view<S>(lin, direction, from_view, {tile.get(), to.variables(), 1}, StoreMode::store);
    to.scatter(tile.get(), 0, n, mode);
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
    return predict<S>(m, n, {x, ldx}, {y, ldy}, ws);                                                                \
  }                                                                                                                 \
  int lsem_predict_soa_##suffix(const lsem_model* m, long n, const S* const* x, const long* sx, S* const* y,        \
                                const long* sy, void* ws) {                                                         \
    return predict<S>(m, n, {x, sx}, {y, sy}, ws);                                                                  \
  }                                                                                                                 \
  int lsem_jac_##suffix(const lsem_model* m, long n, const S* x, long ldx, const S* mask, int physical, S* J,       \
                        void* ws) {                                                                                 \
    return jacobian<S>(m, n, {x, ldx}, mask, physical, {J, kDense}, ws);                                            \
  }                                                                                                                 \
  int lsem_jac_soa_##suffix(const lsem_model* m, long n, const S* const* x, const long* sx, const S* mask,          \
                            int physical, S* const* J, const long* sJ, void* ws) {                                  \
    return jacobian<S>(m, n, {x, sx}, mask, physical, {J, sJ}, ws);                                                 \
  }                                                                                                                 \
  int lsem_linearize_##suffix(const lsem_model* m, long n, const S* x, long ldx, const S* mask, lsem_lin** out) {   \
    return linearize<S>(m, n, {x, ldx}, mask, out);                                                                 \
  }                                                                                                                 \
  int lsem_linearize_soa_##suffix(const lsem_model* m, long n, const S* const* x, const long* sx, const S* mask,    \
                                  lsem_lin** out) {                                                                 \
    return linearize<S>(m, n, {x, sx}, mask, out);                                                                  \
  }                                                                                                                 \
  int lsem_tl_##suffix(const lsem_lin* lin, const S* dx, long lddx, S* dy, long lddy, int accumulate) {             \
    return apply<S>(lin, Direction::tangent, {dx, lddx}, {dy, lddy}, accumulate);                                   \
  }                                                                                                                 \
  int lsem_ad_##suffix(const lsem_lin* lin, const S* dy, long lddy, S* dx, long lddx, int accumulate) {             \
    return apply<S>(lin, Direction::adjoint, {dy, lddy}, {dx, lddx}, accumulate);                                   \
  }                                                                                                                 \
  int lsem_tl_soa_##suffix(const lsem_lin* lin, const S* const* dx, const long* sdx, S* const* dy, const long* sdy, \
                           int accumulate) {                                                                        \
    return apply<S>(lin, Direction::tangent, {dx, sdx}, {dy, sdy}, accumulate);                                     \
  }                                                                                                                 \
  int lsem_ad_soa_##suffix(const lsem_lin* lin, const S* const* dy, const long* sdy, S* const* dx, const long* sdx, \
                           int accumulate) {                                                                        \
    return apply<S>(lin, Direction::adjoint, {dy, sdy}, {dx, sdx}, accumulate);                                     \
  }
LSEM_FUNCTIONS(float, f32)
LSEM_FUNCTIONS(double, f64)
