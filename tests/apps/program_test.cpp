#include "prep/program.hpp"

#include <nlohmann/json.hpp>

#include "support/test.hpp"

namespace {

int lines(const std::string& text) { return occurrences(text, "\n"); }

/// Commands as `lockstep help` lists them.
std::vector<std::string> command_names() {
  const std::string text = run_lockstep({"help"}).out;
  std::vector<std::string> names;
  auto at = text.find("Commands\n") + 9;
  while (text.compare(at, 2, "  ") == 0) {
    names.push_back(text.substr(at + 2, text.find(' ', at + 2) - at - 2));
    at = text.find('\n', at) + 1;
  }
  return names;
}

}  // namespace

TEST_SUITE("apps.lockstep") {
  TEST_CASE("without a command the program prints its usage, with exit code 2") {
    const auto r = run_lockstep({});
    CHECK(r.exit_code == 2);
    CHECK(contains(r.out, "usage: lockstep COMMAND"));
    CHECK(run_lockstep({"--help"}).exit_code == 0);
    CHECK(run_lockstep({"help"}).out == r.out);
  }

  TEST_CASE("a wrong command, option or value is one line on standard error and exit code 2") {
    for (const auto& [words, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"comm-tset"}, "error: unknown command 'comm-tset'; did you mean comm-test?\n"},
             {{"frobnicate"}, "error: unknown command 'frobnicate'; see lockstep help\n"},
             {{"help", "frobnicate"}, "error: unknown command 'frobnicate'; see lockstep help\n"},
             {{"comm-test", "--max-byte", "5"}, "error: unknown option --max-byte; did you mean --max-bytes?\n"},
             {{"comm-test", "--max-bytes", "5"}, "error: option max-bytes = 5: must be >= 8\n"},
             {{"comm-test", "extra"}, "error: unexpected argument 'extra'; see lockstep comm-test --help\n"},
             {{"eval", "--checkpoint", "a.h5,", "--model.kind", "emulator"},
              "error: option checkpoint = 'a.h5,': a name is missing before or after a comma; write A.h5,B.h5\n"},
             {{"eval", "--checkpoint", "a.h5", "--model.kind", "har", "--eval.every", "3"},
              "error: option eval.every = 3: this command ignores the key; --help lists those that it reads\n"},
             {{"predict", "--checkpoint", "a.h5", "--model.kind", "sasrec", "--eval.users", "3"},
              "error: option eval.users = 3: this command ignores the key; --help lists those that it reads\n"},
             {{"predict", "--checkpoint", "a.h5", "--model.kind", "emulator", "--user", "3"},
              "error: unknown option --user; lockstep predict has --checkpoint, --model-file, --input, --format, "
              "--force, --output; see lockstep predict --help\n"},
             {{"bench", "--rows", "9223372036854775807"},
              "error: option rows = 9223372036854775807: must be 10..1000000000\n"},
             {{"train", "--threads", "100000"}, "error: option run.threads = 100000: must be 0..1024\n"},
             {{"jacobian", "--model.kind", "har", "--input", "b", "--output", "c.h5"},
              "error: lockstep jacobian: not available for model.kind = har\n"},
             {{"train", "--timeout", "1e-9"}, "error: option dist.timeout = 1e-9: must be 0, or >= 1\n"},
             {{"eval", "--checkpoint", "a.h5", "--model.kind", "har", "--optim.lr", "3"},
              "error: option optim.lr = 3: this command ignores the key; --help lists those that it reads\n"},
             {{"jacobian", "--model-file", "a", "--input", "b", "--output", "c.h5", "--model.hidden_size", "3"},
              "error: option model.hidden_size = 3: this command ignores the key; --help lists those that it reads\n"},
             {{"train", "--replicas", "9223372036854775807"},
              "error: option dist.replicas = 9223372036854775807: must be 1..1000000\n"},
             {{"predict", "--checkpoint", "a.h5", "--model.kind", "hrm", "--segments", "9223372036854775807"},
              "error: option segments = 9223372036854775807: must be 0..1000\n"},
             {{"predict", "--model-file", "a", "--input", "b", "--output", "c.h5", "--precision", "bf16"},
              "error: option run.precision = bf16: this command computes in fp32 or fp64\n"},
             {{"jacobian", "--model-file", "a", "--input", "b", "--output", "c.h5", "--precision", "bf16"},
              "error: option run.precision = bf16: this command computes in fp32 or fp64\n"},
             {{"plan", "-c=absent.ini"}, "error: configuration 'absent.ini': No such file or directory\n"},
             {{"info", "--dataset"}, "error: option --dataset needs a value (FILE)\n"}}) {
      const auto r = run_lockstep(words);
      CAPTURE(words.back());
      CHECK(r.exit_code == 2);
      CHECK(r.err == message);
      CHECK(r.out.empty());
    }
  }

  TEST_CASE("bench refuses rows that exceed the memory") {
    check_ended(run_lockstep({"bench", "--rows", "1e9", "--inputs", "1e6"}), 2,
                "1000000000 rows of 1000000 inputs and 1 outputs need 3.6 PiB, but ",
                "; lower rows, inputs or outputs");
  }

  TEST_CASE("results that the standard output does not take are an error") {
    for (const char* name : {"lockstep", "lockstep-prep"})
      check_ended(test::run_process({"bash", "-c", "exec \"$0\" help >/dev/full", test::program_path(name)}), 1,
                  "error: writing the results to the standard output: ");
  }

  TEST_CASE("--version names version, compiler and libraries") {
    for (const char* word : {"--version", "version", "-V"}) {
      const auto r = run_lockstep({word});
      CHECK(r.exit_code == 0);
      CHECK(r.out.starts_with("lockstep " LOCKSTEP_VERSION " (git "));
      CHECK(contains(r.out, "HDF5 1."));
      CHECK(lines(r.out) == 1);
    }
  }

  TEST_CASE("every command has a help with usage and an example that begins with its name") {
    const auto names = command_names();
    CHECK(names.size() >= 3);
    for (const auto& name : names) {
      CAPTURE(name);
      const auto r = run_lockstep({name, "--help"});
      CHECK(r.exit_code == 0);
      CHECK(r.err.empty());
      CHECK(r.out.starts_with("lockstep " + name + ": "));
      check_mentions(r.out, "usage: lockstep " + name, "\nExample");
      CHECK(contains(r.out.substr(r.out.rfind("\nExample")), "lockstep " + name));
      CHECK(run_lockstep({"help", name}).out == r.out);
    }
  }

  TEST_CASE("help without a kind of model names all kinds, and with one shows its options") {
    const auto kinds = {"emulator", "har", "hrm", "kgat", "bprmf", "sasrec", "tisasrec"};
    for (const auto& words : std::vector<std::vector<std::string>>{
             {"--help"}, {"train", "--help"}, {"eval", "--help"}, {"predict", "--help"}}) {
      const auto r = run_lockstep(words);
      CAPTURE(r.out);
      CHECK(r.exit_code == 0);
      CHECK(contains(r.out, "--model.kind KIND"));
      for (const std::string kind : kinds) {
        if (words[0] == "predict" && kind == "har") continue;
        CHECK((contains(r.out, "\n- " + kind + ": ") || contains(r.out, "\n  " + kind + " ")));
      }
      for (const char* own : {"model.hidden_size", "--input", "jacobian.every"}) CHECK_FALSE(contains(r.out, own));
    }
    CHECK(contains(run_lockstep({"train", "--model.kind", "kgat", "--help"}).out, "model.conv_dims"));
    for (const auto& [kind, own] : {std::pair{"emulator", "--model-file"}, {"hrm", "--segments"}, {"kgat", "--user"}}) {
      const auto r = run_lockstep({"predict", "--model.kind", kind, "--help"});
      check_mentions(r.out, own, "run.precision");
      for (const char* unused : {"--optim.", "--checkpoint.", "--train.", "--schedule."})
        CHECK_FALSE(contains(r.out, unused));
    }
  }

  TEST_CASE("the help of eval lists the keys that an evaluation reads, and no others") {
    for (const auto& [kind, read] :
         {std::pair("hrm", std::vector{"eval.tries", "eval.segments", "eval.max_examples", "eval.halt"}),
          std::pair("sasrec", std::vector{"eval.k", "eval.candidates", "eval.users"}),
          std::pair("kgat", std::vector{"eval.k", "data.graph"})}) {
      CAPTURE(kind);
      const std::string help = run_lockstep({"eval", "--model.kind", kind, "--help"}).out;
      for (const std::string key : read) CHECK(contains(help, key));
      for (const char* ignored : {"eval.every", "eval.max_samples", "eval.best", "eval.final", "data.group_visits"})
        CHECK_FALSE(contains(help, std::string("--") + ignored));
    }
  }

  TEST_CASE("each command has a manual page that troff accepts without a warning" *
            doctest::test_suite("apps.lockstep.manual")) {
    const auto r = run_lockstep({"help", "--man", "man1"});
    CHECK(r.exit_code == 0);
    const bool groff = run_process({"groff", "--version"}).exit_code == 0;
    if (!groff) skip("groff is not installed, the pages are not formatted");
    auto names = command_names();
    for (auto& name : names) name = "lockstep-" + name;
    names.emplace_back("lockstep");
    for (const auto& name : names) {
      CAPTURE(name);
      const fs::path page = fs::path("man1") / (name + ".1");
      CHECK(read_text(page).starts_with(".TH \""));
      if (!groff) continue;
      const auto formatted = run_process({"groff", "-man", "-Tascii", "-ww", page.string()});
      CHECK(formatted.exit_code == 0);
      CHECK(formatted.err.empty());
    }
    CHECK(run_lockstep({"help", "--man", "/proc/nowhere"}).exit_code == 2);
  }

  TEST_CASE("info prints build, devices and ranks, also as JSON") {
    const auto text = run_lockstep({"info"});
    CHECK(text.exit_code == 0);
    CHECK(text.out.starts_with("lockstep " LOCKSTEP_VERSION));
    const auto json = nlohmann::json::parse(run_lockstep({"info", "--json"}).out);
    CHECK(json["build"]["version"] == LOCKSTEP_VERSION);
    CHECK(json["ranks"].size() == 1);
    CHECK(json["ranks"][0]["cores"].get<int>() >= 1);
    CHECK(json["devices"]["cpu"].size() >= 1);
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those reserve terabytes
  TEST_CASE("info shows the memory that a limit leaves to the program") {
    const auto r =
        test::run_process({"bash", "-c", "ulimit -v 8000000; exec \"$0\" info --json", test::program_path("lockstep")});
    CHECK(nlohmann::json::parse(r.out)["ranks"][0]["memory_bytes"] == 8000000.0 * 1024);
  }
#endif

  TEST_CASE("several ranks print one error, and leave with its exit code") {
    const auto r = run_lockstep({"info", "--datset", "x.h5"}, 3);
    CHECK(r.exit_code == 2);
    CHECK(occurrences(r.err, "unknown option --datset; did you mean --dataset?") == 1);
    CHECK(occurrences(r.err, "error [rank 0/3, ") == 1);
    const auto missing = run_lockstep({"info", "--dataset", "/nowhere/x.h5"}, 2);
    CHECK(missing.exit_code == 2);
    CHECK(occurrences(missing.err, "/nowhere/x.h5") == 1);
  }

  TEST_CASE("ranks with different arguments do not start") {
    const std::string program = program_path("lockstep");
    const auto r =
        run_process(mpirun_command() + Words{"-n", "1", program, "info", ":", "-n", "1", program, "info", "--json"});
    CHECK(r.exit_code == 2);
    CHECK(occurrences(r.err,
                      "this rank was started with '--json', rank 0 with nothing; all ranks need the same arguments") ==
          1);
    CHECK(r.out.empty());
  }

  TEST_CASE("info lists every rank") {
    const auto json = nlohmann::json::parse(run_lockstep({"info", "--json"}, 2).out);
    REQUIRE(json["ranks"].size() == 2);
    CHECK(json["ranks"][1]["rank"] == 1);
    CHECK(json["ranks"][0]["pid"] != json["ranks"][1]["pid"]);
  }

  TEST_CASE("info shows the contents of a data set and of a checkpoint") {
    const std::string data = "ice.h5", run = "run";
    prepare("synth-icecolumn --rows 300 --output ice.h5");
    succeeded(run_lockstep({"train", "--data.path", data, "--run.dir", run, "--train.epochs", "2", "--batch.size", "50",
                            "--model.hidden_size", "8", "--model.hidden_layers", "2"}));
    const auto set = nlohmann::json::parse(run_lockstep({"info", "--dataset", data, "--json"}).out);
    CHECK(set["split"]["train"].get<int>() + set["split"]["validation"].get<int>() + set["split"]["test"].get<int>() ==
          300);
    CHECK(set["inputs"].size() == 9);
    CHECK(set["inputs"][0]["name"] == "sst");
    CHECK(set["inputs"][0]["unit"] == "degC");
    CHECK(contains(run_lockstep({"info", data}).out, "sea_ice_area_fraction"));

    const std::string file = run + "/checkpoints/final.h5";
    const auto point = nlohmann::json::parse(run_lockstep({"info", "--checkpoint", file, "--json"}).out);
    CHECK(point["epoch"] == 2);
    CHECK(point["finished"] == true);
    CHECK(point["model"] == "emulator");
    CHECK(point["parameters"] == 9 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3);
    CHECK(contains(point["config"].get<std::string>(), "hidden_size = 8\n"));
    CHECK(contains(run_lockstep({"info", file}).out, "/model/network.0.weight"));
    const std::string best = run_lockstep({"info", run + "/checkpoints/best.h5"}).out;
    CHECK(contains(best, "weights alone, of the best evaluation"));
    CHECK_FALSE(contains(best, "0.0us"));

    std::string bytes = read_text(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_text("flipped.h5", bytes);
    const auto damaged = run_lockstep({"info", "--checkpoint", "flipped.h5"});
    check_ended(damaged, 3, "flipped.h5");
    CHECK(damaged.out.empty());
  }

  TEST_CASE("info refuses files that are not there or not ours") {
    write_text("text.h5", "this is no HDF5 file");
    for (const char* option : {"--dataset", "--checkpoint"}) {
      CAPTURE(option);
      auto r = run_lockstep({"info", option, "missing.h5"});
      check_ended(r, 2, "missing.h5");
      CHECK(lines(r.err) == 1);
      r = run_lockstep({"info", option, "text.h5"});
      check_ended(r, 3, "text.h5");
      CHECK(lines(r.err) == 1);
    }
  }

  TEST_CASE("a path that the system refuses is wrong usage") {
    fs::create_symlink("loop", "loop");
    const std::string loop = "loop", data = "loop/data.h5";
    for (const Words& words : std::vector<Words>{{"info", loop},
                                                 {"export", "--checkpoint", loop, "--output", "out"},
                                                 {"checkpoint", "verify", loop},
                                                 {"checkpoint", "keep", loop},
                                                 {"compare", loop},
                                                 {"replay", loop},
                                                 {"eval", "--checkpoint", data},
                                                 {"predict", "--checkpoint", data, "--user", "1"},
                                                 {"train", "--config", loop},
                                                 {"train", "--run-dir", loop, "--data.path", "data.h5"},
                                                 {"train", "--run-dir", "run", "--data.path", data}}) {
      const auto r = run_lockstep(words);
      CAPTURE(words.front());
      CHECK(r.exit_code == 2);
      check_mentions(r.err, loop, "Too many levels of symbolic links");
      CHECK(lines(r.err) == 1);
    }
  }

  TEST_CASE("info says what other files are, and so does a command that needs a checkpoint") {
    const std::vector<std::tuple<const char*, std::string, const char*>> files = {
        {"run.ini", "# a run\n[optim]\nlr = 0.1\n", "a configuration"},
        {"notes.txt", "buy milk\n", "a text file"},
        {"nothing.h5", "", "an empty file"},
        {"final.h5.gz", "\x1f\x8b\x08", "a compressed file (unpack it first)"}};
    for (const auto& [file, bytes, what] : files) {
      CAPTURE(file);
      write_text(file, bytes);
      const std::string path = file;
      for (const auto& r : {run_lockstep({"info", path}), run_lockstep({"eval", "--checkpoint", path}),
                            run_lockstep({"predict", "--checkpoint", path, "--input", "x.h5", "--output", "y.h5"})}) {
        check_ended(r, 3, path, std::string("it is ") + what);
        CHECK(lines(r.err) == 1);
      }
    }
  }

  TEST_CASE("a PyTorch file is no checkpoint; info reads it, or says why not") {
    const std::string path = "net.pt";
    write_text(path,
               std::string("PK\x03\x04") + std::string(22, '\0') + std::string("\x10\0\0\0", 4) + "archive/data.pkl");
    const auto eval = run_lockstep({"eval", "--checkpoint", path}), info = run_lockstep({"info", path});
    for (const auto& r : {eval, info}) {
      check_ended(r, 3, path);
      CHECK(lines(r.err) == 1);
    }
    CHECK(contains(eval.err, "it is a PyTorch file"));
    CHECK(contains(info.err, "the archive is damaged or truncated"));
  }
}
