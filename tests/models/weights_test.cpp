#include "lockstep/models/weights.hpp"

#include "lockstep/models/har/har_weights.hpp"
#include "lockstep/models/hrm/hrm_weights.hpp"
#include "lockstep/models/kgat/kgat_weights.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"
#include "support/test.hpp"

namespace {

SasRecArch small() {
  SasRecArch arch;
  arch.items = 7, arch.slots = 5, arch.hidden = 4, arch.heads = 2, arch.blocks = 2;
  return arch;
}

NamedArray rows(const std::string& name, std::int64_t count, std::int64_t width, float first) {
  NamedArray out;
  out.name = name;
  out.shape = {count, width};
  std::vector<float> values;
  for (std::int64_t i = 0; i < count * width; ++i) values.push_back(first + static_cast<float>(i));
  out.values = std::move(values);
  return out;
}

}  // namespace

TEST_SUITE("models.weights") {
  TEST_CASE("arrays become those of the public code and come back bit for bit") {
    constexpr NameRule kRules[] = {{"layer.#.q", "layer.#.qkv", 0, 3},
                                   {"layer.#.k", "layer.#.qkv", 1, 3},
                                   {"layer.#.v", "layer.#.qkv", 2, 3},
                                   {"table", "table.weight"},
                                   {"computed", ""}};
    NamedArrays ours;
    ours.arrays = {rows("computed", 1, 1, 0),    rows("layer.10.k", 2, 3, 6), rows("layer.10.q", 2, 3, 0),
                   rows("layer.10.v", 2, 3, 12), rows("layer.x.q", 2, 3, 99), rows("table", 2, 2, 5)};
    const NamedArrays theirs = to_public(ours, kRules);
    REQUIRE(theirs.arrays.size() == 3);
    CHECK(theirs.at("layer.10.qkv") == rows("layer.10.qkv", 6, 3, 0));
    CHECK(theirs.at("layer.x.q").count() == 6);
    CHECK(theirs.find("table") == nullptr);
    const NamedArrays back = from_public(theirs, kRules);
    ours.arrays.erase(ours.arrays.begin());
    CHECK(back.arrays == ours.arrays);
    // Five rows are not three parts: the array stays, and load_arrays() reports it.
    CHECK(from_public({{rows("layer.0.qkv", 5, 3, 0)}, {}}, kRules).find("layer.0.qkv") != nullptr);
  }

  TEST_CASE("prefixes of wrappers are removed") {
    NamedArrays arrays;
    arrays.arrays = {rows("_orig_mod.model.inner.b", 1, 1, 0), rows("module._orig_mod.a", 1, 1, 1),
                     rows("submodule.c", 1, 1, 2)};
    const NamedArrays bare = without_prefixes(arrays);
    CHECK(bare.arrays[0].name == "a");
    CHECK(bare.arrays[1].name == "b");
    CHECK(bare.arrays[2].name == "submodule.c");
    // Two names that become one are refused, not chosen from.
    CHECK_THROWS_WITH_AS(without_prefixes({{rows("a", 1, 1, 0), rows("module.a", 1, 1, 0)}, {}}),
                         doctest::Contains("'a'"), Error);
  }

  TEST_CASE("weights of PyTorch's attention load into separate matrices") {
    SasRec from(small(), DType::f32, 1), to(small(), DType::f32, 2);
    NamedArrays arrays = arrays_of(from.params());
    NamedArrays fused;
    for (const char* part : {"weight", "bias"})
      for (int block = 0; block < 2; ++block) {
        NamedArray all = arrays.at(join("attention_layers.", block, ".q_w.", part));
        for (const char* name : {".k_w.", ".v_w."}) {
          const auto& more =
              std::get<std::vector<float>>(arrays.at(join("attention_layers.", block, name, part)).values);
          auto& values = std::get<std::vector<float>>(all.values);
          values.insert(values.end(), more.begin(), more.end());
        }
        all.shape[0] *= 3;
        all.name = join("attention_layers.", block, ".in_proj_", part);
        fused.arrays.push_back(std::move(all));
      }
    for (NamedArray& array : arrays.arrays) {
      if (array.name.starts_with("attention_layers.") && array.name.find("out_w") == std::string::npos) continue;
      if (const std::size_t at = array.name.find("out_w"); at != std::string::npos)
        array.name.replace(at, 5, "out_proj");
      fused.arrays.push_back(array);
    }
    load_arrays(to.params(), from_public(fused, sasrec_names()), sasrec_names(), "test");
    CHECK(to.params().hash() == from.params().hash());
  }

  TEST_CASE("all arrays that do not fit are listed in one message, and no weight changes") {
    SasRec net(small(), DType::f32, 1);
    const std::uint64_t before = net.params().hash();
    SasRecArch wide = small();
    wide.items = 9, wide.blocks = 1;
    const SasRec other(wide, DType::f32, 1);
    const std::string text = error_of(
        Fault::data, [&] { load_arrays(net.params(), arrays_of(other.params()), sasrec_names(), "importing 'a'"); });
    check_mentions(text, "importing 'a'", "item_emb.weight (8, 4): has shape (10, 4)",
                   "attention_layers.1.q_w.weight (4, 4): missing");
    NamedArrays more = arrays_of(net.params());
    more.arrays.push_back(rows("zzz", 1, 2, 0));
    check_mentions(error_of(Fault::data, [&] { load_arrays(net.params(), more, {}, "a"); }),
                   "zzz (1, 2): not in this network");
    CHECK(net.params().hash() == before);
  }

  TEST_CASE("the architecture of each kind is restored from its metadata") {
    WeightMetadata text = {{"format", "lockstep-weights"}};
    SasRecArch sequence = small();
    sequence.timed = true, sequence.norm = SasRecArch::Norm::original, sequence.ln_eps = 1e-6, sequence.time_span = 9;
    text["kind"] = "tisasrec";
    describe(text, sequence);
    CHECK(parse_sasrec(text, "a") == sequence);

    HarArch har;
    har.hidden = {}, har.mode = HarArch::Mode::average, har.pre_norm = false, har.classes = 2, har.channels = 1;
    const HarMetadata names = {{"a", "b\"c"}, {"x"}, {}, {0.25}, {3}, 50};
    text["kind"] = "har";
    describe(text, har, names);
    HarArch har_back;
    HarMetadata names_back;
    parse(text, "a", har_back, names_back);
    CHECK(har_back.mode == har.mode);
    CHECK(har_back.hidden.empty());
    CHECK_FALSE(har_back.pre_norm);
    CHECK(har_back.parameters() == har.parameters());
    CHECK(names_back.class_names == names.class_names);
    CHECK(names_back.channel_mean == names.channel_mean);

    HrmArch hrm;
    hrm.seq_len = 16, hrm.vocab = 6, hrm.hidden = 8, hrm.heads = 2, hrm.positions = "learned", hrm.one_network = true;
    text["kind"] = "hrm";
    describe(text, hrm);
    CHECK(parse_hrm(text, "a").parameters() == hrm.parameters());
    CHECK(parse_hrm(text, "a").positions == "learned");

    KgatArch kgat{.nodes = 5, .relations = 2, .edges = 7, .conv_dims = {3, 2}, .aggregator = ops::Aggregator::gcn};
    text["kind"] = "kgat";
    describe(text, kgat, {.users = 2, .items = 1, .entities = 3});
    KgatArch kgat_back;
    KgatSizes sizes;
    parse(text, "a", kgat_back, sizes);
    CHECK(kgat_back.conv_dims == kgat.conv_dims);
    CHECK(kgat_back.aggregator == kgat.aggregator);
    CHECK(sizes.entities == 3);
  }

  TEST_CASE("metadata that describe no network are refused") {
    WeightMetadata good = {{"format", "lockstep-weights"}, {"kind", "sasrec"}};
    describe(good, small());
    const auto refused = [&](const std::string& key, const std::string& value) {
      WeightMetadata bad = good;
      bad[key] = value;
      if (value.empty()) bad.erase(key);
      return error_of(Fault::data, [&] { parse_sasrec(bad, "opening 'a'"); });
    };
    check_mentions(refused("format", "pt"), "lockstep import");
    check_mentions(refused("kind", "har"), "a network of kind har");
    check_mentions(refused("model.items", ""), "no entry 'model.items'");
    for (const char* wrong : {"x", "1.5", "\"7\"", "4611686018427387904", "[1]"})
      check_mentions(refused("model.items", wrong), "model.items = ");
    check_mentions(refused("model.items", "-3"), "-3 items");
    check_mentions(refused("model.norm", "middle"), "model.norm = 'middle'");
    check_mentions(refused("model.num_heads", "3"), "multiple of");
    const SasRec net(small(), DType::f32, 1);
    check_mentions(error_of(Fault::data, [&] { require_values(arrays_of(net.params()), 5, "a"); }),
                   "its metadata describe has 5");
  }
}
