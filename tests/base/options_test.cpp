#include "lockstep/base/options.hpp"

#include "support/test.hpp"

namespace {

struct Config {
  double lr = 0, max_hours = 0;
  int steps = 0;
  std::int64_t batch = 0, bucket = 0;
  std::uint64_t seed = 0;
  bool shuffle = false, json = false;
  std::string name, dir, output;
  std::vector<std::string> inputs, files;
  std::vector<double> betas;
};

Options table(Config& c) {
  Options o("lockstep try", "Try the options");
  o.section("optim", "Optimiser");
  o.section("run", "Run");
  o.add("optim.lr,lr", &c.lr, 1e-3, positive, "learning rate");
  o.choice("optim.name", &c.name, "adam", {"adam", "adamw", "sgd"}, "update rule");
  o.add("optim.betas", &c.betas, {0.9, 0.999}, below_one, "decay rates");
  o.add("batch.size", &c.batch, 1000, at_least(1), "rows per step");
  o.alias("batch.size", "training.batch_size");
  o.add("train.steps", &c.steps, 10, non_negative, "steps");
  o.add("data.shuffle", &c.shuffle, true, "new order each epoch");
  o.add("data.inputs", &c.inputs, {"sst", "sss"}, "input variables");
  o.add("run.seed", &c.seed, 0, "seed");
  o.add("run.dir", &c.dir, "", "directory");
  o.add("run.max_hours", &c.max_hours, 0, non_negative, "stop in time").unit("s");
  o.may_change("run", {"run.seed"});
  o.add("dist.bucket_bytes", &c.bucket, 1 << 20, positive, "bucket").unit("bytes");
  o.add("json", &c.json, false, "print JSON");
  o.add("output,o=FILE", &c.output, "", "where to");
  o.positional("FILE", &c.files, "files to read", 0, 2);
  o.example("lockstep try --lr 0.1", "a large step");
  return o;
}

Config parsed(const std::vector<std::string>& args) {
  Config c;
  Options o = table(c);
  CHECK(o.parse(args));
  return c;
}

/// The message of the usage error that these words cause.
std::string refusal(const std::vector<std::string>& args, const std::string& file = "") {
  Config c;
  Options o = table(c);
  return error_of(Fault::usage, [&] { o.parse(args, [&](const std::string&) { return file; }); });
}

std::string refused_file(const std::string& text) { return refusal({"--config", "x.ini"}, text); }

enum class Method : std::uint8_t { exact, bi_linear };
constexpr auto names_of(Method) { return std::array{"exact", "bi-linear"}; }

struct Table {
  Config c;
  Options o = table(c);
};

}  // namespace

