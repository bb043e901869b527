#pragma once
#include <string>
#include <vector>

#include "lockstep/models/emulator/emulator.hpp"

namespace lockstep::files {

/// The attributes that hold the weights, in the order of the forward pass: [conv_w, conv_b,] w0, b0, w1, b1, ...
std::vector<std::string> torchscript_names(const EmulatorArch& arch);

/// The source code of the archive's module, in TorchScript's functional form. Methods:
///   forward(x)            normalised inputs to normalised outputs
///   predict(x)            physical to physical
///   compute_mask(m)       1 where m lies in [mask_min, mask_max], or, without a mask variable, where m is not 0
///   jac_physical(inputs, mask_var)   dy/dx (n, n_out, n_in); 0 where the mask is 0 or an entry is not finite
///   jac_physical(inputs, mask_var, row_indices, col_indices)   only these (output, input) entries, (n, pairs)
/// The Jacobian is in closed form, in reverse mode if n_out <= n_in, else in forward mode, so it needs no autograd.
/// errors  data: an activation that TorchScript code cannot express
std::string torchscript_code(const EmulatorArch& arch, const EmulatorMask& mask);

}  // namespace lockstep::files
