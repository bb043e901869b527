#include "formats/files.hpp"
#include "formats/onnx_graph.hpp"
#include "lockstep/io/file_kind.hpp"
#include "ops/activations.hpp"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"

namespace {

/// A graph of another program: 2 inputs, widths 3 and `second`, 1 output, without biases unless `body` adds them.
struct Net {
  OnnxGraph graph{"net"};
  explicit Net(std::int64_t second = 3) {
    weight("w0", {2, 3});
    weight("w1", {3, second});
    weight("w2", {second, 1});
    graph.input("input", OnnxGraph::Type::f32, {2});
  }
  void weight(const char* name, const std::vector<std::int64_t>& shape) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) values.push_back(0.25 * static_cast<double>(i) - 0.5);
    graph.constant(name, shape, values);
  }
  std::string product(const std::string& x, const char* w) { return graph.node("MatMul", {x, w}); }
  std::string finish(const std::string& last) {
    graph.node("Identity", {last}, {}, "result");
    graph.output("result", {1});
    return graph.file({{"input_names", "sst,sss"}});
  }
};

using Message = ProtobufMessage;
Message text(const char* name, const char* value) { return Message().text(1, name).text(4, value); }

/// A tensor of f32 whose bytes lie in another file, as a further part of the model's graph.
std::string elsewhere(const char* name, const std::vector<std::int64_t>& shape,
                      const std::vector<std::pair<const char*, std::string>>& entries) {
  Message tensor;
  for (const std::int64_t extent : shape) tensor.integer(1, extent);
  tensor.integer(2, 1).text(8, name);
  for (const auto& [key, value] : entries) tensor.message(13, Message().text(1, key).text(2, value));
  return Message().message(7, Message().message(5, tensor.integer(14, 1))).bytes();
}

}  // namespace

