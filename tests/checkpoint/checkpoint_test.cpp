#include "lockstep/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "lockstep/checkpoint/checkpoint_copy.hpp"
#include "lockstep/io/seal.hpp"
#include "support/test.hpp"
#include "support/toy_task.hpp"

namespace {

/// A model, an optimizer after some steps, an average, and a state with every field set.
struct Trained {
  explicit Trained(int steps = 3)
      : optimizer(make_optimizer({.name = "adam"}, model.params(), trainable_ranges(model.params()))),
        ema(model.params(), 0.9) {
    OwnedTensor gradient(DType::f32, Shape{model.params().flat_size()});
    for (int t = 0; t < steps; ++t) {
      for (const Param& p : model.params().all()) {
        for (std::int64_t i = 0; i < p.shape.size(); ++i)
          gradient->data<float>()[p.offset + i] = static_cast<float>(std::sin(t + 0.3 * static_cast<double>(i)));
      }
      optimizer->step(gradient, 0.01, 1, &ema);
    }
    state = {.step = steps,
             .epoch = 2,
             .position = 17,
             .epoch_steps = 1,
             .epoch_loss = 0.1,
             .epoch_weight = 3,
             .epoch_batch_means = 1.0 / 3,
             .epoch_gradient_norms = 0.7,
             .best = 0.25,
             .best_epoch = 1,
             .since_best = 1,
             .seconds = 4.5,
             .loss_scale = {.value = 1024, .steps = 7},
             .finished = false,
             .stop_reason = "",
             .schedule = {.best = 0.5, .bad = 2, .drops = 1},
             .history = {}};
    state.history.append({{"loss", 0.5}, {"val_loss", 0.6}});
    state.history.append({{"loss", 0.4}, {"jacobian", 2}});
  }
  CheckpointParts parts() const {
    return {.model = &model,
            .params = &const_cast<ToyTask&>(model).params(),
            .optimizers = {{"", optimizer.get()}},
            .vectors = {},
            .ema = &ema,
            .state = &state,
            .config = "[optim]\nlr = 0.01\n",
            .seed = 9,
            .data_hash = 42,
            .ranks = 2,
            .threads = 1};
  }
  void save(const fs::path& path, std::int64_t step) {
    state.step = step;
    save_checkpoint(path, parts());
  }
  ToyTask model;
  std::unique_ptr<Optimizer> optimizer;
  Ema ema;
  TrainState state;
};

/// An empty folder of checkpoints, and a training that fills it.
struct Saved : Trained {
  CheckpointFolder folder{"."};
  Saved() { fs::create_directories(folder.path()); }
  void save_step(std::int64_t step) { save(folder.step_file(step), step); }
};

/// A toy task that adds objects of its own to a checkpoint.
struct Writer final : ToyTask {
  explicit Writer(std::function<void(H5File&)> f) : write(std::move(f)) {}
  void save(H5File& file) const override { write(file); }
  std::function<void(H5File&)> write;
};

}  // namespace

