#include "lockstep/report/run_log.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "report/tensorboard.hpp"
#include "support/event_reader.hpp"
#include "support/test.hpp"

namespace {

struct Config {
  double lr = 0;
  int batch = 0;
  std::string dir;
  int threads = 0;
};
Options table(Config& c) {
  Options o("lockstep train", "Train");
  o.add("optim.lr", &c.lr, 0.001, positive, "learning rate");
  o.add("batch.size", &c.batch, 100, positive, "rows per step");
  o.add("run.dir", &c.dir, "", "directory").may_change();
  o.add("run.threads", &c.threads, 0, "threads").may_change();
  return o;
}
/// Opens the directory; returns the configuration.
std::string open(const fs::path& dir, const std::vector<std::string>& args, RunStart start = RunStart::resume) {
  Config c;
  Options o = table(c);
  CHECK(o.parse(args));
  open_run_directory(dir, o, start);
  return o.ini();
}
/// Opens the directory and starts the log of a run in it.
void begin(const fs::path& dir, const std::vector<std::string>& args) {
  const RunLog log(dir, {.title = "", .config = open(dir, args), .facts = {}});
}

RunFacts facts(std::int64_t resumed_at = 0) {
  return {.title = "emulator, icecolumn.h5",
          .steps = 100,
          .steps_per_epoch = 10,
          .resumed_at = resumed_at,
          .config = "[optim]\nlr = 0.001\n",
          .facts = {{"ranks", "2"}, {"batch", "1000 (global)"}}};
}
StepRecord step_record(std::int64_t step) {
  return {.step = step,
          .epoch = static_cast<double>(step) / 10,
          .loss = 1.0 / static_cast<double>(step),
          .lr = 0.001,
          .grad_norm = 0.5,
          .samples_per_s = 84210,
          .seconds = 0.1,
          .phases = {{"data", 0.01}, {"forward_backward", 0.08}, {"reduce", 0.01}},
          .metrics = {}};
}
EvalRecord eval_record(std::int64_t step, const std::string& split = "validation") {
  return {.step = step,
          .epoch = static_cast<double>(step) / 10,
          .split = split,
          .loss = 1.5 / static_cast<double>(step),
          .metrics = {{"rmse.aice", 0.04}, {"r2.aice", 0.96}},
          .samples_per_s = 1e6,
          .seconds = 0.01,
          .best = true};
}
/// Steps first..last, an evaluation after every tenth.
void train(RunLog& log, std::int64_t first, std::int64_t last) {
  for (std::int64_t s = first; s <= last; ++s) {
    log.progress(s, 1.0 / static_cast<double>(s));
    log.record(step_record(s));
    if (s % 10 == 0) log.record(eval_record(s));
  }
}
/// A start that continues after step `resumed_at`, records the steps to `last` and ends with `outcome`; "": is killed.
void run(const fs::path& dir, std::int64_t resumed_at, std::int64_t last, const char* outcome = "") {
  fs::create_directories(dir);
  RunLog log(dir, facts(resumed_at));
  train(log, resumed_at + 1, last);
  if (*outcome != 0) log.finish(outcome);
}

std::vector<nlohmann::json> lines_of(const fs::path& file) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(read_text(file));
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}
/// Everything about a run's records that does not depend on the clock.
std::vector<std::string> records_of(const fs::path& dir) {
  std::vector<std::string> records;
  for (auto line : lines_of(dir / "metrics.jsonl")) {
    line.erase("time");
    records.push_back(line.dump());
  }
  return records;
}
std::vector<std::string> scalars_of(const fs::path& dir) {
  std::vector<std::string> all;
  for (const auto& e : read_event_directory(dir))
    if (e.has_value) all.push_back(join(e.step, " ", e.tag, " ", e.value));
  return all;
}
/// The steps that human-readable lines are about.
std::vector<std::int64_t> logged_steps(const fs::path& file) {
  std::vector<std::int64_t> steps;
  std::istringstream in(read_text(file));
  for (std::string line; std::getline(in, line);)
    if (line.size() > 26 && line.substr(21, 5) == "step ") steps.push_back(std::atoll(line.c_str() + 26));
  return steps;
}
std::string refusal(const fs::path& dir, const std::vector<std::string>& args, Fault fault = Fault::usage) {
  return error_of(fault, [&] { open(dir, args); });
}

}  // namespace

