#include <cmath>
#include <map>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/report/run_records.hpp"
#include "program.hpp"
#include "support/test.hpp"

namespace {

/// A run that takes some seconds: small batches, a checkpoint every 400 steps, schedule, average and stopping state in
/// use.
Words training(const std::string& run, const std::string& epochs = "120", const Words& more = {}) {
  write_text("base.ini",
             "[data]\npath = data.h5\n[run]\nreproducible = true\n[model]\nhidden_size = 16\nhidden_layers = 2\n"
             "[batch]\nsize = 17\n[optim]\nlr = 0.003\nema = 0.99\n[schedule]\nname = plateau\npatience = "
             "2\n[stop]\npatience = 0\n"
             "[checkpoint]\nevery_steps = 400\nevery = 10\n[jacobian]\nevery = 4\n");
  return Words{"train", "--config", "base.ini", "--run-dir", run, "--epochs", epochs} + more;
}
fs::path final_of(const std::string& run) { return run + "/checkpoints/final.h5"; }

/// Two runs end with the same weights, optimizer state, average and history.
void check_same_end(const std::string& a, const std::string& b) {
  for (const char* group : {"/model", "/optim", "/ema", "/state/history"})
    CHECK(equal_checkpoints(final_of(a), final_of(b), group));
}

/// The loss of the training record of each whole epoch.
std::map<double, double> losses_of_epochs(const std::string& run) {
  std::map<double, double> losses;
  lockstep::read_records(read_text(run + "/metrics.jsonl"), [&](const lockstep::RunRecord& record) {
    const auto* step = std::get_if<lockstep::StepRecord>(&record);
    if (step != nullptr && step->epoch == std::floor(step->epoch)) losses[step->epoch] = step->loss.value_or(0);
    return true;
  });
  return losses;
}

}  // namespace

