#include "lockstep/io/weights.hpp"

#include <zlib.h>

#include "formats/pickle.hpp"
#include "lockstep/io/zip.hpp"
#include "support/npy.hpp"
#include "support/test.hpp"

using files::Pickle;

namespace {

NamedArray array(const std::string& name, const std::vector<std::int64_t>& shape, auto values) {
  return {.name = name, .shape = shape, .values = std::move(values)};
}

/// The message of an error with fault data or usage.
std::string refusal(const auto& read) {
  try {
    read();
  } catch (const Error& error) {
    CHECK(error.fault() != Fault::internal);
    return error.what();
  }
  return "accepted";
}

// ---- torch.save

/// A tensor of the storage `key` with this many values, as torch.save describes it.
struct Described {
  std::string storage = "0", type = "FloatStorage";
  std::int64_t numel = 6, offset = 0;
  std::vector<std::int64_t> shape = {2, 3}, strides = {3, 1};
  bool negated = false;  ///< as x.imag of a conjugated x
};

void add_tensor(Pickle& out, const Described& t) {
  out.global("torch._utils", "_rebuild_tensor_v2").mark();
  out.mark().text("storage").global("torch", t.type).text(t.storage).text("cpu").integer(t.numel).tuple();
  out.persistent_id().integer(t.offset);
  for (const auto& extents : {t.shape, t.strides}) {
    out.mark();
    for (const std::int64_t extent : extents) out.integer(extent);
    out.tuple();
  }
  out.boolean(false).global("collections", "OrderedDict").empty_tuple().reduce();
  if (t.negated) out.empty_dict().mark().text("neg").boolean(true).set_items();
  out.tuple().reduce();
}

std::string archive(const std::string& pickle, const std::string& storage = bytes_of<float>({1, 2, 3, 4, 5, 6})) {
  ZipWriter zip;
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/byteorder", "little");
  zip.add("archive/data/0", storage);
  zip.add("archive/version", "3\n");
  return zip.finish();
}

/// {"w": tensor}
std::string one_tensor(const Described& t) {
  Pickle out;
  out.empty_dict().mark().text("w");
  add_tensor(out, t);
  return archive(out.set_items().finish());
}

std::string torch_refusal(const std::string& bytes, const std::string& key = "") {
  return refusal([&] { torch_arrays(bytes, "a.pt", key); });
}

/// A safetensors file with this header.
std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

}  // namespace

