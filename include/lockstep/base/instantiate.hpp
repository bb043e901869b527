#pragma once

/// Instantiates a function template for float and double.
#define LOCKSTEP_EACH_FLOAT(name)             \
  template decltype(name<float>) name<float>; \
  template decltype(name<double>) name<double>;
