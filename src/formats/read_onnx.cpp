#include <algorithm>
#include <cmath>
#include <numbers>

#include "files.hpp"
#include "lockstep/base/text.hpp"
#include "onnx_file.hpp"

/// Feed-forward networks in ONNX files from any exporter: linear layers (Gemm, or MatMul and Add), one kind of
/// activation, a normalisation of inputs and outputs by constants, and our own convolution front end. The graph is not
/// executed: each value is understood as a form that an emulator has, or its node is refused.
/// source  github.com/onnx/onnx, onnx.proto and Operators.md
namespace lockstep::files {
namespace {

using onnx::Constant;
using onnx::Node;

/// A value of the network: the input, or the result of one operation on its parent.
struct State {
  enum class Kind : std::uint8_t { input, linear, conv, active, flat };
  Kind kind = Kind::input;
  int parent = -1;
  Constant weight;           ///< linear: (out, in); conv: (C, 1, K)
  std::vector<double> bias;  ///< empty: zeros
  ops::Activation activation = ops::Activation::none;
};

/// An element-wise operation with a constant: `op` is one of + - * /.
struct Step {
  char op = '+';
  std::vector<double> by;  ///< one for all, or one per column
};

/// The meaning of a name in the graph: a state s after element-wise steps, or an intermediate value of an activation.
struct Form {
  enum class Kind : std::uint8_t {
    plain,
    channel,     ///< s as the only channel of a convolution
    erf,         ///< erf(s / sqrt 2)
    erf_plus_1,  ///< 1 + erf(s / sqrt 2)
    cdf,         ///< (1 + erf(s / sqrt 2)) / 2
    twice_gelu,  ///< s (1 + erf(s / sqrt 2))
    sigmoid,     ///< may become s sigmoid(s)
  };
  Kind kind = Kind::plain;
  int state = 0;
  std::vector<Step> steps;
};

bool is_all(const std::vector<double>& values, double wanted) {
  return !values.empty() &&
         std::ranges::all_of(values, [&](double v) { return std::abs(v - wanted) <= 1e-6 * std::abs(wanted); });
}
bool is_only(const std::vector<Step>& steps, char times, double factor) {
  return steps.size() == 1 && ((steps[0].op == times && is_all(steps[0].by, factor)) ||
                               (steps[0].op == (times == '*' ? '/' : '*') && is_all(steps[0].by, 1 / factor)));
}

class GraphReader {
 public:
  GraphReader(onnx::File file, const std::string& source)
      : source_(source), opening_("opening model '" + source + "'"), file_(std::move(file)) {}

  TrainedEmulator read() {
    require_format(file_.outputs.size() == 1 && file_.inputs.size() == 1, opening_, ": a graph of ",
                   file_.inputs.size(), " inputs and ", file_.outputs.size(), " outputs; an emulator has one of each");
    states_.push_back({});
    forms_[file_.inputs[0]] = {};
    for (const Node& node : file_.nodes) understand(node);
    const auto found = forms_.find(file_.outputs[0]);
    require_format(found != forms_.end(), opening_, ": no node computes its output '", file_.outputs[0], "'");
    return emulator(found->second);
  }

 private:
  [[noreturn]] void refuse(const Node& node, const auto&... why) const {
    throw ModelFileError(ModelFileReason::format, Fault::usage,
                         join(opening_, ": ", node.place, ": ", why...,
                              "; an emulator has linear layers of one width, one activation, and a normalisation"));
  }

  // ---- The graph ----------------------------------------------------------------------------------------------------

