#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <type_traits>

#include "files.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/torch_archive.hpp"
#include "onnx_file.hpp"
#include "torchscript_source.hpp"

/// Feed-forward networks in TorchScript archives, scripted, traced or frozen. The code of the top module's method is
/// translated, statement by statement and into its submodules, to a graph of ONNX's operators, which read_onnx.cpp
/// understands. Only assignments and calls of known functions are translated; any other statement is refused.
/// source  PyTorch torch/csrc/jit/docs/serialization.md
namespace lockstep::files {
namespace {

using onnx::Constant;
using Object = PickleValue;
using Token = TorchScriptToken;

const std::string kModules = "__torch__.", kFunctional = "__torch__.torch.nn.functional.", kTorch = "torch.",
                  kConstants = "CONSTANTS.c";

bool is_allowed(std::string_view name) {
  return name.starts_with(kModules) || name.starts_with("torch.jit._pickle.") || is_torch_global(name);
}
/// The list or dictionary of a value that carries its type.
const Object& untagged(const Object& value) {
  return value.kind == Object::Kind::call && value.text.starts_with("torch.jit._pickle.") && !value.items.empty()
             ? *value.items[0]
             : value;
}

/// The value of an expression.
struct Value {
  enum class Kind : std::uint8_t { none, boolean, number, text, list, tensor, object, path };
  Kind kind = Kind::none;
  double number = 0;               ///< also of a boolean
  std::string text;                ///< of a tensor: its name in the graph; of a path: "torch.relu", or a method
  std::vector<std::int64_t> list;  ///< of integers
  const Object* object = nullptr;  ///< the module, or the module of a method
};

class TorchScriptReader {
 public:
  TorchScriptReader(std::string_view bytes, const std::string& source)
      : opening_("opening model '" + source + "'"),
        archive_(bytes, opening_),
        folder_(checked_folder()),
        source_(archive_, folder_),
        data_(archive_.read(folder_ + "data.pkl"), opening_, is_allowed),
        tensors_(archive_, folder_ + "data/", opening_),
        constant_tensors_(archive_, folder_ + "constants/", opening_) {}

  onnx::File read() {
    const Object& top = data_.root();
    require_format(is_module(top), opening_, ": it holds no module");
    const Pickled constants(archive_.read(folder_ + "constants.pkl"), opening_, is_allowed);
    constants_ = &constants.root();
    const std::string method = source_.method(top.text, "predict") ? "predict" : "forward";
    const std::optional<TorchScriptFunction> function = source_.method(top.text, method);
    require_format(function && function->parameters.size() >= 2, opening_, ": class ", top.text, " has no ", method,
                   "(x)");
    file_.inputs = {"x"};
    const Value y = run(*function, {object_value(top), tensor_value("x")});
    require_format(y.kind == Value::Kind::tensor, opening_, ": ", method, " returns no tensor");
    file_.outputs = {current(y.text)};
    describe(top);
    return std::move(file_);
  }

 private:
  std::string checked_folder() const {
    if (!std::ranges::any_of(archive_.names(), [](const std::string& name) { return name.ends_with("constants.pkl"); }))
      throw ModelFileError(ModelFileReason::format, Fault::usage,
                           join(opening_, ": a ZIP archive, but not of TorchScript; save it with torch.jit.save"));
    return torch_folder(archive_, opening_);
  }

  // ---- Objects ------------------------------------------------------------------------------------------------------

  static bool is_module(const Object& value) {
    return value.kind == Object::Kind::call && value.text.starts_with(kModules) && value.state != nullptr;
  }
  static const Object* attribute(const Object& module, std::string_view name) {
    for (const auto& [key, value] : module.state->entries)
      if (key->is(Object::Kind::text) && key->text == name) return value;
    return nullptr;
  }
  static Value object_value(const Object& module) { return {Value::Kind::object, 0, {}, {}, &module}; }
  static Value tensor_value(std::string name) { return {Value::Kind::tensor, 0, std::move(name), {}, nullptr}; }

