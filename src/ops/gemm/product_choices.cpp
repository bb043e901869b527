#include "lockstep/ops/product_choices.hpp"

#include "algorithm_table.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep::ops {

namespace {
constexpr const char* kIs = " = ";
}

AlgorithmTable& algorithm_table() {
  thread_local AlgorithmTable table;
  return table;
}

void tune_products(bool on) {
  AlgorithmTable& table = algorithm_table();
  table = {.tuned = on, .edition = table.edition + 1, .algorithms = {}};
}

bool products_are_tuned() { return algorithm_table().tuned; }

std::vector<std::string> product_choices() {
  std::vector<std::string> choices;
  for (const auto& [product, algorithm] : algorithm_table().algorithms) choices.push_back(product + kIs + algorithm);
  return choices;
}

std::int64_t recall_product_choices([[maybe_unused]] Device gpu, const std::vector<std::string>& choices) {
  AlgorithmTable& table = algorithm_table();
  ++table.edition;
  std::string here;
  if constexpr (kHasCuda) here = cuda::product_library(gpu.index) + ":";
  std::int64_t usable = 0;
  for (const std::string& choice : choices) {
    const std::size_t is = choice.rfind(kIs);
    require_data(is != std::string::npos, "recalling the algorithms of products: '", choice, "' names no algorithm");
    table.algorithms[choice.substr(0, is)] = choice.substr(is + std::string_view(kIs).size());
    if (kHasCuda && choice.starts_with(here)) ++usable;
  }
  return usable;
}

}  // namespace lockstep::ops
