#include "lockstep/io/weights.hpp"

#include <doctest/doctest.h>

#include "lockstep/io/h5.hpp"
#include "lockstep/lockstep.h"
#include "prep/program.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

ProcessResult run(const std::string& words) {
  return run_process(words_of(program_path("lockstep") + " " + words), {"OMP_NUM_THREADS=1"});
}
void succeed(const ProcessResult& result) {
  INFO(result.out, result.err);
  REQUIRE(result.exit_code == 0);
}

/// A kind with a small data set and a small network.
struct Case {
  const char *kind, *data, *options;
};
constexpr Case kCases[] = {
    {"sasrec", "synth-sequences --users 12",
     "--model.hidden_units 6 --model.maxlen 5 --model.num_heads 2 --optim.ema 0.9"},
    {"tisasrec", "synth-sequences --users 12",
     "--model.hidden_units 4 --model.maxlen 5 --model.mhc streams --model.norm pre --model.ln_eps 1e-6"},
    {"kgat", "synth-kg --users 12", "--model.embed_dim 6 --model.conv_dims 5,3 --model.mess_dropout 0 --epochs 1"},
    {"bprmf", "synth-kg --users 12", "--model.embed_dim 6"},
    {"hrm", "synth-sudoku --order 2 --train 8 --test 4",
     "--model.hidden_size 8 --model.num_heads 2 --model.h_layers 1 --model.pos_encodings learned"},
    {"har", "synth-har --subjects 6 --seconds 12", "--model.dim 8 --model.layers 1 --model.hidden none"},
    {"emulator", "synth-icecolumn --rows 60", "--model.hidden_size 5 --model.use_conv1d --model.conv_channels 2"},
};

/// Prepares the data and trains a few steps; returns the checkpoint.
std::string train(const Case& c, const fs::path& dir) {
  const std::string data = (dir / "data.h5").string(), run_dir = (dir / "run").string();
  prepare(dir, std::string(c.data) + " --quiet --output data.h5");
  const std::string steps = contains(c.options, "--epochs") ? "" : " --steps 2";
  succeed(run(std::string("train --model.kind ") + c.kind + " --data " + data + " --batch.size 4 " + c.options + steps +
              " --run-dir " + run_dir));
  return run_dir + "/checkpoints/final.h5";
}

}  // namespace

