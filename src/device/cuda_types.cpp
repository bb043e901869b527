#include "lockstep/device/cuda_types.hpp"

#include "lockstep/base/error.hpp"

namespace lockstep {

std::string cuda_types() {
  return join("fp32", kHasCudaType<double> ? ",fp64" : "", kHasCudaType<bf16> ? ",bf16" : "",
              kHasCudaType<f16> ? ",fp16" : "");
}

void require_cuda_type(std::string_view dtype, const std::string& types) {
  const std::string type = dtype == "bf16" ? "bf16" : join("fp", dtype.substr(1));
  require_usage(types.find(type) != std::string::npos, "storage type ", type, ": this program was built without ", type,
                " for GPUs, with ", types, "; rebuild with make cuda CMAKE_ARGS=-DLOCKSTEP_CUDA_TYPES=", types, ",",
                type, ", or choose another run.precision or model.storage");
}

}  // namespace lockstep
