#include "lockstep/io/weights.hpp"

#include <map>
#include <set>

#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/lockstep.h"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/run_config.hpp"
#include "prep/program.hpp"
#include "support/test.hpp"

namespace {

ProcessResult run(const std::string& words) {
  return run_process(words_of(program_path("lockstep") + " " + words), {"OMP_NUM_THREADS=1"});
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

/// Empties the folder, prepares the data and trains a few steps; returns the checkpoint.
std::string train(const Case& c) {
  for (const std::string& name : names_in(".")) fs::remove_all(name);
  prepare(std::string(c.data) + " --quiet --output data.h5");
  const std::string steps = contains(c.options, "--epochs") ? "" : " --steps 2";
  succeeded(run(std::string("train --model.kind ") + c.kind + " --data.path data.h5 --batch.size 4 " + c.options +
                steps + " --run-dir run"));
  return "run/checkpoints/final.h5";
}

}  // namespace

TEST_SUITE("apps.weights") {
  TEST_CASE("the weights of every kind leave and come back bit for bit, with the network that they belong to") {
    for (const Case& c : kCases) {
      CAPTURE(c.kind);
      const std::string checkpoint = train(c), out = "w.safetensors", imported = "i.h5";
      succeeded(run("export --format safetensors --checkpoint " + checkpoint + " --output " + out));
      succeeded(run(std::string("import --model.kind ") + c.kind + " --weights " + out +
                    " --data.path data.h5 --output " + imported));
      const H5File from = H5File::open(checkpoint), to = H5File::open(imported);
      const std::string group = from.has("/ema") ? "/ema" : "/model";
      CHECK(h5_arrays(from, group).arrays == h5_arrays(to, "/model").arrays);
      CHECK_FALSE(to.has("/optim"));
      const ProcessResult a = run("eval --checkpoint " + checkpoint),
                          b = succeeded(run("eval --checkpoint " + imported));
      CHECK(a.out.substr(a.out.find('\n')) == b.out.substr(b.out.find('\n')));

      // liblockstep and ONNX take what they can, and refuse the rest with the formats that work.
      const std::string kind = c.kind, onnx = "w.onnx";
      lsnet_model* model = nullptr;
      const int opened = lsnet_open(out.c_str(), &model);
      lsnet_close(model);
      CHECK((opened == LSEM_OK) == (kind != "kgat" && kind != "emulator"));
      CHECK((opened == LSEM_OK || opened == LSEM_ERR_FORMAT));
      if (kind == "kgat") CHECK(contains(lsem_last_error(), "lockstep export --tables"));
      if (kind != "emulator") check_ended(run("predict --checkpoint " + out), 3, "lockstep import makes one of it");
      const ProcessResult graph = run("export --checkpoint " + checkpoint + " --output " + onnx);
      const bool held = kind == "har" || kind == "sasrec" || kind == "emulator";
      CHECK(graph.exit_code == (held ? 0 : 2));
      CHECK(fs::exists(onnx) == held);
      if (!held) CHECK(contains(graph.err, "safetensors"));
    }
  }

  TEST_CASE("liblockstep scores the items of users as predict does, KGAT from its tables") {
    for (const Case& c : {kCases[2], kCases[3]}) {
      CAPTURE(c.kind);
      const std::string checkpoint = train(c), out = "w.safetensors", imported = "i.h5";
      const bool tables = std::string(c.kind) == "kgat";
      succeeded(run("export --checkpoint " + checkpoint + " --output " + out + (tables ? " --tables" : "")));
      const auto predict = [&](const std::string& from, const std::string& to) {
        succeeded(run("predict --checkpoint " + from + " --all-users --candidates 4,0,2 --output " + to));
        return H5File::open(to).read<float>("score");
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
      succeeded(run("import --model.kind bprmf --weights " + out + " --data.path data.h5 --output " + imported));
      CHECK(predict(imported, "q.h5") == expected);

      // Other kinds have no tables, and another data set has another graph.
      std::string words = "export --checkpoint " + checkpoint + " --tables --output no";
      if (tables) {
        prepare("synth-kg --users 13 --quiet --output other.h5");
        words += " --data other.h5";
      }
      check_ended(run(words), tables ? 3 : 2, tables ? "trained on other data" : "for kgat only");
      CHECK_FALSE(fs::exists("no"));
    }
  }

  TEST_CASE("an imported export is evaluated and predicts as the checkpoint that it is from") {
    for (const auto& [c, more, taken] :
         {std::tuple{kCases[0], " --seed 3 --eval.repeats keep --eval.k 2", "eval.k = 2, eval.repeats = keep"},
          {kCases[2], " --seed 3 --data.graph shuffled", "data.graph = shuffled"}}) {
      const std::string options = c.options + std::string(more), out = "w.safetensors";
      const std::string checkpoint = train({c.kind, c.data, options.c_str()}), kind = c.kind;
      succeeded(run("export --checkpoint " + checkpoint + " --output " + out));
      const std::string import = "import --model.kind " + kind + " --weights " + out + " --output i.h5 --data.path ";
      check_mentions(succeeded(run(import + "data.h5")).out, taken, "run.seed = 3");
      const auto metrics = [](const std::string& of) {
        const std::string text = succeeded(run("eval --json --checkpoint " + of)).out;
        return text.substr(text.find("\"metrics\""));
      };
      CHECK(metrics("i.h5") == metrics(checkpoint));
      check_mentions(succeeded(run(import + "data.h5 --seed 5")).out, "from the command line: run.seed = 5");
      prepare(std::string(c.data) + " --seed 4 --quiet --output other.h5");
      check_mentions(run(import + "other.h5").err, "trained on other data than", "the same users, items or puzzles");
    }
  }

  TEST_CASE("liblockstep solves puzzles as predict does") {
    const std::string checkpoint = train(kCases[4]), out = "w.safetensors",
                      puzzles = "1...............\n.2..4......3....\n................\n";
    write_text("puzzles", puzzles);
    succeeded(run("export --checkpoint " + checkpoint + " --output " + out));
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
      const std::string predict = "predict --checkpoint " + checkpoint + " --input puzzles" + segments + " --output p";
      succeeded(run(predict + ".txt"));
      succeeded(run(predict + ".h5"));
      if (!segments.empty()) CHECK(lsnet_set(model, "segments", 3) == LSEM_OK);
      REQUIRE(lsnet_predict(model, 3, in, results, nullptr) == LSEM_OK);
      std::string found;
      for (std::size_t i = 0; i < answers.size(); ++i)
        found += letters.substr(to_size(answers[i]), 1) + (i % 16 == 15 ? "\n" : "");
      CHECK(found == read_text("p.txt"));
      const H5File table = H5File::open("p.h5");
      const auto q_halt = table.read<double>("q_halt"), q_continue = table.read<double>("q_continue");
      for (std::size_t b = 0; b < 3; ++b) {
        CHECK(static_cast<double>(halt[b]) == Approx(q_halt[b]).epsilon(1e-6));
        CHECK(static_cast<double>(go[b]) == Approx(q_continue[b]).epsilon(1e-6));
      }
    }
    lsnet_close(model);

    // The same puzzles, a row per line with bars between the boxes: the same answers, each on the puzzle's first line.
    std::string rows = "# a row per line\n", answered;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows += letters.substr(to_size(tokens[i]), 1);
      rows += i % 4 == 1 ? " | " : i % 16 == 15 ? "\n\n" : i % 16 == 7 ? "\n---+---\n" : i % 4 == 3 ? "\n" : "";
    }
    write_text("rows", rows);
    succeeded(run("predict --checkpoint " + checkpoint + " --input rows --segments 3 --output q.txt"));
    for (const char c : read_text("q.txt"))
      if (c != '\n' || (!answered.empty() && answered.back() != '\n')) answered += c;
    CHECK(answered == read_text("p.txt"));
    CHECK(read_text("q.txt").starts_with("\n" + answered.substr(0, 16) + "\n\n"));
  }

