#pragma once

/// Calls macro(name) for each of up to 14 names. The preprocessor does not expand a macro inside itself, so the
/// recursion goes through LOCKSTEP_AGAIN and is expanded by repeated scans.
#define LOCKSTEP_FOR_EACH(macro, ...) LOCKSTEP_SCAN(LOCKSTEP_EACH_NAME(macro, __VA_ARGS__))
#define LOCKSTEP_EACH_NAME(macro, name, ...) macro(name) __VA_OPT__(LOCKSTEP_AGAIN LOCKSTEP_PARENS(macro, __VA_ARGS__))
#define LOCKSTEP_AGAIN() LOCKSTEP_EACH_NAME
#define LOCKSTEP_PARENS ()
#define LOCKSTEP_SCAN(...) LOCKSTEP_SCAN_9(LOCKSTEP_SCAN_9(LOCKSTEP_SCAN_9(__VA_ARGS__)))
#define LOCKSTEP_SCAN_9(...) LOCKSTEP_SCAN_3(LOCKSTEP_SCAN_3(LOCKSTEP_SCAN_3(__VA_ARGS__)))
#define LOCKSTEP_SCAN_3(...) __VA_ARGS__

/// Instantiates function templates for float and double.
#define LOCKSTEP_EACH_FLOAT(...) LOCKSTEP_FOR_EACH(LOCKSTEP_IN_FLOATS, __VA_ARGS__)
#define LOCKSTEP_IN_FLOATS(name)              \
  template decltype(name<float>) name<float>; \
  template decltype(name<double>) name<double>;