  Value constant(const Object& tensor, TorchTensors& from, const std::string& name) {
    std::string& known = names_[&tensor];
    if (known.empty()) {
      known = join("constant ", names_.size());
      NamedArray array = from.read(name, *torch_tensor(tensor));
      Constant out = {std::move(array.shape), {}, array.dtype() == std::string("f64")};
      std::visit(
          [&]<class T>(const std::vector<T>& values) {
            if constexpr (!std::is_integral_v<T>) out.values.assign(values.begin(), values.end());
          },
          array.values);
      file_.constants[known] = std::move(out);
    }
    return tensor_value(known);
  }

  Value value_of(const Object& value, TorchTensors& tensors, const std::string& name) {
    if (torch_tensor(value) != nullptr) return constant(value, tensors, name);
    if (is_module(value)) return object_value(value);
    switch (value.kind) {
      case Object::Kind::none:
        return {};
      case Object::Kind::boolean:
        return {Value::Kind::boolean, static_cast<double>(value.integer), {}, {}, nullptr};
      case Object::Kind::integer:
        return {Value::Kind::number, static_cast<double>(value.integer), {}, {}, nullptr};
      case Object::Kind::real:
        return {Value::Kind::number, value.real, {}, {}, nullptr};
      case Object::Kind::text:
        return {Value::Kind::text, 0, value.text, {}, nullptr};
      default:
        refuse(join("attribute ", name, " is of an unknown kind"));
    }
  }

  Value member(const Value& of, const std::string& name) {
    if (of.kind == Value::Kind::path && of.object == nullptr) {
      const std::string path = of.text + "." + name;
      const bool is_constant = path.starts_with(kConstants) && constants_->is(Object::Kind::tuple);
      for (std::size_t i = 0; is_constant && i < constants_->items.size(); ++i)
        if (path == join(kConstants, i)) return value_of(*constants_->items[i], constant_tensors_, path);
      return {Value::Kind::path, 0, path, {}, nullptr};
    }
    if (of.kind != Value::Kind::object) refuse(join("'", name, "' of a value that is no module"));
    if (const Object* found = attribute(*of.object, name)) return value_of(*found, tensors_, name);
    return {Value::Kind::path, 0, name, {}, of.object};
  }

  // ---- Statements ---------------------------------------------------------------------------------------------------

