#include "files.hpp"
#include "lockstep/io/zip.hpp"
#include "pickle.hpp"

/// A TorchScript archive without libtorch: an uncompressed ZIP of the module's source, a pickle of its
/// attributes, and the raw elements of its tensors.
/// source  PyTorch torch/csrc/jit/docs/serialization.md
namespace lockstep::files {
namespace {

const std::string kFolder = "emulator/";

/// The attributes that hold the weights, in the order of the forward pass: [conv_w, conv_b,] w0, b0, w1, b1, ...
std::vector<std::string> torchscript_names(const EmulatorArch& arch) {
  std::vector<std::string> out;
  if (arch.conv_channels > 0) out = {"conv_w", "conv_b"};
  for (std::int64_t k = 0; k <= arch.layers; ++k) out.insert(out.end(), {join("w", k), join("b", k)});
  return out;
}

/// phi(a) and phi'(a), given a and h = phi(a).
struct ActivationText {
  std::string value, slope;
};

ActivationText activation_text(ops::Activation phi, const std::string& a, const std::string& h) {
  const auto mul = [](const std::string& x, const std::string& y) { return "torch.mul(" + x + ", " + y + ")"; };
  const auto one_minus = [](const std::string& x) { return "torch.add(torch.neg(" + x + "), 1.)"; };
  // 1 where a > 0, else 0; NaN where a is not finite, so that jac_physical sets that node's Jacobian to zero.
  const std::string positive = "torch.add(torch.type_as(torch.gt(" + a + ", 0.), " + a + "), " + mul(a, "0.") + ")";
  using enum ops::Activation;
  switch (phi) {
    case none:
      return {a, "torch.ones_like(" + a + ")"};
    case gelu: {
      const std::string cdf = mul("torch.add(torch.erf(" + mul(a, "0.70710678118654752") + "), 1.)", "0.5");
      const std::string density = mul("torch.exp(" + mul(mul(a, a), "-0.5") + ")", "0.39894228040143268");
      return {"torch.gelu(" + a + ")", "torch.add(" + cdf + ", " + mul(a, density) + ")"};
    }
    case relu:
      return {"torch.relu(" + a + ")", positive};
    case tanh:
      return {"torch.tanh(" + a + ")", one_minus(mul(h, h))};
    case sigmoid:
      return {"torch.sigmoid(" + a + ")", mul(h, one_minus(h))};
    case leaky_relu:
      return {"torch.leaky_relu(" + a + ", 0.01)",
              "torch.add(" + positive + ", " + mul(one_minus(positive), "0.01") + ")"};
    case elu: {
      // The clamp prevents overflow where a > 0; there the result is unused.
      const std::string tail = "torch.exp(torch.clamp_max(" + a + ", 0.))";
      return {"torch.elu(" + a + ", 1.)", "torch.add(" + positive + ", " + mul(one_minus(positive), tail) + ")"};
    }
    case silu: {
      const std::string s = "torch.sigmoid(" + a + ")";
      return {"torch.silu(" + a + ")", mul(s, "torch.add(" + mul(a, one_minus(s)) + ", 1.)")};
    }
  }
  return {};
}

enum class Slopes { left_out, kept };

/// The source code of the archive's module, in TorchScript's functional form. Methods:
///   forward(x)            normalised inputs to normalised outputs
///   predict(x)            physical to physical
///   compute_mask(m)       1 where m lies in [mask_min, mask_max], or, without a mask variable, where m is not 0
///   jac_physical(inputs, mask_var)   dy/dx (n, n_out, n_in); 0 where the mask is 0 or an entry is not finite
///   jac_physical(inputs, mask_var, row_indices, col_indices)   only these (output, input) entries, (n, pairs)
/// The Jacobian is in closed form, in reverse mode if n_out <= n_in, else in forward mode, so it needs no autograd.
class Code {
 public:
  Code(const EmulatorArch& arch, const EmulatorMask& mask) : arch_(arch), mask_(mask) {}

  std::string text() {
    declare_attributes();
    line("def normalize_input(self: __torch__.Emulator, x: Tensor) -> Tensor:");
    body("return torch.div(torch.sub(x, self.input_mean), self.input_std)");
    line("def forward(self: __torch__.Emulator, x: Tensor) -> Tensor:");
    body("return " + linear(hidden_layers("x", Slopes::left_out), arch_.layers));
    line("def predict(self: __torch__.Emulator, x: Tensor) -> Tensor:");
    body("y = (self).forward((self).normalize_input(x, ), )");
    body("return torch.add(torch.mul(y, self.output_std), self.output_mean)");
    mask_method();
    jacobian_method();
    return out_;
  }

