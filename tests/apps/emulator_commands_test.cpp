#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "support/emulator_file.hpp"
#include "support/random_emulator.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kRows = 40000;  // three blocks, the last one short

/// A model file and states for it: 5 inputs in0 .. in4, 2 outputs.
struct Files {
  Emulator emulator = random_emulator({.n_in = 5, .n_out = 2, .hidden = 8, .layers = 2}, DType::f32);
  std::vector<float> x;
  std::string model = "model.lsem", input = "in.h5", output = "out.h5";
  Files() {
    EmulatorMetadata metadata;
    EmulatorVariables& v = metadata.variables;
    for (int i = 0; i < 5; ++i) v.input_names.push_back("in" + std::to_string(i));
    v.output_names = {"aice", "tsfc"};
    v.input_cf.resize(5), v.input_units.resize(5), v.input_level.resize(5);
    v.output_cf.resize(2), v.output_units = {"1", "K"}, v.output_level.resize(2);
    metadata.mask.variable = "in2";
    metadata.mask.min = emulator.moments().input_mean[2];
    write_emulator(model, EmulatorFormat::lsem, emulator, metadata);
    const std::vector<double> states = random_states(emulator, kRows);
    x.assign(states.begin(), states.end());
  }
  void write(const std::function<void(H5File&)>& more = [](H5File&) {}) const {
    H5File file = H5File::create(input);
    file.write<float>("/x", x, {std::ssize(x) / 5, 5});
    more(file);
    file.close();
  }
  Words command(const std::string& name, const Words& more = {}) const {
    return Words{name, "--model-file", model, "--input", input, "--output", output} + more;
  }
};

}  // namespace

