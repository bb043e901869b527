#include "formats/files.hpp"
#include "lockstep/io/zip.hpp"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"

namespace {

/// The archive with one text of its code or of its names replaced.
std::string edited(const std::string& archive, const std::string& from, const std::string& to) {
  const ZipReader zip(archive, "editing");
  ZipWriter out;
  bool found = false;
  for (const std::string& name : zip.names()) {
    std::string member = zip.read(name);
    const std::size_t at = name.ends_with(".py") || name.ends_with("/data.pkl") ? member.find(from) : std::string::npos;
    if (at != std::string::npos) member.replace(at, from.size(), to);
    found = found || at != std::string::npos;
    out.add(name, member);
  }
  REQUIRE_MESSAGE(found, from);
  return out.finish();
}

}  // namespace

TEST_SUITE("formats.read_torchscript") {
  TEST_CASE("archives that PyTorch scripted, traced and froze are understood") {
    for (const char* kind : {"script", "trace", "frozen"}) {
      CAPTURE(kind);
      const TrainedEmulator found = read_emulator(fs::path(golden_path(std::string("emulator_") + kind + ".ts")));
      const EmulatorArch& arch = found.network.arch();
      CHECK(arch.activation == ops::Activation::gelu);
      CHECK(arch.layers == 2);
      CHECK(arch.hidden == 4);
      CHECK(arch.n_in == 3);
      CHECK(arch.n_out == 2);
      const Moments& m = found.network.moments();
      CHECK(m.input_mean == std::vector<double>{1, 2, 3});
      CHECK(m.input_std == std::vector<double>{0.5, 1, 2});
      CHECK(m.output_mean == std::vector<double>{4, 5});
      CHECK(m.output_std == std::vector<double>{8, 16});
      for (int layer = 0; layer <= 2; ++layer) {
        const auto weight = found.network.weight(layer).value.span<float>();
        for (std::size_t i = 0; i < weight.size(); ++i) CHECK(weight[i] == static_cast<float>(i) / 8 - 0.5f);
        const auto bias = found.network.bias(layer).value.span<float>();
        for (std::size_t i = 0; i < bias.size(); ++i)
          CHECK(bias[i] == (layer == 2 ? 0 : static_cast<float>(i) / 8 - 0.5f));
      }
    }
  }

  TEST_CASE("older and other forms of the same code are understood") {
    const TrainedEmulator model = golden_emulator("emulator_aice");
    const std::string archive = files::torchscript_bytes(model.network, model.metadata);
    const std::string plain = read_text(golden_path("emulator_aice.ts"));  // without our description
    CHECK(read_model(edited(plain, "in1", "sst")).metadata.variables.input_names[1] == "sst");
    for (const auto& [from, to] :
         {std::pair{"torch.linear(x, self.w0, self.b0)", "torch.addmm(self.b0, x, torch.t(self.w0), beta=1, alpha=1)"},
          {"torch.linear(x, self.w0, self.b0)", "torch.add(torch.matmul(x, torch.t(self.w0)), self.b0, alpha=1)"},
          {"torch.linear(x, self.w0, self.b0)",
           "__torch__.torch.nn.functional.linear(x, getattr(self, \"w0\"), self.b0, )"},
          {"h0 = torch.gelu(a0)", "a0 = torch.gelu_(a0)\n    h0 = torch.dropout(a0, 0.5, False)"},
          {"h0 = torch.gelu(a0)", "h = torch.gelu_(a0)\n    h0 = a0"},
          {"h0 = torch.gelu(a0)", "h = torch.clone(a0)\n    _0 = torch.gelu_(h)\n    h0 = torch.gelu(a0)"},
          {"torch.sub(x, self.input_mean)", "torch.sub(\n      x,\n      torch.add(self.input_mean, 0.))"}}) {
      CAPTURE(to);
      const TrainedEmulator found = read_model(edited(archive, from, to));
      CHECK(found.network.params().hash() == model.network.params().hash());
      CHECK(found.network.moments().input_mean == read_model(archive).network.moments().input_mean);
    }
  }

  TEST_CASE("code that is no emulator is refused, naming the file and the statement") {
    const TrainedEmulator model = golden_emulator("emulator_aice");
    const std::string archive = files::torchscript_bytes(model.network, model.metadata);
    for (const auto& [from, to, message] :
         {std::tuple{"h0 = torch.gelu(a0)", "h0 = torch.softmax(a0, 1)",
                     "code/__torch__.py: statement 'h0 = torch.softmax(a0, 1)': torch.softmax"},
          {"h0 = torch.gelu(a0)", "h0 = torch.gelu(a0, approximate=\"tanh\")", "torch.gelu, or this form of it"},
          {"h0 = torch.gelu(a0)", "h0 = torch.tanh(a0)", "activations gelu and tanh"},
          {"h0 = torch.gelu(a0)", "h0 = torch.add(torch.gelu(a0), a0)",
           "'h0 = torch.add(torch.gelu(a0), a0)' (Add): two values"},
          {"h0 = torch.gelu(a0)", "if True:\n      h0 = a0", "statement 'if True:'"},
          {"h0 = torch.gelu(a0)", "h0 = a0 @ a0", "statement 'h0 = a0 @ a0': this statement is not understood"},
          {"h0 = torch.gelu(a0)", "h0 = (self).nothing(a0, )", "nothing is not known"},
          {"h0 = torch.gelu(a0)", "h0 = (self).forward(a0, )", "nested too deeply"},
          {"h0 = torch.gelu(a0)", "h0 = torch.gelu(unknown)", "torch.gelu"},
          {"h0 = torch.gelu(a0)", "h0 = torch.mul(self.meta, a0)", "attribute meta"},
          {"h0 = torch.gelu(a0)", "return a0", "goes on after a return"},
          {"def predict(self: __torch__.Emulator, x: Tensor)", "def predict(self: __torch__.Emulator)",
           "predict(x)"}}) {
      CAPTURE(to);
      const std::string found = model_refusal(edited(archive, from, to));
      CAPTURE(found);
      CHECK(contains(found, message));
      CHECK_FALSE(contains(found, "\n"));
    }
    ZipWriter other;
    other.add("a.npy", "no module");
    CHECK(contains(model_refusal(other.finish()), "not of TorchScript"));
    CHECK(contains(model_refusal(archive.substr(0, archive.size() / 2)), "damaged or truncated"));
  }
}