 private:
  void line(const std::string& text) { out_ += "  " + text + "\n"; }
  void body(const std::string& text) { line("  " + text); }

  void declare_attributes() {
    std::vector<std::string> buffers = torchscript_names(arch_);
    buffers.insert(buffers.end(), {"input_mean", "input_std", "output_mean", "output_std"});
    std::string list;
    for (const std::string& name : buffers) list += "\"" + name + "\", ";
    out_ += "class Emulator(Module):\n";
    line("__parameters__ = []");
    line("__buffers__ = [" + list + "]");
    for (const std::string& name : buffers) line(name + " : Tensor");
    for (const char* attribute :
         {"input_names : List[str]", "output_names : List[str]", "input_short_names : List[str]",
          "output_short_names : List[str]", "input_levels : List[int]", "output_levels : List[int]",
          "mask_var_name : str", "mask_min : float", "mask_max : float", "meta : Dict[str, str]", "training : bool"}) {
      line(attribute);
    }
  }

  static std::string linear(const std::string& h, std::int64_t k) {
    return join("torch.linear(", h, ", self.w", k, ", self.b", k, ")");
  }

  /// Writes the statements of all layers but the last, with Slopes::kept also g = phi'(a) of each layer. Returns the
  /// name of the last h.
  std::string hidden_layers(std::string h, Slopes slopes) {
    if (arch_.conv_channels > 0) {
      body(join("c = torch.conv1d(torch.unsqueeze(", h, ", 1), self.conv_w, self.conv_b, [1], [", arch_.conv_kernel / 2,
                "], [1], 1)"));
      activate("c", "hc3", slopes, "gc3");
      body("hc = torch.flatten(hc3, 1, -1)");
      if (slopes == Slopes::kept) body("gc = torch.flatten(gc3, 1, -1)");
      h = "hc";
    }
    for (std::int64_t k = 0; k < arch_.layers; ++k) {
      const std::string a = join("a", k), next = join("h", k);
      body(a + " = " + linear(h, k));
      activate(a, next, slopes, join("g", k));
      h = next;
    }
    return h;
  }

  void activate(const std::string& a, const std::string& h, Slopes slopes, const std::string& g) {
    const ActivationText phi = activation_text(arch_.activation, a, h);
    body(h + " = " + phi.value);
    if (slopes == Slopes::kept) body(g + " = " + phi.slope);
  }

  void mask_method() {
    line("def compute_mask(self: __torch__.Emulator, mask_var: Tensor) -> Tensor:");
    if (mask_.variable.empty()) {
      body("return torch.type_as(torch.ne(mask_var, 0.), mask_var)");
    } else {
      body("m = torch.mul(torch.ge(mask_var, self.mask_min), torch.le(mask_var, self.mask_max))");
      body("return torch.type_as(m, mask_var)");
    }
  }

  /// S_L = W_{L+1}, S_{k-1} = (S_k * g_k) W_k: rows (n, n_out, width).
  std::string reverse() {
    std::string s = join("torch.unsqueeze(self.w", arch_.layers, ", 0)");
    for (std::int64_t k = arch_.layers - 1; k >= 0; --k) {
      body(join("s", k, " = torch.matmul(torch.mul(", s, ", torch.unsqueeze(g", k, ", 1)), self.w", k, ")"));
      s = join("s", k);
    }
    if (arch_.conv_channels > 0) {
      body(join("sc = torch.reshape(torch.mul(", s, ", torch.unsqueeze(gc, 1)), [-1, ", arch_.conv_channels, ", ",
                arch_.n_in, "])"));
      body(join("sx = torch.conv_transpose1d(sc, self.conv_w, None, [1], [", arch_.conv_kernel / 2, "], [0], 1, [1])"));
      body(join("s = torch.reshape(sx, [-1, ", arch_.n_out, ", ", arch_.n_in, "])"));
      s = "s";
    }
    return s;
  }

  /// T_0 = W_1, T_k = W_{k+1} (g_k * T_{k-1}): columns (n, width, n_in).
  std::string forward() {
    std::string t = "torch.unsqueeze(self.w0, 0)";
    if (arch_.conv_channels > 0) {
      body("unit = torch.unsqueeze(torch.diag_embed(torch.ones_like(self.input_std)), 1)");
      body(join("tc = torch.conv1d(unit, self.conv_w, None, [1], [", arch_.conv_kernel / 2, "], [1], 1)"));
      body(join("tx = torch.reshape(torch.permute(tc, [1, 2, 0]), [1, ", arch_.first_width(), ", ", arch_.n_in, "])"));
      body("t = torch.matmul(self.w0, torch.mul(torch.unsqueeze(gc, 2), tx))");
      t = "t";
    }
    for (std::int64_t k = 0; k < arch_.layers; ++k) {
      body(join("t", k, " = torch.matmul(self.w", k + 1, ", torch.mul(torch.unsqueeze(g", k, ", 2), ", t, "))"));
      t = join("t", k);
    }
    return t;
  }