  TEST_CASE("an export has the trained or the averaged weights, and says which") {
    const std::string checkpoint = train(kCases[0]), out = "w.safetensors";
    const H5File file = H5File::open(checkpoint);
    for (const auto& [weights, group, found] :
         {std::tuple{"trained", "/model", "trained"}, {"average", "/ema", "average"}, {"auto", "/ema", "average"}}) {
      succeeded(
          run("export --checkpoint " + checkpoint + " --output " + out + " --weights " + weights + " --data data.h5"));
      const NamedArrays arrays = read_weights(out);
      CHECK(arrays.metadata.at("weights") == found);
      CHECK(arrays.metadata.at("kind") == "sasrec");
      CHECK(contains(arrays.metadata.at("data.items"), "\"1\""));
      CHECK(arrays.at("item_emb.weight").values ==
            decltype(NamedArray::values)(file.read<float>(std::string(group) + "/item_emb.weight")));
    }
    for (const char* format : {"", "--format lsem "})
      check_ended(run(std::string("export ") + format + "--checkpoint " + checkpoint + " --output out.lsem"), 2,
                  "safetensors or onnx");
  }

  TEST_CASE("weights of another system, width or data set are refused with all names, and nothing is written") {
    const std::string checkpoint = train(kCases[0]), out = "w.safetensors", imported = "i.h5";
    succeeded(run("export --checkpoint " + checkpoint + " --output " + out));
    const auto refused = [&](const std::string& words, int code, const std::vector<std::string>& parts) {
      const ProcessResult result = run("import --weights " + out + " --output " + imported + " " + words);
      check_ended(result, code);
      CHECK(result.out.empty());
      for (const std::string& part : parts) check_mentions(result.err, part);
      CHECK_FALSE(fs::exists(imported));
    };
    const std::string data = " --data.path data.h5";
    check_ended(run("eval --checkpoint " + checkpoint + " --model.num_heads 1"), 2, "model.num_heads: 2 there, 1 here");
    const std::string other = "other.h5", text = read_text("data.h5"),
                      words = "export --checkpoint " + checkpoint + " --output ";
    prepare("synth-sequences --users 12 --seed 1 --quiet --output " + other);
    CHECK(contains(run(words + out + " --data " + other).err, "it was trained on other data"));
    fs::copy_file("data.h5", "data.safetensors");
    CHECK(
        contains(run(words + "data.safetensors --data data.safetensors").err, "it exists and is a prepared data set"));
    CHECK(contains(run(words + "data.safetensors --force --data data.safetensors").err, "it is the input"));
    CHECK(read_text("data.safetensors") == text);
    std::string damaged = read_text(checkpoint);
    damaged[damaged.find("mhc_sinkhorn_iter")] ^= 1;  // in the description of the network, /sequence_model
    write_text("damaged.h5", damaged);
    check_ended(run("export --checkpoint damaged.h5 --output damaged.safetensors"), 3, "its bytes are damaged");
    CHECK_FALSE(fs::exists("damaged.safetensors"));
    refused("--model.kind sasrec --model.num_heads 1 --model.maxlen 5 --model.hidden_units 8" + data, 2,
            {"w.safetensors is of another network:\n  model.hidden_units: 6 there, 8 here\n",
             "  model.num_heads: 2 there, 1 here\nomit these options"});
    const std::string network = " --model.num_heads 2 --model.pad_mask key --model.ln_eps 1e-8 --model.norm ";
    refused("--model.kind tisasrec --model.ffn_residual true" + network + "original" + data, 3,
            {"abs_pos_K_emb.weight", ": missing", "pos_emb.weight (6, 6): not in this network"});
    prepare("synth-sequences --users 12 --clusters 3 --quiet --output b.h5");
    refused("--model.kind sasrec --data.path b.h5", 3, {"item_emb.weight", "has shape"});
    NamedArrays bare = read_weights(out);
    bare.metadata.clear();
    write_text("bare.safetensors", safetensors_bytes(bare));
    const ProcessResult shapes = run("import --model.kind sasrec --model.hidden_units 8 --weights bare.safetensors" +
                                     network + "pre" + data + " --output " + imported);
    check_ended(shapes, 3, "item_emb.weight", "last_layernorm.bias (8): has shape (6)", "importing");
    refused(data, 2, {"model.kind is missing"});
    refused("--model.kind sasrec --key model" + data, 2, {"--key"});
    refused("--model.kind sasrec", 2, {"data.path is empty"});
    check_ended(run("import --model.kind sasrec --weights " + out + data + " --output " + out), 2);
  }

