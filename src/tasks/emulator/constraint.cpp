#include "tasks/emulator/constraint.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

/// An operation v = f(a, b) on values of earlier nodes. Given the derivative g with respect to v, to_a and to_b return
/// the contributions to the derivatives with respect to a and b. Functions have a name; those of one argument have no
/// to_b.
struct Rule {
  std::string_view name;
  double (*value)(double a, double b);
  double (*to_a)(double g, double a, double b, double v);
  double (*to_b)(double g, double a, double b, double v);
};
double all(double g, double, double, double) { return g; }
/// In the order of Constraint::Op, from Op::add on.
constexpr Rule kRules[] = {
    {"", [](double a, double b) { return a + b; }, all, all},
    {"", [](double a, double b) { return a - b; }, all, [](double g, double, double, double) { return -g; }},
    {"", [](double a, double b) { return a * b; }, [](double g, double, double b, double) { return g * b; },
     [](double g, double a, double, double) { return g * a; }},
    {"", [](double a, double b) { return a / b; }, [](double g, double, double b, double) { return g / b; },
     [](double g, double, double b, double v) { return -(g * v / b); }},
    {"", [](double a, double b) { return std::pow(a, b); },
     [](double g, double a, double b, double) { return g * b * std::pow(a, b - 1); },
     [](double g, double a, double, double v) { return g * v * std::log(a); }},
    {"max", [](double a, double b) { return std::isnan(a) || a > b ? a : b; },
     [](double g, double a, double b, double) { return a > b ? g : 0; },
     [](double g, double a, double b, double) { return a > b ? 0 : g; }},
    {"min", [](double a, double b) { return std::isnan(a) || a < b ? a : b; },
     [](double g, double a, double b, double) { return a < b ? g : 0; },
     [](double g, double a, double b, double) { return a < b ? 0 : g; }},
    {"exp", [](double a, double) { return std::exp(a); }, [](double g, double, double, double v) { return g * v; }, {}},
    {"log", [](double a, double) { return std::log(a); }, [](double g, double a, double, double) { return g / a; }, {}},
    {"sqrt",
     [](double a, double) { return std::sqrt(a); },
     [](double g, double, double, double v) { return g / (2 * v); },
     {}},
    {"tanh",
     [](double a, double) { return std::tanh(a); },
     [](double g, double, double, double v) { return g * (1 - v * v); },
     {}},
    {"abs",
     [](double a, double) { return std::abs(a); },
     [](double g, double a, double, double) { return a > 0   ? g
                                                     : a < 0 ? -g
                                                             : 0; },
     {}},
};

}  // namespace

/// Recursive descent, one function per precedence.
class ConstraintParser {
 public:
  using Op = Constraint::Op;
  using Index = std::int32_t;
  ConstraintParser(const std::string& text, const EmulatorVariables& variables, Constraint& to)
      : text_(text), variables_(variables), to_(to) {}