TEST_SUITE("apps.emulator") {
  TEST_CASE("predict writes the operators' values, the same bytes on any number of ranks") {
    const Files f;
    std::vector<float> y(kRows * 2);
    EmulatorOperators<float>(f.emulator).predict<float>(kRows, {f.x.data(), 5, 1}, {y.data(), 2, 1});
    std::vector<float> targets = y;
    for (std::size_t k = 0; k < targets.size(); k += 2) targets[k] += 0.5f;
    f.write([&](H5File& file) { file.write<float>("/y", targets, {kRows, 2}); });
    std::vector<double> rmse;
    std::string bytes;
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(ranks);
      const ProcessResult r = succeeded(run_lockstep(f.command("predict"), ranks));
      CHECK(contains(r.out, "rmse aice"));
      const H5File out = H5File::open(f.output);
      CHECK(out.read<float>("/y") == y);
      const std::vector<double> here = out.read<double>("/rmse");
      CHECK(here[0] == Approx(0.5).epsilon(1e-6));
      CHECK(here[1] == 0);
      if (rmse.empty()) rmse = here;
      CHECK(here == rmse);
      const std::string now = read_text(f.output);
      if (bytes.empty()) bytes = now;
      CHECK(now == bytes);
    }
    for (std::size_t k = 1; k < targets.size(); k += 2) targets[k] = NAN;
    f.write([&](H5File& file) { file.write<float>("/y", targets, {kRows, 2}); });
    CHECK(contains(succeeded(run_lockstep(f.command("predict"))).out, "rmse tsfc  unknown: no row has a target"));
    CHECK(std::isnan(H5File::open(f.output).read<double>("/rmse")[1]));
    f.write([&](H5File& file) {
      file.write<float>("/y", targets, {kRows, 2});
      file.write_text("/vars/output_names", {"aice", "hi"});
    });
    CHECK_FALSE(contains(run_lockstep(f.command("predict")).out, "rmse aice"));
    check_ended(run_lockstep(f.command("predict", {"--format", "csv"})), 2, "it exists and is a file of predictions");
    check_ended(run_lockstep({"predict", "--model-file", f.output, "--input", f.input, "--output", "q.h5"}), 3,
                "it is a file of predictions or Jacobians, not a model");
    REQUIRE(run_lockstep(f.command("predict", {"--format", "csv", "--force"})).exit_code == 0);
    CHECK(read_text(f.output).starts_with("y_aice,y_tsfc\n"));
  }

  TEST_CASE("jacobian writes Jacobians, tangents and adjoints with the mask of the model, and makes the adjoint test") {
    const Files f;
    std::vector<float> dx, dy;
    for (const double v : random_values(kRows * 5, 3)) dx.push_back(static_cast<float>(v));
    for (const double v : random_values(kRows * 2, 4)) dy.push_back(static_cast<float>(v));
    f.write([&](H5File& file) {
      file.write<float>("/dx", dx, {kRows, 5});
      file.write<float>("/dy", dy, {kRows, 2});
    });
    for (const int ranks : {1, 3}) {
      CAPTURE(ranks);
      const ProcessResult r =
          succeeded(run_lockstep(f.command("jacobian", {"--precision", "fp64", "--background-only", "in4"}), ranks));
      check_mentions(r.out, "adjoint test", "passed");
      const H5File out = H5File::open(f.output);
      const std::vector<double> j = out.read<double>("/jac_physical"), n = out.read<double>("/jac"),
                                tl = out.read<double>("/tl"), ad = out.read<double>("/ad");
      REQUIRE(j.size() == kRows * 10);
      double worst = 0;
      std::int64_t masked = 0;
      for (std::int64_t row = 0; row < kRows; ++row) {
        const bool outside = static_cast<double>(f.x[to_size(row * 5 + 2)]) < f.emulator.moments().input_mean[2];
        masked += outside;
        for (std::int64_t o = 0; o < 2; ++o) {
          double sum = 0;
          for (std::int64_t i = 0; i < 5; ++i) {
            const auto at = to_size((row * 2 + o) * 5 + i);
            if ((outside || i == 4) && (j[at] != 0 || n[at] != 0)) worst = 1;
            if (!outside && i < 4 && j[at] == 0) worst = 2;
            sum += j[at] * static_cast<double>(dx[to_size(row * 5 + i)]);
          }
          worst = std::max(worst, std::abs(sum - tl[to_size(row * 2 + o)]));
        }
        for (std::int64_t i = 0; i < 5; ++i) {
          double sum = 0;
          for (std::int64_t o = 0; o < 2; ++o)
            sum += j[to_size((row * 2 + o) * 5 + i)] * static_cast<double>(dy[to_size(row * 2 + o)]);
          worst = std::max(worst, std::abs(sum - ad[to_size(row * 5 + i)]));
        }
      }
      CHECK(worst < 1e-10);
      CHECK(masked > kRows / 4);
      CHECK(masked < 3 * kRows / 4);
    }
  }

  TEST_CASE("jacobian says which nodes are outside the domain, takes a mask of flags, and refuses to mask all nodes") {
    Files f;
    TrainedEmulator plain{f.emulator.as(DType::f32), read_emulator(f.model).metadata};
    plain.metadata.mask = {};
    write_emulator(f.model, EmulatorFormat::lsem, plain.network, plain.metadata);
    std::vector<float> flags(kRows, 1), nowhere(kRows, 0);
    flags[1] = 0;
    flags[2] = f.x[3 * 5] = std::nanf("");
    f.write([&](H5File& file) {
      file.write<float>("/mask", flags, {kRows});
      file.write<float>("/lat", nowhere, {kRows});
    });
    const ProcessResult r = run_lockstep(f.command("jacobian"), 2);
    INFO(r.err);
    CHECK(r.exit_code == 0);
    CHECK(contains(r.out, "2 nodes are outside the domain (/mask is 0): their Jacobian is zero"));
    CHECK(contains(r.out, "1 nodes have a state that is not finite: their Jacobian is zero"));
    const std::vector<float> j = H5File::open(f.output).read<float>("/jac");
    for (std::size_t k = 0; k < 10; ++k) {
      CHECK(j[k] != 0);
      for (std::size_t row = 1; row < 4; ++row) CHECK(j[row * 10 + k] == 0);
    }
    check_ended(run_lockstep(f.command("jacobian", {"--min-abs-latitude", "40"}), 1), 3,
                "every node is outside the domain (/mask is 0 or |/lat| below 40");
  }

  TEST_CASE("jacobian: whatever masked rows and inactive inputs hold, and in either form of the linearisation") {
    for (const std::int64_t hidden : {1, 8}) {  // stores the slopes, K
      CAPTURE(hidden);
      Files f;
      f.emulator = random_emulator({.n_in = 5, .n_out = 2, .hidden = hidden, .layers = 1}, DType::f32);
      TrainedEmulator plain{f.emulator.as(DType::f32), read_emulator(f.model).metadata};
      plain.metadata.mask = {};
      write_emulator(f.model, EmulatorFormat::lsem, plain.network, plain.metadata);
      f.x.resize(20);
      f.x[3 * 5 + 1] = std::nanf("");
      std::vector<float> dx(20, 1), dy(8, 1);
      dx[5] = dx[15] = dy[2] = dy[7] = std::nanf("");  // of rows 1, which is masked, and 3, which is missing
      for (std::size_t row = 0; row < 4; ++row) dx[row * 5 + 4] = HUGE_VALF;
      f.write([&](H5File& file) {
        file.write<float>("/mask", std::vector<float>{1, 0, 1, 1}, {4});
        file.write<float>("/dx", dx, {4, 5});
        file.write<float>("/dy", dy, {4, 2});
      });
      const ProcessResult r = run_lockstep(f.command("jacobian", {"--background-only", "in4"}));
      CHECK_MESSAGE(r.exit_code == 0, r.err);
      const H5File out = H5File::open(f.output);
      const auto tl = out.read<float>("/tl"), ad = out.read<float>("/ad");
      for (std::size_t e = 0; e < tl.size(); ++e) CHECK((tl[e] == 0) == (e / 2 == 1 || e / 2 == 3));
      for (std::size_t e = 0; e < ad.size(); ++e) CHECK((ad[e] == 0) == (e / 5 == 1 || e / 5 == 3 || e % 5 == 4));
      check_ended(run_lockstep(f.command("jacobian")), 3, "the tangent of row 0");  // in4 is active
    }
  }

  TEST_CASE("a model file of any format is taken as --checkpoint") {
    const Files f;
    f.write();
    succeeded(run_lockstep(f.command("predict")));
    const std::vector<float> y = H5File::open(f.output).read<float>("/y");
    for (const char* name : {"m.lsem", "m.h5model", "m.safetensors", "m.onnx", "m.ts"}) {
      CAPTURE(name);
      succeeded(run_lockstep({"export", "--checkpoint", f.model, "--output", name}));
      for (const char* option : {"--checkpoint", "--model-file"}) {
        succeeded(run_lockstep({"predict", option, name, "--input", f.input, "--output", "y.h5"}));
        const std::vector<float> found = H5File::open("y.h5").read<float>("/y");
        double worst = 0;
        for (std::size_t e = 0; e < y.size(); ++e)
          worst = std::max(worst, std::abs(static_cast<double>(found[e]) - static_cast<double>(y[e])));
        CHECK(worst < 1e-4);  // of values of about 10
        succeeded(run_lockstep({"jacobian", option, name, "--input", f.input, "--output", "j.h5"}));
      }
      succeeded(run_lockstep({"info", "--checkpoint", name}));
      check_ended(run_lockstep({"eval", "--checkpoint", name}), 3, "not a checkpoint of lockstep; lockstep ");
    }
  }

  TEST_CASE("units that a file does not name are taken as the model's, with one note") {
    EmulatorContents contents = emulator_contents(200, 3, 2);  // inputs in K, outputs in 1
    write_emulator_data("data.h5", contents);
    succeeded(
        run_lockstep(words_of("train --model.kind emulator --data.path data.h5 --run-dir run --epochs 1 --batch.size "
                              "20 --model.hidden_size 4")));
    const std::string checkpoint = "run/checkpoints/final.h5";
    const auto commands = [&](const std::string& data) {
      return std::vector<Words>{{"predict", "--checkpoint", checkpoint, "--input", data, "--output", "y.h5"},
                                {"jacobian", "--checkpoint", checkpoint, "--input", data, "--output", "j.h5"},
                                {"eval", "--checkpoint", checkpoint, "--data.path", data}};
    };
    for (const Words& words : commands("data.h5"))
      CHECK_FALSE(contains(succeeded(run_lockstep(words)).err, "units unknown"));
    contents.variables.input_units[1].clear();
    contents.variables.output_units[0].clear();
    write_emulator_data("unknown.h5", contents);
    for (const Words& words : commands("unknown.h5")) {
      const std::string said = succeeded(run_lockstep(words, 2)).err;
      CHECK(occurrences(said, "'unknown.h5': units unknown; its values are taken as the model's: ") == 1);
      check_mentions(said, contents.variables.input_names[1] + " in K", contents.variables.output_names[0] + " in 1");
      CHECK_FALSE(contains(said, contents.variables.input_names[0] + " in K"));
    }
    H5File plain = H5File::create("plain.h5");
    plain.write<float>("/x", std::vector<float>{1, 1, 1, 1, 1e30F, 1}, {2, 3});
    plain.close();
    const Words words = {"predict", "--checkpoint", checkpoint, "--input", "plain.h5", "--output", "y.h5"};
    const auto predicted = succeeded(run_lockstep(words));
    CHECK(contains(predicted.err, "'plain.h5': units unknown"));
    CHECK(contains(predicted.out, "1 row has an input more than 1000 standard deviations from the mean of training"));
    contents.variables.input_units[1] = "degC";
    write_emulator_data("celsius.h5", contents);
    for (const Words& other : commands("celsius.h5"))
      check_ended(run_lockstep(other), 3, "is in degC, the model's is in K");
  }

  TEST_CASE("bad input has a message and the right exit code, and leaves an existing output unchanged") {
    Files f;
    write_text(f.output, "precious");
    const auto refused = [&](const std::vector<std::string>& words, int code, const std::string& what, int ranks = 1) {
      check_ended(run_lockstep(words + Words{"--force"}, ranks), code, what);
      CHECK(read_text(f.output) == "precious");
      for (const auto& entry : fs::directory_iterator(".")) CHECK_FALSE(contains(entry.path().string(), ".tmp."));
    };
    check_ended(run_lockstep(f.command("predict")), 2, "'out.h5': it exists and is a text file, which");
    refused(f.command("predict"), 2, "in.h5");  // not there
    f.write([&](H5File& file) { file.write<float>("/y", std::vector<float>(3), {3, 1}); });
    refused(f.command("predict"), 3, "'/y'", 2);
    f.write([&](H5File& file) { file.write_text("/vars/input_names", {"in0", "other", "in2", "in3", "in4"}); });
    refused(f.command("predict"), 3, "column 1 is 'other', the emulator's is 'in1'");
    f.write();
    refused({"predict", "--input", f.input, "--output", f.output}, 2, "neither is set");
    refused(f.command("predict", {"--checkpoint", f.model}), 2, "both are set");
    refused(f.command("jacobian", {"--background-only", "sst"}), 2, "no such input");
    refused(f.command("jacobian", {"--min-abs-latitude", "40"}), 3, "no /lat");
    refused(f.command("jacobian", {"--domain", "3,1"}), 2, "MIN <= MAX");
    f.write([&](H5File& file) {
      std::vector<float> dx(f.x.size(), 1);
      dx[7] = std::nanf("");
      file.write<float>("/dx", dx, {kRows, 5});
    });
    refused(f.command("jacobian", {"--domain", "-1e30,1e30"}), 3, "the tangent of row 1 of 'in.h5': it is not finite");
    // Rows are counted in the file, not in a block.
    const std::size_t late = kRows - 3;
    for (const char* bad : {"/dx", "/dy"}) {
      f.write([&](H5File& file) {
        const std::int64_t columns = std::string(bad) == "/dx" ? 5 : 2;
        std::vector<float> values(to_size(kRows * columns), 1);
        values[late * to_size(columns)] = HUGE_VALF;
        file.write<float>(bad, values, {kRows, columns});
      });
      refused(f.command("jacobian", {"--domain", "-1e30,1e30"}), 3, join("of row ", late, " of 'in.h5'"), 2);
      CHECK(run_lockstep(f.command("jacobian", {"--domain", "-2e30,-1e30", "--output", "masked.h5"})).exit_code == 3);
    }
    H5File other = H5File::create(f.input);
    other.write<float>("/x", std::vector<float>(12), {3, 4});
    other.close();
    refused(f.command("predict"), 3, "the shape is (3, 4), expected (rows, 5)");
    f.write([&](H5File& file) {
      file.write<float>("/y", std::vector<float>(kRows), {kRows, 1});
      file.write_text("/vars/output_names", {"hi"});
      seal_contents(file);
    });
    std::string sealed = read_text(f.input);
    const auto at = sealed.find(std::string(reinterpret_cast<const char*>(f.x.data()), 64));
    REQUIRE(at != std::string::npos);
    sealed[at + 1] ^= 1;
    write_text(f.input, sealed);
    for (const char* command : {"predict", "jacobian"}) refused(f.command(command), 3, "'/x' is damaged", 2);
    f.write();
    std::string damaged = read_text(f.model);
    damaged[damaged.size() / 2] ^= 1;
    write_text(f.model, damaged);
    refused(f.command("predict"), 3, "model.lsem", 2);
  }

  TEST_CASE("an ensemble continues, and has the same weights, metrics and predictions on any number of ranks") {
    const std::string data = "data.h5", output = "y.h5";
    write_emulator_data(data, emulator_contents(600, 4, 2));
    std::string metrics;
    std::vector<float> mean, deviation;
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(ranks);
      const std::string run = "run" + std::to_string(ranks);
      const auto train = [&](const char* members, const char* width = "8") {
        const Words words = words_of(join("train --model.kind emulator --data.path ", data, " --run-dir ", run,
                                          " --epochs 2 --batch.size 100 --model.hidden_size ", width,
                                          " --reproducible --seed 4 --ensemble.members ", members,
                                          " --ensemble.bootstrap --loss.jacobian 0.5 --loss.jacobian_directions 1"));
        return run_lockstep(words + Words{"--loss.constraint", "max(0, -aice) ; out1"}, ranks);
      };
      if (ranks == 2) REQUIRE(train("1").exit_code == 0);  // an ordinary run in the same directory is no member
      if (ranks == 3) REQUIRE(train("2").exit_code == 0);  // a smaller ensemble grows
      const ProcessResult trained = train("3");
      INFO(trained.err);
      REQUIRE(trained.exit_code == (ranks == 2 ? 2 : 0));
      if (ranks == 2) {
        CHECK(contains(trained.err, "ensemble.members"));
        fs::remove_all(run);
        REQUIRE(train("4").exit_code == 0);  // a larger ensemble shrinks: member-4 stays, and counts no more
        REQUIRE(train("3").exit_code == 0);
      }
      if (ranks == 1) {  // another network, or a single one, is refused before it writes
        for (const auto& [members, width] : {std::pair("5", "12"), std::pair("1", "8")}) {
          check_ended(train(members, width), 2, "holds a run of another configuration");
        }
      }
      CHECK(contains(read_text(run + "/config.ini"), "members = 3"));
      CHECK(contains(read_text(run + "/config.ini"), "hidden_size = 8"));
      const ProcessResult eval = succeeded(run_lockstep({"eval", "--checkpoint", run, "--json"}, ranks));
      const std::string here = eval.out.substr(eval.out.find("\"split\""));
      check_mentions(here, "\"coverage95.aice\"", "rank histogram");
      CHECK(contains(here, "\"constraint.2\""));  // members have the whole text, also what follows a semicolon
      if (metrics.empty()) metrics = here;
      CHECK(here == metrics);
      REQUIRE(run_lockstep({"predict", "--checkpoint", run, "--input", data, "--output", output}, ranks).exit_code ==
              0);
      const H5File out = H5File::open(output);
      if (mean.empty()) mean = out.read<float>("/y"), deviation = out.read<float>("/y_std");
      CHECK(out.read<float>("/y") == mean);
      CHECK(out.read<float>("/y_std") == deviation);
    }
    // The members differ, and a list of checkpoints is an ensemble too.
    const std::string run = "run1";
    const auto best = [&](int m) { return run + "/member-" + std::to_string(m) + "/checkpoints/best.h5"; };
    std::vector<std::vector<float>> each;
    for (const int m : {1, 2, 3}) {
      REQUIRE(run_lockstep({"predict", "--checkpoint", best(m), "--input", data, "--output", output}).exit_code == 0);
      each.push_back(H5File::open(output).read<float>("/y"));
    }
    double worst = 0, least = 1;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      const double centre = (static_cast<double>(each[0][i]) + each[1][i] + each[2][i]) / 3;
      worst = std::max(worst, std::abs(centre - static_cast<double>(mean[i])));
      least = std::min(least, static_cast<double>(deviation[i]));
    }
    CHECK(worst < 1e-6);  // the mean, below 16, is rounded to f32
    CHECK(least > 0);
    CHECK(run_lockstep({"eval", "--checkpoint", best(1) + "," + best(2)}).exit_code == 0);
    check_ended(run_lockstep({"jacobian", "--checkpoint", run, "--input", data, "--output", output + "2"}), 2,
                "this command takes one");
    check_ended(run_lockstep({"eval", "--checkpoint", "."}), 2, "a directory without an ensemble");
  }

  TEST_CASE("an ensemble is refused while a member is in training, has none, or is shorter than the others") {
    write_emulator_data("data.h5", emulator_contents(600, 4, 2));
    const auto train = [](const std::string& run, const char* more) {
      return run_lockstep(words_of(join("train --model.kind emulator --data.path data.h5 --run-dir ", run,
                                        " --batch.size 100 --model.hidden_size 8 --checkpoint.every_steps 1 ", more)));
    };
    REQUIRE(train("run", "--epochs 2 --ensemble.members 3").exit_code == 0);
    const std::string steps = join(CheckpointReader("run/member-1/checkpoints/final.h5").state().step);
    const auto refused = [&](const std::string& why) {
      for (const char* command : {"eval", "predict --input data.h5 --output y.h5"})
        check_ended(run_lockstep(words_of(join(command, " --checkpoint run"))), 3,
                    "the training of member-2 is not finished: " + why);
    };
    const fs::path own = "run/member-2/checkpoints", whole = "whole";
    fs::rename(own, whole);
    refused("it has no whole checkpoint of " + steps);
    fs::copy(whole, own);
    CHECK(run_lockstep({"eval", "--checkpoint", "run"}).exit_code == 0);
    fs::remove(own / "final.h5");
    refused(join("its last checkpoint is of step ", std::stoi(steps) - 1, " of ", steps));
    // The first member has more epochs, and the others not yet.
    REQUIRE(train("run", "--epochs 2 --ensemble.members 3").exit_code == 0);
    fs::remove_all("one");
    fs::rename("run/member-1", "one");
    REQUIRE(train("one", "--epochs 4 --ensemble.members 1").exit_code == 0);
    fs::rename("one", "run/member-1");
    refused(join("its last checkpoint is of step ", steps, " of ", 2 * std::stoi(steps)));
  }
}
