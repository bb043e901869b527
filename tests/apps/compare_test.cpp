#include <nlohmann/json.hpp>

#include "lockstep/report/run_records.hpp"
#include "support/test.hpp"

namespace {

/// The files of a finished run that compare reads.
struct FakeRun {
  std::string kind = "sasrec", config = {};  ///< further lines of config.ini
  int seed = 1;
  double ndcg = 0.5;
  std::string protocol = "test, 9 users, full ranking of 5 items", hash = "aaaa";
};

EvalRecord evaluation(const FakeRun& run, const std::string& weights) {
  return {.step = 100,
          .epoch = 5,
          .split = "test",
          .metrics = {{"ndcg@10", run.ndcg}, {"hr@10", 2 * run.ndcg}, {"mrr@10", 0.1}, {"ties", 0}},
          .protocol = run.protocol,
          .data_file = run.hash + ".h5",
          .data_hash = run.hash,
          .weights = weights,
          .time = 1000};
}

/// Writes a run directory and returns its name.
std::string add(const std::string& name, const FakeRun& run, bool finished = true) {
  fs::create_directories(name);
  write_text(name + "/config.ini", join("model.kind = ", run.kind, "\nrun.seed = ", run.seed, "\ndata.path = /data/",
                                        name, ".h5\n", run.config));
  StepRecord last{.step = 100, .epoch = 5, .lr = 0.1, .seconds = 60, .phases = {}, .metrics = {}, .time = 900};
  write_text(fs::path(name) / kMetricsFile, record_line(last) + (finished ? record_line(evaluation(run, "best")) : ""));
  return name;
}

ProcessResult compare(const Words& words) { return run_lockstep(Words{"compare"} + words); }
nlohmann::json compared(const Words& words) {
  return nlohmann::json::parse(succeeded(compare(words + Words{"--json"})).out);
}
void refused(const std::vector<std::string>& words, int code, const std::vector<std::string>& parts) {
  const ProcessResult r = compare(words);
  CHECK(r.exit_code == code);
  CHECK(r.out.empty());
  for (const std::string& part : parts) check_mentions(r.err, part);
}

}  // namespace