  const Constant* constant(const Node& node, std::size_t i) const {
    if (i >= node.inputs.size()) return nullptr;
    const auto found = file_.constants.find(node.inputs[i]);
    return found == file_.constants.end() ? nullptr : &found->second;
  }
  const Form& form(const Node& node, std::size_t i) const {
    if (i >= node.inputs.size()) refuse(node, "it has no input ", i);
    const auto found = forms_.find(node.inputs[i]);
    if (found == forms_.end()) refuse(node, "its input '", node.inputs[i], "' is no value of the network");
    return found->second;
  }
  const Constant& weight(const Node& node, std::size_t i, std::size_t axes) const {
    const Constant* found = constant(node, i);
    if (found == nullptr || found->shape.size() != axes)
      refuse(node, "its input ", i, " is no constant of ", axes, " axes");
    if (found->values.empty()) refuse(node, "its input ", i, " has no elements of type float or double");
    return *found;
  }
  static Constant transposed(const Constant& m) {
    Constant out = {{m.shape[1], m.shape[0]}, std::vector<double>(m.values.size()), m.wide};
    const auto rows = static_cast<std::size_t>(m.shape[0]), columns = static_cast<std::size_t>(m.shape[1]);
    for (std::size_t i = 0; i < m.values.size(); ++i) out.values[i % columns * rows + i / columns] = m.values[i];
    return out;
  }

  int add(State state) {
    states_.push_back(std::move(state));
    return static_cast<int>(states_.size()) - 1;
  }
  int add_active(int parent, ops::Activation activation) {
    State state;
    state.kind = State::Kind::active;
    state.parent = parent;
    state.activation = activation;
    return add(std::move(state));
  }
  /// The state that a form is, without steps.
  int state_of(const Node& node, const Form& form) {
    if (form.kind == Form::Kind::sigmoid) return add_active(form.state, ops::Activation::sigmoid);
    if (form.kind != Form::Kind::plain || !form.steps.empty())
      refuse(node, "its input is neither a layer nor an activation");
    return form.state;
  }
  Form active(const Node& node, ops::Activation activation) {
    return {Form::Kind::plain, add_active(state_of(node, form(node, 0)), activation), {}};
  }

  Form linear(const Node& node, Constant w, const std::vector<double>& bias) {
    const Form& from = form(node, 0);
    if (std::ssize(bias) != w.shape[0] && !bias.empty())
      refuse(node, "a bias of ", bias.size(), " values for ", w.shape[0], " outputs");
    State state;
    state.kind = State::Kind::linear;
    const bool first = from.kind == Form::Kind::plain && states_[from.state].kind == State::Kind::input;
    state.parent = first ? from.state : state_of(node, from);
    if (first) normalise(node, from.steps);
    state.weight = std::move(w);
    state.bias = bias;
    return {Form::Kind::plain, add(std::move(state)), {}};
  }
  void normalise(const Node& node, const std::vector<Step>& steps) {
    if (normalised_) refuse(node, "a second layer reads the input");
    normalised_ = true;
    input_steps_ = steps;
  }

  Form convolution(const Node& node) {
    const Form& from = form(node, 0);
    const Constant& w = weight(node, 1, 3);
    const std::int64_t kernel = w.shape[2];
    const auto is = [&](const char* key, const std::vector<std::int64_t>& wanted) {
      return !node.attributes.contains(key) || node.attributes.at(key).integers == wanted;
    };
    if (from.kind != Form::Kind::channel || w.shape[1] != 1 || !node.attributes.contains("pads") ||
        !is("pads", {kernel / 2, kernel / 2}) || !is("strides", {1}) || !is("dilations", {1}) ||
        node.integer("group", 1) != 1 || node.text("auto_pad", "NOTSET") != "NOTSET")
      refuse(node, "only one over all inputs, with as many outputs");
    normalise(node, from.steps);
    State state;
    state.kind = State::Kind::conv;
    state.parent = from.state;
    state.weight = w;
    if (node.has_input(2)) state.bias = weight(node, 2, 1).values;
    return {Form::Kind::plain, add(std::move(state)), {}};
  }

