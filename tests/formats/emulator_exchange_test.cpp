#include <zlib.h>

#include "formats/files.hpp"
#include "lockstep/io/protobuf.hpp"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"

/// ONNX and TorchScript files, parsed byte by byte for the properties that other programs rely on. tests/peers runs
/// those programs.

namespace {

template <class T>
T little(std::string_view bytes, std::size_t at) {
  T value;
  REQUIRE(at + sizeof value <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// A protobuf message.
struct Proto {
  std::vector<ProtobufField> fields;
  explicit Proto(std::string_view bytes) : fields(protobuf_fields(bytes, "test")) {}
  template <class Out>
  std::vector<Out> each(int number) const {
    std::vector<Out> out;
    for (const ProtobufField& field : fields)
      if (field.number == number) out.emplace_back(field.bytes);
    return out;
  }
  std::vector<std::string> all(int number) const { return each<std::string>(number); }
  std::vector<Proto> messages(int number) const { return each<Proto>(number); }
  std::string text(int number) const {
    REQUIRE(all(number).size() == 1);
    return all(number)[0];
  }
  std::uint64_t number(int wanted) const {
    const auto found = std::ranges::find(fields, wanted, &ProtobufField::number);
    REQUIRE(found != fields.end());
    return found->value;
  }
};

std::vector<std::string> sorted_ops(const Proto& model) {
  std::vector<std::string> out;
  for (const Proto& node : model.messages(7).at(0).messages(1)) out.push_back(node.text(4));
  std::sort(out.begin(), out.end());
  return out;
}

struct Member {
  std::string_view data;
  std::size_t offset;  ///< of the data in the archive
};

/// The members of an uncompressed archive. Checks each entry of the directory against its local header.
std::map<std::string, Member> unzip(std::string_view zip) {
  std::map<std::string, Member> out;
  REQUIRE(zip.size() >= 22);
  const std::size_t end = zip.size() - 22;
  REQUIRE(zip.substr(end, 4) == "PK\x05\x06");
  const std::size_t count = little<std::uint16_t>(zip, end + 10), size = little<std::uint32_t>(zip, end + 12);
  std::size_t entry = little<std::uint32_t>(zip, end + 16);
  CHECK(entry + size == end);
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(zip.substr(entry, 4) == "PK\x01\x02");
    const std::size_t name_bytes = little<std::uint16_t>(zip, entry + 28),
                      extra = little<std::uint16_t>(zip, entry + 30);
    const std::size_t local = little<std::uint32_t>(zip, entry + 42), bytes = little<std::uint32_t>(zip, entry + 20);
    const std::string name(zip.substr(entry + 46, name_bytes));
    CAPTURE(name);
    REQUIRE(zip.substr(local, 4) == "PK\x03\x04");
    CHECK(zip.substr(local + 4, 24) == zip.substr(entry + 6, 24));  // version needed ... name length
    CHECK(little<std::uint16_t>(zip, local + 8) == 0);              // stored
    CHECK(zip.substr(local + 30, name_bytes) == name);
    const std::size_t padding = little<std::uint16_t>(zip, local + 28);
    CHECK(zip.substr(local + 30 + name_bytes, 2) == "FB");
    CHECK(little<std::uint16_t>(zip, local + 32 + name_bytes) == padding - 4);
    const std::size_t data = local + 30 + name_bytes + padding;
    REQUIRE(data + bytes <= zip.size());
    const std::string_view content = zip.substr(data, bytes);
    CHECK(little<std::uint32_t>(zip, entry + 16) ==
          crc32_z(0, reinterpret_cast<const unsigned char*>(content.data()), content.size()));
    CHECK(out.emplace(name, Member{content, data}).second);
    entry += 46 + name_bytes + extra;
  }
  CHECK(entry == end);
  return out;
}

std::vector<double> rounded(std::vector<double> values) {
  for (double& value : values) value = static_cast<double>(static_cast<float>(value));
  return values;
}

}  // namespace

TEST_SUITE("formats.emulator_exchange") {
  TEST_CASE("an ONNX graph defines each name before it is used, and holds the weights") {
    for (const std::string& name : golden_emulators()) {
      CAPTURE(name);
      const TrainedEmulator model = golden_emulator(name);
      const std::string bytes = files::onnx_bytes(model.network, model.metadata);
      const Proto onnx(bytes);
      CHECK(onnx.number(1) == 8);
      CHECK(onnx.messages(8).at(0).number(2) == 13);
      const Proto graph = onnx.messages(7).at(0);
      std::set<std::string> known = {graph.messages(11).at(0).text(1)};
      CHECK(known.count("x") == 1);
      std::map<std::string, std::string> constants;
      for (const Proto& tensor : graph.messages(5)) {
        constants[tensor.text(8)] = tensor.text(9);
        known.insert(tensor.text(8));
      }
      for (const Param& param : model.network.params().all()) {
        CHECK(constants.at(param.name) ==
              std::string(static_cast<const char*>(param.value.raw()), param.value.size_bytes()));
      }
      for (const Proto& node : graph.messages(1)) {
        for (const std::string& input : node.all(1)) CHECK_MESSAGE(known.count(input) == 1, input);
        CHECK(known.insert(node.text(2)).second);
      }
      CHECK(graph.messages(12).at(0).text(1) == "y");
      CHECK(known.count("y") == 1);
    }
  }

  TEST_CASE("the ONNX graph has the operators of the reference file") {
    const TrainedEmulator model = golden_emulator("emulator_aice");
    const std::string ours = files::onnx_bytes(model.network, model.metadata);
    const std::string reference = read_text(golden_path("emulator_aice.onnx"));
    CHECK(sorted_ops(Proto(ours)) == sorted_ops(Proto(reference)));
  }

  TEST_CASE("a TorchScript archive keeps each member at a multiple of 64 bytes, and holds the weights") {
    for (const std::string& name : golden_emulators()) {
      CAPTURE(name);
      const TrainedEmulator model = golden_emulator(name);
      const std::string bytes = files::torchscript_bytes(model.network, model.metadata);
      const auto members = unzip(bytes);
      for (const auto& [member, content] : members) CHECK_MESSAGE(content.offset % 64 == 0, member);
      for (const char* member :
           {"emulator/data.pkl", "emulator/code/__torch__.py", "emulator/constants.pkl", "emulator/version"})
        CHECK(members.count(member) == 1);
      CHECK(members.at("emulator/version").data == "3\n");
      std::size_t i = 0;
      for (const NamedArray& weight : files::weights_of(model.network))
        CHECK(members.at(join("emulator/data/", i++)).data == files::bytes_of(weight));
      const std::string_view pickle = members.at("emulator/data.pkl").data;
      CHECK(pickle.substr(0, 2) == "\x80\x02");
      CHECK(pickle.back() == '.');
    }
  }

  TEST_CASE("our archive has all members of the reference archive, with equal tensors") {
    const TrainedEmulator model = golden_emulator("emulator_aice");
    const std::string bytes = files::torchscript_bytes(model.network, model.metadata);
    const auto ours = unzip(bytes);
    const std::string reference_bytes = read_text(golden_path("emulator_aice.ts"));
    for (const auto& [name, member] : unzip(reference_bytes)) {
      CHECK_MESSAGE(ours.count(name) == 1, name);
      if (name.find("/data/") != std::string::npos) CHECK_MESSAGE(ours.at(name).data == member.data, name);
    }
  }

  TEST_CASE("our own files come back with the same bits") {
    for (const auto& [bytes_of, reference] : {std::pair{&files::onnx_bytes, "emulator_aice.onnx"},
                                              std::pair{&files::torchscript_bytes, "emulator_aice.ts"}}) {
      for (const std::string& name : golden_emulators()) {
        CAPTURE(name);
        const TrainedEmulator model = golden_emulator(name);
        const std::string bytes = bytes_of(model.network, model.metadata);
        const TrainedEmulator back = read_emulator(std::as_bytes(std::span(bytes)), "net");
        EmulatorArch expected = model.network.arch();
        if (expected.conv_channels == 0) expected.conv_kernel = EmulatorArch().conv_kernel;  // not read
        CHECK(back.network.arch() == expected);
        CHECK(back.network.params().hash() == model.network.params().hash());
        const Moments &a = model.network.moments(), &b = back.network.moments();
        CHECK(b.input_mean == rounded(a.input_mean));
        CHECK(b.input_std == rounded(a.input_std));
        CHECK(b.output_mean == rounded(a.output_mean));
        CHECK(b.output_std == rounded(a.output_std));
        CHECK(back.metadata.variables == model.metadata.variables);
        CHECK(back.metadata.mask.max == model.metadata.mask.max);
      }
      CHECK(read_emulator(fs::path(golden_path(reference))).network.params().hash() ==
            golden_emulator("emulator_aice").network.params().hash());
    }
  }
}