TEST_SUITE("train.programs.resume") {
  TEST_CASE("reproducible: 1, 2, 3 and 4 ranks and any threads end with the same bits, uneven last batch included") {
    write_data(1000);
    REQUIRE(lockstep_program(1, 1, training("r1", "3")).exit_code == 0);
    for (const auto& [ranks, threads] : {std::pair(1, 2), std::pair(2, 1), std::pair(3, 1), std::pair(4, 2)}) {
      const std::string run = "r" + std::to_string(ranks) + "t" + std::to_string(threads);
      check_ended(lockstep_program(ranks, threads, training(run, "3")), 0);
      check_same_end("r1", run);
      CHECK(equal_checkpoints("r1/checkpoints/best.h5", run + "/checkpoints/best.h5", "/model"));
    }
    REQUIRE(lockstep_program(1, 1, training("other", "3", {"--seed", "6"})).exit_code == 0);
    CHECK_FALSE(equal_checkpoints(final_of("r1"), final_of("other"), "/model"));
  }

  TEST_CASE("the banner names threads without a shard, and a share of samples that is not whole") {
    write_data(500);
    check_ended(lockstep_program(3, 3, training("run", "1", {"--dist.shards", "8"})), 0,
                "17 over 3 ranks (about 5.7 each)\n",
                "8 shards keep 8 of 9 threads busy; set dist.shards = 16 before the first start");
    const std::string fits = lockstep_program(1, 2, training("other", "1", {"--dist.shards", "2"})).err;
    check_mentions(fits, "17 on 1 rank\n");
    CHECK_FALSE(contains(fits, "busy"));
    const std::string go_on = "reproducible over 2 shards";  // those of the first start
    check_ended(lockstep_program(1, 1, training("other", "2")), 0, go_on);
    check_ended(lockstep_program(1, 1, training("other", "3", {"--dist.shards", "4"})), 2,
                "dist.shards: 2 there, 4 here");
  }

  TEST_CASE("default mode: ranks and threads change the weights by rounding alone, and an evaluation not at all") {
    write_data(1000);
    const auto train = [&](const std::string& run, int ranks, int threads) {
      REQUIRE(lockstep_program(ranks, threads, training(run, "2", {"--no-reproducible"})).exit_code == 0);
      return lockstep::H5File::open(final_of(run));
    };
    const lockstep::H5File a = train("r1", 1, 1);
    for (const auto& [ranks, threads] : {std::pair(1, 2), std::pair(2, 2), std::pair(3, 1), std::pair(3, 2)}) {
      CAPTURE(ranks);
      CAPTURE(threads);
      const lockstep::H5File b = train("r" + std::to_string(ranks) + "t" + std::to_string(threads), ranks, threads);
      for (const std::string& name : a.datasets_under("/model")) {
        const auto x = a.read<double>(name), y = b.read<double>(name);
        for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] - y[i]) < 2e-4);
      }
    }
    const std::vector<std::string> eval = {"eval", "--checkpoint", final_of("r1").string(), "--split", "val", "--json"};
    const std::string once = lockstep_program(1, 1, eval).out;
    CHECK(contains(once, "\"samples\":200"));
    for (const auto& [ranks, threads] : {std::pair(1, 3), std::pair(2, 1), std::pair(3, 2)})
      CHECK(lockstep_program(ranks, threads, eval).out == once);
  }

  TEST_CASE("a run killed up to five times, and resumed on two ranks, ends with the uninterrupted run's weights") {
    write_data(2000);
    REQUIRE(lockstep_program(1, 1, training("whole")).exit_code == 0);
    int killed = 0;
    for (const double after_s : {0.0, 0.05, 0.02, 0.11, 0.08}) {
      const int code = interrupted_program(1, "KILL", after_s, "killed", training("killed")).exit_code;
      if (code == 0) break;  // the run ended before the signal came
      REQUIRE(code == 137);
      ++killed;
    }
    REQUIRE_MESSAGE(killed > 0, "the run ended before the first signal: it shows nothing");
    check_ended(lockstep_program(2, 1, training("killed")), 0, "continuing from");
    check_same_end("whole", "killed");
  }

  TEST_CASE("SIGTERM, SIGUSR1 and run.max_hours end a run with a checkpoint and code 85, and it then continues") {
    write_data(2000);
    REQUIRE(lockstep_program(1, 1, training("whole")).exit_code == 0);
    check_ended(interrupted_program(1, "TERM", 0.05, "halted", training("halted")), 85,
                "stopped by SIGTERM after step");
    check_ended(interrupted_program(3, "USR1", 0.05, "halted", training("halted")), 85);
    check_ended(lockstep_program(1, 1, training("halted", "120", {"--run.max_hours", "1e-9"})), 85,
                "stopped by run.max_hours");
    const lockstep::CheckpointReader newest(lockstep::CheckpointFolder("halted").candidates().front());
    CHECK(lockstep::read_run_records("halted").step == newest.state().step);
    REQUIRE(lockstep_program(2, 1, training("halted")).exit_code == 0);
    check_same_end("whole", "halted");
    CHECK(losses_of_epochs("halted") == losses_of_epochs("whole"));
  }

  TEST_CASE("a damaged newest checkpoint is named with its defect and the one before it is used") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training("run", "4", {"--checkpoint.every_steps", "40"})).exit_code == 0);
    const fs::path kept = "kept.h5";
    fs::copy_file(final_of("run"), kept);
    const std::string text = read_text(kept);
    std::string flipped = text;
    flipped[flipped.size() / 2] ^= 1;
    for (const std::string& damaged : {flipped, text.substr(0, text.size() / 3)}) {
      write_text(final_of("run"), damaged);
      check_ended(lockstep_program(1, 1, training("run", "4", {"--checkpoint.every_steps", "40"})), 0,
                  "final.h5 is refused: ", "continuing from");
      CHECK(equal_checkpoints(final_of("run"), kept, "/model"));
      write_text("broken.h5", damaged);
      check_ended(lockstep_program(1, 1, training("other", "4", {"--resume", "broken.h5"})), 3, "broken.h5");
    }
    for (const auto& entry : fs::directory_iterator("run/checkpoints")) write_text(entry.path(), "nothing");
    check_ended(lockstep_program(1, 1, training("run", "4", {"--checkpoint.every_steps", "40"})), 3,
                "none of its checkpoints is whole");
  }

  TEST_CASE("a run without its checkpoints begins again, and keeps its records and best weights") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training("run", "2")).exit_code == 0);
    const std::string best = read_text("run/checkpoints/best.h5"), records = read_text("run/metrics.jsonl");
    fs::remove(final_of("run"));
    check_ended(lockstep_program(2, 1, training("run", "2")), 0,
                "'run' has results, but no checkpoint to continue from: the run begins again");
    CHECK(read_text("run/previous-1/checkpoints/best.h5") == best);
    CHECK(read_text("run/previous-1/metrics.jsonl") == records);
  }

  TEST_CASE("files of a run do not receive the messages of a standard error that is closed") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training("open", "2")).exit_code == 0);
    const Words closed = {"bash", "-c", "exec \"$0\" \"$@\" 2>&-", program_path("lockstep")};
    CHECK(run_process(closed + training("closed", "2")).exit_code == 0);
    check_same_end("open", "closed");
  }

  TEST_CASE("a run that goes back to an earlier file is resumed itself; the checkpoints it left behind move aside") {
    write_data(500);
    const std::vector<std::string> often = {"--checkpoint.every_steps", "10", "--checkpoint.every", "0"};
    REQUIRE(lockstep_program(1, 1, training("run", "4", often)).exit_code == 0);
    const fs::path folder = "run/checkpoints";
    fs::copy_file(final_of("run"), "whole.h5");
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), often.begin(), often.end());
      return lockstep_program(1, 1, training("run", "4", more));
    };
    fs::copy_file(folder / "step-100.h5", "backup.h5");
    check_ended(with({"--resume", "backup.h5", "--steps", "105"}), 0);
    CHECK(fs::exists("run/previous-1/checkpoints/final.h5"));
    CHECK(fs::exists("run/previous-1/checkpoints/step-110.h5"));
    CHECK(!fs::exists(folder / "step-110.h5"));
    check_ended(with({}), 0, "step 105");
    CHECK(equal_checkpoints(final_of("run"), "whole.h5", "/model"));
  }

  TEST_CASE("a longer run is the shorter one continued") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training("whole", "6")).exit_code == 0);
    REQUIRE(lockstep_program(1, 1, training("parts", "3")).exit_code == 0);
    REQUIRE(lockstep_program(1, 1, training("parts", "6")).exit_code == 0);
    check_same_end("whole", "parts");
  }

  TEST_CASE("the command of a finished run changes neither its checkpoints nor its metrics, whatever ended it") {
    write_data(500);
    struct Case {
      const char *ended, *epochs, *options;
    };
    for (const Case& c : std::initializer_list<Case>{
             {"stop.rule = train_loss", "400", "--stop.rule train_loss --optim.lr 0.03 --eval.every 7"},
             {"stop.patience", "400", "--stop.patience 2 --eval.every 2 --optim.lr 0.03"},
             {"stop.tolerance", "400", "--stop.tolerance 0.5 --stop.min_epochs 2 --stop.window 2"},
             {"stop.jacobian_tolerance", "400", "--stop.jacobian_tolerance 0.5 --stop.jacobian_min_epochs 2"},
             {"all 45 steps are done", "400", "--train.steps 45 --eval.every 2"},
             {"all 90 steps are done", "3", "--eval.every 2 --checkpoint.best_keep 2"}}) {
      CAPTURE(c.options);
      const auto train = [&](const std::string& epochs) {
        return succeeded(lockstep_program(1, 1, training("run", epochs, words_of(c.options))));
      };
      const auto metrics = [] {
        std::string lines;
        std::istringstream text(read_text("run/metrics.jsonl"));
        for (std::string line; std::getline(text, line);)  // what follows the metrics are times
          lines += line.substr(0, line.find(R"("seconds")")) + "\n";
        return lines;
      };
      check_mentions(train(c.epochs).err, c.ended);
      const std::string before = metrics(), final = read_text(final_of("run"));
      const std::string best = read_text("run/checkpoints/best.h5");
      check_mentions(train(c.epochs).err, c.ended);
      CHECK(read_text(final_of("run")) == final);
      CHECK(read_text("run/checkpoints/best.h5") == best);
      CHECK(metrics() == before);
      if (std::string_view(c.ended).starts_with("stop.")) {
        check_mentions(train("500").err, c.ended);  // more epochs do not continue what a rule has ended
        CHECK(read_text(final_of("run")) == final);
      }
      fs::remove_all("run");
    }
  }

  TEST_CASE(
      "the last step is evaluated whatever ends a run, and a longer run has the weights of one that never ended") {
    write_data(500);
    const auto evaluated = [](const std::string& run) {
      std::string steps;
      for (const lockstep::EvalRecord& e : lockstep::read_run_records(run).evaluations)
        if (e.split == "validation" && e.weights.empty()) steps += (steps.empty() ? "" : " ") + std::to_string(e.step);
      return steps;
    };
    const Words rare = {"--eval.every", "2", "--stop.patience", "4"};  // 30 steps per epoch
    const auto train = [&](const std::string& run, const std::string& epochs, const Words& more) {
      return succeeded(lockstep_program(1, 1, training(run, epochs, rare + more)));
    };
    train("whole", "8", {});
    train("parts", "8", {"--steps", "22"});
    CHECK(evaluated("parts") == "22");
    CHECK(lockstep::CheckpointReader("parts/checkpoints/best.h5").state().step == 22);
    train("parts", "3", {});  // ends after an epoch that eval.every leaves out
    CHECK(evaluated("parts") == "22 60 90");
    train("parts", "8", {});
    CHECK(evaluated("whole") == "60 120 180 240");
    CHECK(evaluated("parts") == "22 60 90 120 180 240");
    check_same_end("whole", "parts");
    // A rule that looks at the training loss ends a run after an epoch that eval.every leaves out.
    train("loss", "400", {"--stop.rule", "train_loss", "--optim.lr", "0.03", "--eval.every", "7"});
    const std::int64_t last = lockstep::CheckpointReader(final_of("loss")).state().step;
    CHECK(last % 210 != 0);
    CHECK(evaluated("loss").ends_with(" " + std::to_string(last)));
  }

  TEST_CASE("evaluations by steps also fall on ends of epochs that eval.every leaves out, and a replay agrees") {
    write_data(500);
    const Words options = {"--eval.every_steps", "15", "--eval.every", "100", "--run.proof_every", "15"};
    succeeded(lockstep_program(1, 1, training("run", "3", options)));
    std::vector<std::int64_t> steps;
    for (const lockstep::EvalRecord& e : lockstep::read_run_records("run").evaluations)
      if (e.split == "validation" && e.weights.empty()) steps.push_back(e.step);
    CHECK(steps == std::vector<std::int64_t>{15, 30, 45, 60, 75, 90});
    check_ended(lockstep_program(1, 1, {"replay", "run"}), 0);
  }

  TEST_CASE("evaluations by steps: a run that SIGINT ends and another start continues has the same history") {
    write_data(2000);
    const std::vector<std::string> more = {"--eval.every_steps", "50",  "--eval.max_samples",     "40",
                                           "--eval.every",       "500", "--checkpoint.best_keep", "2"};
    REQUIRE(lockstep_program(1, 1, training("whole", "20", more)).exit_code == 0);
    check_ended(interrupted_program(1, "INT", 0.05, "halted", training("halted", "20", more)), 85,
                "stopped by SIGINT after step");
    REQUIRE(lockstep_program(2, 1, training("halted", "20", more)).exit_code == 0);
    check_same_end("whole", "halted");
    for (const char* name : {"best.h5", "best-2.h5"})
      CHECK(equal_checkpoints(fs::path("whole/checkpoints") / name, fs::path("halted/checkpoints") / name, "/model"));
    CHECK(contains(read_text("whole/metrics.jsonl"), "\"step\":50,\"epoch\":0.425,\"split\":\"validation\""));
    CHECK(contains(read_text("halted/metrics.jsonl"), "\"slowest_rank\":"));
  }

  TEST_CASE("a run directory that is moved away ends the run, which says where its last checkpoint is") {
    write_data(2000);
    std::vector<std::string> words = training("run", "100000");
    const char* const script =
        "dir=$1; shift; \"$@\" & pid=$!; for i in $(seq 3000); do [ -e $dir/checkpoints/step-400.h5 ] && break; "
        "sleep 0.02; done; mv $dir $dir-moved; for i in $(seq 1500); do kill -0 $pid 2>/dev/null || break; sleep 0.02; "
        "done; kill $pid 2>/dev/null; wait $pid";
    words.insert(words.begin(), {"bash", "-c", script, "bash", "run", program_path("lockstep")});
    check_ended(run_process(words), 1, "run-moved/checkpoints/step-");
  }

  TEST_CASE("lost best weights are noticed at the start") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training("run", "3")).exit_code == 0);
    for (const bool missing : {false, true}) {
      const fs::path best = "run/checkpoints/best.h5";
      if (missing) fs::remove(best);
      if (!missing) write_text(best, read_text(best).substr(0, 1000));
      check_ended(lockstep_program(1, 1, training("run", missing ? "5" : "4")), 0,
                  "are lost: ", "test samples, best weights");
    }
  }

  TEST_CASE("a run can start with the weights of another, and continues without that file") {
    write_data(500);
    REQUIRE(lockstep_program(1, 1, training("first", "3")).exit_code == 0);
    fs::copy_file(final_of("first"), "weights.h5");
    const std::vector<std::string> from = {"--init-from", "weights.h5", "--optim.lr", "1e-30"};
    REQUIRE(lockstep_program(2, 1, training("second", "1", from)).exit_code == 0);
    const lockstep::CheckpointReader a("weights.h5"), b(final_of("second"));
    for (const std::string& array : b.arrays("/model"))
      CHECK(b.file().read<float>(array) == a.file().read<float>("/ema" + array.substr(6)));
    CHECK(b.state().step < a.state().step);
    fs::remove("weights.h5");
    CHECK(lockstep_program(1, 1, training("second", "2", from)).exit_code == 0);
    std::vector<std::string> both = from;
    both.insert(both.end(), {"--resume", final_of("first").string()});
    check_ended(lockstep_program(1, 1, training("third", "1", both)), 2, "names another checkpoint");
  }

  TEST_CASE("ranks that do not see the run directory of rank 0 are named; the checkpoint's data path is absolute") {
    write_data(500);
    fs::create_directory("other");
    fs::copy_file("data.h5", "other/data.h5");
    const auto start = [&](const std::string& layout) {
      const auto rank = words_of(program_path("lockstep") +
                                 " train --data.path data.h5 --run-dir run --epochs 1 --batch.size 100 "
                                 "--jacobian.every 0 --checkpoint.layout " +
                                 layout);
      const auto in = [&](const fs::path& folder) { return Words{"-n", "1", "--wdir", fs::absolute(folder)} + rank; };
      return run_process(mpirun_command() + in(fs::current_path()) + Words{":"} + in("other"));
    };
    check_ended(start("sharded"), 2, "does not see the one of rank 0");
    ::setenv("LOCKSTEP_REQUEUE", "yes", 1);  // as the job scripts do
    check_ended(start("single"), 2, "does not see the one of rank 0: if the job is requeued on other nodes");
    ::unsetenv("LOCKSTEP_REQUEUE");
    check_ended(start("single"), 0, "does not see the one of rank 0");
    CHECK(contains(lockstep::CheckpointReader("run/checkpoints/final.h5").config(),
                   "path = " + fs::absolute("data.h5").string()));
  }
}
