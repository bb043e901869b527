#include "tasks/emulator/jacobian_loss.hpp"

#include <algorithm>

#include "lockstep/base/philox.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/tensor/on_device.hpp"

namespace lockstep {

std::int64_t jacobian_directions(std::int64_t directions, std::int64_t n_in, std::int64_t n_out) {
  const std::int64_t all = std::min(n_in, n_out);
  return directions == 0 ? all : std::min(directions, all);
}

JacobianTargets jacobian_targets(Arena& host, DType dtype, const EmulatorData& data, std::span<const std::int64_t> rows,
                                 const Shard& shard, std::int64_t directions) {
  const std::int64_t n_in = data.n_in(), n_out = data.n_out(), n = std::ssize(rows);
  const JacobianSide side = n_out <= n_in ? JacobianSide::outputs : JacobianSide::inputs;
  const std::int64_t from = std::min(n_in, n_out), to = std::max(n_in, n_out),
                     count = jacobian_directions(directions, n_in, n_out);
  const bool all = count == from;
  const Tensor v = allocate(host, dtype, {count * n, from}), target = allocate(host, dtype, {count * n, to}),
               scratch = allocate(host, DType::f64, {to});
  const Moments& m = data.moments;
  double* const sum = scratch.data<double>();
  visit_float(dtype, [&]<class T>() {
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t row = rows[r];
      const float* physical = data.jacobian.row<float>(row);
      const Philox draw(shard.seed, static_cast<std::uint64_t>(shard.step), "jacobian directions",
                        static_cast<std::uint64_t>(row));
      for (std::int64_t k = 0; k < count; ++k) {
        std::fill_n(sum, to, 0);
        T* const direction = v.data<T>() + (k * n + r) * from;
        for (std::int64_t a = 0; a < from; ++a) {
          const auto bit = static_cast<std::uint64_t>(k * from + a);
          direction[a] = all ? T(a == k) : (draw.bits(bit / 32) >> (bit % 32) & 1) != 0 ? T{1} : T{-1};
          if (direction[a] == 0) continue;
          for (std::int64_t b = 0; b < to; ++b) {
            const std::int64_t o = side == JacobianSide::outputs ? a : b, i = side == JacobianSide::outputs ? b : a;
            sum[b] += static_cast<double>(direction[a]) * static_cast<double>(physical[o * n_in + i]) * m.input_std[i] /
                      m.output_std[o];
          }
        }
        std::transform(sum, sum + to, target.data<T>() + (k * n + r) * to, [](double s) { return static_cast<T>(s); });
      }
    }
  });
  return {.directions = v, .products = target, .side = side, .values = n_in * n_out * (all ? 1 : count)};
}

Var jacobian_loss(Tape& tape, const Emulator& emulator, const EmulatorTrace& trace, const JacobianTargets& targets,
                  double scale) {
  const Var v = tape.constant(to_tape(tape, targets.directions));
  const Var product = emulator.jacobian_products(tape, trace, v, targets.side);
  return regression_loss(tape, product, on_device(tape.stream(), tape.arena(), targets.products), Regression::mse,
                         scale / static_cast<double>(targets.values));
}

}  // namespace lockstep