TEST_SUITE("formats.read_onnx") {
  TEST_CASE("the forms in which other programs write a network are understood") {
    for (const ops::Activation phi : kSlopes) {
      CAPTURE(name(phi));
      Net net;
      net.graph.constant("scale", {2}, {4, 0.5});
      net.graph.constant("shift", {2}, {1, -1});
      net.graph.constant("bias", {3}, {0.5, 1, 2});
      std::string h = net.graph.node("Mul", {"input", "scale"});
      h = net.graph.node("Add", {h, "shift"});  // x * scale + shift: mean -shift / scale, std 1 / scale
      h = net.graph.activation(net.graph.node("Add", {"bias", net.product(h, "w0")}), phi);
      h = net.graph.activation(net.product(h, "w1"), phi);
      h = net.graph.node("Add",
                         {net.graph.node("Mul", {net.product(h, "w2"), net.graph.scalar(3)}), net.graph.scalar(7)});
      const TrainedEmulator found = read_model(net.finish(h));
      CHECK(found.network.arch().activation == phi);
      CHECK(found.network.arch().layers == 2);
      CHECK(found.network.arch().hidden == 3);
      CHECK(found.network.moments().input_mean == std::vector<double>{-0.25, 2});
      CHECK(found.network.moments().input_std == std::vector<double>{0.25, 2});
      CHECK(found.network.moments().output_mean == std::vector<double>{7});
      CHECK(found.network.moments().output_std == std::vector<double>{3});
      CHECK(found.network.weight(0).value.data<float>()[1] == 0.25f);  // (out 0, in 1) was (in 1, out 0)
      CHECK(found.network.bias(0).value.data<float>()[2] == 2);
      CHECK(found.network.bias(1).value.data<float>()[2] == 0);
      CHECK(found.metadata.variables.input_names == std::vector<std::string>{"sst", "sss"});
      CHECK(found.metadata.variables.output_names == std::vector<std::string>{"out0"});
    }
  }

  TEST_CASE("the operators and attributes of today's exporters are understood") {
    // Weight (out 0, in 1) and bias of the first layer, and weight (out 0, in 1) of the second.
    const auto read = [](const auto& first, const auto& second) {
      Net net;
      net.graph.constant("bias", {3}, {0.5, 1, 2});
      const std::string h = net.graph.node("Relu", {first(net.graph)});
      const Emulator e = read_model(net.finish(net.product(net.graph.node("Relu", {second(net, h)}), "w2"))).network;
      return std::vector<float>{e.weight(0).value.data<float>()[1], e.bias(0).value.data<float>()[2],
                                e.weight(1).value.data<float>()[1], static_cast<float>(e.moments().input_mean[1]),
                                static_cast<float>(e.moments().input_std[0])};
    };
    const auto usual = [](Net& net, const std::string& h) { return net.product(h, "w1"); };
    using Graph = OnnxGraph;
    const auto gemm = [](Graph& g) { return g.node("Gemm", {"input", "w0", "bias"}); };
    CHECK(read(gemm, usual) == std::vector<float>{0.25f, 2, 0.25f, 0, 1});
    CHECK(read(
              [](Graph& g) {
                return g.node("Gemm", {"input", "w0", "bias"},
                              {Graph::real("alpha", 2), Graph::real("beta", 0.5), Graph::integer("transB", 0)});
              },
              usual) == std::vector<float>{0.5f, 1, 0.25f, 0, 1});
    // A left-out bias, and a view of the input as (n, 2).
    const auto flat = [](Graph& g) {
      return g.node("Gemm", {g.node("Flatten", {"input"}, {Graph::integer("axis", -1)}), "w0", ""});
    };
    CHECK(read(flat, usual) == std::vector<float>{0.25f, 0, 0.25f, 0, 1});
    CHECK(read(
              [](Graph& g) {
                const std::string wide = g.node("Cast", {"input"}, {Graph::integer("to", 11)});
                return g.node("MatMul", {g.node("Cast", {wide}, {Graph::integer("to", 1)}), "w0"});
              },
              [](Net& n, const std::string& h) {  // a transposition that keeps the order
                return n.graph.node("MatMul", {h, n.graph.node("Transpose", {"w1"}, {Graph::list("perm", {0, 1})})});
              }) == std::vector<float>{0.25f, 0, 0.25f, 0, 1});
    CHECK(read(
              [](Graph& g) {
                const std::string list = std::string("\0\0\x80\x3f\0\0\0\x40", 8);  // 1, 2
                const std::string shift = g.node("Constant", {}, {Message().text(1, "value_floats").text(7, list)});
                const std::string scale = g.node("Constant", {}, {Graph::real("value_float", 4)});
                return g.node("MatMul", {g.node("Div", {g.node("Sub", {"input", shift}), scale}), "w0"});
              },
              usual) == std::vector<float>{0.25f, 0, 0.25f, 2, 4});
  }

  TEST_CASE("Gelu is the exact function; its tanh form is refused") {
    const auto net = [](const std::vector<Message>& attributes) {
      Net n;
      const std::string h = n.graph.node("Gelu", {n.product("input", "w0")}, attributes);
      return n.finish(n.product(n.graph.node("Gelu", {n.product(h, "w1")}, attributes), "w2"));
    };
    CHECK(read_model(net({})).network.arch().activation == ops::Activation::gelu);
    CHECK(read_model(net({text("approximate", "none")})).network.arch().activation == ops::Activation::gelu);
    CHECK(contains(model_refusal(net({text("approximate", "tanh")})), "node 'Gelu_1' (Gelu): approximate = tanh is"));
  }

  TEST_CASE("weights may lie in a file beside the model, and nowhere else") {
    const auto model = [](const std::string& last) {  // w2 (3, 1) is replaced by `last`
      Net n;
      const std::string h = n.graph.node("Relu", {n.product("input", "w0")});
      return n.finish(n.product(n.graph.node("Relu", {n.product(h, "w1")}), "far")) + last;
    };
    fs::create_directories("net/sub");
    const float values[] = {9, 9, 1, 2, 3};
    const std::string bytes(reinterpret_cast<const char*>(values), sizeof values);
    write_text("net/far.data", bytes);
    write_text("net/sub/far.data", bytes.substr(8));
    write_text("out.data", bytes);
    fs::create_symlink(fs::absolute("out.data"), "net/link.data");
    const auto read = [&](const std::vector<std::pair<const char*, std::string>>& entries) {
      write_text("net/m.onnx", model(elsewhere("far", {3, 1}, entries)));
      const Emulator e = read_emulator(fs::path("net/m.onnx")).network;
      const float* w = e.weight(2).value.data<float>();
      return std::vector<float>(w, w + 3);
    };
    CHECK(read({{"location", "far.data"}, {"offset", "8"}, {"length", "12"}}) == std::vector<float>{1, 2, 3});
    CHECK(read({{"location", "far.data"}, {"offset", "8"}}) == std::vector<float>{1, 2, 3});
    CHECK(read({{"location", "sub/far.data"}, {"length", "12"}, {"checksum", "x"}}) == std::vector<float>{1, 2, 3});
    CHECK(read({{"location", "./sub/../far.data"}, {"length", "12"}}) == std::vector<float>{9, 9, 1});
    const auto refused = [&](const char* location, const char* offset, const char* length) {
      const std::vector<std::pair<const char*, std::string>> entries = {
          {"location", location}, {"offset", offset}, {"length", length}};
      try {
        read(entries);
      } catch (const ModelFileError& error) {
        return std::string(error.what());
      }
      return std::string("read");
    };
    const std::string absolute = fs::absolute("net/far.data");
    for (const char* outside : {"../out.data", "sub/../../out.data", absolute.c_str(), "link.data", "", ".", ".."})
      CHECK(contains(refused(outside, "8", "12"), "which is not in the folder of the model"));
    CHECK(contains(refused("gone.data", "8", "12"), "which is no file in"));
    CHECK(contains(refused("sub", "8", "12"), "which is no file in"));
    CHECK(contains(refused("far.data", "12", "12"), "from byte 12 on, 12 bytes, but the file has 20"));
    CHECK(contains(refused("far.data", "24", "0"), "but the file has 20"));
    CHECK(contains(refused("far.data", "8", "9223372036854775807"), "but the file has 20"));
    CHECK(contains(refused("far.data", "8", "8"), "tensor 'far' has 2 values for its shape"));
    CHECK(contains(refused("far.data", "8", "11"), "11 bytes, which is no number of elements"));
    for (const char* number : {"-4", "8x", "", "1e1", "99999999999999999999"})
      CHECK(contains(refused("far.data", number, "12"), "weights at offset '"));
    CHECK(contains(model_refusal(model(elsewhere("far", {3, 1}, {{"location", "far.data"}}))),
                   "a model in memory must hold all weights"));
  }

  TEST_CASE("a file may begin with any field of the model, and needs no producer") {
    const std::string whole = files::onnx_bytes(golden_emulator("emulator_aice").network, {});
    const std::vector<ProtobufField> fields = protobuf_fields(whole, "model");
    for (std::size_t first = 0; first < fields.size(); ++first) {
      CAPTURE(fields[first].number);
      std::string turned;
      for (std::size_t i = 0; i < fields.size(); ++i) {
        const ProtobufField& field = fields[(first + i) % fields.size()];
        if (field.number == 2 || field.number == 3) continue;
        turned += field.wire == 2 ? Message().text(field.number, field.bytes).bytes()
                                  : Message().integer(field.number, static_cast<std::int64_t>(field.value)).bytes();
      }
      CHECK(kind_of_bytes(turned) == FileKind::onnx);
      CHECK(read_model(turned).network.arch().layers == read_model(whole).network.arch().layers);
    }
    CHECK(kind_of_bytes("Brief notes, (2) of them: \"r\"\n") == FileKind::text);
    CHECK(kind_of_bytes(Message().integer(1, 8).text(9, "x").bytes()) == FileKind::unknown);
  }

  TEST_CASE("a graph that is no emulator is refused, naming the node") {
    const auto with = [](const auto& body) {
      Net net;
      return model_refusal(net.finish(body(net)));
    };
    const auto relu = [](Net& net, const std::string& x) { return net.graph.node("Relu", {x}); };
    CHECK(contains(with([&](Net& n) { return n.product(n.graph.node("Softmax", {n.product("input", "w0")}), "w1"); }),
                   "node 'Softmax_1' (Softmax)"));
    CHECK(contains(with([&](Net& n) {
                     const auto h = relu(n, n.product("input", "w0"));
                     return n.product(n.graph.node("Add", {h, relu(n, n.product(h, "w1"))}), "w2");
                   }),
                   "node 'Add_4' (Add): two values of the network"));
    CHECK(contains(with([&](Net& n) {
                     return n.product(n.graph.node("Tanh", {n.product(relu(n, n.product("input", "w0")), "w1")}), "w2");
                   }),
                   "activations tanh and relu"));
    CHECK(contains(with([&](Net& n) { return n.product(n.product("input", "w0"), "w1"); }), "without an activation"));
    CHECK(contains(with([&](Net& n) { return n.graph.node("Cast", {"input"}, {OnnxGraph::integer("to", 10)}); }),
                   "(Cast): only to float or double"));
    CHECK(contains(with([&](Net& n) {
                     return n.graph.node("Dropout", {"input", "", n.graph.scalar(1)});
                   }),
                   "export the network in evaluation mode"));
    CHECK(contains(with([&](Net& n) { return n.graph.node("Constant", {}, {text("value_string", "x")}); }),
                   "its value is no tensor and no number"));
    CHECK(contains(with([&](Net& n) { return relu(n, n.product("input", "w0")); }), "last layer is not linear"));
    CHECK(contains(with([&](Net& n) { return n.product("input", "w0"); }), "no hidden layer"));
    Net other(4);
    const std::string h = relu(other, other.product(relu(other, other.product("input", "w0")), "w1"));
    CHECK(contains(model_refusal(other.finish(other.product(h, "w2"))), "widths 3 and 4"));
    std::string cut = files::onnx_bytes(golden_emulator("emulator_aice").network, {});
    CHECK(model_refusal(cut.substr(0, cut.size() / 2)) != "read");
  }
}
