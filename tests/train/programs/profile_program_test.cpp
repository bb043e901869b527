#include <nlohmann/json.hpp>

#include "lockstep/io/atomic_file.hpp"
#include "program.hpp"
#include "support/test.hpp"

namespace {

using Json = nlohmann::json;

/// A timeline that was read from its file.
struct Trace {
  std::map<std::pair<int, int>, std::vector<Json>> threads;  ///< spans by rank and thread
  std::set<std::string> names;
  std::set<std::int64_t> steps;
};

/// Reads a trace and checks what holds for each: all ranks and threads are there, and the spans of a thread nest.
Trace read_trace(const fs::path& file, int ranks, int threads) {
  Trace trace;
  const Json json = Json::parse(lockstep::read_text_file(file));
  for (const Json& e : json["traceEvents"]) {
    if (e["ph"] != "X") continue;
    trace.threads[{e["pid"], e["tid"]}].push_back(e);
    trace.names.insert(e["cat"].get<std::string>() + " " + e["name"].get<std::string>());
    if (e["name"] == "step") trace.steps.insert(e["args"]["number"].get<std::int64_t>());
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (int thread = 0; thread < threads; ++thread) CHECK(trace.threads.count({rank, thread}) == 1);
  // Whole nanoseconds: the sums of times in microseconds are rounded.
  const auto ns = [](const Json& value) { return std::llround(1000 * value.get<double>()); };
  for (auto& [place, spans] : trace.threads) {
    std::ranges::stable_sort(spans, {}, [&](const Json& e) { return std::pair(ns(e["ts"]), -ns(e["dur"])); });
    std::vector<std::int64_t> ends;
    bool nested = true;
    for (const Json& e : spans) {
      const std::int64_t begin = ns(e["ts"]), end = begin + ns(e["dur"]);
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      nested = nested && end >= begin && (ends.empty() || end <= ends.back());
      ends.push_back(end);
    }
    CAPTURE(place.first);
    CAPTURE(place.second);
    CHECK(nested);
  }
  return trace;
}

/// Prepares data with `lockstep-prep`, trains on 4 ranks and reads the timeline.
Trace profiled(const std::string& prep, const std::string& options, const std::string& steps) {
  const std::string data = "data.h5";
  check_ended(run_process(words_of(program_path("lockstep-prep") + " " + prep + " --output " + data)), 0);
  check_ended(lockstep_program(4, 2,
                               words_of("train --data.path " + data +
                                        " --run-dir run --threads 1 --epochs 1 --profile " + steps + " " + options)),
              0, "the slowest is rank");
  std::string file = "profile-" + steps + ".json";
  file.replace(file.find(".."), 2, "-");
  CHECK(contains(lockstep::read_text_file("run/report.html"), "Timeline of step"));
  return read_trace(fs::path("run") / file, 4, 1);
}

void check_names(const Trace& trace, const Words& names) {
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(trace.names.count(name) == 1);
  }
}

Words small_emulator(const std::string& run) {
  return words_of("train --data.path data.h5 --run-dir " + run +
                  " --epochs 2 --batch.size 50 --model.hidden_size 8 --checkpoint.every_steps 3");
}

}  // namespace

TEST_SUITE("train.programs.profile") {
  TEST_CASE("an emulator's profile has steps, operations, buckets, the optimizer, an evaluation and a checkpoint") {
    write_data(400);
    const Words more = {"--threads", "2", "--profile", "7..13", "--dist.bucket_bytes", "256"};
    check_ended(lockstep_program(4, 2, small_emulator("run") + more), 0);
    const Trace trace = read_trace("run/profile-7-13.json", 4, 2);
    CHECK(trace.steps == std::set<std::int64_t>{7, 8, 9, 10, 11, 12, 13});
    check_names(trace, {"phase step", "phase compute", "phase reduce", "phase update", "phase optimizer", "phase shard",
                        "phase batch", "forward linear", "backward linear", "forward regression_loss",
                        "collective gradient bucket 0", "collective gradient bucket 1", "phase evaluate",
                        "phase evaluation block", "phase checkpoint", "phase write the checkpoint"});
    CHECK(trace.threads.size() > 8);  // with the thread that writes checkpoints
  }

  TEST_CASE("a profile of kgat has the phases of both losses") {
    check_names(
        profiled("synth-kg --seed 7 --users 60", "--model.kind kgat --batch.size 256", "2..6"),
        {"phase step", "phase interactions", "phase batch", "forward spmm", "backward spmm", "forward aggregate",
         "backward aggregate", "forward bpr", "forward transr", "phase triples", "phase lazy_adam", "phase update"});
  }

  TEST_CASE("a profile of hrm has slots, segments and levels") {
    check_names(profiled("synth-sudoku --order 2 --train 40 --test 12 --min-givens 6 --max-givens 9",
                         "--model.kind hrm --batch.size 16 --model.hidden_size 16 --model.num_heads 2 "
                         "--model.expansion 1 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 4 "
                         "--data.group_visits 2",
                         "2..3"),
                {"phase slots", "phase segment", "phase level", "phase level without gradient", "forward swiglu",
                 "backward swiglu", "forward attention", "backward attention", "collective puzzle identifiers"});
  }

  TEST_CASE("profiles of tisasrec and har have the operations of their networks") {
    check_names(profiled("synth-sequences --users 150 --min-length 12 --max-length 30 --seed 3",
                         "--model.kind tisasrec --batch_size 64 --maxlen 20 --hidden_units 12 --num_heads 2", "2..3"),
                {"phase batch", "forward causal_attention", "backward causal_attention", "forward embedding",
                 "backward layernorm", "forward sampled_cross_entropy"});
    fs::remove_all("run");
    check_names(profiled("synth-har --subjects 8",
                         "--model.kind har --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 "
                         "--model.hidden 16 --batch-size 16",
                         "2..4"),
                {"phase batch", "forward stem", "backward attention", "forward token_pool", "backward cross_entropy"});
  }

  TEST_CASE("an impossible range is an error, a past one is not") {
    write_data(400);
    const auto train = [&](const std::string& run, const Words& more) {
      return lockstep_program(1, 1, small_emulator(run) + more);
    };
    for (const auto& [range, why] :
         {std::pair("9..4", "the first step is after the last; use 4..9"), std::pair("0..4", "counted from 1"),
          std::pair("5", "a range of steps"), std::pair("10..17", "the run ends after step 16")})
      check_ended(train("bad", {"--profile", range}), 2, why);
    CHECK(contains(train("twice", {"--profile", "1..2", "--profile", "3..4"}).err, "given twice"));
    CHECK(fs::exists("twice/profile-3-4.json"));

    // A run that continues within the range, and one that continues after it.
    REQUIRE(train("resumed", {"--train.steps", "6"}).exit_code == 0);
    check_ended(train("resumed", {"--profile", "4..9", "--train.steps", "12"}), 0, "steps 7 to 9 are recorded");
    CHECK(read_trace("resumed/profile-7-9.json", 1, 1).steps == std::set<std::int64_t>{7, 8, 9});
    check_ended(train("resumed", {"--profile", "4..9", "--train.steps", "14"}), 0, "nothing is recorded");
  }

  TEST_CASE("bench writes the timeline of further steps") {
    check_ended(lockstep_program(2, 1,
                                 {"bench", "--synthetic", "--rows", "2000", "--seconds", "0.1", "--train.steps", "3",
                                  "--warmup", "1", "--profile", "bench.json"}),
                0, "a recorded step takes");
    CHECK(read_trace("bench.json", 2, 1).steps.size() == 10);
  }
}