TEST_SUITE("apps.weights") {
  TEST_CASE("the weights of every kind leave and come back bit for bit, with the network that they belong to") {
    for (const Case& c : kCases) {
      CAPTURE(c.kind);
      const test::TempDir dir;
      const std::string checkpoint = train(c, dir.path()), out = dir / "w.safetensors", imported = dir / "i.h5",
                        data = dir / "data.h5";
      succeed(run("export --format safetensors --checkpoint " + checkpoint + " --output " + out));
      succeed(run(std::string("import --model.kind ") + c.kind + " --weights " + out + " --data " + data +
                  " --output " + imported));
      const H5File from = H5File::open(checkpoint), to = H5File::open(imported);
      const std::string group = from.has("/ema") ? "/ema" : "/model";
      CHECK(h5_arrays(from, group).arrays == h5_arrays(to, "/model").arrays);
      CHECK_FALSE(to.has("/optim"));
      const ProcessResult a = run("eval --checkpoint " + checkpoint), b = run("eval --checkpoint " + imported);
      succeed(b);
      CHECK(a.out.substr(a.out.find('\n')) == b.out.substr(b.out.find('\n')));

      // liblockstep and ONNX take what they can, and refuse the rest with the formats that work.
      const std::string kind = c.kind, onnx = dir / "w.onnx";
      lsnet_model* model = nullptr;
      const int opened = lsnet_open(out.c_str(), &model);
      lsnet_close(model);
      CHECK((opened == LSEM_OK) == (kind != "kgat" && kind != "emulator"));
      CHECK((opened == LSEM_OK || opened == LSEM_ERR_FORMAT));
      if (kind == "kgat") CHECK(contains(lsem_last_error(), "lockstep export --tables"));
      const ProcessResult graph = run("export --format onnx --checkpoint " + checkpoint + " --output " + onnx);
      const bool held = kind == "har" || kind == "sasrec" || kind == "emulator";
      CHECK(graph.exit_code == (held ? 0 : 2));
      CHECK(fs::exists(onnx) == held);
      if (!held) CHECK(contains(graph.err, "safetensors"));
    }
  }

  TEST_CASE("liblockstep scores the items of users as predict does, KGAT from its tables") {
    for (const Case& c : {kCases[2], kCases[3]}) {
      CAPTURE(c.kind);
      const test::TempDir dir;
      const std::string checkpoint = train(c, dir.path()), out = dir / "w.safetensors", imported = dir / "i.h5",
                        data = (dir / "data.h5").string();
      const bool tables = std::string(c.kind) == "kgat";
      succeed(run("export --checkpoint " + checkpoint + " --output " + out + (tables ? " --tables" : "")));
      const auto predict = [&](const std::string& from, const std::string& to) {
        succeed(
            run("predict --checkpoint " + from + " --all-users --candidates 4,0,2 --output " + (dir / to).string()));
        return H5File::open(dir / to).read<float>("score");
      };
      const std::vector<float> expected = predict(checkpoint, "p.h5");
      const auto users = static_cast<std::int64_t>(expected.size() / 3);
      REQUIRE(users == 12);
      std::vector<std::int64_t> who, what;
      for (std::int64_t u = 0; u < users; ++u) {
        who.push_back(u);
        what.insert(what.end(), {4, 0, 2});
      }
      lsnet_model* model = nullptr;
      REQUIRE(lsnet_open(out.c_str(), &model) == LSEM_OK);
      CHECK(lsnet_set(model, "items_per_user", 3) == LSEM_OK);
      std::vector<float> found(expected.size());
      const void* in[] = {who.data(), what.data()};
      void* to = found.data();
      CHECK(lsnet_predict(model, static_cast<long>(users), in, &to, nullptr) == LSEM_OK);
      lsnet_close(model);
      CHECK(found == expected);

      // The file is one of bprmf: import makes a checkpoint of it with the same scores.
      CHECK(read_weights(out).metadata.at("kind") == "bprmf");
      succeed(run("import --model.kind bprmf --weights " + out + " --data " + data + " --output " + imported));
      CHECK(predict(imported, "q.h5") == expected);

      // Other kinds have no tables, and another data set has another graph.
      std::string words = "export --checkpoint " + checkpoint + " --tables --output " + (dir / "no").string();
      if (tables) {
        prepare(dir.path(), "synth-kg --users 13 --quiet --output other.h5");
        words += " --data " + (dir / "other.h5").string();
      }
      const ProcessResult refused = run(words);
      CAPTURE(refused.err);
      CHECK(refused.exit_code == (tables ? 3 : 2));
      CHECK(contains(refused.err, tables ? "trained on other data" : "for kgat only"));
      CHECK_FALSE(fs::exists(dir / "no"));
    }
  }

  TEST_CASE("liblockstep solves puzzles as predict does") {
    const test::TempDir dir;
    const std::string checkpoint = train(kCases[4], dir.path()), out = dir / "w.safetensors",
                      puzzles = "1...............\n.2..4......3....\n................\n";
    test::write_text(dir / "puzzles", puzzles);
    succeed(run("export --checkpoint " + checkpoint + " --output " + out));
    lsnet_model* model = nullptr;
    REQUIRE(lsnet_open(out.c_str(), &model) == LSEM_OK);
    CHECK(lsnet_arrays(model, 1) == 3);
    CHECK(lsnet_array_type(model, 1, 0) == LSNET_I64);
    CHECK(lsnet_array_rank(model, 1, 1) == 1);
    const std::string letters = "?.1234";
    std::vector<std::int64_t> tokens, identifiers(3, 0), answers(48);
    for (const char c : puzzles)
      if (c != '\n') tokens.push_back(static_cast<std::int64_t>(letters.find(c)));
    std::vector<float> halt(3), go(3);
    const void* in[] = {tokens.data(), identifiers.data()};
    void* results[] = {answers.data(), halt.data(), go.data()};
    for (const std::string segments : {"", " --segments 3"}) {
      const std::string predict = "predict --checkpoint " + checkpoint + " --input " + (dir / "puzzles").string() +
                                  segments + " --output " + (dir / "p").string();
      succeed(run(predict + ".txt"));
      succeed(run(predict + ".h5"));
      if (!segments.empty()) CHECK(lsnet_set(model, "segments", 3) == LSEM_OK);
      REQUIRE(lsnet_predict(model, 3, in, results, nullptr) == LSEM_OK);
      std::string found;
      for (std::size_t i = 0; i < answers.size(); ++i)
        found += letters.substr(static_cast<std::size_t>(answers[i]), 1) + (i % 16 == 15 ? "\n" : "");
      CHECK(found == test::read_text(dir / "p.txt"));
      const H5File table = H5File::open(dir / "p.h5");
      const auto q_halt = table.read<double>("q_halt"), q_continue = table.read<double>("q_continue");
      for (std::size_t b = 0; b < 3; ++b) {
        CHECK(static_cast<double>(halt[b]) == doctest::Approx(q_halt[b]).epsilon(1e-6));
        CHECK(static_cast<double>(go[b]) == doctest::Approx(q_continue[b]).epsilon(1e-6));
      }
    }
    lsnet_close(model);
  }

  TEST_CASE("an export has the trained or the averaged weights, and says which") {
    const test::TempDir dir;
    const std::string checkpoint = train(kCases[0], dir.path()), out = dir / "w.safetensors";
    const H5File file = H5File::open(checkpoint);
    for (const auto& [weights, group, found] :
         {std::tuple{"trained", "/model", "trained"}, {"average", "/ema", "average"}, {"auto", "/ema", "average"}}) {
      succeed(run("export --checkpoint " + checkpoint + " --output " + out + " --weights " + weights + " --data " +
                  (dir / "data.h5").string()));
      const NamedArrays arrays = read_weights(out);
      CHECK(arrays.metadata.at("weights") == found);
      CHECK(arrays.metadata.at("kind") == "sasrec");
      CHECK(contains(arrays.metadata.at("data.items"), "\"1\""));
      CHECK(arrays.at("item_emb.weight").values ==
            decltype(NamedArray::values)(file.read<float>(std::string(group) + "/item_emb.weight")));
    }
    const ProcessResult other = run("export --format lsem --checkpoint " + checkpoint + " --output " + out);
    CHECK(other.exit_code == 2);
    CHECK(contains(other.err, "safetensors or onnx"));
  }

  TEST_CASE("weights of another system, width or data set are refused with all names, and nothing is written") {
    const test::TempDir dir;
    const std::string checkpoint = train(kCases[0], dir.path()), out = dir / "w.safetensors", imported = dir / "i.h5";
    succeed(run("export --checkpoint " + checkpoint + " --output " + out));
    const auto refused = [&](const std::string& words, int code, const std::vector<std::string>& parts) {
      const ProcessResult result = run("import --weights " + out + " --output " + imported + " " + words);
      CAPTURE(result.err);
      CHECK(result.exit_code == code);
      for (const std::string& part : parts) CHECK(contains(result.err, part));
      CHECK_FALSE(fs::exists(imported));
    };
    const std::string data = " --data " + (dir / "data.h5").string();
    const ProcessResult heads = run("eval --checkpoint " + checkpoint + " --model.num_heads 1");
    CHECK(heads.exit_code == 2);
    CHECK(contains(heads.err, "model.num_heads: 2 there, 1 here"));
    const std::string other = dir / "other.h5", text = test::read_text(dir / "data.h5"),
                      words = "export --checkpoint " + checkpoint + " --output ";
    prepare(dir.path(), "synth-sequences --users 12 --seed 1 --quiet --output " + other);
    CHECK(contains(run(words + out + " --data " + other).err, "it was trained on other data"));
    CHECK(contains(run(words + (dir / "data.h5").string() + data).err, "it is the input"));
    CHECK(test::read_text(dir / "data.h5") == text);
    std::string damaged = test::read_text(checkpoint);
    damaged[damaged.find("mhc_sinkhorn_iter")] ^= 1;  // in the description of the network, /sequence_model
    test::write_text(dir / "damaged.h5", damaged);
    const ProcessResult refusal = run("export --checkpoint " + (dir / "damaged.h5").string() + " --output " +
                                      (dir / "damaged.safetensors").string());
    CHECK(refusal.exit_code == 3);
    CHECK(contains(refusal.err, "its bytes are damaged"));
    CHECK_FALSE(fs::exists(dir / "damaged.safetensors"));
    refused("--model.kind sasrec --model.num_heads 1 --model.maxlen 5 --model.hidden_units 8" + data, 2,
            {"w.safetensors is of another network:\n  model.hidden_units: 6 there, 8 here\n",
             "  model.num_heads: 2 there, 1 here\nomit these options"});
    refused("--model.kind tisasrec" + data, 3,
            {"abs_pos_K_emb.weight", ": missing", "pos_emb.weight (6, 6): not in this network"});
    prepare(dir.path(), "synth-sequences --users 12 --clusters 3 --quiet --output b.h5");
    refused("--model.kind sasrec --data " + (dir / "b.h5").string(), 3, {"item_emb.weight", "has shape"});
    NamedArrays bare = read_weights(out);
    bare.metadata.clear();
    test::write_text(dir / "bare.safetensors", safetensors_bytes(bare));
    const ProcessResult shapes = run("import --model.kind sasrec --model.hidden_units 8 --weights " +
                                     (dir / "bare.safetensors").string() + data + " --output " + imported);
    CHECK(shapes.exit_code == 3);
    for (const char* part : {"item_emb.weight", "last_layernorm.bias (8): has shape (6)", "importing"})
      CHECK(contains(shapes.err, part));
    refused(data, 2, {"model.kind is missing"});
    refused("--model.kind sasrec --key model" + data, 2, {"--key"});
    refused("--model.kind sasrec", 2, {"data.path is empty"});
    const ProcessResult onto = run("import --model.kind sasrec --weights " + out + data + " --output " + out);
    CHECK(onto.exit_code == 2);
  }

  TEST_CASE("info lists the arrays of a weight file") {
    const test::TempDir dir;
    NamedArrays content;
    content.arrays.resize(1);
    content.arrays[0].name = "layer.weight";
    content.arrays[0].shape = {2, 3};
    content.arrays[0].values = std::vector<float>(6, 1);
    content.metadata = {{"format", "pt"}};
    test::write_text(dir / "w.safetensors", safetensors_bytes(content));
    const ProcessResult result = run("info " + (dir / "w.safetensors").string());
    succeed(result);
    for (const char* part : {": weights, ", "layer.weight", "F32", "(2, 3)", "format"})
      CHECK(contains(result.out, part));
    test::write_text(dir / "bad.npz", "PK\x03\x04 and no more" + std::string(40, ' '));
    CHECK(run("info " + (dir / "bad.npz").string()).exit_code == 3);
  }

  TEST_CASE("a run starts from imported weights") {
    const test::TempDir dir;
    const std::string checkpoint = train(kCases[3], dir.path()), out = dir / "w.safetensors", imported = dir / "i.h5";
    succeed(run("export --checkpoint " + checkpoint + " --output " + out));
    const std::string data = " --data " + (dir / "data.h5").string();
    succeed(run("import --model.kind bprmf --weights " + out + data + " --output " + imported));
    const std::string start = "train --model.kind bprmf --model.embed_dim 6 --batch.size 4 --steps 1" + data;
    succeed(run(start + " --init-from " + imported + " --run-dir " + (dir / "a").string()));
    succeed(run(start + " --init-from " + checkpoint + " --run-dir " + (dir / "b").string()));
    const H5File a = H5File::open(dir / "a/checkpoints/final.h5"), b = H5File::open(dir / "b/checkpoints/final.h5");
    CHECK(h5_arrays(a, "/model").arrays == h5_arrays(b, "/model").arrays);
  }
}
