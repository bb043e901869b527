#include "program.hpp"
#include "support/test.hpp"

namespace {

/// Two epochs of a small network. Options in `more` override the file.
Words training(const Words& more = {}) {
  write_text(
      "base.ini",
      "[data]\npath = data.h5\n[run]\ndir = run\n[train]\nepochs = 2\n[model]\nhidden_size = 8\n[batch]\nsize = 100\n");
  return Words{"train", "--config", "base.ini"} + more;
}

struct Case {
  const char* what;
  std::vector<std::string> words;
  int exit_code;
  std::string message;
};

}  // namespace

TEST_SUITE("train.programs.bad_input") {
  TEST_CASE("a usage error has one message and the right exit code, also on several ranks") {
    write_data(500);
    write_text("file", "not a directory");
    write_text("foreign.h5", "not HDF5");
    const std::string data = read_text("data.h5");
    write_text("cut.h5", data.substr(0, data.size() / 2));
    const Case cases[] = {
        {"a batch larger than the data", training({"--batch.size", "501"}), 2,
         "a batch of 501 is larger than the 500 training samples"},
        {"micro-batches without samples", training({"--batch.size", "200", "--batch.accumulate", "4"}), 2,
         "option batch.accumulate = 4: with micro-batches of 200, 3 hold the 500 training samples of "},
        {"an unwritable run directory", training({"--run-dir", "file/run"}), 2, "file/run"},
        {"a missing data file", training({"--data.path", "none.h5"}), 2, "none.h5"},
        {"a foreign data file", training({"--data.path", "foreign.h5"}), 3, "foreign.h5"},
        {"a truncated data file", training({"--data.path", "cut.h5"}), 3, "cut.h5"},
        {"a missing checkpoint", training({"--resume", "none.h5"}), 2, "none.h5"},
        {"no data", {"train", "--run-dir", "run"}, 2, "data.path"},
        {"shards that are no power of two", training({"--reproducible", "--dist.shards", "12"}), 2, "power of two"},
        {"a cosine shorter than its warm-up",
         training({"--schedule.name", "cosine", "--schedule.warmup", "5", "--schedule.total", "4"}), 2,
         "cosine schedule"},
        {"an unknown metric for the best weights", training({"--eval.best", "rmse.z"}), 2, "did you mean"},
        {"a constraint that is no expression", training({"--loss.constraint", "max(0, "}), 2,
         "option loss.constraint: at character 8: a value is missing"},
        {"a constraint outside its domain, which a step finds", training({"--loss.constraint", "log(0 * y[0] - 1)"}), 2,
         "option loss.constraint = log(0 * y[0] - 1): a value or its slope is not finite in row "},
        {"more layers than a network has", training({"--model.hidden_layers", "1000000000"}), 2,
         "option model.hidden_layers = 1000000000: must be 1..1000"},
        {"a network larger than the memory",
         training({"--model.hidden_size", "1000000", "--model.hidden_layers", "1000"}), 2,
         "preparing the training: each rank needs 3.5 PiB for weights, "},
        {"a learning rate that explodes", training({"--optim.name", "sgd", "--optim.lr", "1e30", "--epochs", "9"}), 2,
         "lower optim.lr"},
    };
    for (const Case& c : cases) {
      for (const int ranks : {1, 3}) {
        fs::remove_all("run");
        const ProcessResult result = lockstep_program(ranks, 1, c.words);
        CAPTURE(c.what);
        CAPTURE(ranks);
        check_ended(result, c.exit_code, c.message);
        CHECK(occurrences(result.err, "error") - occurrences(result.err, "exited with error") >= 1);
        CHECK(occurrences(result.err, c.message) == 1);
      }
    }
  }

  TEST_CASE("a gradient that is not finite names the step and the tensor") {
    write_data(500);
    const ProcessResult result =
        lockstep_program(2, 1, training({"--optim.name", "sgd", "--optim.lr", "1e30", "--epochs", "9"}));
    check_mentions(result.err, "step 1 (epoch 0)", "network.");
  }

  TEST_CASE("ranks that were started with different configurations leave together, naming the rank") {
    write_data(500);
    const std::string program = program_path("lockstep");
    const auto rank = [&](const char* lr) { return Words{"-n", "1", program} + training({"--optim.lr", lr}); };
    check_ended(run_process(mpirun_command() + rank("0.001") + Words{":"} + rank("0.002")), 2, "rank 1",
                "all ranks need the same arguments");
  }

  TEST_CASE("ranks without a sample take part in a batch smaller than their number") {
    write_data(10);
    for (const char* mode : {"--reproducible", "--no-reproducible"}) {
      fs::remove_all("run");
      check_ended(lockstep_program(4, 1, training({"--batch.size", "3", mode})), 0);
    }
  }

  TEST_CASE("a run directory of another configuration is refused, naming the key; --resume never moves it aside") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training()).exit_code == 0);
    const std::string checkpoint = "run/checkpoints/final.h5";
    const std::string weights = read_text(checkpoint), config = read_text("run/config.ini");
    check_ended(lockstep_program(1, 1, training({"--optim.lr", "0.5"})), 2, "optim.lr");
    CHECK(read_text(checkpoint) == weights);
    CHECK(read_text("run/config.ini") == config);
    check_ended(
        lockstep_program(1, 1, training({"--run-dir", "other", "--model.hidden_size", "9", "--resume", checkpoint})), 2,
        "model.hidden_size");
    check_ended(lockstep_program(1, 1, training({"--optim.lr", "0.5", "--resume", "never"})), 0);
    CHECK(fs::exists("run/previous-1/checkpoints/final.h5"));
  }

  TEST_CASE("a checkpoint of other data is refused") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training()).exit_code == 0);
    write_data(510);
    check_ended(lockstep_program(2, 1, training({"--epochs", "4"})), 3, "it was trained on other data",
                "name the data set of its training, or choose another --run-dir");
  }

  TEST_CASE("a rescue checkpoint is refused as any other; one that is older than the last checkpoint is not used") {
    const fs::path folder = "run/checkpoints", later = folder / "rescue-900.h5";
    const auto end_of = [&](const Words& words) {
      REQUIRE(lockstep_program(1, 1, training(words)).exit_code == 0);
      return fs::path(words.back()) / "checkpoints/final.h5";
    };
    write_data(510);
    const fs::path of_other_data = end_of({"--run-dir", "data"});
    write_data(500);
    const fs::path of_other_size = end_of({"--model.hidden_size", "9", "--run-dir", "size"});
    fs::copy_file(end_of({"--run-dir", "run"}), folder / "rescue-1.h5");
    const Words more = {"--epochs", "3"};
    fs::copy_file(of_other_size, later);
    check_ended(lockstep_program(1, 1, training(more)), 2, "rescue-900.h5 is of another configuration",
                "model.hidden_size");
    fs::copy_file(of_other_data, later, fs::copy_options::overwrite_existing);
    check_ended(lockstep_program(2, 1, training(more)), 3, "it was trained on other data");
    write_text(later, "half a file");
    check_ended(lockstep_program(2, 1, training(more)), 0, "rescue-900.h5 is refused",
                "rescue-1.h5 is not newer than final.h5 and is not used");
  }

  TEST_CASE("on a full disk the failed checkpoint is named and leaves nothing, and the earlier one stays whole") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training()).exit_code == 0);
    const fs::path folder = "run/checkpoints";
    const std::string before = read_text(folder / "final.h5");
    const std::vector<std::string> names = names_in(folder);
    // No file may grow beyond 24 KiB: smaller than a checkpoint, larger than the logs.
    const auto train = [&](int limit_kib, const char* retry_minutes, const std::string& meanwhile = "") {
      // The pipe's other end has no limit: run_process() collects messages in files.
      std::string command =
          lockstep::join("set -o pipefail; (trap '' XFSZ; ulimit -Sf ", limit_kib, "; ", program_path("lockstep"));
      for (const std::string& word : training({"--epochs", "3", "--checkpoint.retry_minutes", retry_minutes}))
        command += " '" + word + "'";
      command += " & " + meanwhile + "wait $!) 2>&1 | cat >&2";
      return run_process({"bash", "-c", command});
    };
    check_ended(train(24, "0"), 1, "was not written");
    check_ended(train(0, "0"), 1, "/.lock': File too large");
    CHECK(read_text(folder / "final.h5") == before);
    std::vector<std::string> left = names_in(folder);
    std::erase(left, "previous-best");  // links to the best files, made before the first new one
    CHECK(left == names);
    // Once there is space, the state in memory is written.
    check_ended(train(24, "2", "sleep 5; prlimit --pid $! --fsize=unlimited; "), 0, "is written again every 10 s");
    CHECK(lockstep_program(1, 1, training({"--epochs", "3"})).exit_code == 0);
    // A signal ends the attempts.
    REQUIRE(lockstep_program(1, 1, training({"--resume", "never"})).exit_code == 0);
    const std::string whole = read_text(folder / "final.h5");
    check_ended(train(24, "9", "sleep 5; kill -USR1 $!; "), 1, "the final checkpoint could not be written");
    CHECK(read_text(folder / "final.h5") == whole);
  }
}