TEST_SUITE("report.run_directory") {
  TEST_CASE("a new directory is made, with its parents, and holds the resolved configuration") {
    open("a/b", {"--optim.lr", "0.125"});
    CHECK_FALSE(fs::exists("a/b/config.ini"));  // the run may still fail to start
    begin("a/b", {"--optim.lr", "0.25"});
    Config c;
    Options o = table(c);
    o.parse_ini(read_text("a/b/config.ini"), "config.ini");
    CHECK(c.lr == 0.25);
  }

  TEST_CASE("a run of another configuration is refused, naming each differing key, and stays as it was") {
    begin(".", {"--optim.lr", "0.25"});
    write_text("metrics.jsonl", "{}\n");
    const std::string before = read_text("config.ini");
    const std::string message = refusal(".", {"--batch.size", "7"});
    check_mentions(message, "optim.lr: 0.25 there, 0.001 here", "batch.size: 100 there, 7 here", "--resume never");
    CHECK(read_text("config.ini") == before);
  }

  TEST_CASE("a start that recorded nothing does not bind the directory to its configuration") {
    begin(".", {"--optim.lr", "0.25"});
    begin(".", {"--optim.lr", "0.5"});
    CHECK(read_text("config.ini").find("lr = 0.5\n") != std::string::npos);
    fs::create_directory("checkpoints");
    write_text("checkpoints/step-1.h5", "weights");
    CHECK(refusal(".", {"--optim.lr", "0.75"}).find("optim.lr: 0.5 there") != std::string::npos);
  }

  TEST_CASE("options that do not change the results may change") {
    begin(".", {"--run.threads", "2", "--run.dir", "x"});
    write_text("metrics.jsonl", "{}\n");
    begin(".", {"--run.threads", "4", "--run.dir", "y"});
    CHECK(read_text("config.ini").find("threads = 4") != std::string::npos);
  }

  TEST_CASE("a fresh start moves all files of the previous run and leaves other files") {
    open(".", {"--optim.lr", "0.25"});
    run(".", 0, 10, "finished");
    fs::create_directories("checkpoints");
    write_text("checkpoints/best.h5", "weights");
    write_text("slurm-1.out", "mine");
    open(".", {"--optim.lr", "0.5"}, RunStart::fresh);
    CHECK(read_text("previous-1/checkpoints/best.h5") == "weights");
    for (const char* name : {"config.ini", "train.log", "val.log", "metrics.jsonl", "report.html"}) {
      CAPTURE(name);
      CHECK(fs::exists(fs::path("previous-1") / name));
    }
    CHECK(scalars_of("previous-1").size() > 0);
    CHECK(scalars_of(".").empty());
    CHECK_FALSE(fs::exists("checkpoints"));
    CHECK(read_text("slurm-1.out") == "mine");
    begin(".", {"--optim.lr", "0.5"});
    open(".", {"--optim.lr", "0.75"}, RunStart::fresh);
    CHECK(read_text("previous-2/config.ini").find("lr = 0.5\n") != std::string::npos);
  }

  TEST_CASE("the runs in folders of a run directory are part of its run") {
    for (const char* folder : {"pretrain", "member-2", "fold-12", "member-x", "members"}) {
      fs::create_directories(folder);
      write_text(fs::path(folder) / "metrics.jsonl", "{}\n");
    }
    write_text("folds.json", "{}");
    begin(".", {"--optim.lr", "0.25"});
    CHECK(refusal(".", {"--optim.lr", "0.5"}).find("optim.lr") != std::string::npos);
    open(".", {"--optim.lr", "0.5"}, RunStart::fresh);
    for (const char* name : {"config.ini", "folds.json", "pretrain", "member-2", "fold-12"}) {
      CAPTURE(name);
      CHECK(fs::exists(fs::path("previous-1") / name));
      CHECK_FALSE(fs::exists(name));
    }
    CHECK(fs::exists("member-x"));
    CHECK(fs::exists("members"));
  }

  TEST_CASE("a fresh start that was killed while it moved the previous run is completed by the next start") {
    fs::create_directories("previous.part");
    fs::create_directories("previous-1");
    write_text("previous.part/config.ini", "[optim]\nlr = 0.25\n");
    fs::create_directories("checkpoints");
    write_text("checkpoints/step-1.h5", "weights");
    write_text("metrics.jsonl", "{}\n");
    begin(".", {"--optim.lr", "0.5"});
    CHECK(read_text("previous-2/config.ini").find("lr = 0.25\n") != std::string::npos);
    CHECK(read_text("previous-2/checkpoints/step-1.h5") == "weights");
    CHECK(fs::exists("previous-2/metrics.jsonl"));
    CHECK_FALSE(fs::exists("previous.part"));
    CHECK_FALSE(fs::exists("checkpoints"));
  }

  TEST_CASE("an unusable run directory is a usage error") {
    write_text("file", "");
    CHECK(refusal("file", {}).find("file'") != std::string::npos);
    CHECK(refusal("file/below", {}).find("Not a directory") != std::string::npos);
    CHECK(refusal("/proc/nowhere", {}).starts_with("creating directory '/proc/nowhere'"));
    fs::permissions(".", fs::perms::owner_read | fs::perms::owner_exec);
    const bool root = ::getuid() == 0;  // root may write anywhere; access() asks for the real user
    if (root) REQUIRE(::setreuid(65534, static_cast<uid_t>(-1)) == 0);
    CHECK(refusal(".", {}).ends_with("cannot write into it: Permission denied"));
    if (root) REQUIRE(::setreuid(0, static_cast<uid_t>(-1)) == 0);
    fs::permissions(".", fs::perms::owner_all);
  }

  TEST_CASE("a damaged config.ini is the file's fault") {
    begin(".", {});
    write_text("metrics.jsonl", "{}\n");
    write_text("config.ini", "[optim\nlr");
    CHECK(refusal(".", {}, Fault::data).find("config.ini:1") != std::string::npos);
  }
}

