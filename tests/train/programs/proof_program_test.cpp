#include "lockstep/proof/proof.hpp"
#include "program.hpp"
#include "support/test.hpp"

using lockstep::join;
using lockstep::ProofChain;

namespace {

/// 40 steps of 20 in an epoch, a link every 8, a checkpoint every 10.
ProcessResult train(const std::string& run, int ranks, const Words& more = {}) {
  const Words words =
      words_of("train --data.path data.h5 --run-dir " + run +
               " --reproducible --run.proof_every 8 --checkpoint.every_steps 10 --checkpoint.keep 9 --batch.size 20 "
               "--model.hidden_size 8 --epochs 2 --jacobian.every 0");
  return lockstep_program(ranks, 1, words + more);
}

/// A copy of a chain with the same links, in which `change` has edited the run, and whose hashes are right.
std::string forged(const ProofChain& chain, const auto& change) {
  ProofChain other;
  for (ProofChain::Entry entry : chain.entries()) {
    if (entry.is_run) change(entry.run);
    other.add(entry);
  }
  return other.text();
}

}  // namespace

TEST_SUITE("train.programs.proof") {
  TEST_CASE("a chain is the same after a resume and proves the run on any number of ranks; others are refused") {
    write_data(400);
    REQUIRE(train("a", 1).exit_code == 0);
    const fs::path run = "a", file = run / "proof.chain";
    const std::string chain = read_text(file);
    CHECK(occurrences(chain, "\nlink\t") == 6);
    CHECK(occurrences(chain, "\nend\t") == 0);  // step 40 is a multiple
    REQUIRE(train("b", 2, {"--steps", "13"}).exit_code == 0);
    CHECK(contains(read_text("b/proof.chain"), "\nend\tstep=13"));
    REQUIRE(train("b", 1).exit_code == 0);
    CHECK(read_text("b/proof.chain") == chain);

    const auto replay = [&](int ranks, const Words& more = {}) {
      return lockstep_program(ranks, 1, Words{"replay", run.string()} + more);
    };
    const auto refuses = [&](const ProcessResult& result, int code, const std::string& text) {
      check_ended(result, code, text);
      CHECK(occurrences(result.err, "error") == 1);
    };
    const fs::file_time_type before = fs::last_write_time(run);
    const ProcessResult whole = replay(2);
    CAPTURE(whole.err);
    CHECK(whole.exit_code == 0);
    CHECK(contains(whole.out, "steps 0 to 40 computed on 2 ranks: 6 links agree, the last of step 40"));
    CHECK(contains(replay(1, {"--from", "10", "--steps", "15"}).out,
                   "steps 10 to 25 computed on 1 rank: 2 links agree, the last of step 24"));
    CHECK(fs::last_write_time(run) == before);
    refuses(replay(1, {"--from", "11"}), 2, "no whole checkpoint of this step; it has those of: 40, 30, 20, 10");
    refuses(replay(1, {"--from", "10", "--steps", "50"}), 2, "is of step 40; choose earlier steps");
    refuses(replay(1, {"--run.isa", "generic"}), 2, "instruction set: generic now");

    const auto verify = [&](const char* name) {
      return lockstep_program(1, 1, {"checkpoint", "verify", (run / "checkpoints" / name).string()});
    };
    CHECK(contains(verify("final.h5").out, "; agrees with the chain"));
    CHECK(contains(verify("step-10.h5").out, "its last one before is of step 8; lockstep replay computes"));

    // Made by another build.
    write_text(file, forged(ProofChain(chain, "chain"), [](auto& of) { of.build = "another build"; }));
    refuses(replay(1), 2, "another build in the chain\nreplay under the same conditions");
    CHECK(replay(1, {"--anyway"}).exit_code == 0);
    // Of another run, which has the same data and seed, or another seed.
    REQUIRE(train("c", 1, {"--optim.lr", "0.002"}).exit_code == 0);
    fs::copy_file("c/proof.chain", file, fs::copy_options::overwrite_existing);
    const ProcessResult other = replay(1, {"--from", "10"});
    CHECK(other.exit_code == 1);
    check_mentions(other.out, "step 16: differs from the chain in: weights, first those of '",
                   "the first wrong step is one of 11 to 16");
    const ProcessResult refused = verify("final.h5");
    CHECK(refused.exit_code == 3);
    CHECK(contains(refused.out, "refused: it differs from the chain"));
    refuses(train("a", 1, {"--epochs", "3"}), 3, "the state of step 40 that this run continues from differs");
    write_text(file, forged(ProofChain(chain, "chain"), [](auto& of) { of.seed = 1; }));
    refuses(replay(1), 3, "is of another run: emulator, seed 1");
    // Cut, edited, missing.
    std::string edited = chain;
    edited[edited.find("batch=") + 6] ^= 1;
    write_text(file, edited);
    refuses(replay(2), 3, "line 2 does not follow from the lines before it");
    CHECK(verify("final.h5").exit_code == 3);
    refuses(train("a", 1, {"--epochs", "3"}), 3, "line 2 does not follow from the lines before it");
    write_text(file, chain.substr(0, chain.find("link\tstep=32")));
    refuses(replay(1, {"--steps", "40"}), 2, "the last link");
    CHECK(contains(verify("final.h5").out, "refused: proof chain"));
    fs::remove(file);
    refuses(replay(1), 2, "no such file; a run writes it with --reproducible and run.proof_every > 0");
  }
}