  Form element_wise(const Node& node, char op) {
    using Kind = Form::Kind;
    const bool swapped = constant(node, 0) != nullptr;
    const Constant* by = constant(node, swapped ? 0 : 1);
    if (by == nullptr) return product(node, op);
    if (swapped && (op == '-' || op == '/')) refuse(node, "the constant comes first");
    Form out = form(node, swapped ? 1 : 0);
    if (by->values.empty() || (!by->shape.empty() && by->shape.back() != std::ssize(by->values)))
      refuse(node, "its constant is neither one value nor one per column");
    const std::vector<Step> step = {{op, by->values}};
    const bool half = is_only(step, '*', 0.5);
    if (out.kind == Kind::erf && op == '+' && is_all(by->values, 1)) return {Kind::erf_plus_1, out.state, {}};
    if (out.kind == Kind::erf_plus_1 && half) return {Kind::cdf, out.state, {}};
    if (out.kind == Kind::twice_gelu && half) return {Kind::plain, add_active(out.state, ops::Activation::gelu), {}};
    if (out.kind == Kind::sigmoid) out = {Kind::plain, state_of(node, out), {}};
    if (out.kind != Kind::plain) refuse(node, "it changes a part of an activation");
    const State& state = states_[out.state];
    if (op == '+' && out.steps.empty() && state.kind == State::Kind::linear && state.bias.empty() &&
        std::ssize(by->values) == state.weight.shape[0]) {
      State biased = state;
      biased.bias = by->values;
      return {Kind::plain, add(std::move(biased)), {}};
    }
    constexpr std::size_t kMostSteps = 16;  // a graph of n operations must not take memory for n * n steps
    if (out.steps.size() == kMostSteps) refuse(node, "more than ", kMostSteps, " constants one after another");
    out.steps.push_back(step[0]);
    return out;
  }

  /// The product of two values of the network: the last operation of gelu or silu.
  Form product(const Node& node, char op) {
    using Kind = Form::Kind;
    Form a = form(node, 0), b = form(node, 1);
    if (a.kind != Kind::plain) std::swap(a, b);
    if (op == '*' && a.kind == Kind::plain && a.state == b.state) {
      if (a.steps.empty() && b.kind == Kind::erf_plus_1) return {Kind::twice_gelu, a.state, {}};
      if ((a.steps.empty() && b.kind == Kind::cdf) || (is_only(a.steps, '*', 0.5) && b.kind == Kind::erf_plus_1))
        return {Kind::plain, add_active(a.state, ops::Activation::gelu), {}};
      if (a.steps.empty() && b.kind == Kind::sigmoid)
        return {Kind::plain, add_active(a.state, ops::Activation::silu), {}};
    }
    refuse(node, "two values of the network");
  }

