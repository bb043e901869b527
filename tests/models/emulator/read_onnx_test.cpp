#include "models/emulator/files/files.hpp"
#include "models/onnx/graph.hpp"
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

}  // namespace

TEST_SUITE("models.read_onnx") {
  TEST_CASE("the forms in which other programs write a network are understood") {
    for (const char* phi : {"gelu", "relu", "tanh", "sigmoid", "leakyrelu", "elu", "silu"}) {
      CAPTURE(phi);
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
    CHECK(contains(with([&](Net& n) { return relu(n, n.product("input", "w0")); }), "last layer is not linear"));
    CHECK(contains(with([&](Net& n) { return n.product("input", "w0"); }), "no hidden layer"));
    Net other(4);
    const std::string h = relu(other, other.product(relu(other, other.product("input", "w0")), "w1"));
    CHECK(contains(model_refusal(other.finish(other.product(h, "w2"))), "widths 3 and 4"));
    std::string cut = files::onnx_bytes(golden_emulator("emulator_aice").network, {});
    CHECK(model_refusal(cut.substr(0, cut.size() / 2)) != "read");
  }
}
