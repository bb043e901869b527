#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/emulator/emulator_columns.hpp"

namespace lockstep {

/// Expressions that are zero where a prediction is physical, such as "max(0, -aice) ; sum(y) - sum(x)", with their
/// gradients by reverse mode. All values are physical.
///
///   expressions separated by ;   + - * / ^ ( )   numbers   abs max min exp log sqrt tanh relu
///   NAME an output, or else an input · y[i], x[i] an output or input column from 0 · sum(y) mean(y) sum(x) mean(x)
class Constraint {
 public:
  Constraint() = default;
  /// errors  usage: names the character that does not fit, and why
  Constraint(const std::string& text, const EmulatorVariables& variables);
  std::int64_t size() const { return static_cast<std::int64_t>(results_.size()); }
  /// Evaluates the expressions v_i at one row.
  ///
  /// values  (size()), receives v_i
  /// dy      (n_out), receives the gradient of sum_i v_i^2 by y, unless null. At a kink, max and min have the slope of
  ///         their second argument, relu has 1, abs has 0
  void evaluate(const float* x, const double* y, double* values, double* dy) const;

 private:
  friend class ConstraintParser;
  /// From `add` on, in the order of the rules in constraint.cpp.
  enum class Op : std::uint8_t { number, input, output, add, subtract, multiply, divide, power, max };
  struct Node {
    Op op;
    std::int32_t a = 0, b = 0;  ///< operands before this node, or a column
    double number = 0;
  };
  std::vector<Node> nodes_;  ///< operands come first
  std::vector<std::int32_t> results_;
  std::int64_t n_out_ = 0;
};

}  // namespace lockstep