TEST_SUITE("io.weights") {
  TEST_CASE("safetensors come back bit for bit, with their metadata, sorted by name") {
    NamedArrays out;
    out.arrays = {array("b", {2, 2}, std::vector<float>{1, -0.0F, 1e-40F, 3}),
                  array("a", {3}, std::vector<double>{1, 2, 1e-300}),
                  array("c", {}, std::vector<std::int64_t>{std::int64_t{1} << 60})};
    out.metadata = {{"format", "x"}, {"text", "line\nline"}};
    const std::string bytes = safetensors_bytes(out);
    const NamedArrays back = safetensors_arrays(bytes, "a.safetensors");
    REQUIRE(back.arrays.size() == 3);
    CHECK(back.arrays[0].name == "a");
    for (const NamedArray& each : out.arrays) {
      const NamedArray& found = back.at(each.name);
      CHECK(found.shape == each.shape);
      CHECK(found.values == each.values);
    }
    CHECK(std::signbit(std::get<std::vector<float>>(back.at("b").values)[1]));
    CHECK(back.metadata.at("text") == "line\nline");
    CHECK(bytes == safetensors_bytes(back));
    for (std::size_t at = 8; at < bytes.size(); at += 7) {
      std::string damaged = bytes;
      damaged[at] ^= 4;
      CHECK_THROWS_AS(safetensors_arrays(damaged, "a.safetensors"), Error);
    }
  }

  TEST_CASE("safetensors of halves and integers are read as f32 and i64") {
    const std::string data = bytes_of<std::uint16_t>({0x3c00, 0xc000}) + bytes_of<std::uint16_t>({0x3f80, 0xc040}) +
                             bytes_of<std::int8_t>({-1, 2});
    const NamedArrays back =
        safetensors_arrays(safetensors(R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                                       R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]},)"
                                       R"("i":{"dtype":"I8","shape":[2],"data_offsets":[8,10]}})",
                                       data),
                           "a");
    CHECK(back.at("h").values == decltype(NamedArray::values)(std::vector<float>{1, -2}));
    CHECK(back.at("b").values == decltype(NamedArray::values)(std::vector<float>{1, -3}));
    CHECK(back.at("i").values == decltype(NamedArray::values)(std::vector<std::int64_t>{-1, 2}));
    CHECK(back.at("b").stored == "BF16");
  }

  TEST_CASE("hostile safetensors are refused") {
    const std::string eight(8, '\0');
    for (
        const auto& [header, message] : {
            std::pair{R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "more values than the 2"},
            {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", "more values than"},
            {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", "'a'"},
            {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})", "outside"},
            {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", "dtype F8_E4M3"},
            {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "its arrays have 4"},
            {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
             "overlap"},
            {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
             "'a' occurs twice"},
            {R"({"a":{"dtype":"F32"}})", "data_offsets"},
            {R"({"a":3})", "data_offsets"},
            {R"({"__metadata__":{"n":3}})", "not a string"},
            {R"([1])", "not JSON"},
        }) {
      CAPTURE(header);
      check_mentions(refusal([&] { safetensors_arrays(safetensors(header, eight), "a"); }), message);
    }
    check_mentions(refusal([&] { safetensors_arrays("abc", "a"); }), "truncated");
    const std::string deep = R"({"a":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
    check_mentions(refusal([&] { safetensors_arrays(safetensors(deep, eight), "a"); }), "nested too deeply");
  }

  TEST_CASE("tensors of torch.save are found, also in nested dictionaries and with strides") {
    Pickle out;
    out.empty_dict().mark().text("model").empty_dict().mark();
    out.text("w"), add_tensor(out, {});
    out.text("t"), add_tensor(out, {.shape = {3, 2}, .strides = {1, 3}});
    out.text("slice"), add_tensor(out, {.offset = 4, .shape = {2}, .strides = {1}});
    out.text("scalar"), add_tensor(out, {.offset = 5, .shape = {}, .strides = {}});
    out.set_items().text("epoch").integer(3).text("optimizer").empty_dict().mark().integer(0).empty_dict().mark();
    out.text("exp_avg"), add_tensor(out, {});
    out.set_items().set_items().set_items();
    const NamedArrays found = torch_arrays(archive(out.finish()), "a.pt");
    CHECK(found.arrays.size() == 4);
    const auto values = [&](const char* name) { return std::get<std::vector<float>>(found.at(name).values); };
    CHECK(values("w") == std::vector<float>{1, 2, 3, 4, 5, 6});
    CHECK(values("t") == std::vector<float>{1, 4, 2, 5, 3, 6});
    CHECK(values("slice") == std::vector<float>{5, 6});
    CHECK(values("scalar") == std::vector<float>{6});
    CHECK(found.at("scalar").shape.empty());
  }

  TEST_CASE("a tensor whose values are not those of its storage is refused") {
    check_mentions(torch_refusal(one_tensor({.negated = true})), "array 'w' is a negated or conjugated view");
  }

  TEST_CASE("--key selects one of several dictionaries of tensors") {
    Pickle out;
    out.empty_dict().mark();
    for (const char* name : {"model", "ema"}) {
      out.text(name).empty_dict().mark().text("w");
      add_tensor(out, {.offset = name[0] == 'e' ? 3 : 0, .shape = {1}, .strides = {1}});
      out.set_items();
    }
    const std::string bytes = archive(out.set_items().finish());
    check_mentions(torch_refusal(bytes), "choose one with --key: 'model', 'ema'");
    check_mentions(torch_refusal(bytes, "other"), "--key = 'other'");

    // A sparse array in one of them does not choose the other; a generator beside them is no choice.
    Pickle more;
    more.empty_dict().mark();
    for (const char* name : {"model", "ema"}) {
      more.text(name).empty_dict().mark().text("w");
      add_tensor(more, {});
      if (name[0] == 'm') more.text("A_in").integer(0);
      more.set_items();
    }
    more.text("rng"), add_tensor(more, {});
    check_mentions(torch_refusal(archive(more.set_items().finish())), "choose one with --key: 'model', 'ema'");
    CHECK(torch_arrays(bytes, "a", "ema").at("w").values == decltype(NamedArray::values)(std::vector<float>{4}));
  }

  TEST_CASE("a pickle's classes and functions are refused by name, and none is called") {
    Pickle out;
    out.global("os", "system").mark().text("touch called").tuple().reduce();
    check_mentions(torch_refusal(archive(out.finish())), "names os.system");
    CHECK_FALSE(fs::exists("called"));
    // The same by STACK_GLOBAL.
    std::string raw =
        "\x80\x04\x8c\x08"
        "builtins"
        "\x8c\x04"
        "eval"
        "\x93.";
    check_mentions(torch_refusal(archive(raw)), "names builtins.eval");
    Pickle module;
    module.global("torch.nn.modules.linear", "Linear").empty_tuple().new_object();
    check_mentions(torch_refusal(archive(module.finish())), "torch.nn.modules.linear.Linear");
  }

  TEST_CASE("hostile torch files are refused") {
    const std::int64_t huge = std::int64_t{1} << 62;
    for (const auto& [tensor, message] : {
             std::pair{Described{.shape = {2, 4}, .strides = {4, 1}}, "more values than the 6"},
             {Described{.shape = {2, 3}, .strides = {4, 1}}, "storage is too short"},
             {Described{.offset = 1}, "storage is too short"},
             {Described{.offset = huge}, "storage is too short"},
             {Described{.offset = -1}, "negative"},
             {Described{.strides = {-3, 1}}, "negative"},
             {Described{.strides = {huge, 1}}, "storage is too short"},
             {Described{.shape = {huge, huge}}, "more values than"},
             {Described{.shape = {-2, 3}}, "negative extent"},
             {Described{.shape = {6}, .strides = {3, 1}}, "not described"},
             {Described{.storage = "7"}, "no member 'archive/data/7'"},
         })
      check_mentions(torch_refusal(one_tensor(tensor)), message);
    check_mentions(torch_refusal(one_tensor({.type = "QInt8Storage"})), "names torch.QInt8Storage");

    Pickle twice;
    twice.empty_dict().mark();
    for (int i = 0; i < 2; ++i) twice.text("w"), add_tensor(twice, {});
    check_mentions(torch_refusal(archive(twice.set_items().finish())), "'w' occurs twice");
    Pickle shared;
    shared.empty_dict().mark();
    for (int i = 0; i < 40; ++i) shared.text(std::to_string(i)), add_tensor(shared, {});
    check_mentions(torch_refusal(archive(shared.set_items().finish())), "share its storage");
    check_mentions(torch_refusal(archive(Pickle().integer(3).finish())), "no dictionary of named tensors");
    for (const std::string& pickle : std::vector<std::string>{"", "\x80\x02", "\x80\x02}q", "\x80\x02R.", "\x80\x02t.",
                                                              "\x80\x02]h\x05.", "\x80\x02X\xff\xff\xff\xff."})
      check_mentions(torch_refusal(archive(pickle)), "damaged or truncated");
    check_mentions(torch_refusal(archive("\x80\x02\x8f.")), "instruction 0x8f");
    check_mentions(torch_refusal(archive(std::string("\x80\x02]q\0h\0", 7) + "a.")),
                   "no dictionary");  // nested in itself
    std::string calls =
        "\x80\x02"
        "ctorch\nSize\nq\x01(" +
        std::string(1000, 'N') + "tq\x02";
    for (int i = 0; i < 1000; ++i) calls += "h\x01h\x02R";  // with the same thousand arguments
    check_mentions(torch_refusal(archive(calls)), "more arguments of calls than bytes");

    const std::string whole = one_tensor({});
    std::string flipped = whole;
    flipped[whole.find(bytes_of<float>({1, 2, 3}))] ^= 1;
    check_mentions(torch_refusal(flipped), "size and checksum");
    check_mentions(torch_refusal(whole.substr(0, whole.size() / 2)), "damaged or truncated");
    ZipWriter script;
    script.add("m/data.pkl", Pickle().empty_tuple().finish());
    script.add("m/constants.pkl", Pickle().empty_tuple().finish());
    check_mentions(torch_refusal(script.finish()), "TorchScript");
  }

  TEST_CASE("npz files of NumPy are read: types, orders, deflated members") {
    ZipWriter zip;
    zip.add("c.npy", npy<float>("<f4", "2, 3", {1, 2, 3, 4, 5, 6}));
    zip.add("f.npy", npy<double>("<f8", "2, 3", {1, 4, 2, 5, 3, 6}, true));
    zip.add("h.npy", npy<std::uint16_t>("<f2", "2,", {0x3c00, 0xc000}));
    zip.add("i.npy", npy<std::int16_t>("<i2", "", {-7}));
    const NamedArrays found = npz_arrays(zip.finish(), "a.npz");
    CHECK(found.at("c").values == decltype(NamedArray::values)(std::vector<float>{1, 2, 3, 4, 5, 6}));
    CHECK(found.at("f").values == decltype(NamedArray::values)(std::vector<double>{1, 2, 3, 4, 5, 6}));
    CHECK(found.at("f").shape == std::vector<std::int64_t>{2, 3});
    CHECK(found.at("h").values == decltype(NamedArray::values)(std::vector<float>{1, -2}));
    CHECK(found.at("i").shape.empty());

    // The same member deflated: a stored archive with its fields changed by hand.
    const std::string plain = npy("<f4", "1000,", std::vector<float>(1000));
    uLongf size = compressBound(plain.size());
    std::string packed(size, '\0');
    REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(plain.data()),
                     plain.size()) == Z_OK);
    packed = packed.substr(2, size - 6);  // without zlib's own header and checksum
    ZipWriter stored;
    stored.add("z.npy", packed);
    const std::string whole = stored.finish();
    const auto deflated = [&](std::uint32_t unpacked) {
      std::string bytes = whole;
      const std::size_t entry = bytes.find("PK\x01\x02");
      const std::uint32_t crc =
          static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(plain.data()), plain.size()));
      bytes[entry + 10] = 8;
      std::memcpy(bytes.data() + entry + 16, &crc, 4);
      std::memcpy(bytes.data() + entry + 24, &unpacked, 4);
      return bytes;
    };
    CHECK(npz_arrays(deflated(static_cast<std::uint32_t>(plain.size())), "a").at("z").count() == 1000);
    for (const std::uint32_t wrong : {0U, 17U, 5000U, 0xFFFFFFF0U})  // also a bomb: a size that no such data unpack to
      check_mentions(refusal([&] { npz_arrays(deflated(wrong), "a"); }), "size and checksum");
  }

  TEST_CASE("hostile npz files are refused") {
    const auto of = [](const std::string& member, const std::string& name = "a.npy") {
      ZipWriter zip;
      zip.add(name, member);
      return zip.finish();
    };
    const std::vector<float> one = {1}, two = {1, 2};
    for (const auto& [bytes, message] : {
             std::pair{of(npy("<f4", "2,", one)), "more values than the 1"},
             {of(npy("<f4", "999999999999, 999999999999", one)), "more values than"},
             {of(npy("<f4", "0,", one)), "needs 0"},
             {of(npy(">f4", "1,", one)), "big-endian"},
             {of(npy("<c8", "1,", two)), "dtype c8"},
             {of(npy("|O8", "1,", two)), "dtype O8"},
             {of("nothing of NumPy"), "no NumPy array"},
             {of("\x93NUMPY\1" + std::string(1, '\0') + "\xff\xff" + std::string(1 << 16, ' ')), "a header of 65535"},
             {of(npy("<f4", "1,", one), "a.txt"), "is no .npy array"},
         })
      check_mentions(refusal([&] { npz_arrays(bytes, "a.npz"); }), message);
    ZipWriter twice;
    for (int i = 0; i < 2; ++i) twice.add("a.npy", npy("<f4", "1,", one));
    check_mentions(refusal([&] { npz_arrays(twice.finish(), "a.npz"); }), "occurs twice");
  }

  TEST_CASE("a file is recognised by its first bytes; other files and values that are not finite are refused by name") {
    const auto read = [&](const std::string& bytes) {
      write_text("w", bytes);
      return refusal([&] { read_weights("w"); });
    };
    CHECK(read(one_tensor({})) == "accepted");
    CHECK(read(safetensors_bytes({{array("a", {1}, std::vector<float>{1})}, {}})) == "accepted");
    check_mentions(read("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), "before 1.6");
    check_mentions(read(std::string(257, 'x') + "ustar"), "before 1.6");
    check_mentions(read("text"), "it is a text file, neither .safetensors nor .npz nor .pt");
    check_mentions(read("\x1f\x8b\x08"), "it is a compressed file (unpack it first), neither");
    check_mentions(read(""), "neither");
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    const std::string message = read(
        safetensors_bytes({{array("good", {1}, std::vector<float>{1}), array("bad", {2}, std::vector<float>{1, nan}),
                            array("worse", {1}, std::vector<float>{infinite})},
                           {}}));
    check_mentions(message, "not finite in 'bad', 'worse'");
    check_mentions(refusal([&] { read_weights("missing"); }), "missing");
    check_mentions(refusal([&] { read_weights("w", "model"); }), "--key");
  }
}