  Form understand_form(const Node& node) {
    const std::string& op = node.op;
    if (op == "Identity") return form(node, 0);
    if (op == "Dropout") {
      const Constant* training = constant(node, 2);
      if (node.has_input(2) && (training == nullptr || !is_all(training->values, 0)))
        refuse(node, "it drops values; export the network in evaluation mode");
      return form(node, 0);
    }
    if (op == "Cast") {
      if (!casts_to_float(node)) refuse(node, "only to float or double");
      return form(node, 0);
    }
    if (op == "Gemm") {
      if (node.integer("transA", 0) != 0) refuse(node, "only x W' + b");
      Constant w = node.integer("transB", 0) != 0 ? weight(node, 1, 2) : transposed(weight(node, 1, 2));
      const Constant* given = constant(node, 2);
      if (node.has_input(2) && given == nullptr) refuse(node, "its bias is no constant");
      std::vector<double> bias = given ? given->values : std::vector<double>();
      for (double& value : w.values) value *= node.real("alpha", 1);
      for (double& value : bias) value *= node.real("beta", 1);
      return linear(node, std::move(w), bias);
    }
    if (op == "MatMul") return linear(node, transposed(weight(node, 1, 2)), {});
    if (op == "Conv") return convolution(node);
    if (op == "Add") return element_wise(node, '+');
    if (op == "Sub") return element_wise(node, '-');
    if (op == "Mul") return element_wise(node, '*');
    if (op == "Div") return element_wise(node, '/');
    if (op == "Relu") return active(node, ops::Activation::relu);
    if (op == "Tanh") return active(node, ops::Activation::tanh);
    if (op == "LeakyRelu" && std::abs(node.real("alpha", 0.01) - 0.01) < 1e-6)
      return active(node, ops::Activation::leaky_relu);
    if (op == "Swish" && node.real("alpha", 1) == 1) return active(node, ops::Activation::silu);
    if (op == "Elu" && node.real("alpha", 1) == 1) return active(node, ops::Activation::elu);
    if (op == "Gelu") {
      if (node.text("approximate", "none") != "none")
        refuse(node, "approximate = ", node.text("approximate", ""), " is another function than the network's gelu");
      return active(node, ops::Activation::gelu);
    }
    if (op == "Sigmoid") return {Form::Kind::sigmoid, state_of(node, form(node, 0)), {}};
    if (op == "Erf") {
      const Form& from = form(node, 0);
      if (from.kind != Form::Kind::plain || !is_only(from.steps, '*', std::numbers::sqrt2 / 2))
        refuse(node, "only of x / sqrt 2");
      return {Form::Kind::erf, from.state, {}};
    }
    if (op == "Unsqueeze") {
      Form out = form(node, 0);
      const Constant* axes = constant(node, 1);
      const bool one = axes ? is_all(axes->values, 1)
                            : node.attributes.contains("axes") &&
                                  node.attributes.at("axes").integers == std::vector<std::int64_t>{1};
      if (out.kind != Form::Kind::plain || states_[out.state].kind != State::Kind::input || !one)
        refuse(node, "only of the input, before a convolution");
      out.kind = Form::Kind::channel;
      return out;
    }
    if (op == "Flatten" && (node.integer("axis", 1) == 1 || node.integer("axis", 1) == -1)) {
      const Form& from = form(node, 0);
      const State& state = states_[from.state];
      const int layer = state.kind == State::Kind::active ? state.parent : from.state;
      if (from.kind == Form::Kind::plain && states_[layer].kind != State::Kind::conv) return from;  // has two axes
      if (node.integer("axis", 1) != 1) refuse(node, "only from axis 1 on");
      State flat;
      flat.kind = State::Kind::flat;
      flat.parent = state_of(node, form(node, 0));
      return {Form::Kind::plain, add(std::move(flat)), {}};
    }
    refuse(node, "this operator, or this form of it, is not read");
  }

  static bool casts_to_float(const Node& node) {
    const std::int64_t type = node.integer("to", 0);  // of TensorProto
    return type == 1 || type == 11;
  }

  Constant constant_of(const Node& node) const {
    const auto given = [&](const char* key) { return node.attributes.contains(key); };
    if (given("value")) return node.attributes.at("value").tensor;
    if (given("value_float")) return {{}, {node.real("value_float", 0)}};
    if (given("value_int")) return {{}, {static_cast<double>(node.integer("value_int", 0))}};
    if (given("value_floats")) return node.attributes.at("value_floats").tensor;
    if (!given("value_ints")) refuse(node, "its value is no tensor and no number");
    const std::vector<std::int64_t>& list = node.attributes.at("value_ints").integers;
    return {{std::ssize(list)}, {list.begin(), list.end()}};
  }

  void understand(const Node& node) {
    if (node.outputs.empty()) return;
    const Constant* known = constant(node, 0);
    if (node.op == "Constant") {
      file_.constants[node.outputs[0]] = constant_of(node);
    } else if (node.op == "Transpose" && known != nullptr) {
      const std::vector<std::int64_t> order =
          node.attributes.contains("perm") ? node.attributes.at("perm").integers : std::vector<std::int64_t>{1, 0};
      const Constant& matrix = weight(node, 0, 2);
      file_.constants[node.outputs[0]] = order == std::vector<std::int64_t>{0, 1} ? matrix : transposed(matrix);
    } else if ((node.op == "Identity" || (node.op == "Cast" && casts_to_float(node))) && known != nullptr) {
      file_.constants[node.outputs[0]] = *known;
    } else {
      forms_[node.outputs[0]] = understand_form(node);
    }
  }