  TEST_CASE("an export is imported for the columns, classes and channels of its training alone, normalised as there") {
    for (const auto& [c, entry, from, to, reason] :
         {std::tuple{kCases[6], "input.0.name", "sst", "sss2", "trained on other variables"},
          {kCases[6], "input.0.units", "degC", "K", "is in degC, the model's is in K"},
          {kCases[5], "data.class_names", "SITTING", "RESTING", "classes: 6 ("},
          {kCases[5], "data.channel_names", "total_acc_x", "x", "channels: 9 ("}}) {
      CAPTURE(entry);
      train(c);
      const std::string import =
          std::string("import --model.kind ") + c.kind + " --weights w.safetensors --output i.h5";
      succeeded(run("export --format safetensors --checkpoint run/checkpoints/final.h5 --output w.safetensors"));
      NamedArrays weights = read_weights("w.safetensors");
      std::string& text = weights.metadata.at(entry);
      const std::string before = text;
      REQUIRE(contains(text, from));
      text.replace(text.find(from), std::string(from).size(), to);
      write_text("w.safetensors", safetensors_bytes(weights));
      check_ended(run(import + " --data.path data.h5"), 3, reason);
      CHECK_FALSE(fs::exists("i.h5"));
      if (!weights.metadata.contains("data.channel_mean")) continue;
      text = before;
      weights.metadata.at("data.channel_mean") = "[1,2,3,4,5,6,7,8,9]";
      write_text("w.safetensors", safetensors_bytes(weights));
      succeeded(run(import + " --data.path data.h5"));
      CHECK(H5File::open("i.h5").read<double>("/har/channel_mean") == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9});
    }
  }

  TEST_CASE("import asks for what arrays do not determine, says where each option is from, and then agrees") {
    const std::pair<std::vector<std::string>, const char*> asked[] = {
        {{"num_heads N", "norm pre|post|original", "pad_mask key|none|query", "ln_eps NUMBER"},
         "--model.num_heads 2 --model.norm pre --model.pad_mask key --model.ln_eps 1e-8"},
        {{"num_heads N", "norm pre|post|original", "pad_mask key|none|query", "ln_eps NUMBER",
          "mhc none|streams|collapsed", "mhc_sinkhorn_iter N (where model.mhc = streams|collapsed)"},
         "--model.num_heads 1 --model.norm pre --model.pad_mask key --model.ln_eps 1e-6 --model.mhc streams "
         "--model.mhc_sinkhorn_iter 20"},
        {{"attention true|false", "leaky_slope NUMBER", "parallel_edges per_triple|sum_logits"},
         "--model.attention true --model.leaky_slope 0.01 --model.parallel_edges per_triple"},
        {{}, ""},
        {{"num_heads N", "h_cycles N", "l_cycles N", "puzzle_emb_len N", "halt_max_steps N", "q_continue true|false"},
         "--model.num_heads 2 --model.h_cycles 2 --model.l_cycles 2 --model.puzzle_emb_len -1 "
         "--model.halt_max_steps 16 --model.q_continue true"},
        {{"mode flatten|independent|average|first", "heads N", "mlp_norm auto|pre|post", "ln_eps NUMBER"},
         "--model.mode flatten --model.heads 4 --model.mlp_norm pre --model.ln_eps 1e-5"},
        {{"activation gelu|relu"}, "--model.activation gelu"},
    };
    for (std::size_t i = 0; i < std::size(kCases); ++i) {
      const std::string kind = kCases[i].kind, checkpoint = train(kCases[i]), out = "w.safetensors";
      CAPTURE(kind);
      succeeded(run("export --format safetensors --checkpoint " + checkpoint + " --output " + out));
      NamedArrays bare = read_weights(out);
      bare.metadata.clear();
      write_text(out, safetensors_bytes(bare));
      const std::string words =
          "import --model.kind " + kind + " --weights " + out + " --data.path data.h5 --output i.h5 ";
      if (!asked[i].first.empty()) {
        const ProcessResult refused = run(words);
        check_ended(refused, 2, "the arrays do not determine these options of the network");
        for (const std::string& option : asked[i].first) check_mentions(refused.err, "--model." + option);
        CHECK_FALSE(contains(refused.err, "dropout"));
        CHECK_FALSE(fs::exists("i.h5"));
      }
      const ProcessResult taken = succeeded(run(words + asked[i].second));
      check_mentions(taken.out, "from the arrays in w.safetensors: ", "/data.h5: ");
      if (!asked[i].first.empty()) check_mentions(taken.out, "from the command line: ");
      CHECK_FALSE(contains(taken.out, "dropout"));
      const ProcessResult a = succeeded(run("eval --checkpoint " + checkpoint)),
                          b = succeeded(run("eval --checkpoint i.h5"));
      CHECK(a.out.substr(a.out.find('\n')) == b.out.substr(b.out.find('\n')));
    }
    write_text("net.ini", "[model]\nkind = emulator\nactivation = gelu\n");
    check_mentions(
        succeeded(run("import --config net.ini --weights w.safetensors --data.path data.h5 --output i.h5")).out,
        "from net.ini: activation = gelu");
  }

  TEST_CASE("every option of a network follows from the arrays, is asked for, or serves training alone") {
    // The arrays that options follow from, and the options for training.
    const std::pair<std::string, std::string> sequences = {
        "item_emb.weight pos_emb.weight time_matrix_K_emb.weight forward_layernorms.0.weight mhc_attn.0.phi_pre.weight",
        "dropout time_dropout mhc_init_gate recompute init "};
    const std::map<std::string, std::pair<std::string, std::string>> networks = {
        {"emulator", {"network.0.weight network.2.weight conv1d.weight", "bias_init "}},
        {"har",
         {"encoder.stem_conv.weight encoder.pos_embedding encoder.encoder_layers.0.mha_ln.weight "
          "encoder.encoder_layers.0.mlp.dense1.weight encoder.encoder_layers.0.mha.query_dense.weight",
          "dropout encoder_dropout freeze_encoder frozen_dropout encoder_weights "}},
        {"hrm",
         {"embed_tokens.embedding_weight L_level.layers.0.mlp.down_proj.weight H_level.layers.0.mlp.down_proj.weight",
          "last_cycle_gradient halt_exploration_prob "}},
        {"kgat",
         {"entity_user_embed.weight relation_embed.weight aggregator_layers.0.linear.weight",
          "mess_dropout node_dropout kge pretrain pretrain_epochs pretrain_lr pretrain_l2 pretrain_scale storage "}},
        {"bprmf", {"item_embed", ""}},
        {"sasrec", sequences},
        {"tisasrec", sequences}};
    for (const lockstep::TaskKind& kind : lockstep::task_kinds()) {
      CAPTURE(std::string(kind.name));
      const auto& [names, training] = networks.at(kind.name);
      NamedArrays arrays;
      for (const std::string& name : lockstep::split(names, ' '))
        arrays.arrays.push_back({.name = name, .shape = {3, 3, 3}, .values = std::vector<float>(27)});
      std::ranges::sort(arrays.arrays, {}, &NamedArray::name);
      lockstep::RunConfig config;
      lockstep::Options options("");
      lockstep::add_options(options, config, kind.name);
      if (options.knows("model.heads")) options.parse_ini("[model]\nheads = 3\n", "");
      const lockstep::WeightExchange exchange = kind.exchange();
      std::set<std::string> settled = {"model.kind"};
      for (const auto& [key, value] : exchange.options(arrays, options)) settled.insert(key);
      for (const lockstep::AskedOption& asked : exchange.asked) settled.insert(asked.key);
      std::string others;
      for (const std::string& key : options.keys())
        if (key.starts_with("model.") && settled.erase(key) == 0) others += key.substr(6) + " ";
      CHECK(others == training);
      CHECK(settled.empty());
    }
  }

  TEST_CASE("data whose items or identifiers have other names are refused, also with --other-data") {
    train(kCases[0]);
    const auto table = [](const std::string& item) {
      std::string text = "user_id,item_id,timestamp\n";
      for (int user = 1; user <= 4; ++user)
        for (int i = 0; i < 6; ++i)
          text += std::to_string(user) + "," + item + std::to_string((user + i) % 8) + "," + std::to_string(i) + "\n";
      return text;
    };
    for (const std::string item : {"a", "b"}) {
      write_text(item + ".csv", table(item));
      prepare("sequences --min-user 1 --min-item 1 --quiet --input " + item + ".csv --output " + item + ".h5");
    }
    const std::string small = " --model.hidden_units 4 --model.maxlen 5 --batch.size 2 --steps 2 --run-dir ";
    succeeded(run("train --model.kind sasrec --data.path a.h5" + small + "s"));
    const std::string sasrec = "eval --other-data --checkpoint s/checkpoints/final.h5 --data.path ";
    succeeded(run(sasrec + "a.h5"));
    check_ended(run(sasrec + "b.h5"), 3, "was trained with other items", "'b.h5'");

    fs::create_directories("training");
    fs::create_directories("evaluation");
    const std::string task =
        R"({"train":[{"input":[[1,2],[3,4]],"output":[[2]]}],"test":[{"input":[[3,4]],"output":[[5,6]]}]})";
    write_text("training/t.json", task);
    write_text("evaluation/e.json", task);
    for (const char* seed : {"1", "2"})
      prepare(std::string("arc --input training,evaluation --num-aug 3 --quiet --seed ") + seed + " --output arc" +
              seed + ".h5");
    succeeded(
        run("train --model.kind hrm --data.path arc1.h5 --model.hidden_size 4 --model.num_heads 1 --model.h_layers 1 "
            "--model.l_layers 1 --model.halt_max_steps 1 --batch.size 2 --steps 1 --run-dir r"));
    const std::string hrm = "eval --other-data --checkpoint r/checkpoints/final.h5 --data.path ";
    succeeded(run(hrm + "arc1.h5"));
    check_ended(run(hrm + "arc2.h5"), 3, "was trained with other puzzle identifiers", "'arc2.h5'");
  }

  TEST_CASE("info lists the arrays of a weight file") {
    NamedArrays content;
    content.arrays.resize(1);
    content.arrays[0].name = "layer.weight";
    content.arrays[0].shape = {2, 3};
    content.arrays[0].values = std::vector<float>(6, 1);
    content.metadata = {{"format", "pt"}};
    write_text("w.safetensors", safetensors_bytes(content));
    const ProcessResult result = succeeded(run("info w.safetensors"));
    check_mentions(result.out, ": weights, ", "layer.weight", "F32", "(2, 3)", "format");
    write_text("bad.npz", "PK\x03\x04 and no more" + std::string(40, ' '));
    CHECK(run("info bad.npz").exit_code == 3);
  }

  TEST_CASE("a run starts from imported weights") {
    const std::string checkpoint = train(kCases[3]), out = "w.safetensors", imported = "i.h5";
    succeeded(run("export --checkpoint " + checkpoint + " --output " + out));
    const std::string data = " --data.path data.h5";
    succeeded(run("import --model.kind bprmf --weights " + out + data + " --output " + imported));
    const std::string start = "train --model.kind bprmf --model.embed_dim 6 --batch.size 4 --steps 1" + data;
    succeeded(run(start + " --init-from " + imported + " --run-dir a"));
    succeeded(run(start + " --init-from " + checkpoint + " --run-dir b"));
    const H5File a = H5File::open("a/checkpoints/final.h5"), b = H5File::open("b/checkpoints/final.h5");
    CHECK(h5_arrays(a, "/model").arrays == h5_arrays(b, "/model").arrays);
  }

  TEST_CASE("a run that starts from a network of other heads with the same arrays says so") {
    const std::string words =
        " --model.kind sasrec --data.path data.h5 --batch.size 4 --steps 1 --model.maxlen 5 "
        "--model.hidden_units 6 --init-from " +
        train(kCases[0]);
    CHECK_FALSE(
        contains(succeeded(run("train" + words + " --run-dir a --model.dropout 0.1")).err, "computes otherwise"));
    check_mentions(succeeded(run("train" + words + " --run-dir b --num_heads 1 --norm post")).err,
                   "computes otherwise:\n  model.num_heads: 2 there, 1 here\n  model.norm: pre there, post here");
  }

  TEST_CASE("every member of an ensemble and every fold starts from the weights of another program") {
    for (const auto& [c, command, folder] : {std::tuple{kCases[6], "train --ensemble.members 2", "member-"},
                                             {kCases[5], "folds --data.folds 2", "fold-"}}) {
      const std::string checkpoint = train(c);
      succeeded(run("export --format safetensors --checkpoint " + checkpoint + " --output w.safetensors"));
      succeeded(run(std::string(command) + " --init-from w.safetensors --model.kind " + c.kind +
                    " --data.path data.h5 --batch.size 4 --steps 1 --run-dir next " + c.options));
      const auto weights = [](const std::string& file) { return h5_arrays(H5File::open(file), "/model").arrays; };
      for (const char* number : {"1", "2"})
        CHECK(weights(join("next/", folder, number, "/initial.h5")) == weights(checkpoint));
    }
  }
}