  void parse() {
    do {
      to_.results_.push_back(sum());
    } while (take(';'));
    if (at_ < text_.size()) fail(at_, join("'", text_[at_], "' is not expected here"));
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& why) const {
    throw Error(Fault::usage, join("option loss.constraint: at character ", at + 1, ": ", why, "\n  ", text_, "\n  ",
                                   std::string(at, ' '), "^"));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    const bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(char c) {
    if (!take(c)) fail(at_, join("'", c, "' is missing"));
  }
  Index add(Op op, Index a = 0, Index b = 0, double number = 0) {
    to_.nodes_.push_back({op, a, b, number});
    return static_cast<Index>(to_.nodes_.size()) - 1;
  }

  Index sum() { return chain(&ConstraintParser::product, {'+', Op::add}, {'-', Op::subtract}); }
  Index product() { return chain(&ConstraintParser::sign, {'*', Op::multiply}, {'/', Op::divide}); }
  Index chain(Index (ConstraintParser::*term)(), std::pair<char, Op> one, std::pair<char, Op> other) {
    Index left = (this->*term)();
    for (;;) {
      if (take(one.first))
        left = add(one.second, left, (this->*term)());
      else if (take(other.first))
        left = add(other.second, left, (this->*term)());
      else
        return left;
    }
  }
  /// Every recursion passes through here.
  Index sign() {
    constexpr int kDeepest = 200;  // far from the end of the stack
    if (++depth_ > kDeepest) fail(at_, join("more than ", kDeepest, " operations are nested; simplify the expression"));
    const Index result = take('-') ? negative() : power();
    --depth_;
    return result;
  }
  Index negative() {
    const Index zero = add(Op::number);
    return add(Op::subtract, zero, sign());
  }
  Index power() {
    const Index base = value();
    return take('^') ? add(Op::power, base, sign()) : base;
  }
  Index value() {
    if (take('(')) {
      const Index inner = sum();
      expect(')');
      return inner;
    }
    const std::size_t first = at_;
    if (first == text_.size()) fail(first, "a value is missing");
    double number = 0;
    if (const auto [end, error] = std::from_chars(text_.data() + first, text_.data() + text_.size(), number);
        error == std::errc() && (std::isdigit(static_cast<unsigned char>(text_[first])) || text_[first] == '.')) {
      at_ = static_cast<std::size_t>(end - text_.data());
      return add(Op::number, 0, 0, number);
    }
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (at_ == first) fail(first, join("'", text_[first], "' is not a value"));
    const std::string name = text_.substr(first, at_ - first);
    if (take('(')) return call(name, first);
    if ((name == "x" || name == "y") && take('[')) return column(name);
    return variable(name, first);
  }
  Index column(const std::string& array) {
    skip();
    std::int32_t index = -1;
    const std::int64_t count = std::ssize(array == "x" ? variables_.input_names : variables_.output_names);
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), index);
    if (error != std::errc() || index < 0 || index >= count)
      fail(at_, join("the index of ", array, " must be a number from 0 to ", count - 1));
    at_ = static_cast<std::size_t>(end - text_.data());
    expect(']');
    return add(array == "x" ? Op::input : Op::output, index);
  }
  Index variable(const std::string& name, std::size_t first) {
    for (const auto& [names, op] :
         {std::pair(&variables_.output_names, Op::output), std::pair(&variables_.input_names, Op::input)})
      if (const auto found = std::ranges::find(*names, name); found != names->end())
        return add(op, static_cast<Index>(found - names->begin()));
    std::vector<std::string> known = variables_.output_names;
    known.insert(known.end(), variables_.input_names.begin(), variables_.input_names.end());
    const std::string near = nearest(name, known);
    fail(first, join("the data set has no variable '", name, "'",
                     near.empty() ? join("; it has ", listed(known)) : "; did you mean " + near + "?"));
  }
  Index call(const std::string& name, std::size_t first) {
    if (name == "sum" || name == "mean") {
      skip();
      const char array = at_ < text_.size() ? text_[at_] : ' ';
      if (array != 'x' && array != 'y') fail(at_, join(name, " takes x or y, all inputs or all outputs"));
      ++at_;
      expect(')');
      const auto count = static_cast<Index>((array == 'x' ? variables_.input_names : variables_.output_names).size());
      const Op op = array == 'x' ? Op::input : Op::output;
      Index total = add(op, 0);
      for (Index i = 1; i < count; ++i) total = add(Op::add, total, add(op, i));
      return name == "sum" ? total : add(Op::divide, total, add(Op::number, 0, 0, count));
    }
    const Index a = sum();
    const auto* rule = std::ranges::find(kRules, std::string_view(name), &Rule::name);
    const bool two = rule != std::end(kRules) && rule->to_b != nullptr;
    if (two) expect(',');
    const Index b = two ? sum() : 0;
    expect(')');
    if (name == "relu") return add(Op::max, add(Op::number), a);
    if (rule != std::end(kRules)) return add(static_cast<Op>(static_cast<int>(Op::add) + (rule - kRules)), a, b);
    fail(first,
         join("no function '", name, "'; the functions are abs, max, min, exp, log, sqrt, tanh, relu, sum, mean"));
  }

  const std::string& text_;
  const EmulatorVariables& variables_;
  Constraint& to_;
  std::size_t at_ = 0;
  int depth_ = 0;  ///< calls of sign() that have not returned
};

Constraint::Constraint(const std::string& text, const EmulatorVariables& variables)
    : n_out_(std::ssize(variables.output_names)) {
  ConstraintParser(text, variables, *this).parse();
}

void Constraint::evaluate(const float* x, const double* y, double* values, double* dy) const {
  const auto rule_of = [](Op op) -> const Rule& { return kRules[static_cast<int>(op) - static_cast<int>(Op::add)]; };
  thread_local std::vector<double> v, d;
  v.assign(nodes_.size(), 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    if (n.op < Op::add)
      v[i] = n.op == Op::number ? n.number : n.op == Op::input ? static_cast<double>(x[n.a]) : y[n.a];
    else
      v[i] = rule_of(n.op).value(v[n.a], v[n.b]);
  }
  for (std::size_t i = 0; i < results_.size(); ++i) values[i] = v[results_[i]];
  if (dy == nullptr) return;
  std::fill_n(dy, n_out_, 0);
  d.assign(nodes_.size(), 0);
  for (const std::int32_t result : results_) d[result] += 2 * v[result];
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const double g = d[i];
    if (g == 0) continue;  // then an operand outside its domain does not affect the gradient
    const Node& n = nodes_[i];
    const auto a = static_cast<std::size_t>(n.a), b = static_cast<std::size_t>(n.b);
    if (n.op == Op::output) dy[n.a] += g;
    if (n.op < Op::add) continue;
    const Rule& rule = rule_of(n.op);
    d[a] += rule.to_a(g, v[a], v[b], v[i]);
    if (rule.to_b != nullptr) d[b] += rule.to_b(g, v[a], v[b], v[i]);
  }
}

}  // namespace lockstep