  void jacobian_method() {
    line(
        "def jac_physical(self: __torch__.Emulator, inputs: Tensor, mask_var: Tensor, row_indices: "
        "Optional[Tensor]=None,");
    line("  col_indices: Optional[Tensor]=None) -> Tensor:");
    body("z = (self).normalize_input(inputs, )");
    hidden_layers("z", Slopes::kept);
    const std::string normalised = arch_.n_out <= arch_.n_in ? reverse() : forward();
    body("units = torch.div(torch.unsqueeze(self.output_std, 1), torch.unsqueeze(self.input_std, 0))");
    body("finite = torch.nan_to_num(torch.mul(" + normalised + ", units), 0., 0., 0.)");
    body("J = torch.mul(finite, torch.unsqueeze((self).compute_mask(mask_var, ), 2))");
    body("if torch.__isnot__(row_indices, None):");
    body("  rows = unchecked_cast(Tensor, row_indices)");
    body("  if torch.__isnot__(col_indices, None):");
    body("    columns = unchecked_cast(Tensor, col_indices)");
    body("    pairs = torch.index(J, annotate(List[Optional[Tensor]], [None, rows, columns]))");
    body("  else:");
    body("    pairs = J");
    body("  K = pairs");
    body("else:");
    body("  K = J");
    body("return K");
  }

  EmulatorArch arch_;
  EmulatorMask mask_;
  std::string out_;
};

}  // namespace

std::string torchscript_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const Emulator rounded = network.as(DType::f32);
  const EmulatorVariables& v = metadata.variables;
  const Moments& m = network.moments();
  const std::vector<std::string> names = torchscript_names(network.arch());

  ZipWriter zip;
  Pickle pickle;
  pickle.global("__torch__", "Emulator").empty_tuple().new_object().empty_dict().mark();
  std::vector<std::string> storages;
  const auto buffer = [&](const std::string& attribute, const std::vector<std::int64_t>& shape,
                          std::string_view bytes) {
    pickle.text(attribute).tensor(static_cast<int>(storages.size()), shape);
    storages.emplace_back(bytes);
  };
  const auto weights = weights_of(rounded);
  for (std::size_t i = 0; i < weights.size(); ++i) buffer(names.at(i), weights[i].shape, bytes_of(weights[i]));
  for (const auto& [attribute, part] : kMoments) {
    const std::vector<float> narrow((m.*part).begin(), (m.*part).end());
    buffer(attribute, {std::ssize(narrow)}, {reinterpret_cast<const char*>(narrow.data()), 4 * narrow.size()});
  }
  pickle.text("input_names").text_list(public_names(v.input_cf, v.input_names));
  pickle.text("output_names").text_list(public_names(v.output_cf, v.output_names));
  pickle.text("input_short_names").text_list(v.input_names);
  pickle.text("output_short_names").text_list(v.output_names);
  pickle.text("input_levels").int_list(v.input_level);
  pickle.text("output_levels").int_list(v.output_level);
  pickle.text("mask_var_name").text(metadata.mask.variable);
  pickle.text("mask_min").real(metadata.mask.min);
  pickle.text("mask_max").real(metadata.mask.max);
  pickle.text("meta").global("torch.jit._pickle", "restore_type_tag").mark().empty_dict().mark();
  for (const auto& [key, value] : describe(network.arch(), metadata)) pickle.text(key).text(value);
  pickle.set_items().text("Dict[str, str]").tuple().reduce();
  pickle.text("training").boolean(false);
  pickle.set_items().build();

  zip.add(kFolder + "data.pkl", pickle.finish());
  zip.add(kFolder + "code/__torch__.py", Code(network.arch(), metadata.mask).text());
  for (std::size_t i = 0; i < storages.size(); ++i) zip.add(kFolder + "data/" + std::to_string(i), storages[i]);
  zip.add(kFolder + "constants.pkl", Pickle().empty_tuple().finish());
  zip.add(kFolder + "version", "3\n");
  zip.add(kFolder + "byteorder", "little");
  return zip.finish();
}

}  // namespace lockstep::files