TEST_SUITE("report.run_log") {
  TEST_CASE("the log of a rank that does not write does nothing") {
    RunLog log;
    CHECK_FALSE(log.writes());
    train(log, 1, 20);
    log.made("x", "y");
    CHECK(log.sync() == "");
    log.finish("done");
  }

  TEST_CASE("metrics.jsonl has one object per record, with its values") {
    RunLog log(".", facts());
    train(log, 1, 10);
    auto odd = step_record(11);
    odd.loss = std::nan("");
    odd.grad_norm = -1;
    odd.metrics = {{"loss_scale", 1024}};
    log.record(odd);
    const auto lines = lines_of("metrics.jsonl");
    REQUIRE(lines.size() == 12);
    CHECK(lines[1]["step"] == 2);
    CHECK(lines[1]["split"] == "train");
    CHECK(lines[1]["loss"] == 0.5);
    CHECK(lines[1]["lr"] == 0.001);
    CHECK(lines[1]["grad_norm"] == 0.5);
    CHECK(lines[1]["samples_per_s"] == 84210);
    CHECK(lines[1]["seconds"]["forward_backward"] == 0.08);
    CHECK(lines[1]["seconds"]["total"] == 0.1);
    CHECK(lines[1]["time"].get<double>() > 1.7e9);
    CHECK(lines[10]["split"] == "validation");
    CHECK(lines[10]["metrics"]["r2.aice"] == 0.96);
    CHECK(lines[10]["best"] == true);
    CHECK(lines[11]["loss"].is_null());
    CHECK_FALSE(lines[11].contains("grad_norm"));
    CHECK(lines[11]["metrics"]["loss_scale"] == 1024);
  }

  TEST_CASE("an evaluation without a loss has none in any file, also after a resume") {
    EvalRecord ranking = eval_record(10);
    ranking.loss = {};
    ranking.metrics = {{"recall@20", 0.25, true}};
    for (const std::int64_t resumed_at : {0, 10}) {
      RunLog log(".", facts(resumed_at));
      train(log, 1, 9);
      log.record(ranking);
      log.finish("done");
      const auto lines = lines_of("metrics.jsonl");
      REQUIRE(lines.size() == 10);
      CHECK_FALSE(lines.back().contains("loss"));
      CHECK(lines.back()["metrics"]["recall@20"] == 0.25);
      CHECK(read_text("val.log").find("validation recall@20 0.25") != std::string::npos);
      const std::string html = read_text("report.html");
      CHECK(html.find("validation recall@20 at the best evaluation (step 10)") != std::string::npos);
      CHECK(html.find("validation loss") == std::string::npos);
      for (const auto& event : read_event_directory(".")) CHECK(event.tag != "loss/validation");
    }
  }

  TEST_CASE("a name that is not UTF-8 is recorded with a replacement character") {
    RunLog log(".", facts());
    EvalRecord latin = eval_record(1);
    latin.metrics = {{"f1.Fu\xdf", 0.5}};
    latin.tables = {{"confusion", {"Fu\xdf"}, {"Fu\xdf"}, {1}}};
    log.record(latin);
    const auto lines = lines_of("metrics.jsonl");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0]["metrics"]["f1.Fu\xef\xbf\xbd"] == 0.5);
    CHECK(lines[0]["tables"]["confusion"]["rows"][0] == "Fu\xef\xbf\xbd");
  }

  TEST_CASE("an existing record is not repeated") {
    RunLog log(".", facts());
    train(log, 1, 10);
    train(log, 8, 12);
    CHECK(lines_of("metrics.jsonl").size() == 13);
    log.record(eval_record(10, "test"));
    CHECK(lines_of("metrics.jsonl").size() == 14);
  }

  TEST_CASE("an interrupted and resumed run leaves the records of an uninterrupted one") {
    const fs::path whole = "whole", parts = "parts";
    run(whole, 0, 40, "finished");
    run(parts, 0, 25);  // the checkpoint was at step 20: five steps are to be done again
    for (const std::int64_t resumed_at : {20, 20, 30})
      run(parts, resumed_at, std::min<std::int64_t>(resumed_at + 17, 40));
    run(parts, 40, 40, "finished");
    CHECK(records_of(parts) == records_of(whole));
    CHECK(scalars_of(parts) == scalars_of(whole));
    CHECK(logged_steps(parts / "train.log") == logged_steps(whole / "train.log"));
    CHECK(logged_steps(parts / "val.log") == logged_steps(whole / "val.log"));
    CHECK(occurrences(read_text(parts / "train.log"), "continued after step 20: ") == 2);
    CHECK(occurrences(read_text(whole / "train.log"), "continued") == 0);
  }

  TEST_CASE("files cut off at any byte are repaired at the next start") {
    const fs::path whole = "whole";
    run(whole, 0, 6);
    const std::string metrics = read_text(whole / "metrics.jsonl");
    fs::path events;
    for (const auto& entry : fs::directory_iterator(whole))
      if (is_event_file(entry.path())) events = entry.path();
    const std::string event_bytes = read_text(events);
    const auto expected = records_of(whole);
    for (std::size_t cut = 0; cut < metrics.size(); cut += 37) {
      CAPTURE(cut);
      const fs::path tmp = join("cut-", cut);
      fs::create_directory(tmp);
      write_text(tmp / "metrics.jsonl", metrics.substr(0, cut));
      const double fraction = static_cast<double>(cut) / static_cast<double>(metrics.size());
      write_text(tmp / events.filename(),
                 event_bytes.substr(0, to_size(fraction * static_cast<double>(event_bytes.size()))));
      run(tmp, 4, 6);
      const auto found = records_of(tmp);
      // Records after the cut are lost; the others are in order, occur once, and the last line is whole.
      REQUIRE(found.size() <= expected.size());
      CHECK(found.back() == expected.back());
      const std::set<std::string> known(expected.begin(), expected.end()), distinct(found.begin(), found.end());
      CHECK(distinct.size() == found.size());
      for (const auto& record : found) CHECK(known.count(record) == 1);
      CHECK(read_event_directory(tmp).size() >= 4);  // throws at the first damaged frame
    }
  }

  TEST_CASE("each line of the program's log goes to train.log once") {
    {
      RunLog log(".", facts());
      log::warning("the dog ate step 3");
      train(log, 1, 3);
      log.finish("stopped by SIGTERM");
    }
    log::warning("this line comes after the run log has gone");
    const std::string text = read_text("train.log");
    CHECK(occurrences(text, "the dog ate step 3\n") == 1);
    CHECK(occurrences(text, "stopped by SIGTERM\n") == 1);
    CHECK(occurrences(text, "step 3/100 epoch 0.30 loss 0.3333 lr 1.00e-03 gnorm 0.5 84.2k samples/s data 10%") == 1);
    CHECK(occurrences(text, "after the run log") == 0);
  }

  TEST_CASE("the console has a table: a header, and a row per evaluation with the metric that decides") {
    std::string said;
    const auto remove_sink = log::add_sink([&](LogLevel, std::string_view line) { said += std::string(line) + "\n"; });
    RunFacts f = facts();
    f.decides = "r2.aice";
    RunLog log(".", f);
    train(log, 1, 20);
    remove_sink();
    CAPTURE(said);
    CHECK(occurrences(said, "   step    epoch   val r2.aice   train loss  samples/s  time left\n") == 1);
    CHECK(occurrences(said, "\n") == 3);
    check_mentions(said, " 10/100     1.00          0.96*         0.1      84.2k ",
                   " 20/100     2.00          0.96*        0.05 ");
  }

  TEST_CASE("val.log has one line per evaluation with its metrics") {
    RunLog log(".", facts());
    log.record(eval_record(10));
    CHECK(read_text("val.log").find("step 10/100 epoch 1.00 validation loss 0.15 rmse.aice 0.04 r2.aice 0.96 best\n") !=
          std::string::npos);
  }

  TEST_CASE("a full disk is one warning that names a file; when there is space again no record is missing") {
    std::string said;
    const auto remove_sink = log::add_sink([&](LogLevel, std::string_view line) { said += std::string(line) + "\n"; });
    RunLog log(".", facts());
    train(log, 1, 3);
    rlimit old{}, tiny{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    tiny = {1024, old.rlim_max};
    const auto previous = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &tiny);
    train(log, 4, 100);
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, previous);
    CHECK(occurrences(said, "writing '.") == 1);
    CHECK(said.find("File too large; the run goes on") != std::string::npos);
    train(log, 101, 102);
    remove_sink();
    std::vector<std::int64_t> all;
    for (std::int64_t step = 1; step <= 102; ++step) all.push_back(step);
    CHECK(logged_steps("train.log") == all);
    CHECK(occurrences(read_text("metrics.jsonl"), "\"split\":\"train\"") == 102);
  }

  TEST_CASE("the report contains everything, escaped, and loads nothing") {
    auto f = facts();
    f.title = "a <b> & \"c\"";
    f.config = "[data]\npath = <script>alert(1)</script>\n";
    RunLog log(".", f);
    train(log, 1, 40);
    log.add(ReportTable{"Columns", {"output", "RMSE"}, {{"aice", "0.99"}}});
    log.add(ReportTable{"Columns", {"output", "RMSE"}, {{"aice", "0.04"}}});
    log.made("checkpoints/best.h5", "best weights");
    log.finish("finished after 4 epochs");
    const std::string html = read_text("report.html");
    CHECK(html.find("a &lt;b&gt; &amp; &quot;c&quot;") != std::string::npos);
    CHECK(html.find("<script") == std::string::npos);
    CHECK(occurrences(html, "<svg") == 7);  // loss, learning rate, throughput, phases, gradient norm, two metrics
    CHECK(html.find("0.99") == std::string::npos);
    check_mentions(html, "<td>0.04</td>", "checkpoints/best.h5", "finished after 4 epochs");
    CHECK(html.find("<tr><th>last "
                    "evaluation</th><th>rmse</th><th>r2</th></tr><tr><td>aice</td><td>0.04</td><td>0.96</td></tr>") !=
          std::string::npos);
    CHECK(html.find("<td>ranks</td><td>2</td>") != std::string::npos);
    CHECK(html.find("http") == std::string::npos);
    CHECK(html.find("nan") == std::string::npos);
    CHECK(occurrences(html, "<figure") == occurrences(html, "</figure>"));
  }

  TEST_CASE("the last confusion matrix is drawn in the report and for TensorBoard") {
    RunLog log(".", facts());
    for (const double right : {3041.0, 3042.0})
      log.record(EvalRecord{.step = static_cast<std::int64_t>(right) - 3000,
                            .epoch = 1,
                            .split = "validation",
                            .loss = 0.5,
                            .metrics = {},
                            .tables = {{"confusion", {"SIT", "LIE"}, {"SIT", "LIE"}, {right, 3, 0, 14}}}});
    log.finish("done");
    const std::string html = read_text("report.html");
    CHECK(occurrences(html, "aria-label=\"confusion\"") == 1);
    for (const char* part : {"confusion", ">3042<", ">14<", "SIT", "LIE"}) CHECK(html.find(part) != std::string::npos);
    CHECK(html.find(">3041<") == std::string::npos);
    int images = 0;
    for (const auto& event : read_event_directory("."))
      if (event.tag == "validation/confusion") images += event.image.starts_with("\x89PNG");
    CHECK(images == 2);
  }

  TEST_CASE("a trial of a search has the keys that it changes for TensorBoard") {
    RunFacts trial = facts();
    trial.searched = {{"optim.lr", "0.003"}, {"model.activation", "gelu"}};
    { const RunLog log(".", trial); }
    const std::vector<EventRecord> events = read_event_directory(".");
    const auto found = std::ranges::find(events, "_hparams_/session_start_info", &EventRecord::tag);
    REQUIRE(found != events.end());
    CHECK(found->plugin == "hparams");
    CHECK(found->numbers == std::map<std::string, double>{{"optim.lr", 0.003}});
    CHECK(found->texts == std::map<std::string, std::string>{{"model.activation", "gelu"}});
  }

  TEST_CASE("an empty report, one of a single step and one of equal values can be drawn") {
    for (const int steps : {0, 1, 2}) {
      const fs::path tmp = std::to_string(steps);
      fs::create_directory(tmp);
      RunLog log(tmp, {.title = "t", .steps = 0, .steps_per_epoch = 0, .resumed_at = 0, .config = "", .facts = {}});
      for (int s = 1; s <= steps; ++s) {
        auto r = step_record(s);
        r.loss = 0;  // no logarithm
        log.record(r);
      }
      log.finish("done");
      const std::string html = read_text(tmp / "report.html");
      CHECK(html.find("nan") == std::string::npos);
      CHECK(html.find("inf") == std::string::npos);
      CHECK((occurrences(html, "<svg") > 0) == (steps > 0));
    }
  }

  TEST_CASE("the real TensorBoard reads what a resumed run wrote" * doctest::test_suite("report.run_log.tensorboard")) {
    const char* python = std::getenv("LOCKSTEP_PYTHON");
    if (python == nullptr) {
      skip("LOCKSTEP_PYTHON names no Python with the tensorboard package");
      return;
    }
    run(".", 0, 25);
    run(".", 20, 40, "finished");
    const auto result =
        run_process({python, "-c",
                     "import sys\n"
                     "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
                     "a = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'tensors': 0}); a.Reload()\n"
                     "t = a.Tags()\n"
                     "print(sorted(t['scalars']), sorted(t['tensors']))\n"
                     "for tag in ('loss/train', 'loss/validation'):\n"
                     "  print(tag, [(e.step, round(e.value, 5)) for e in a.Scalars(tag)][-2:], len(a.Scalars(tag)))\n"
                     "print(a.Tensors('config.ini')[0].tensor_proto.string_val[0].decode())\n",
                     "."},
                    {"TF_CPP_MIN_LOG_LEVEL=3"});
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    check_mentions(result.out, "loss/train [(39, 0.02564), (40, 0.025)] 40\n",
                   "loss/validation [(30, 0.05), (40, 0.0375)] 4\n", "'metrics/validation/rmse.aice'",
                   "'seconds/forward_backward'", "    lr = 0.001");
  }
}