TEST_SUITE("apps.compare") {
  TEST_CASE("runs that differ in the seed alone form a row, and rows are compared seed by seed") {
    std::vector<std::string> all;
    const double bce[] = {0.10, 0.13, 0.11}, softmax[] = {0.22, 0.23, 0.24};
    for (int seed = 1; seed <= 3; ++seed) {
      all.push_back(add(join("bce-", seed), {.seed = seed, .ndcg = bce[seed - 1]}));
      all.push_back(add(join("softmax-", seed),
                        {.config = "loss.kind = softmax\nrun.threads = 3\n", .seed = seed, .ndcg = softmax[seed - 1]}));
    }
    const nlohmann::json found = compared(all);
    REQUIRE(found["rows"].size() == 2);
    CHECK(found["metrics"] == nlohmann::json{"ndcg@10", "hr@10", "mrr@10"});
    const nlohmann::json& a = found["rows"][0]["metrics"]["ndcg@10"];
    // Deviation sqrt(7/30000); quantile of two degrees of freedom 4.302653.
    CHECK(a["mean"].get<double>() == Approx(0.34 / 3));
    CHECK(a["half_width"].get<double>() == Approx(4.3026527 * std::sqrt(7.0 / 30000 / 3)));
    // Differences 0.12, 0.10, 0.13: t = 13.2288.
    const nlohmann::json& d = found["differences"][0];
    CHECK(d["seeds"] == nlohmann::json{"1", "2", "3"});
    CHECK(d["metrics"]["ndcg@10"]["mean"].get<double>() == Approx(0.35 / 3));
    CHECK(d["metrics"]["ndcg@10"]["p"].get<double>() == Approx(0.005665).epsilon(1e-3));
    CHECK(found["keys"] == nlohmann::json{{"loss.name", {{"A", "bce"}, {"B", "softmax"}}}});

    const std::string text = compare(all).out;
    check_mentions(text, "sasrec, aaaa.h5 (aaaa)", "weights best, seeds 1, 2, 3", "0.113 ± 0.038", "0.230 ± 0.025",
                   "+0.117 ± 0.038, p 0.0057", "B - A", "1m00s", "loss.name  bce  softmax");
    all.emplace_back("--markdown");
    check_mentions(compare(all).out, "| A | sasrec | aaaa.h5 (aaaa) | test, 9 users, full ranking of 5 items | best |",
                   "|---|", "| B - A | 1, 2, 3 | +0.117 ± 0.038, p 0.0057 |");
  }

  TEST_CASE("a single run is a row without an interval") {
    const std::string one = add("one", {});
    const nlohmann::json found = compared({one, "--metric", "hr@10"});
    CHECK(found["rows"].size() == 1);
    CHECK(found["differences"].empty());
    CHECK(found["rows"][0]["metrics"]["hr@10"]["half_width"].is_null());
    check_mentions(compare({one}).out, "a row of one seed has no interval", "seed 1");
  }

  TEST_CASE("there is no test across data, protocols or other seeds, and the output says why") {
    std::vector<std::string> all;
    for (int seed = 1; seed <= 2; ++seed) {
      all.push_back(add(join("a", seed), {.seed = seed}));
      all.push_back(add(join("b", seed), {.seed = seed, .hash = "bbbb"}));
      all.push_back(add(join("c", seed), {.seed = seed, .protocol = "test, 9 users, sampled-100 ranking"}));
      all.push_back(add(join("d", seed), {.config = "optim.lr = 7\n", .seed = seed + 1}));
    }
    const nlohmann::json found = compared(all);
    CHECK(found["rows"].size() == 4);
    for (const nlohmann::json& d : found["differences"]) CHECK_FALSE(d.contains("metrics"));
    check_mentions(compare(all).out, "their data differ: aaaa.h5 (aaaa) and bbbb.h5 (bbbb)",
                   "their protocols differ: test, 9 users, full ranking of 5 items and test, 9 users, sampled-100",
                   "they share 1");
  }

  TEST_CASE("a newer evaluation replaces one, another protocol or checkpoint adds a row, old weights add none") {
    const std::string run = add("run", {});
    add_evaluation(run, evaluation({.ndcg = 0.7}, "best"));
    add_evaluation(run, evaluation({.ndcg = 0.8}, "step-50"));
    add_evaluation(run, evaluation({.ndcg = 0.9, .protocol = "test, sampled-100"}, "best"));
    const nlohmann::json found = compared({run});
    REQUIRE(found["rows"].size() == 3);
    for (int i = 0; i < 3; ++i)
      CHECK(found["rows"][i]["metrics"]["ndcg@10"]["mean"].get<double>() == Approx(0.7 + 0.1 * i));
    // The run continued after these evaluations: best.h5 is another file.
    const std::string late = add("late", {});
    StepRecord last{.step = 200, .epoch = 9, .lr = 0.1, .phases = {}, .metrics = {}, .time = 2000};
    const EvalRecord old = evaluation({.ndcg = 0.6, .protocol = "test, sampled-100"}, "best");
    write_text(fs::path(late) / kEvaluationsFile, record_line(old));
    EvalRecord end = evaluation({.ndcg = 0.7}, "best");
    write_text(fs::path(late) / kMetricsFile, record_line(last) + record_line(end));
    refused({late}, 2, {"has not finished: step 200, epoch 9.00, last record"});
    end.step = 200, end.time = 2001;
    write_text(fs::path(late) / kMetricsFile, record_line(last) + record_line(end));
    CHECK(compared({late})["rows"].size() == 1);
  }

  TEST_CASE("the keys that differ are those of both kinds, not the kind alone") {
    const std::string a = add("a", {.config = "optim.lr = 7\nrun.threads = 3\nmodel.mhc = streams\n"}),
                      b = add("b", {.kind = "tisasrec", .config = "model.time_span = 9\n"}),
                      c = add("c", {.kind = "kgat", .config = "model.embed_dim = 9\n"});
    const nlohmann::json keys = compared({a, b, c})["keys"];
    CHECK(keys["model.kind"] == nlohmann::json{{"A", "sasrec"}, {"B", "tisasrec"}, {"C", "kgat"}});
    CHECK(keys["optim.lr"] == nlohmann::json{{"A", "7"}, {"B", "0.001"}, {"C", "1e-04"}});
    CHECK(keys["model.mhc"] == nlohmann::json{{"A", "streams"}, {"B", "none"}, {"C", "-"}});
    CHECK(keys["model.time_span"] == nlohmann::json{{"A", "256"}, {"B", "9"}, {"C", "-"}});
    CHECK(keys["model.embed_dim"] == nlohmann::json{{"A", "-"}, {"B", "-"}, {"C", "9"}});
    CHECK_FALSE(keys.contains("run.threads"));
    CHECK_FALSE(keys.contains("data.path"));
  }

  TEST_CASE("precision, compression, and devices where batch or learning rate depend on them, decide the results") {
    const std::string rank = "batch.per_rank = 8\ndist.parallel = dp\n", two = "dist.replicas = 2\n",
                      plain = add("plain", {});
    for (const auto& [config, key] :
         {std::pair("run.precision = fp64\n", "run.precision"), std::pair("dist.compress = bf16\n", "dist.compress")}) {
      CAPTURE(config);
      for (const int seed : {1, 2}) {  // equal seeds are no error, others are not pooled
        const nlohmann::json found = compared({plain, add(join(key, seed), {.config = config, .seed = seed})});
        CHECK(found["rows"].size() == 2);
        CHECK(found["keys"].size() == 1);
        CHECK(found["keys"].contains(key));
      }
    }
    const nlohmann::json found = compared({add("one", {.config = rank}), add("two", {.config = rank + two})});
    CHECK(found["rows"].size() == 2);
    CHECK(found["keys"] == nlohmann::json{{"devices", {{"A", "1"}, {"B", "2"}}}});
    const nlohmann::json scaled =
        compared({add("s1", {.config = "optim.scale_lr = linear\ndist.parallel = dp\n"}),
                  add("s2", {.config = "optim.scale_lr = linear\ndist.parallel = dp\n" + two, .seed = 2})});
    CHECK(scaled["rows"].size() == 2);
    // With a batch of all devices together, their number changes nothing.
    refused({plain, add("global", {.config = "dist.parallel = dp\n" + two})}, 2, {"the same configuration"});
    refused({plain, add("named", {.config = "run.precision = fp32\n"})}, 2, {"the same configuration"});  // auto here
  }

  TEST_CASE("best-N.h5 and final.h5 from before a run continued do not count; step-N.h5 stays as it is") {
    const std::string run = add("run", {});
    StepRecord last{.step = 200, .epoch = 9, .lr = 0.1, .phases = {}, .metrics = {}, .time = 2000};
    EvalRecord end = evaluation({.ndcg = 0.7}, "best");
    end.step = 200, end.time = 2001;
    write_text(fs::path(run) / kMetricsFile, record_line(last) + record_line(end));
    std::string old;
    for (const char* weights : {"best", "best-2", "final", "step-100"}) old += record_line(evaluation({}, weights));
    write_text(fs::path(run) / kEvaluationsFile, old);
    const nlohmann::json found = compared({run});
    REQUIRE(found["rows"].size() == 2);
    CHECK(found["rows"][0]["weights"] == "best");
    CHECK(found["rows"][0]["metrics"]["ndcg@10"]["mean"] == 0.7);
    CHECK(found["rows"][1]["weights"] == "step-100");
  }

  TEST_CASE("an added evaluation with other metrics leaves those of the run") {
    const std::string run = add("run", {});
    EvalRecord more = evaluation({}, "best");
    more.metrics = {{"ndcg@7", 0.2}, {"hr@10", 0.9}};
    add_evaluation(run, more);
    const nlohmann::json found = compared({run});
    REQUIRE(found["rows"].size() == 1);
    const nlohmann::json& values = found["rows"][0]["runs"][0]["metrics"];
    CHECK(values["ndcg@7"] == 0.2);
    CHECK(values["hr@10"] == 0.9);  // the newest
    CHECK(values["ndcg@10"] == 0.5);
  }

  TEST_CASE("the best validation has its own metrics, not those of an earlier one") {
    const std::string run = add("run", {});
    std::string lines = read_text(fs::path(run) / kMetricsFile);
    for (const std::int64_t step : {50, 100}) {
      EvalRecord best = evaluation({.ndcg = 0.01 * static_cast<double>(step)}, "");
      best.step = step, best.split = "validation", best.best = true;
      if (step == 50) best.metrics.push_back({"jacobian.mean_abs_gradient", 0.3});
      lines += record_line(best);
    }
    write_text(fs::path(run) / kMetricsFile, lines);
    const nlohmann::json found = compared({run, "--split", "val"});
    REQUIRE(found["rows"].size() == 1);
    CHECK(found["rows"][0]["runs"][0]["metrics"]["ndcg@10"] == 1);
    CHECK_FALSE(found["rows"][0]["runs"][0]["metrics"].contains("jacobian.mean_abs_gradient"));
  }

  TEST_CASE("there is no test of differences that are equal in all seeds") {
    std::vector<std::string> all;
    const double a[] = {0.51, 0.53}, b[] = {0.52, 0.54};  // 0.52 - 0.51 and 0.54 - 0.53 differ in their last bits
    for (int seed = 1; seed <= 2; ++seed) {
      all.push_back(add(join("a", seed), {.seed = seed, .ndcg = a[seed - 1]}));
      all.push_back(add(join("b", seed), {.config = "optim.lr = 7\n", .seed = seed, .ndcg = b[seed - 1]}));
    }
    const nlohmann::json d = compared(all)["differences"][0]["metrics"];
    CHECK(d["ndcg@10"]["p"].is_null());
    CHECK(d["mrr@10"]["p"].is_null());
    const std::string text = compare(all).out;
    check_mentions(text, "+0.01, equal in all seeds", "+0, equal in all seeds");
    CHECK(text.find(", p ") == std::string::npos);
  }

  TEST_CASE("of directories that hold several runs, the runs to compare are named") {
    const std::string folds = add("cv", {.kind = "har", .config = "data.folds = 3\n", .protocol = ""}),
                      ensemble = add("many", {.kind = "emulator", .config = "ensemble.members = 3\n"}, false);
    fs::create_directory(fs::path(folds) / "fold-1");
    refused({folds}, 2, {"a cross-validation", "cv/fold-1 OTHER/fold-1", "folds.json"});
    refused({ensemble}, 2, {"an ensemble", "many/member-*"});
  }

  TEST_CASE("what cannot be compared is named") {
    const std::string run = add("run", {});
    refused({"."}, 2, {"is not a run directory: it has no config.ini"});
    refused({run, add("cut", {}, false)}, 2, {"cut' has not finished: step 100, epoch 5.00, last record"});
    refused({run, add("twin", {.config = "run.threads = 5\n"})}, 2, {"run' and '", "twin'", "and seed 1"});
    refused({run, "--metric", "recall@20"}, 2, {"option metric = recall@20: '", "run' has no such metric"});
    refused({run, "--split", "val"}, 2, {"holds no validation metrics", "--split val --record"});
    refused({add("bad", {.config = "[optim\n"})}, 3, {"the configuration of '", "config.ini:4"});
    refused({add("old", {.protocol = ""})}, 2, {"an older version wrote them", "--record"});
    const std::string other = add("other", {.kind = "emulator"});
    EvalRecord rmse = evaluation({}, "best");
    rmse.metrics = {{"rmse", 0.5}};
    write_text(fs::path(other) / kMetricsFile, record_line(rmse));
    refused({run, other}, 2, {"no metric in common", "ndcg@10, hr@10", "rmse"});
  }
}