TEST_SUITE("checkpoint.checkpoint") {
  TEST_CASE("a loaded checkpoint has the saved values, bit for bit") {
    Trained trained;
    // More text than an attribute of HDF5 can hold.
    for (int i = 0; i < 1000; ++i)
      trained.state.products.push_back(join("a library: shape ", i, " = ", std::string(i, '7')));
    save_checkpoint("a.h5", trained.parts());
    const CheckpointReader reader("a.h5");
    Trained other(0);
    reader.load_weights(other.model.params());
    reader.load_optimizer({"", other.optimizer.get()});
    reader.load_ema(other.ema);
    CHECK(other.model.params().hash() == trained.model.params().hash());
    CHECK(other.ema.hash() == trained.ema.hash());
    CHECK(other.optimizer->steps() == 3);
    for (std::size_t i = 0; i < other.optimizer->state().size(); ++i) {
      const auto a = other.optimizer->state()[i].value.span<float>(),
                 b = trained.optimizer->state()[i].value.span<float>();
      CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    }
    CHECK(pack(reader.state()) == pack(trained.state));
    CHECK(pack(unpack(pack(trained.state))) == pack(trained.state));
    CHECK(reader.state().products == trained.state.products);
    CHECK(reader.config() == "[optim]\nlr = 0.01\n");
    CHECK(reader.seed() == 9);
    CHECK(reader.model_kind() == "toy");
    CHECK(reader.state().history.known("val_loss") == std::vector<double>{0.6});
  }

  TEST_CASE("a history with '/', '%' and '.' in its names is read back, also from an older file with nested groups") {
    Trained trained;
    trained.state.history.append(
        {{"f1.sit", 1}, {"f1.sit/stand", 2}, {"a%2Fb", 3}, {"a/b", 4}, {".", 5}, {"..", 6}, {"/", 7}, {"50%", 8}});
    save_checkpoint("a.h5", trained.parts());
    const TrainState state = CheckpointReader("a.h5").state();
    CHECK(state.history.all().size() == trained.state.history.all().size());
    CHECK(pack(state) == pack(trained.state));

    Writer older([](H5File& file) {
      file.write<double>("/state/history/rmse.PRODUCT/ozone", std::vector<double>{1, 2, 3}, {3});
      file.write<double>("/state/history/f1.sit%2Fstand", std::vector<double>{4, 5, 6}, {3});
    });
    trained.state.history = {};
    CheckpointParts parts = trained.parts();
    parts.model = &older;
    save_checkpoint("old.h5", parts);
    const History history = CheckpointReader("old.h5").state().history;
    CHECK(history.series("rmse.PRODUCT/ozone") == std::vector<double>{1, 2, 3});
    CHECK(history.series("f1.sit/stand") == std::vector<double>{4, 5, 6});
  }

  TEST_CASE("a copy is written as it was taken, whatever the training does meanwhile") {
    Trained trained;
    save_checkpoint("before.h5", trained.parts());
    CheckpointCopy copy;
    for (const int share : {0, 1}) copy.take(trained.parts(), share, 2);  // the memory is used again
    copy.take(trained.parts());
    for (float& w : trained.model.params().values().span<float>()) w += 1;
    trained.state.step = 99;
    copy.write("copy.h5");
    const CheckpointReader before("before.h5"), after("copy.h5");
    CHECK(pack(after.state()) == pack(before.state()));
    for (const std::string& array : before.arrays("/model"))
      CHECK(after.file().read<float>(array) == before.file().read<float>(array));
  }

  TEST_CASE("a file that this process has verified is read again only when it has changed") {
    save_checkpoint("a.h5", Trained().parts());
    struct stat then {};
    REQUIRE(::stat("a.h5", &then) == 0);
    std::fstream file("a.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(then.st_size / 2).put('#').flush();
    const timespec same[2] = {then.st_atim, then.st_mtim}, later[2] = {then.st_atim, {then.st_mtim.tv_sec + 1, 0}};
    ::utimensat(AT_FDCWD, "a.h5", same, 0);
    CHECK(checkpoint_defect("a.h5") == "");
    ::utimensat(AT_FDCWD, "a.h5", later, 0);
    CHECK(contains(checkpoint_defect("a.h5"), "damaged"));
  }

  TEST_CASE_FIXTURE(Saved, "protected checkpoints stay, and the best ones move down a rank") {
    for (const int step : {10, 20, 30}) {
      save_step(step);
      folder.make_room_for_best(1, 2, step);
      save(folder.best_file(1), step);
    }
    const auto step_of = [](const fs::path& path) { return CheckpointReader(path).state().step; };
    CHECK(step_of(folder.best_file(1)) == 30);
    CHECK(step_of(folder.best_file(2)) == 20);
    CHECK_FALSE(fs::exists(folder.best_file(3)));
    folder.make_room_for_best(1, 2, 30);  // the same evaluation again
    CHECK(step_of(folder.best_file(2)) == 20);
    set_protected(folder.step_file(10), true);
    folder.prune(1);
    CHECK(fs::exists(folder.step_file(10)));
    CHECK_FALSE(fs::exists(folder.step_file(20)));
    CHECK(fs::exists(folder.step_file(30)));
    set_protected(folder.step_file(10), false);
    folder.prune(1);
    CHECK_FALSE(fs::exists(folder.step_file(10)));
    CHECK(contains(error_of(Fault::usage, [&] { set_protected("none.h5", true); }), "no such file"));
  }

  TEST_CASE_FIXTURE(Saved, "a run that continues from a checkpoint has its best files, whatever was better after it") {
    const auto write = [&](std::int64_t place, std::int64_t step) {
      folder.set_best_aside();
      folder.make_room_for_best(place, 3, step);
      save(folder.best_file(place), step);
    };
    const auto steps = [&] {
      std::vector<std::int64_t> found;
      for (std::int64_t place = 1; fs::exists(folder.best_file(place)); ++place)
        found.push_back(CheckpointReader(folder.best_file(place)).state().step);
      return found;
    };
    using Steps = std::vector<std::int64_t>;
    const fs::path aside = folder.path() / "previous-best";
    write(1, 10);
    write(1, 20);
    CHECK(steps() == Steps{20, 10});
    folder.restore_best(0);  // there was no checkpoint
    CHECK(steps().empty());
    write(1, 10);
    write(2, 15);
    folder.prune(1);  // a checkpoint, of step 20
    CHECK(!fs::exists(aside));
    write(1, 30);
    write(2, 40);
    CHECK(steps() == Steps{30, 40, 10});
    folder.restore_best(20);
    CHECK(steps() == Steps{10, 15});
    CHECK(!fs::exists(aside));
    write(2, 30);
    folder.restore_best(20);
    CHECK(steps() == Steps{10, 15});
    write(2, 30);
    folder.restore_best(35);  // killed between the checkpoint of step 35 and prune()
    CHECK(steps() == Steps{10, 30, 15});
    CHECK(!fs::exists(aside));
  }

  TEST_CASE("any flipped bit of any byte is refused") {
    save_checkpoint("a.h5", Trained().parts());
    const std::string whole = read_text("a.h5");
    CHECK(checkpoint_defect("a.h5") == "");
    std::size_t accepted = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      write_text("b.h5", damaged);
      accepted += checkpoint_defect("b.h5").empty() ? 1 : 0;
    }
    CHECK(accepted == 0);
  }

  TEST_CASE("a file cut at any length is refused, and one with bytes behind its end") {
    save_checkpoint("a.h5", Trained().parts());
    const std::string whole = read_text("a.h5");
    std::size_t accepted = 0;
    for (std::size_t length = 0; length < whole.size(); length += length + 200 < whole.size() ? 13 : 1) {
      write_text("b.h5", whole.substr(0, length));
      accepted += checkpoint_defect("b.h5").empty() ? 1 : 0;
    }
    CHECK(accepted == 0);
    write_text("b.h5", whole + "x");
    CHECK(checkpoint_defect("b.h5") != "");
  }

  TEST_CASE("damage behind a forged end mark is refused by the checksums inside, or changes nothing that is read") {
    const Trained trained;
    save_checkpoint("a.h5", trained.parts());
    const std::string whole = read_text("a.h5").substr(0, fs::file_size("a.h5") - 64);
    std::size_t wrong = 0, refused = 0;
    for (std::size_t i = 0; i < whole.size(); i += 11) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      write_text("b.h5", damaged);
      append_end_mark("b.h5");
      if (!checkpoint_defect("b.h5").empty()) {
        ++refused;
        continue;
      }
      const CheckpointReader reader("b.h5");
      Trained other(0);
      reader.load_weights(other.model.params());
      reader.load_optimizer({"", other.optimizer.get()});
      if (pack(reader.state()) != pack(trained.state) ||
          other.model.params().hash() != const_cast<Trained&>(trained).model.params().hash())
        ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(refused > 0);
  }

  TEST_CASE_FIXTURE(Saved, "the newest whole checkpoint is taken, and the refused ones are named with their reason") {
    for (const int step : {5, 20, 100}) save_step(step);
    std::vector<CheckpointFolder::Rejected> rejected;
    CHECK(folder.newest_whole(rejected) == folder.step_file(100));
    CHECK(rejected.empty());
    const std::string text = read_text(folder.step_file(100));
    write_text(folder.step_file(100), text.substr(0, text.size() / 2));
    CHECK(folder.newest_whole(rejected) == folder.step_file(20));
    REQUIRE(rejected.size() == 1);
    CHECK(rejected[0].path == folder.step_file(100));
    CHECK(contains(rejected[0].reason, "truncated"));
    save(folder.final_file(), 50);  // a final.h5 counts by the step inside
    CHECK(folder.newest_whole(rejected) == folder.final_file());
    folder.prune(1);  // the damaged one does not count as kept
    CHECK(fs::exists(folder.step_file(20)));
    CHECK(!fs::exists(folder.step_file(5)));
    save(folder.rescue_file(60), 60);  // of a lost rank: counts as the others
    CHECK(folder.newest_whole(rejected) == folder.rescue_file(60));
    save_step(200);
    CHECK(folder.newest_whole(rejected) == folder.step_file(200));
    folder.prune(1);
    CHECK(!fs::exists(folder.rescue_file(60)));
  }

  TEST_CASE_FIXTURE(Saved, "checkpoints after a step move aside together, and the numbers of earlier moves stay") {
    fs::create_directories("previous-1");
    for (const int step : {100, 300, 500}) save_step(step);
    save(folder.final_file(), 500);
    save(folder.best_file(), 90);
    CHECK(folder.set_aside_after(500) == "");
    const fs::path place = folder.set_aside_after(100);
    CHECK(place == "./previous-2/checkpoints");
    for (const char* name : {"step-300.h5", "step-500.h5", "final.h5"}) {
      CHECK(checkpoint_defect(place / name) == "");
      CHECK(!fs::exists(folder.path() / name));
    }
    CHECK(fs::exists(folder.best_file()));
    std::vector<CheckpointFolder::Rejected> rejected;
    CHECK(folder.newest_whole(rejected) == folder.step_file(100));
  }

  TEST_CASE("a checkpoint of another model is refused with expected and found") {
    save_checkpoint("a.h5", Trained().parts());
    const CheckpointReader reader("a.h5");
    ToyTask more(DType::f32, 100, 6), fewer(DType::f32, 100, 4);
    CHECK(contains(error_of(Fault::data, [&] { reader.load_weights(more.params()); }), "no dataset '/model/w5'"));
    CHECK(contains(error_of(Fault::data, [&] { reader.load_weights(fewer.params()); }),
                   "'/model/w4' is not a parameter"));
    ParamStore wide;
    wide.add("w0", Shape{4, 2}, init::zeros());
    wide.allocate(0);
    const std::string message = error_of(Fault::data, [&] { reader.load_weights(wide); });
    CHECK(contains(message, "'/model/w0' has shape (3), but (4, 2)"));
    ParamStore mixed;
    mixed.add("w0", Shape{4, 2}, init::zeros());
    mixed.add("x", Shape{2}, init::zeros());
    mixed.allocate(0);
    const std::string all = error_of(Fault::data, [&] { reader.require_arrays_of(mixed); });
    for (const char* part : {"w0 (4, 2): has shape (3)", "x (2): missing", "w4: not in this configuration's model"})
      CHECK(contains(all, part));
    reader.require_arrays_of(ToyTask().params());
    const auto sgd = make_optimizer({.name = "sgd"}, more.params(), trainable_ranges(more.params()));
    const auto load = [&] { reader.load_optimizer({"", sgd.get()}); };
    CHECK(contains(error_of(Fault::data, load), "its optimizer is adam, this configuration's is sgd"));
  }

  TEST_CASE("missing is a usage error, foreign a data error") {
    CHECK(contains(error_of(Fault::usage, [&] { CheckpointReader reader("none.h5"); }), "no such file"));
    write_text("text.h5", std::string(500, 'x'));
    CHECK(contains(error_of(Fault::data, [&] { CheckpointReader reader("text.h5"); }), "it is a text file"));
    {
      H5File file = H5File::create("foreign.h5");
      file.set_attribute("/", "format", std::string("something"));
      file.close();
    }
    append_end_mark("foreign.h5");
    CHECK(contains(error_of(Fault::data, [&] { CheckpointReader reader("foreign.h5"); }), "not a checkpoint"));
  }

  TEST_CASE("a write that fails leaves the former file as it was") {
    const Trained trained;
    save_checkpoint("a.h5", trained.parts());
    const std::string before = read_text("a.h5");
    Writer bad([](H5File&) { throw Error(Fault::internal, "no space left on device"); });
    CheckpointParts parts = trained.parts();
    parts.model = &bad;
    CHECK_THROWS_AS(save_checkpoint("a.h5", parts), Error);
    CHECK(read_text("a.h5") == before);
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(".")) ++files;
    CHECK(files == 1);
  }
}