  // ---- The emulator -------------------------------------------------------------------------------------------------

  /// The steps as x * scale + shift.
  std::pair<std::vector<double>, std::vector<double>> affine(const std::vector<Step>& steps, std::int64_t n) const {
    std::vector<double> scale(n, 1), shift(scale.size(), 0);
    for (const Step& step : steps) {
      require_format(step.by.size() == 1 || step.by.size() == scale.size(), opening_, ": a normalisation of ",
                     step.by.size(), " columns for ", n);
      for (std::size_t i = 0; i < scale.size(); ++i) {
        const double by = step.by[step.by.size() == 1 ? 0 : i];
        if (step.op == '+') shift[i] += by;
        if (step.op == '-') shift[i] -= by;
        if (step.op == '*') scale[i] *= by, shift[i] *= by;
        if (step.op == '/') scale[i] /= by, shift[i] /= by;
      }
    }
    return {scale, shift};
  }

  Moments moments(const std::vector<Step>& output_steps, std::int64_t n_in, std::int64_t n_out) const {
    Moments out;
    auto [scale, shift] = affine(input_steps_, n_in);
    for (std::size_t i = 0; i < scale.size(); ++i) {
      out.input_std.push_back(1 / scale[i]);
      out.input_mean.push_back(shift[i] == 0 ? 0 : -shift[i] / scale[i]);
    }
    if (input_steps_.size() == 2 && input_steps_[0].op == '-' && input_steps_[1].op == '/') {  // without rounding
      for (std::size_t i = 0; i < scale.size(); ++i) {
        const auto value = [&](std::size_t step) {
          return input_steps_[step].by[input_steps_[step].by.size() == 1 ? 0 : i];
        };
        out.input_mean[i] = value(0);
        out.input_std[i] = value(1);
      }
    }
    std::tie(out.output_std, out.output_mean) = affine(output_steps, n_out);
    check_moments(out, n_in, n_out, opening_);
    return out;
  }

  TrainedEmulator emulator(const Form& output) {
    using Kind = State::Kind;
    const auto at = [&](int i) -> const State& { return states_[i]; };
    const auto ask = [&](bool condition, const auto&... parts) {
      if (!condition)
        throw ModelFileError(ModelFileReason::format, Fault::usage, join(opening_, ": not an emulator: ", parts...));
    };
    ask(output.kind == Form::Kind::plain && at(output.state).kind == Kind::linear, "its last layer is not linear");
    std::vector<const State*> linears;  // last layer first
    const State* front = nullptr;
    EmulatorArch arch;
    arch.activation = ops::Activation::none;
    const auto activate = [&](int i) {
      ask(at(i).kind == Kind::active, "two linear layers without an activation between them");
      if (arch.activation == ops::Activation::none) arch.activation = at(i).activation;
      ask(arch.activation == at(i).activation, "activations ", name(arch.activation), " and ", name(at(i).activation));
      return at(i).parent;
    };
    for (int i = output.state; at(i).kind != Kind::input;) {
      if (at(i).kind == Kind::flat) {
        front = &at(activate(at(i).parent));
        ask(front->kind == Kind::conv, "it flattens a value that is no convolution");
        break;
      }
      ask(at(i).kind == Kind::linear, "a convolution that is not flattened");
      linears.push_back(&at(i));
      i = at(i).parent;
      if (at(i).kind != Kind::input && at(i).kind != Kind::flat) i = activate(i);
    }
    std::ranges::reverse(linears);
    ask(linears.size() >= 2, "it has no hidden layer");
    arch.layers = std::ssize(linears) - 1;
    arch.hidden = linears[0]->weight.shape[0];
    arch.n_out = linears.back()->weight.shape[0];
    arch.n_in = linears[0]->weight.shape[1];
    if (front != nullptr) {
      arch.conv_channels = front->weight.shape[0];
      arch.conv_kernel = front->weight.shape[2];
      ask(arch.n_in % arch.conv_channels == 0, "a first layer that does not fit its convolution");
      arch.n_in /= arch.conv_channels;
    }
    for (std::size_t k = 0; k < linears.size(); ++k)
      ask(k == 0 || (linears[k]->weight.shape[1] == arch.hidden), "layers of widths ", arch.hidden, " and ",
          linears[k]->weight.shape[1], "; hidden layers must have one width");
    return build(arch, linears, front, moments(output.steps, arch.n_in, arch.n_out));
  }

