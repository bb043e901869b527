#include "lockstep/base/text.hpp"
#include "prep/program.hpp"
#include "support/test.hpp"

namespace {

struct Data {
  TempDir dir;
  std::string file() const { return (dir / "data.h5").string(); }
  explicit Data(const std::string& source) { prepare(source + " --quiet --output " + file()); }
  ProcessResult run(const std::string& command, const std::string& options) const {
    return run_lockstep(words_of(command + " --data.path " + file() + " " + options));
  }
  ProcessResult plan(const std::string& options) const { return run("plan", options); }
};

/// The number after a text, with its unit of bytes if it has one.
double after(const std::string& text, const std::string& what) {
  const auto at = text.rfind(what);
  CAPTURE(text);
  REQUIRE(at != std::string::npos);
  std::istringstream in(text.substr(at + what.size()));
  double value = 0;
  std::string unit;
  in >> value >> unit;
  const std::map<std::string, int> powers = {{"KiB", 1}, {"MiB", 2}, {"GiB", 3}, {"TiB", 4}, {"PiB", 5}};
  const auto found = powers.find(unit);
  return found == powers.end() ? value : std::ldexp(value, 10 * found->second);
}

}  // namespace

TEST_SUITE("apps.plan") {
  TEST_CASE("plan refuses what train refuses, with the same message") {
    const Data sessions("synth-sequences --users 12"), column("synth-icecolumn --rows 300"),
        windows("synth-har --subjects 6 --seconds 10"), graph("synth-kg --users 13"), puzzles("synth-sudoku");
    const std::string shard = "--model.kind sasrec --loss.name softmax --dist.items shard";
    struct Case {
      const Data& data;
      std::string options, message;
    };
    for (const Case& c : std::initializer_list<Case>{
             {sessions, shard + " --dist.shards 6", "dist.shards = 6 must be a power of two"},
             {sessions, shard + " --batch.accumulate 2",
              "batch.accumulate = 2; set batch.accumulate = 1, or dist.items = replicate"},
             {sessions, shard + " --dist.compress bf16",
              "dist.compress = bf16; set dist.compress = none, or dist.items = replicate"},
             {sessions, "--model.kind sasrec --batch.size 4000",
              "a batch of 4000 is larger than the 12 training samples"},
             {column, "--model.kind emulator --loss.constraint bogus(",
              "option loss.constraint: at character 7: a value is missing"},
             {column, "--model.kind emulator --batch.size 241",
              "a batch of 241 is larger than the 240 training samples"},
             {puzzles, "--model.kind hrm --batch.size 32 --tries 4 --eval.max_samples 8",
              "with eval.tries = 4 an evaluation tries all puzzles; set eval.max_examples instead"},
             {puzzles, "--model.kind hrm --data.group_visits 9223372036854775807",
              "option data.group_visits = 9223372036854775807: must be 1..1000000000"},
             {sessions, "--model.kind sasrec --batch.accumulate 9223372036854775807",
              "option batch.accumulate = 9223372036854775807: must be 1..1000000"},
             {graph, "--model.kind kgat --eval.k 20,1e12", "option eval.k = '20,1e12': must be 1..1000000"},
             {sessions, "--model.kind sasrec --eval.k 5,10,5",
              "option eval.k: must have at least one K, and none twice"},
             {sessions, "--model.kind sasrec --num_blocks 1000000000",
              "option model.num_blocks = 1000000000: must be 1..1000"},
             {sessions, "--model.kind tisasrec --mhc streams --mhc-expansion-rate 1e9",
              "option model.mhc_expansion_rate = 1e9: must be 1..8"},
             {graph, "--model.kind kgat --model.conv_dims 64,1e9",
              "option model.conv_dims = '64,1e9': must be 1..1000000"},
             {graph, "--model.kind bprmf --model.embed_dim 1e12", "option model.embed_dim = 1e12: must be 1..1000000"},
             {puzzles, "--model.kind hrm --model.h_cycles 1e9", "option model.h_cycles = 1e9: must be 1..1000"},
             {puzzles, "--model.kind hrm --model.expansion 1e300",
              "option model.expansion = 1e300: must be 1e-06..1000"},
             {windows, "--model.kind har --model.layers 1e9", "option model.layers = 1e9: must be -1..1000"},
             {windows, "--model.kind har --model.hidden 64,9e9",
              "option model.hidden = 64,9e9: must be widths from 1 to "},
             {windows, "--model.kind har --batch.size 4000", "a batch of 4000 is larger than the "},
             {windows, "--model.kind har --data.percent 10 --batch.size 7", "larger than the 6 training samples"},
             {graph, "--model.kind kgat --optim.name sgd", "is trained by adam without weight decay"},
             {graph, "--model.kind bprmf --optim.lazy", "is trained by adam that moves every row"},
             {graph, "--model.kind kgat --model.storage bf16 --run.precision fp64",
              "option model.storage = bf16: needs run.precision = fp32"}}) {
      CAPTURE(c.options);
      const ProcessResult planned = c.data.plan(c.options),
                          trained = c.data.run("train", c.options + " --run-dir " + (c.data.dir / "run").string());
      CAPTURE(planned.out);
      CHECK(planned.exit_code == 2);
      CHECK(trained.exit_code == 2);
      check_mentions(planned.err, c.message);
      check_mentions(trained.err, c.message);
    }
    // A machine without a GPU refuses to train for that reason.
    check_ended(column.plan("--model.kind emulator --batch.size 40 --run.device cuda --loss.constraint max(0,-hi)"), 2,
                "constraints run on the processor only");
    const ProcessResult ranks = sessions.plan(shard + " --dist.shards 4 --ranks 8");
    check_ended(ranks, 2, "at least the number of ranks, 8");
    CHECK(windows.plan("--model.kind har --data.percent 10 --batch.size 6").exit_code == 0);
  }

  TEST_CASE("plan knows the training windows of folds and shares of classes that train draws") {
    const Data data("synth-har --subjects 7 --seconds 12");
    for (const std::string options : {"--data.percent 30", "--data.folds 3 --data.fold 2 --data.percent 13"}) {
      CAPTURE(options);
      const std::string run = "--model.kind har --batch.size 1 --model.layers 1 " + options;
      const ProcessResult trained =
          succeeded(data.run("train", run + " --steps 1 --eval.final none --run-dir " + (data.dir / "run").string()));
      const std::string planned = data.plan(run).out;
      CAPTURE(planned);
      // One window per step.
      CHECK(contains(planned, join("  ", after(trained.err, "data.h5: "), " steps per epoch")));
      fs::remove_all(data.dir / "run");
    }
  }

  TEST_CASE("each of several ranks needs memory for a copy of a divided state") {
    const Data data("synth-sudoku");
    const auto plan = [&](const std::string& options) {
      return succeeded(data.plan("--model.kind hrm --model.hidden_size 128 --batch.size 32 " + options)).out;
    };
    const std::string two = plan("--ranks 2"), without = plan("--ranks 2 --checkpoint.partner_steps 0");
    const double copy = after(two, "copy of the state"), file = after(two, "a checkpoint");
    CHECK(copy == doctest::Approx(file).epsilon(0.05));
    CHECK(after(two, "\n  sum") - after(without, "\n  sum") == doctest::Approx(2 * copy).epsilon(0.05));
    for (const std::string& none : {without, plan("--ranks 1")}) CHECK(!contains(none, "copy of the state"));
  }

  TEST_CASE("a run with the largest batch fits into the memory, one with a larger batch does not") {
    const Data data("synth-sequences --users 50");
    // What the owners of the items gather for each sample grows with the number of shards. Activations do not.
    const std::string model =
        "--model.kind sasrec --model.hidden_units 8 --model.maxlen 10 --loss.name softmax --dist.items shard "
        "--batch.size 1 --run.threads 1 --dist.shards ";
    bool found = false;
    for (int power = 10; power < 34 && !found; ++power) {
      const std::string options = model + std::to_string(std::int64_t{1} << power);
      CAPTURE(options);
      const ProcessResult r = succeeded(data.plan(options));
      if (r.out.find("too little") != std::string::npos) break;
      const double largest = after(r.out, "largest batch:");
      if (largest >= 50) continue;
      found = true;
      CAPTURE(largest);
      const auto with = [&](double batch) {
        const std::string text = data.plan(options + " --batch.size " + join(batch)).out;
        return std::pair(after(text, "\n  sum"), after(text, "this machine has"));
      };
      const auto [fits, memory] = with(largest);
      CHECK(fits <= memory * 1.01);  // printed with one digit after the point
      if (largest < 49) CHECK(with(largest + 1).first > memory * 0.99);
    }
    CHECK(found);
  }

  TEST_CASE("plan names the threads that a reproducible run leaves without a shard, and the number of shards to set") {
    const Data column("synth-icecolumn --rows 300"), graph("synth-kg --users 13");
    const std::string many = "--batch.size 40 --reproducible --ranks 4 --ranks-per-node 1 --threads 40";
    const std::string emulator = column.plan("--model.kind emulator " + many).out;
    check_mentions(emulator,
                   "warning: run.reproducible: 16 shards keep 16 of 160 threads busy; set dist.shards = 256 ");
    for (const char* options : {"--dist.shards 256", "--no-reproducible", "--threads 4"})
      CHECK_FALSE(contains(column.plan("--model.kind emulator " + many + " " + options).out, "warning"));
    CHECK_FALSE(contains(graph.plan("--model.kind kgat " + many).out, "warning"));
    const Data windows(
        "synth-har");  // a shard has at least one window, or, of single channels, as many as a window has
    check_mentions(windows.plan("--model.kind har " + many).out, "32 shards keep 32 of 160 threads busy");
    CHECK_FALSE(contains(windows.plan("--model.kind har " + many + " --batch.size 256").out, "warning"));
    check_mentions(windows.plan("--model.kind har --model.mode independent " + many + " --batch.size 256").out,
                   "16 shards keep 16 of 160 threads busy");
  }

  TEST_CASE("the rate is that of the last training record; a line that is no record ends the reading") {
    const Data data("synth-sequences --users 12");
    const std::string line = R"({"step":5,"epoch":1,"split":"train","samples_per_s":250})";
    write_text(data.dir / "metrics.jsonl", line + "\n" + R"({"step":1,"split":5})" + "\n");
    const ProcessResult r = data.plan("--model.kind sasrec --batch.size 2 --run-dir " + data.dir.path().string());
    CAPTURE(r.err);
    CHECK(r.exit_code == 0);
    check_mentions(r.out, "at 250 samples/s (measured in ", ", on an unknown number of ranks): ");
  }

  TEST_CASE("a rate that other ranks have measured is called so") {
    const Data data("synth-sequences --users 12");
    const std::string run =
        "--model.kind sasrec --batch.size 2 --steps 2 --train.log_every 1 --run-dir " + (data.dir / "run").string();
    succeeded(data.run("train", run + " --eval.final none"));
    check_mentions(succeeded(data.plan(run)).out, "samples/s (measured in ", "/run on 1 rank): ");
    check_mentions(succeeded(data.plan(run + " --ranks 4")).out, "/run on 1 rank, the rate of 4 ranks will differ): ");
  }

  TEST_CASE("only the plan for a GPU lists a copy of the data set in its memory") {
    for (const auto& [source, kind] :
         {std::pair("synth-sudoku --order 2 --train 30 --test 5", "hrm"),
          std::pair("synth-icecolumn --rows 300", "emulator"), std::pair("synth-sequences --users 30", "sasrec"),
          std::pair("synth-kg --users 13", "kgat")}) {
      CAPTURE(kind);
      const Data data(source);
      const std::string options = join("--batch.size 4 --model.kind ", kind);
      const std::string on_cpu = succeeded(data.plan(options)).out;
      CHECK_FALSE(contains(on_cpu, "GPU"));
      check_mentions(succeeded(data.plan(options + " --run.device cuda")).out, "a copy in the GPU's memory");
    }
  }

  TEST_CASE("on GPUs the precision is that of the publication, unless it is named") {
    const Data puzzles("synth-sudoku --order 2 --train 30 --test 5"), windows("synth-har --subjects 4 --seconds 10");
    const std::string half = "bf16, as operations read them";
    for (const auto& [data, options, published] :
         {std::tuple(&puzzles, std::string("--model.kind hrm --batch.size 4"), true),
          std::tuple(&windows, std::string("--model.kind har --batch.size 4 --model.input image"), true),
          std::tuple(&windows, std::string("--model.kind har --batch.size 4"), false)}) {
      CAPTURE(options);
      const auto plan = [&](const char* more) { return succeeded(data->plan(options + more)).out; };
      CHECK(contains(plan(" --run.device cuda"), half) == published);
      CHECK(contains(plan(" --run.device cuda --precision bf16"), half));
      CHECK_FALSE(contains(plan(" --run.device cuda --precision fp32"), half));
      CHECK_FALSE(contains(plan(""), half));
      check_ended(data->plan(options + " --precision bf16"), 2,
                  "option run.precision = bf16: only with run.device = cuda");
    }
  }

  TEST_CASE("the memory of the planned nodes can be given") {
    const Data data("synth-sequences --users 12");
    const std::string options = "--model.kind sasrec --batch.size 2 ";
    check_mentions(succeeded(data.plan(options + "--node-memory 192")).out, "--node-memory",
                   "192.0 GiB  largest batch: ");
    check_mentions(succeeded(data.plan(options + "--memory 0.001")).out, "1.0 MiB  too little for this configuration");
    check_mentions(succeeded(data.plan(options + "--memory 80 --run.device cuda")).out, "80.0 GiB  largest batch: ");
  }
}