TEST_SUITE("base.options") {
  TEST_CASE_FIXTURE(Table, "add() stores the defaults in the targets") {
    CHECK(c.lr == 1e-3);
    CHECK(c.batch == 1000);
    CHECK(c.shuffle);
    CHECK(c.inputs == std::vector<std::string>{"sst", "sss"});
    CHECK(o.origin("optim.lr") == "default");
  }

  TEST_CASE("the command line takes key value, key=value, aliases, --set, and any separator") {
    for (const auto& args : std::vector<std::vector<std::string>>{{"--optim.lr", "0.25"},
                                                                  {"--optim.lr=0.25"},
                                                                  {"--lr", "0.25"},
                                                                  {"--lr=+25e-2"},
                                                                  {"--set", "optim.lr=0.25"},
                                                                  {"--set=optim.lr=0.25"},
                                                                  {"--set", "optim.lr = 0.25"},
                                                                  {"--optim-lr", "0.25"},
                                                                  {"--optim_lr=0.25"}}) {
      CAPTURE(args[0]);
      CHECK(parsed(args).lr == 0.25);
    }
    CHECK(parsed({"--batch-size", "7"}).batch == 7);
    CHECK(parsed({"--batch_size=7"}).batch == 7);
    CHECK(parsed({"--training.batch_size=7"}).batch == 7);
    CHECK(parsed({"-o", "a.h5"}).output == "a.h5");
    CHECK(parsed({"--output="}).output.empty());
  }

  TEST_CASE("a bool takes --flag, --no-flag and a value") {
    CHECK(parsed({"--json"}).json);
    CHECK(parsed({"--json=true"}).json);
    CHECK_FALSE(parsed({"--json=off"}).json);
    CHECK_FALSE(parsed({"--no-json"}).json);
    CHECK(parsed({"--json", "true"}).json);
    CHECK_FALSE(parsed({"--data.shuffle", "false"}).shuffle);
    CHECK(parsed({"--json", "True"}).json);
    CHECK_FALSE(parsed({"--data.shuffle", "False"}).shuffle);
    CHECK_FALSE(parsed({"data.shuffle=False"}).shuffle);
    CHECK(parsed({"--json", "false", "true"}).files == std::vector<std::string>{"true"});
    CHECK(parsed({"--json", "--", "false"}).files == std::vector<std::string>{"false"});
    CHECK_FALSE(parsed({"--no-data.shuffle"}).shuffle);
    CHECK_FALSE(parsed({"--no_data_shuffle"}).shuffle);
    CHECK_FALSE(parsed({"--set", "data.shuffle=no"}).shuffle);
    CHECK(parsed({"--json", "a.h5"}).files == std::vector<std::string>{"a.h5"});
    CHECK(refusal({"--json=maybe"}) == "option json = maybe: must be true or false");
    CHECK(refusal({"--no-json=true"}) == "option --no-json takes no value");
  }

  TEST_CASE("a negative number is a value, not an option") {
    CHECK(refusal({"--optim.lr", "-0.001"}) == "option optim.lr = -0.001: must be > 0");
    CHECK(refusal({"--lr=-0.001"}) == "option optim.lr = -0.001: must be > 0");
    CHECK(refusal({"--train.steps", "-5"}) == "option train.steps = -5: must be >= 0");
  }

  TEST_CASE("an unknown option names the nearest one") {
    CHECK(refusal({"--optim.lrr", "1"}) == "unknown option --optim.lrr; did you mean --optim.lr?");
    CHECK(refusal({"--batch-sise=1"}) == "unknown option --batch-sise; did you mean --batch.size?");
    CHECK(refusal({"--bucket-byte", "1"}) == "unknown option --bucket-byte; did you mean --dist.bucket_bytes?");
    CHECK(refusal({"--confg", "x"}) == "unknown option --confg; did you mean --config?");
    CHECK(refusal({"--frobnicate", "1"}) ==
          "unknown option --frobnicate; lockstep try has --json, --output; see lockstep try --help");
    CHECK(refusal({"--set", "optim.lrr=1"}) == "option --set: unknown key optim.lrr; did you mean optim.lr?");
    CHECK(refusal({"-lr", "1"}) == "unknown option -lr; did you mean --lr?");
    CHECK(refusal({"-q"}).starts_with("unknown option -q"));
  }

  TEST_CASE("a value of the wrong type or range is named with its rule") {
    CHECK(refusal({"--lr", "fast"}) == "option optim.lr = fast: not a number");
    CHECK(refusal({"--lr", "1e-3x"}) == "option optim.lr = 1e-3x: not a number");
    CHECK(refusal({"--lr", "inf"}) == "option optim.lr = inf: not a finite number");
    CHECK(refusal({"--lr", "nan"}) == "option optim.lr = nan: not a finite number");
    for (const std::string text : {"1e400", "1e-400"})
      CHECK(refusal({"--lr", text}) ==
            "option optim.lr = " + text +
                ": out of range: the size of a number must be 0, or between 1e-307 and 1e308");
    CHECK(refusal({"--lr="}) == "option optim.lr = : not a number");
    CHECK(refusal({"--train.steps", "1.5"}) == "option train.steps = 1.5: must be a whole number");
    CHECK(refusal({"--train.steps", "3000000000"}) == "option train.steps = 3000000000: must be at most 2147483647");
    CHECK(refusal({"--run.seed=-1"}) == "option run.seed = -1: must be at least 0");
    CHECK(refusal({"--batch.size", "0"}) == "option batch.size = 0: must be >= 1");
    CHECK(refusal({"--optim.name", "adm"}) ==
          "option optim.name = adm: must be adam, adamw or sgd; did you mean adam?");
    CHECK(refusal({"--optim.betas", "0.9,1"}) == "option optim.betas = '0.9,1': must be >= 0 and < 1");
    CHECK(refusal({"--data.inputs", "a,,b"}) == "option data.inputs = 'a,,b': an empty element between commas");
  }

  TEST_CASE("whole numbers may be written 1e6 and keep all 64 bits") {
    CHECK(parsed({"--train.steps", "1e6"}).steps == 1000000);
    CHECK(parsed({"--run.seed", "18446744073709551615"}).seed == 18446744073709551615ull);
    CHECK(refusal({"--run.seed", "18446744073709551616"}) ==
          "option run.seed = 18446744073709551616: must be at most 18446744073709551615");
    CHECK(parsed({"--batch.size", "9007199254740993"}).batch == 9007199254740993);
  }

  TEST_CASE("times and sizes may carry their units") {
    CHECK(parsed({"--run.max_hours", "90"}).max_hours == 90);
    CHECK(parsed({"--run.max_hours", "1.5h"}).max_hours == 5400);
    CHECK(parsed({"--run.max_hours", "1h30m"}).max_hours == 5400);
    CHECK(parsed({"--run.max_hours", "1:30:00"}).max_hours == 5400);
    CHECK(parsed({"--run.max_hours", "250ms"}).max_hours == 0.25);
    CHECK(contains(refusal({"--run.max_hours", "3 weeks"}), "not a duration"));
    CHECK(parsed({"--dist.bucket_bytes", "4096"}).bucket == 4096);
    CHECK(parsed({"--dist.bucket_bytes", "9007199254740993"}).bucket == 9007199254740993);  // no double holds it
    CHECK(parsed({"--dist.bucket_bytes", "4KiB"}).bucket == 4096);
    CHECK(parsed({"--dist.bucket_bytes", "4K"}).bucket == 4096);
    CHECK(parsed({"--dist.bucket_bytes", "4kB"}).bucket == 4000);
    CHECK(parsed({"--dist.bucket_bytes", "1.5 MiB"}).bucket == 1572864);
    CHECK(contains(refusal({"--dist.bucket_bytes", "4 stones"}), "not a size"));
  }

  TEST_CASE("a plain number of a time is in the option's unit, and a word may stand for a value") {
    double hours = 0;
    std::string rule;
    Options o("x");
    o.add("run.max_hours", &hours, 0, non_negative, "limit").unit("h").may_change();
    o.choice("stop.rule", &rule, "val", {"val", "none"}, "rule").value_alias("valid", "val");
    for (const auto& [text, value] : std::initializer_list<std::pair<const char*, double>>{
             {"0.3", 0.3}, {"90m", 1.5}, {"1:30:00", 1.5}, {"2d", 48}}) {
      CHECK(o.parse({"--run.max-hours", text, "--stop.rule", "valid"}));
      CHECK(hours == value);
      CHECK(rule == "val");
    }
    CHECK(o.differences("[stop]\nrule = valid\n", "old.ini").empty());
    CHECK(o.differences("[stop]\nrule = none\n", "old.ini").size() == 1);
  }

  TEST_CASE("a choice may set an enumeration, and a list whole numbers") {
    Method method = Method::bi_linear;
    std::vector<std::int64_t> widths;
    Options o("x");
    o.choice("model.method", &method, Method::exact, "rule").value_alias("bi", "bi-linear");
    o.add("model.widths", &widths, {64, 32}, between(1, 100), "widths");
    CHECK(method == Method::exact);
    CHECK(o.initial("model.widths") == "64,32");
    CHECK(o.parse({"--model.method", "bi", "--model.widths", "1e1,7"}));
    CHECK(method == Method::bi_linear);
    CHECK(o.value("model.method") == "bi-linear");
    CHECK(widths == std::vector<std::int64_t>{10, 7});
    CHECK(o.parse({"--model.widths", "[20, 40]"}));  // as Python prints a list
    CHECK(o.value("model.widths") == "20,40");
    const auto refused = [&](const char* name, const char* value) {
      return error_of(Fault::usage, [&] { o.parse({name, value}); });
    };
    CHECK(refused("--model.method", "9") == "option model.method = 9: must be exact or bi-linear");
    CHECK(refused("--model.widths", "1.5") == "option model.widths = '1.5': must be a whole number");
    CHECK(refused("--model.widths", "[1,2") == "option model.widths = '[1,2': not a number");
    CHECK(refused("--model.widths", "101") == "option model.widths = '101': must be 1..100");
  }

  TEST_CASE("the last of repeated options wins, and lists grow") {
    CHECK(parsed({"--lr", "1", "--lr", "2"}).lr == 2);
    CHECK(parsed({"--lr", "1", "--set", "optim.lr=2"}).lr == 2);
    CHECK(parsed({"--optim.lr=2", "--lr=1"}).lr == 1);
    CHECK(parsed({"--data.inputs", "a", "--data.inputs", "b,c"}).inputs == std::vector<std::string>{"a", "b", "c"});
  }

  TEST_CASE("a missing value, argument or required option is named") {
    CHECK(refusal({"--optim.lr"}) == "option --optim.lr needs a value (NUMBER)");
    CHECK(refusal({"--output", "--json"}) == "option --output needs a value (FILE)");
    CHECK(refusal({"--config"}) == "option --config needs a value (FILE)");
    CHECK(refusal({"--set", "optim.lr"}) == "option --set 'optim.lr': expected key=value");
    CHECK(refusal({"a", "b", "c"}) == "unexpected argument 'c'; see lockstep try --help");
    CHECK(refusal({"a", "b", "--data.inputs", "sst", "sss"}) ==
          "unexpected argument 'sss'; values of one option are separated by commas, as in --data.inputs sst,sss; "
          "see lockstep try --help");
    std::string file;
    std::vector<std::string> words;
    Options o("prog", "");
    o.add("checkpoint=FILE", &file, "", "what to read").required();
    CHECK_THROWS_WITH_AS(o.parse({}), "option --checkpoint FILE is missing: what to read", Error);
    Options p("prog", "");
    p.positional("SOURCE", &words, "which format", 1, 1);
    CHECK_THROWS_WITH_AS(p.parse({}), "SOURCE is missing: which format; see prog --help", Error);
  }

  TEST_CASE("a command without configuration keys has no --config") {
    bool json = false;
    Options o("prog", "");
    o.add("json", &json, false, "print JSON");
    CHECK_THROWS_WITH_AS(o.parse({"--config", "x.ini"}), "unknown option --config; prog has --json; see prog --help",
                         Error);
    CHECK_FALSE(contains(o.help(), "--config"));
  }

  TEST_CASE_FIXTURE(Table, "files support sections, comments and quotes and set origins; the command line wins") {
    const char* const text =
        "\xEF\xBB\xBF# comment\r\n"
        "run.seed = 5\n"
        "[optim]   ; the update rule\n"
        "lr = 0.5   # large\n"
        "  name=sgd\n"
        "\n"
        "[training]\n"
        "batch_size = 64\n"
        "[run]\n"
        "dir = \"a # b\\\"c\" # quoted\n";
    CHECK(o.parse({"--config", "x.ini", "--optim.name", "adamw"}, [&](const std::string& path) {
      CHECK(path == "x.ini");
      return text;
    }));
    CHECK(c.lr == 0.5);
    CHECK(c.name == "adamw");
    CHECK(c.seed == 5);
    CHECK(c.batch == 64);
    CHECK(c.dir == "a # b\"c");
    CHECK(o.origin("optim.lr") == "x.ini:4");
    CHECK(o.origin("optim.name") == "command line");
    CHECK(o.given("batch.size"));
    CHECK_FALSE(o.given("train.steps"));
  }

  TEST_CASE_FIXTURE(Table, "later files win over earlier ones") {
    CHECK(o.parse({"--config", "a", "-c", "b"}, [](const std::string& path) {
      return path == "a" ? "[optim]\nlr = 1\nname = sgd\n" : "[optim]\nlr = 2\n";
    }));
    CHECK(c.lr == 2);
    CHECK(c.name == "sgd");
  }

  TEST_CASE("errors in a file name the file and the line") {
    CHECK(refused_file("[optim]\n\nlr = -1\n") == "option optim.lr = -1 (x.ini:3): must be > 0");
    CHECK(refused_file("[optim]\nlrr = 1\n") == "x.ini:2: unknown key optim.lrr; did you mean optim.lr?");
    CHECK(refused_file("[optim]\nlr = 1\nlr = 1\n") == "x.ini:3: optim.lr is already set in line 2");
    CHECK(refused_file("[optim]\nlr = 1\n[run]\n[optim]\nlr=1\n") == "x.ini:5: optim.lr is already set in line 2");
    CHECK(refused_file("lr = 1\n[optim]\nlr = 1\n") == "x.ini:3: optim.lr is another name of lr, which is already set");
    CHECK(refused_file("[optim\nlr = 1\n") == "x.ini:1: '[optim' is not a section like [optim]");
    CHECK(refused_file("[]\n") == "x.ini:1: the section name is empty");
    CHECK(refused_file("[optim]\nlr 1\n") == "x.ini:2: 'lr 1' is neither [section] nor key = value");
    CHECK(refused_file("[optim]\n= 1\n") == "x.ini:2: '' is not a key; expected key = value");
    CHECK(refused_file("[run]\ndir = \"a\n") == "x.ini:2: the quote is not closed");
    CHECK(refused_file("[run]\ndir = \"a\" b\n") == "x.ini:2: 'b' after the closing quote");
    CHECK(refused_file("json = true\n") == "x.ini:1: json is an option of the command line, not of a file");
  }

  TEST_CASE_FIXTURE(Table, "a missing configuration file is a usage error with the system's reason") {
    CHECK_THROWS_WITH_AS(o.parse({"--config", "/nowhere/x.ini"}),
                         "configuration '/nowhere/x.ini': No such file or directory", Error);
    CHECK_THROWS_AS(o.parse({"--config", "."}), Error);
  }

  TEST_CASE("the resolved text restores the same values bit for bit") {
    Config a, b;
    Options one = table(a), two = table(b);
    CHECK(one.parse({"--lr", "0.1000000000000000055", "--run.dir", " #;\"\\ \n x ", "--data.inputs", "a\\,b,c\\\\d,e f",
                     "--optim.betas=1e-300,0.3333333333333333", "--run.seed=18446744073709551615", "--no-data.shuffle",
                     "--run.max_hours=7", "--json"}));
    two.parse_ini(one.ini(), "config.ini");
    CHECK(b.lr == a.lr);
    CHECK(b.dir == " #;\"\\ \n x ");
    CHECK(b.inputs == std::vector<std::string>{"a,b", "c\\d", "e f"});
    CHECK(b.betas == a.betas);
    CHECK(b.seed == a.seed);
    CHECK(b.shuffle == false);
    CHECK(b.max_hours == 7);
    CHECK(two.ini() == one.ini());
    CHECK_FALSE(contains(one.ini(), "json"));
    CHECK(one.differences(two.ini(), "config.ini").empty());
  }

  TEST_CASE("differences name each key except those that may change") {
    Config a, b;
    Options one = table(a), two = table(b);
    CHECK(one.parse({"--lr", "0.5", "--run.dir", "here", "--optim.name=sgd", "--run.seed=4"}));
    CHECK(two.parse({"--lr", "0.50", "--run.dir", "there", "--batch.size=3"}));
    const auto found = two.differences(one.ini(), "config.ini");
    CHECK(found == std::vector<std::string>{"optim.name: sgd there, adam here", "batch.size: 1000 there, 3 here",
                                            "run.seed: 4 there, 0 here"});
    CHECK(two.differences("[optim]\nlr=0.5\n[batch]\nsize = 3\n", "short.ini").empty());
    CHECK(two.differences("[optim]\nlr=0.5\nage=3\n[batch]\nsize = 3\n", "new.ini") ==
          std::vector<std::string>{"optim.age: 3 there, unknown here"});
  }

  TEST_CASE("a difference that decides the others is named alone") {
    std::string kind;
    int lr = 0;
    Options o("prog");
    o.add("optim.lr", &lr, 1, "rate");
    o.choice("model.kind", &kind, "har", {"har", "kgat"}, "model").decides_others();
    const std::string other = "[optim]\nlr = 2\nbeta = 1\n[model]\nkind = ";
    CHECK(o.differences(other + "kgat", "a.ini") == std::vector<std::string>{"model.kind: kgat there, har here"});
    CHECK(o.differences(other + "har", "a.ini").size() == 2);
  }

  TEST_CASE_FIXTURE(Table, "reject names the value and its origin") {
    CHECK(o.parse({"--config", "x.ini"}, [](const std::string&) { return "[batch]\nsize = 70\n"; }));
    CHECK_THROWS_WITH_AS(o.reject("batch.size", "more than the 60 rows of the data"),
                         "option batch.size = 70 (x.ini:2): more than the 60 rows of the data", Error);
  }

  TEST_CASE_FIXTURE(Table, "help shows sections, defaults, ranges, units and an example") {
    Options::Capture capture;
    CHECK_FALSE(o.parse({"--lr", "bad value is not looked at", "--help"}));
    const std::string& text = capture.text;
    check_mentions(text, "usage: lockstep try [--config FILE] [--set KEY=VALUE ...] [OPTION ...] [FILE ...]",
                   "\nOptimiser\n", "--optim.lr, --lr NUMBER         learning rate [> 0; default 0.001]",
                   "--optim.name adam|adamw|sgd", "--[no-]json", "default 1048576 bytes", "-o FILE",
                   "lockstep try --lr 0.1\n");
    for (const int columns : {60, 100}) CHECK(contains(o.help(columns), "--help, -h"));
  }

  TEST_CASE_FIXTURE(Table,
                    "keys outside list_only() work, appear in the resolved text, and are omitted from help and docs") {
    o.list_only({"run.seed", "batch.*", "dist.*"});
    o.list_only({"run.*", "dist.bucket_bytes"});
    o.describe("The list:\n- one\n- two");
    CHECK(o.parse({"--optim.lr", "8"}));
    CHECK(c.lr == 8);
    CHECK(contains(o.ini(), "lr = 8"));
    for (const std::string& text : {o.help(), o.markdown(), o.man()}) {
      check_mentions(text, "run.seed", "json");
      for (const char* other : {"optim", "run.dir", "batch.size"}) CHECK_FALSE(contains(text, other));
    }
    CHECK(contains(o.help(), "The list:\n- one\n- two\n"));
    CHECK(contains(o.man(), ".br\n\\- two\n"));
    CHECK(contains(o.markdown(Options::Part::command), "configuration keys `run.seed`, `dist.*`."));
  }

  TEST_CASE_FIXTURE(Table, "Markdown has one row per option, the manual page one paragraph") {
    CHECK(contains(o.markdown(), "| `optim.lr`, `--lr` | number, > 0 | `0.001` | learning rate |"));
    CHECK(contains(o.markdown(), "| `--json` | bool | `false` | print JSON |"));
    CHECK_FALSE(contains(o.markdown(Options::Part::configuration), "json"));
    CHECK_FALSE(contains(o.markdown(Options::Part::command), "learning rate"));
    CHECK(contains(o.markdown(Options::Part::command), "`optim.*`, `run.*`"));
    CHECK(o.man().starts_with(".TH \"LOCKSTEP-TRY\" 1"));
    CHECK(contains(o.man(), ".B \\-\\-optim.lr, \\-\\-lr NUMBER\nlearning rate [> 0; default 0.001]\n"));
  }

  TEST_CASE("help and the manual page have every spelling: aliases with a section, and words of other programs") {
    double lr = 0;
    Options o("prog", "");
    o.add("optim.lr,lr,training.learning_rate", &lr, 1, "learning rate");
    o.word("fp16,half", false, "--precision fp16", [](const std::string&) { return Options::Reply{}; });
    o.word("num_gpus", true, "several GPUs", [](const std::string&) { return Options::Reply{}; });
    for (std::string text : {o.help(), o.man()}) {
      std::erase(text, '\\');  // of troff
      check_mentions(text, "--optim.lr, --lr, --training.learning_rate NUMBER", "--fp16, --half", "--num_gpus VALUE");
    }
    CHECK(o.spellings() == std::vector<std::pair<std::string, std::string>>{{"--lr", "optim.lr"},
                                                                            {"--training.learning_rate", "optim.lr"},
                                                                            {"--fp16, --half", "--precision fp16"},
                                                                            {"--num_gpus VALUE", "several GPUs"}});
  }

  TEST_CASE("a word of another program may stand in a file or before =, with + as in Hydra") {
    double average = 0;
    const auto parse = [&](const std::vector<std::string>& args, const std::string& file = "") {
      Options o("prog", "");
      o.add("optim.ema", &average, 0, "decay");
      o.word("ema,train.use_ema", false, "--optim.ema 0.5", [](const std::string& value) {
        require_usage(value == "true" || value == "false", "ema is ", value);
        return value == "true" ? Options::Reply{.keys = {{"optim.ema", "0.5"}}} : Options::Reply{};
      });
      CHECK(o.parse(args, [&](const std::string&) { return file; }));
      return average;
    };
    CHECK(parse({"ema=True"}) == 0.5);
    CHECK(parse({"+ema=true"}) == 0.5);
    CHECK(parse({"++optim.ema=0.25"}) == 0.25);
    CHECK(parse({"--ema", "False"}) == 0);
    CHECK(parse({"--config", "a.yaml"}, "train:\n  use_ema: true\n") == 0.5);
    CHECK(parse({"--config", "a.ini"}, "[train]\nuse_ema = False\n") == 0);
    CHECK(error_of(Fault::usage, [&] { parse({"--config", "a.ini"}, "ema = 2\n"); }) == "ema is 2");
  }

  TEST_CASE("a table that contradicts itself is an internal error") {
    int n = 0;
    Options o("prog", "");
    o.add("a.b", &n, 1, "first");
    CHECK_THROWS_AS(o.add("a_b", &n, 1, "second"), Error);
    CHECK_THROWS_AS(o.add("c,a.b", &n, 1, "a name in use"), Error);
    CHECK_THROWS_AS(o.alias("a.c", "x"), Error);
    std::string s;
    CHECK_THROWS_AS(o.choice("x", &s, "c", {"a", "b"}, "letters"), Error);
  }

  TEST_CASE("a shorthand sets a value of another key") {
    std::string kind;
    const auto parse = [&](const std::vector<std::string>& args) {
      Options options("lockstep test");
      options.choice("model.mhc", &kind, "none", {"none", "streams"}, "which");
      options.shorthand("with_streams", "model.mhc", "streams");
      options.parse(args);
      return kind;
    };
    CHECK(parse({}) == "none");
    CHECK(parse({"--with_streams"}) == "streams");
    CHECK(parse({"--with-streams"}) == "streams");
    CHECK_THROWS_AS(parse({"--with_streams=yes"}), Error);
    CHECK(parse({"--with_streams", "--model.mhc", "none"}) == "none");
    CHECK(parse({"--model.mhc", "none", "--with_streams"}) == "streams");
  }
}
