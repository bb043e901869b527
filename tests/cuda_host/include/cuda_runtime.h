#pragma once
// The subset of the CUDA runtime that Lockstep uses, implemented on the CPU: what nvcc's header of this name offers to
// a .cu file. docs/cuda-host.md says how it works and what it detects.
#include <cmath>

#include "cuda_host/qualifiers.h"
#include "cuda_host/vector_types.h"
// These require the two headers above.
#include "cuda_host/device_functions.h"
#include "cuda_host/device_math.h"
#include "cuda_host/runtime_api.h"
#include "cuda_host/tensor_cores.h"
