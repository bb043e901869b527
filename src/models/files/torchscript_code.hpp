#pragma once
#include <string>
#include <vector>

#include "lockstep/models/emulator.hpp"

namespace lockstep::files {

/// The attributes that hold the weights, in the order of the forward pass: [conv_w, conv_b,] w0, b0, w1, b1, ...
struct TorchScriptNames {
  std::vector<std::string> weights;
};
TorchScriptNames torchscript_names(const EmulatorArch& arch);

/// The source of the archive's module, in TorchScript's functional text. Methods:
///   forward(x)            normalised inputs to normalised outputs
///   predict(x)            physical to physical
///   compute_mask(m)       1 where the mask value counts: within [mask_min, mask_max], or, without a mask variable, where it is not 0
///   jac_physical(inputs, mask_var)                            (n, n_out, n_in), dy/dx, 0 where the mask is 0 or an entry is not finite
///   jac_physical(inputs, mask_var, row_indices, col_indices)  (n, pairs): only these (output, input) entries
/// The Jacobian is written in closed form, in reverse if n_out <= n_in, else forward: the archive needs no autograd.
/// errors  data: an activation that the text cannot express
std::string torchscript_code(const EmulatorArch& arch, const EmulatorMask& mask);

}  // namespace lockstep::files
