#pragma once
#include <type_traits>

/// Support for the mutants that mutate.py adds to copies of the kernels. Each mutant has a switch.
/// LOCKSTEP_MUTANT=<number> turns one on at program start. With all switches off the results do not change.
namespace mutation {

inline constexpr int kMost = 1 << 16;
extern int chosen;           ///< the mutant that is on, or 0
extern bool reached[kMost];  ///< mutants whose code has run, on or off

inline bool at_run_time(int id) {
  reached[id] = true;
  return id == chosen;
}
/// Whether the mutant is on. Not a constant expression: a mutant in a constant expression does not compile.
constexpr bool on(int id) {
  return std::is_constant_evaluated() ? (id < 0 ? false : throw "not a constant") : at_run_time(id);
}
constexpr int sign(int id) { return on(id) ? -1 : 1; }
constexpr int minus(int id) { return on(id) ? 1 : -1; }
template <class T>
constexpr const T& either(int id, const T& first, const T& second) {
  return on(id) ? second : first;
}

/// a OP At<id>{} OP b is a OP b, or, with the mutant on, the operator of the last column below applied to a and b. It
/// binds like the original operator, whatever the surrounding expression.
template <int kId>
struct At {};

#define LOCKSTEP_SWITCH(NAME, OP, MUTANT)                                     \
  template <class A, int kId>                                                 \
  struct NAME {                                                               \
    A a;                                                                      \
  };                                                                          \
  template <class A, int kId>                                                 \
  [[gnu::always_inline]] constexpr NAME<A, kId> operator OP(A a, At<kId>) {   \
    return {a};                                                               \
  }                                                                           \
  template <class A, int kId, class B>                                        \
  [[gnu::always_inline]] constexpr auto operator OP(NAME<A, kId> left, B b) { \
    using Result = decltype(left.a OP b);                                     \
    return static_cast<Result>(on(kId) ? left.a MUTANT b : left.a OP b);      \
  }
LOCKSTEP_SWITCH(Plus, +, -)
LOCKSTEP_SWITCH(Minus, -, +)
LOCKSTEP_SWITCH(Times, *, +)
LOCKSTEP_SWITCH(Over, /, *)
LOCKSTEP_SWITCH(Rest, %, /)
LOCKSTEP_SWITCH(Left, <<, >>)
LOCKSTEP_SWITCH(Right, >>, <<)
LOCKSTEP_SWITCH(And, &, |)
LOCKSTEP_SWITCH(Or, |, &)
LOCKSTEP_SWITCH(Xor, ^, |)
LOCKSTEP_SWITCH(Less, <, <=)
LOCKSTEP_SWITCH(LessOrEqual, <=, <)
LOCKSTEP_SWITCH(Greater, >, >=)
LOCKSTEP_SWITCH(GreaterOrEqual, >=, >)
LOCKSTEP_SWITCH(Equal, ==, !=)
LOCKSTEP_SWITCH(Unequal, !=, ==)
#undef LOCKSTEP_SWITCH

}  // namespace mutation