  [[noreturn]] void refuse(const std::string& why) const {
    throw ModelFileError(ModelFileReason::format, Fault::usage,
                         join(opening_, ": ", place(), ": ", why,
                              "; an emulator has linear layers of one width, one activation, and a normalisation"));
  }
  std::string place() const {
    constexpr std::size_t kLongest = 100;
    std::string shown = statement_.substr(0, kLongest);
    std::ranges::replace_if(
        shown, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
    return join(code_file_, ": statement '", shown, statement_.size() > kLongest ? "...'" : "'");
  }

  Value run(const TorchScriptFunction& function, const std::vector<Value>& arguments) {
    constexpr int kDeepest = 32;
    constexpr std::size_t kMost = 100'000;  // bounds the time for a file of many calls
    if (arguments.size() > function.parameters.size()) refuse("a call with too many arguments");
    if (++depth_ > kDeepest) refuse("modules are nested too deeply");
    std::map<std::string, Value> names;
    for (std::size_t i = 0; i < arguments.size(); ++i) names[function.parameters[i]] = arguments[i];
    auto caller = std::tuple(std::move(code_file_), std::move(statement_), names_in_scope_, std::move(tokens_), at_);
    names_in_scope_ = &names;
    code_file_ = function.file;
    Value out;
    bool returned = false;
    for (const std::string& statement : function.body) {
      statement_ = statement;
      if (returned) refuse("the function goes on after a return");
      std::optional<std::vector<Token>> tokens = torchscript_tokens(statement);
      if (!tokens) refuse("this statement is not understood");
      tokens_ = std::move(*tokens);
      tokens_read_ += tokens_.size();
      if (tokens_read_ > kMost) refuse("the code is too long");
      at_ = 0;
      returned = next_is("return");
      std::string target;
      if (!returned) {
        target = take(Token::Kind::word).text;
        expect("=");
      }
      Value value = expression();
      if (tokens_[at_].kind != Token::Kind::end) refuse("this statement is not understood");
      (returned ? out : names[target]) = std::move(value);
    }
    if (!returned) refuse("the function returns nothing");
    std::tie(code_file_, statement_, names_in_scope_, tokens_, at_) = std::move(caller);
    --depth_;
    return out;
  }

  bool next_is(std::string_view text) {
    const Token& token = tokens_[at_];
    const bool found = token.text == text && (token.kind == Token::Kind::sign || token.kind == Token::Kind::word);
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(std::string_view text) {
    if (!next_is(text)) refuse("this statement is not understood");
  }
  Token take(Token::Kind kind) {
    if (tokens_[at_].kind != kind) refuse("this statement is not understood");
    return tokens_[at_++];
  }

  Value expression() {
    constexpr int kDeepest = 200;
    if (++nesting_ > kDeepest) refuse("it is nested too deeply");
    Value out = primary();
    while (true) {
      if (next_is("."))
        out = member(out, take(Token::Kind::word).text);
      else if (next_is("("))
        out = call(out);
      else
        break;
    }
    --nesting_;
    return out;
  }

  Value primary() {
    if (next_is("(")) {
      Value out = expression();
      expect(")");
      return out;
    }
    if (next_is("[")) {
      Value out{Value::Kind::list, 0, {}, {}, nullptr};
      while (!next_is("]")) {
        out.list.push_back(integer(expression()));
        if (!next_is(",") && tokens_[at_].text != "]") refuse("this list is not understood");
      }
      return out;
    }
    const bool negative = next_is("-");
    if (tokens_[at_].kind == Token::Kind::number || negative) {
      const double number = take(Token::Kind::number).number;
      return {Value::Kind::number, negative ? -number : number, {}, {}, nullptr};
    }
    if (tokens_[at_].kind == Token::Kind::text) return {Value::Kind::text, 0, tokens_[at_++].text, {}, nullptr};
    const std::string word = take(Token::Kind::word).text;
    if (word == "None") return {};
    if (word == "True" || word == "False") return {Value::Kind::boolean, word == "True" ? 1.0 : 0.0, {}, {}, nullptr};
    const auto found = names_in_scope_->find(word);
    return found != names_in_scope_->end() ? found->second : Value{Value::Kind::path, 0, word, {}, nullptr};
  }

  std::int64_t integer(const Value& value) const {
    constexpr double kLargest = 1e9;
    if (value.kind != Value::Kind::number || !(std::abs(value.number) <= kLargest) ||
        value.number != std::floor(value.number))
      refuse("an integer is missing");
    return static_cast<std::int64_t>(value.number);
  }

  // ---- Calls --------------------------------------------------------------------------------------------------------

  /// Evaluates a call. The opening bracket has been read.
  Value call(const Value& callee) {
    std::vector<Value> arguments;
    std::map<std::string, Value> named;
    while (!next_is(")")) {
      if (tokens_[at_].kind == Token::Kind::word && tokens_[at_ + 1].text == "=") {
        const std::string name = take(Token::Kind::word).text;
        expect("=");
        named[name] = expression();
      } else {
        arguments.push_back(expression());
      }
      if (!next_is(",") && tokens_[at_].text != ")") refuse("this call is not understood");
    }
    if (callee.kind != Value::Kind::path) refuse("it calls a value that is no function");
    const std::string& path = callee.text;
    if (callee.object == nullptr && path == "getattr" && arguments.size() == 2 &&
        arguments[1].kind == Value::Kind::text)
      return member(arguments[0], arguments[1].text);
    const bool functional = path.starts_with(kFunctional);
    if (callee.object == nullptr && (functional || path.starts_with(kTorch)))
      return operation(path.substr(functional ? kFunctional.size() : kTorch.size()), arguments, named, functional);
    if (!named.empty()) refuse("a call with named arguments");
    std::optional<TorchScriptFunction> function;
    if (callee.object != nullptr) {
      arguments.insert(arguments.begin(), object_value(*callee.object));
      function = source_.method(callee.object->text, path);
    } else if (path.starts_with(kModules)) {
      function = source_.function(path);
    }
    if (!function) refuse(join(path, " is not known"));
    return run(*function, arguments);
  }

  /// The name of the current value: in-place operations assign a new name.
  std::string current(std::string name) const {
    for (auto found = overwritten_.find(name); found != overwritten_.end(); found = overwritten_.find(name))
      name = found->second;
    return name;
  }
  bool is_constant(const std::string& name) const { return file_.constants.contains(name); }

  Value node(const char* op, std::vector<std::string> inputs, std::map<std::string, onnx::Attribute> attributes = {}) {
    std::string out = join("value ", file_.nodes.size());
    file_.nodes.push_back({op, join(place(), " (", op, ")"), std::move(inputs), {out}, std::move(attributes)});
    if (file_.nodes.back().op == "Transpose") file_.constants[out] = {};
    return tensor_value(out);
  }

  /// functional  the operation is in torch.nn.functional: its last argument may be `inplace`
  Value operation(std::string name, std::vector<Value>& arguments, std::map<std::string, Value>& named,
                  bool functional) {
    const auto unknown = [&]() {
      refuse(join((functional ? kFunctional : kTorch) + name, ", or this form of it, is not read"));
    };
    bool in_place = !functional && name.ends_with('_');
    if (in_place) name.pop_back();
    if (functional && arguments.size() > 1 && arguments.back().kind == Value::Kind::boolean) {
      in_place = arguments.back().number != 0;
      arguments.pop_back();
    }
    // Arguments that state their default.
    for (const char* factor : {"alpha", "beta"})
      if (named.contains(factor) && named[factor].kind == Value::Kind::number && named[factor].number == 1)
        named.erase(factor);
    if (name == "gelu" && named.contains("approximate") && named["approximate"].text == "none")
      named.erase("approximate");
    if (!named.empty() || arguments.empty()) unknown();
    std::vector<std::string> inputs;
    std::vector<Value> others;  // after the tensors
    const bool takes_numbers = name == "add" || name == "sub" || name == "mul" || name == "div";
    for (const Value& argument : arguments) {
      if (argument.kind == Value::Kind::tensor) {
        if (!others.empty()) unknown();
        inputs.push_back(current(argument.text));
      } else if (takes_numbers && argument.kind == Value::Kind::number) {
        inputs.push_back(join("number ", numbers_++));
        file_.constants[inputs.back()] = {{}, {argument.number}, false};
      } else {
        others.push_back(argument);
      }
    }
    if (inputs.empty()) unknown();
    const std::optional<Value> out = translated(name, inputs, others);
    if (!out) unknown();
    if (in_place && is_constant(inputs[0])) unknown();
    if (in_place && out->text != inputs[0]) overwritten_[inputs[0]] = out->text;
    return *out;
  }

  std::optional<Value> translated(const std::string& name, std::vector<std::string>& inputs,
                                  const std::vector<Value>& others) {
    const auto is = [&](std::size_t tensors, std::size_t least, std::size_t most) {
      return inputs.size() == tensors && others.size() >= least && others.size() <= most;
    };
    const auto is_number = [&](std::size_t i) { return others[i].kind == Value::Kind::number; };
    constexpr std::size_t kAny = 4;
    if ((name == "dropout" && is(1, 0, kAny)) || ((name == "detach" || name == "contiguous") && is(1, 0, 0)))
      return tensor_value(inputs[0]);
    if (name == "clone" && is(1, 0, 1)) return node("Identity", inputs);
    if (name == "linear" && (is(3, 0, 0) || (is(2, 0, 1) && (others.empty() || others[0].kind == Value::Kind::none)))) {
      onnx::Attribute transposed;
      transposed.integer = 1;
      return node("Gemm", inputs, {{"transB", transposed}});
    }
    if (name == "addmm" && is(3, 0, 0)) return node("Gemm", {inputs[1], inputs[2], inputs[0]});
    if ((name == "matmul" || name == "mm") && is(2, 0, 0)) return node("MatMul", inputs);
    if ((name == "t" || name == "numpy_T") && is(1, 0, 0) && is_constant(inputs[0])) return node("Transpose", inputs);
    for (const auto& [known, op, sign] :
         {std::tuple{"add", "Add", '+'}, {"sub", "Sub", '-'}, {"mul", "Mul", '*'}, {"div", "Div", '/'}}) {
      if (name != known || !is(2, 0, 0)) continue;
      if (is_constant(inputs[0]) && is_constant(inputs[1])) return folded(sign, inputs);
      return node(op, inputs);
    }
    for (const auto& [known, op] :
         {std::pair{"relu", "Relu"}, {"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}, {"gelu", "Gelu"}})
      if (name == known && is(1, 0, 0)) return node(op, inputs);
    if (name == "silu" && is(1, 0, 0)) return node("Mul", {inputs[0], node("Sigmoid", inputs).text});
    for (const auto& [known, op] : {std::pair{"elu", "Elu"}, {"leaky_relu", "LeakyRelu"}}) {
      if (name != known || !is(1, 0, 1) || (!others.empty() && !is_number(0))) continue;
      if (others.empty()) return node(op, inputs);
      onnx::Attribute alpha;
      alpha.real = static_cast<float>(others[0].number);
      return node(op, inputs, {{"alpha", alpha}});
    }
    return front_end(name, inputs, others);
  }

  /// The operations of our own convolution front end.
  std::optional<Value> front_end(const std::string& name, const std::vector<std::string>& inputs,
                                 const std::vector<Value>& others) {
    const auto integers = [](std::vector<std::int64_t> list) {
      onnx::Attribute out;
      out.integers = std::move(list);
      return out;
    };
    if (name == "unsqueeze" && inputs.size() == 1 && others.size() == 1)
      return node("Unsqueeze", inputs, {{"axes", integers({integer(others[0])})}});
    if (name == "flatten" && inputs.size() == 1 && others.size() == 2 && integer(others[1]) == -1) {
      onnx::Attribute axis;
      axis.integer = integer(others[0]);
      return node("Flatten", inputs, {{"axis", axis}});
    }
    if (name != "conv1d" || inputs.size() != 3 || others.size() != 4) return std::nullopt;
    std::vector<std::int64_t> pads = others[1].list;
    pads.insert(pads.end(), others[1].list.begin(), others[1].list.end());
    onnx::Attribute group;
    group.integer = integer(others[3]);
    return node("Conv", inputs,
                {{"strides", integers(others[0].list)},
                 {"pads", integers(pads)},
                 {"dilations", integers(others[2].list)},
                 {"group", group}});
  }

  /// Folds two constants, such as input_std + 1e-6, in the precision of the file.
  Value folded(char op, const std::vector<std::string>& inputs) {
    const Constant &a = file_.constants[inputs[0]], &b = file_.constants[inputs[1]];
    const bool left = a.values.size() >= b.values.size();
    if (a.values.empty() || b.values.empty() || (left ? b : a).values.size() != 1)
      if (a.shape != b.shape || a.values.empty()) refuse("constants of different shapes");
    Constant out = left ? a : b;
    out.wide = a.wide || b.wide;
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      const double x = a.values[a.values.size() == 1 ? 0 : i], y = b.values[b.values.size() == 1 ? 0 : i];
      const double value = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
      out.values[i] = out.wide ? value : static_cast<double>(static_cast<float>(value));
    }
    const std::string name = join("number ", numbers_++);
    file_.constants[name] = std::move(out);
    return tensor_value(name);
  }

  // ---- The description ----------------------------------------------------------------------------------------------

  /// Our own description in `meta`, or the lists of names.
  void describe(const Object& top) {
    if (const Object* meta = attribute(top, "meta"))
      for (const auto& [key, value] : untagged(*meta).entries)
        if (key->is(Object::Kind::text) && value->is(Object::Kind::text))
          file_.metadata.emplace_back(key->text, value->text);
    for (const char* key : {"input_names", "output_names"}) {
      const Object* names = attribute(top, key);
      if (names == nullptr) continue;
      file_.metadata.emplace_back(key,
                                  listed(untagged(*names).items, ",", [](const Object* name) { return name->text; }));
    }
  }

  std::string opening_;
  ZipReader archive_;
  std::string folder_;
  TorchScriptSource source_;
  Pickled data_;
  TorchTensors tensors_, constant_tensors_;
  const Object* constants_ = nullptr;
  onnx::File file_;
  std::map<const Object*, std::string> names_;      ///< names of constant tensors
  std::map<std::string, std::string> overwritten_;  ///< by in-place operations: name -> new name
  int numbers_ = 0, depth_ = 0, nesting_ = 0;
  std::size_t tokens_read_ = 0;
  // The current position:
  std::string code_file_, statement_;
  std::map<std::string, Value>* names_in_scope_ = nullptr;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace

TrainedEmulator read_torchscript(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest) {
  TrainedEmulator out = emulator_of(TorchScriptReader(bytes, source).read(), source);
  selftest = make_selftest(out.network);
  return out;
}

}  // namespace lockstep::files
