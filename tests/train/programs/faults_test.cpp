#include "lockstep/checkpoint/checkpoint.hpp"
#include "program.hpp"
#include "support/job.hpp"
#include "support/test.hpp"

using lockstep::join;

namespace {

const Words kNoProof = {"--run.proof_every", "0"};

/// Runs tests/train/faults/fault_training.cpp on this many ranks, with a checkpoint every 10 steps and a comparison of
/// weights every 25. The fault happens in step 23.
Job train(const fs::path& dir, int ranks, const std::string& fault, int guilty, std::int64_t check_every = 25,
          const Words& more = {}) {
  Words words = words_of(join("-n ", ranks, " ", program_path("fault_training"), " ", dir.string(), " ", fault, " ",
                              guilty, " --data.path none --batch.size 50 --reproducible --epochs 5 --optim.lr 0.01",
                              " --dist.check_every ", check_every,
                              " --dist.timeout 2 --jacobian.every 0 --checkpoint.retry_minutes 0"));
  if (std::ranges::find(more, "--checkpoint.every_steps") == more.end())
    words = words + Words{"--checkpoint.every_steps", "10"};
  return run_job(Words{"env", "OMP_NUM_THREADS=1"} + mpirun_command() + words + more);
}

/// Resumed from its last good checkpoint on other ranks, the run ends with the weights of an undisturbed one.
void recovers(const fs::path& whole, const fs::path& run, std::int64_t from) {
  const Job again = train(run, 2, "none", 0);
  again.check_ended(0);
  again.check_says(join("begins at step ", from));
  CHECK(equal_checkpoints(whole / "checkpoints/final.h5", run / "checkpoints/final.h5", "/model"));
}

}  // namespace