  TrainedEmulator build(const EmulatorArch& arch, const std::vector<const State*>& linears, const State* front,
                        const Moments& moments) {
    const bool wide = std::ranges::any_of(linears, [](const State* state) { return state->weight.wide; });
    Tensors tensors;
    const auto put = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                         const std::vector<double>& values) {
      NamedArray tensor = {name, shape, values};
      if (!wide) tensor.values = std::vector<float>(values.begin(), values.end());
      tensors.emplace(name, std::move(tensor));
    };
    const auto put_layer = [&](const std::string& name, const State& state) {
      put(name + ".weight", state.weight.shape, state.weight.values);
      const std::int64_t out = state.weight.shape[0];
      require_format(state.bias.empty() || std::ssize(state.bias) == out, opening_, ": a bias of ", state.bias.size(),
                     " values for ", out, " outputs");
      put(name + ".bias", {out}, state.bias.empty() ? std::vector<double>(out) : state.bias);
    };
    if (front != nullptr) put_layer("conv1d", *front);
    for (std::size_t k = 0; k < linears.size(); ++k) put_layer(join("network.", 2 * k), *linears[k]);
    return assemble({arch, moments, described(arch)}, tensors, source_);
  }

  /// Our own description if the file has it; else names from its metadata, or numbered names.
  EmulatorMetadata described(const EmulatorArch& arch) const {
    const auto entry = [&](const char* key) {
      for (const auto& [known, value] : file_.metadata)
        if (known == key) return value;
      return std::string();
    };
    if (entry("format") == kFormat) return parse_description(file_.metadata, source_).metadata;
    EmulatorMetadata out;
    const auto name = [&](const char* key, const char* otherwise, std::int64_t n, std::vector<std::string>& names) {
      names = split(entry(key), ',');
      if (std::ssize(names) == n) return;
      names.clear();
      for (std::int64_t i = 0; i < n; ++i) names.push_back(join(otherwise, i));
    };
    EmulatorVariables& v = out.variables;
    name("input_names", "in", arch.n_in, v.input_names);
    name("output_names", "out", arch.n_out, v.output_names);
    v.input_cf.resize(v.input_names.size()), v.input_units.resize(v.input_names.size());
    v.output_cf.resize(v.output_names.size()), v.output_units.resize(v.output_names.size());
    v.input_level.resize(v.input_names.size()), v.output_level.resize(v.output_names.size());
    return out;
  }

  std::string source_, opening_;
  onnx::File file_;
  std::map<std::string, Form> forms_;
  std::vector<State> states_;
  std::vector<Step> input_steps_;
  bool normalised_ = false;
};

}  // namespace

TrainedEmulator emulator_of(onnx::File file, const std::string& source) {
  return GraphReader(std::move(file), source).read();
}

TrainedEmulator read_onnx(std::string_view bytes, const std::string& source, const std::filesystem::path& folder,
                          EmulatorSelfTest& selftest) {
  TrainedEmulator out = emulator_of(onnx::read(bytes, "opening model '" + source + "'", folder), source);
  selftest = make_selftest(out.network);
  return out;
}

}  // namespace lockstep::files