TEST_SUITE("train.programs.faults") {
  TEST_CASE("each fault of one rank ends the job in time with one message; a lost rank costs no step") {
    REQUIRE(train("whole", 1, "none", 0).code == 0);
    struct Case {
      const char* fault;
      int exit_code;  ///< 0: any but 0
      std::vector<std::string> says;
      const char* once;
    };
    const Case cases[] = {
        {"kill", 0, {}, nullptr},  // either mpirun or the watchdog reports it
        {"stop", 86, {"rank 1 (", "is stopped by a signal", "'gradient'", "train, step 23"}, "no progress for"},
        {"late", 86, {"rank 1 (", "is late: it has been in train, step 23", "'gradient'"}, "no progress for"},
        {"flip", 1, {"the weights of rank 1 (", "resume from the last checkpoint", "step 25"}, "the weights of rank 1"},
    };
    for (const Case& c : cases) {
      const fs::path run = c.fault;
      const Job ended = train(run, 3, c.fault, 1, 25, kNoProof);
      CAPTURE(c.fault);
      if (c.exit_code == 0)
        ended.check_failed();
      else
        ended.check_ended(c.exit_code);
      for (const std::string& text : c.says) ended.check_says(text);
      if (c.once != nullptr) ended.check_says_once(c.once);
      // MPICH's mpirun kills the others at once, perhaps while rank 0 still writes the checkpoint of step 20.
      CHECK((fs::exists(run / "checkpoints/step-20.h5") ||
             (c.exit_code == 0 && fs::exists(run / "checkpoints/step-10.h5"))));
      CHECK_FALSE(fs::exists(run / "checkpoints/step-30.h5"));
    }
    for (const char* fault : {"stop", "late"}) recovers("whole", fault, 23);
    recovers("whole", "flip", 20);

    const Job full = train("full", 3, "stop-full", 1, 25, kNoProof);
    full.check_ended(1);
    full.check_says_once("the state after step 23 could not be saved");
    // The disk may fill while step 20 is still being written, beside the training.
    recovers("whole", "full", fs::exists("full/checkpoints/step-20.h5") ? 20 : 10);
  }

  TEST_CASE("a flipped bit in one rank's weights reaches no checkpoint: weights are compared before it is written") {
    const Job ended = train("run", 2, "flip", 1, 1000, kNoProof);
    ended.check_ended(1);
    ended.check_says("step 30: the weights of the ranks differ");
    CHECK(fs::exists("run/checkpoints/step-20.h5"));
    CHECK_FALSE(fs::exists("run/checkpoints/step-30.h5"));
  }

  TEST_CASE("with a proof, a flipped bit of one rank costs steps since the last checkpoint, no bit of the weights") {
    const std::vector<std::string> proof = {"--run.proof_every", "4"};
    REQUIRE(train("whole", 1, "none", 0, 1000, proof).code == 0);
    const std::string chain = read_text("whole/proof.chain");
    struct Case {
      const char *fault, *says;
      int ranks;
      const char* checkpoints;  ///< steps between them
    };
    const Case cases[] = {{"flip", "step 24: the weights of rank 1 (", 3, "10"},
                          {"flip-gradient", "step 24: the weights of rank 1 (", 3, "10"},
                          {"flip-optimizer", "step 24: the optimizer states of rank 1 (", 3, "10"},
                          {"flip", "step 24: the weights of the ranks differ: ranks 0 (", 2, "1000"}};
    for (const Case& c : cases) {
      const fs::path run = join(c.fault, c.ranks);
      std::vector<std::string> more = proof;
      more.insert(more.end(), {"--checkpoint.every_steps", c.checkpoints});
      const Job ended = train(run, c.ranks, c.fault, 1, 1000, more);
      CAPTURE(c.fault);
      ended.check_ended(0);
      ended.check_says_once(c.says, c.ranks == 3 ? "the steps from 20 to 24 are computed again"
                                                 : "the steps from 0 to 24 are computed again");
      CHECK(equal_checkpoints("whole/checkpoints/final.h5", run / "checkpoints/final.h5", "/model"));
      CHECK(read_text(run / "proof.chain") == chain);
    }

    const Job always = train("always", 3, "flip-always", 1, 1000, proof);
    always.check_ended(1);
    always.check_says_once("also after the steps since 20 were repeated");
    CHECK(occurrences(always.output, "step 24: the weights of rank 1 (") == 2);
    CHECK(lockstep::checkpoint_defect("always/checkpoints/step-20.h5") == "");
    CHECK_FALSE(fs::exists("always/checkpoints/step-30.h5"));

    // A run on one rank cannot notice it; a replay can, on any number of ranks.
    train("alone", 1, "flip", 0, 1000, proof).check_ended(0);
    const Job replay = train("alone", 2, "replay", 0, 1000, proof);
    replay.check_ended(1);
    replay.check_says("6 links agree, the last of step 20; then differs: weights, first those of 'w2' (1 of 5 arrays)");
    train("whole", 2, "replay", 0, 1000, proof).check_ended(0);
  }

  TEST_CASE("a full disk of one rank costs that sharded checkpoint, not the earlier ones") {
    REQUIRE(train("whole", 1, "none", 0).code == 0);
    const Job ended = train("run", 3, "disk", 1, 25, {"--checkpoint.layout", "sharded"});
    ended.check_ended(1);
    ended.check_says("error [rank 1/3", "the final checkpoint could not be written");
    ended.check_says_once("the checkpoint of step 30 was not written");
    for (const auto& entry : fs::directory_iterator("run/checkpoints"))
      CHECK_FALSE(contains(entry.path().filename().string(), "step-30"));
    // The disk may fill while the part of step 20 is still being written, beside the training.
    recovers("whole", "run", fs::exists("run/checkpoints/step-20.h5") ? 20 : 10);
  }

  TEST_CASE("a stalled checkpoint writer is named and ends the job; the earlier checkpoints are whole") {
    for (const auto& [layout, guilty] : {std::pair("single", 0), std::pair("sharded", 1)}) {
      const fs::path run = layout;
      const Job ended = train(run, 2, "hanging-disk", guilty, 25, {"--checkpoint.layout", layout});
      ended.check_ended(1);
      ended.check_says(join("error [rank ", guilty, "/2"));
      ended.check_says_once("no progress for 2 s (dist.timeout); its file system hangs", "error [");
      CHECK(lockstep::checkpoint_defect(run / "checkpoints/step-10.h5") == "");
      CHECK_FALSE(fs::exists(run / "checkpoints/step-30.h5"));
    }
  }
}
