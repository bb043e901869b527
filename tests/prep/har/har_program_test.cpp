/// The activity sources as users run them: what they write, what they say, how they end.

#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/prep/har/har_signal.hpp"
#include "prep/program.hpp"
#include "support/test.hpp"

using prep::HarSet;

namespace {

HarSet read(const fs::path& path) { return prep::read_har_set(H5File::open(path)); }

std::vector<std::string> problems_of(const fs::path& path, std::vector<std::string>& remarks) {
  return prep::check_har_set(H5File::open(path), remarks);
}

/// A folder as UCI HAR is published, with windows of 4 samples: value = channel + window / 100 + sample / 1000.
struct Published {
  fs::path folder;
  std::vector<int> train_labels = {5, 1, 1, 2, 6, 3, 4, 5}, test_labels = {2, 6};
  std::vector<int> train_subjects = {1, 1, 3, 3, 5, 5, 30, 30}, test_subjects = {2, 4};

  Published() : folder("UCI") {
    for (const char* part : {"train", "test"}) {
      const bool train = std::string(part) == "train";
      fs::create_directories(folder / part / "Inertial Signals");
      const auto& labels = train ? train_labels : test_labels;
      for (std::size_t c = 0; c < 9; ++c) {
        std::string text;
        for (std::size_t n = 0; n < labels.size(); ++n) {
          for (int t = 0; t < 4; ++t)
            text += "  " + std::to_string(static_cast<double>(c) + static_cast<double>(n) / 100 + t / 1000.0) + "e+000";
          text += "\n";
        }
        write_text(signal(part, c), text);
      }
      write_text(folder / part / (std::string("y_") + part + ".txt"), lines(labels));
      write_text(folder / part / (std::string("subject_") + part + ".txt"),
                 lines(train ? train_subjects : test_subjects));
    }
    write_text(folder / "activity_labels.txt",
               "\xEF\xBB\xBF"  // the mark of Windows
               "1 WALKING\n2 WALKING_UPSTAIRS\n3 WALKING_DOWNSTAIRS\n4 SITTING\n5 STANDING\n6 LAYING  \n");
  }
  fs::path signal(const std::string& part, std::size_t c) const {
    return folder / part / "Inertial Signals" / (prep::kHarChannels[c] + "_" + part + ".txt");
  }
  static std::string lines(const std::vector<int>& values) {
    std::string text;
    for (const int value : values) text += std::to_string(value) + "\n";
    return text;
  }
};
const std::string kUci = "uci-har -i UCI --window 4 -o out.h5 ";

/// Checks that the words fail with this exit code and message, and leave nothing behind.
void check_fails(const std::string& words, int status, const auto&... parts) {
  fs::remove("out.h5");
  check_mentions(prepare(words, status), parts...);
  for (const auto& entry : fs::directory_iterator("."))
    CHECK(entry.path().filename().string().find("out.h5") == std::string::npos);
}

/// Two recordings of two people, 300 samples, as HAPT has them.
void write_hapt(const std::string& labels) {
  fs::create_directories("HAPT/RawData");
  for (const auto& [experiment, user] : {std::pair<const char*, const char*>{"01", "01"}, {"02", "02"}}) {
    for (const char* sensor : {"acc", "gyro"}) {
      std::string text;
      for (int t = 0; t < 300; ++t) {
        for (int axis = 0; axis < 3; ++axis)
          text += std::to_string(std::sin(0.1 * t * (axis + 1)) + (sensor[0] == 'a' ? axis : -axis)) + " ";
        text += "\n";
      }
      write_text(std::string("HAPT/RawData/") + sensor + "_exp" + experiment + "_user" + user + ".txt", text);
    }
  }
  write_text("HAPT/RawData/labels.txt", labels);
}
const std::string kHapt = "hapt-raw -i HAPT --val-split random -o out.h5 ";

/// A table of `rows` samples of two channels, x = 5 t mod 7 and its square.
void write_recording(const fs::path& path, int rows, const std::string& header = "") {
  std::string text = header;
  for (int t = 0; t < rows; ++t)
    text += std::to_string(5 * t % 7) + "," + std::to_string(5 * t % 7 * (5 * t % 7)) + "\n";
  write_text(path, text);
}

/// Writes a manifest, prepares it with these options and returns what the program says.
std::string har(const std::string& list, const std::string& options, int status = 0) {
  write_text("list.csv", list);
  return prepare("har list.csv -o out.h5 " + options, status);
}
void check_har_fails(const std::string& list, const std::string& options, int status, const auto&... parts) {
  write_text("list.csv", list);
  check_fails("har list.csv -o out.h5 " + options, status, parts...);
}
/// All windows are for training.
const std::string kTraining = " --val-split random --val-fraction 0 ";

/// Means of the acceleration, swing of every channel, and how often x crosses its mean: what tells the synthetic
/// activities apart.
std::vector<double> features_of(const HarSet& set, std::int64_t n) {
  const auto window = set.window(n);
  std::vector<double> out;
  for (std::size_t c = 0; c < 9; ++c) {
    const auto x = window.subspan(c * 128, 128);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / 128;
    double variance = 0;
    int crossings = 0;
    for (std::size_t t = 0; t < 128; ++t) {
      variance += (x[t] - mean) * (x[t] - mean) / 128;
      crossings += t > 0 && (x[t] > mean) != (x[t - 1] > mean);
    }
    if (c >= 6) out.push_back(mean);
    if (c == 5) out.push_back(crossings / 10.0);
    out.push_back(0.5 * std::log(variance));
  }
  return out;
}

}  // namespace

TEST_SUITE("prep.har") {
  TEST_CASE("the published layout becomes windows, labels from 0 and subjects; whole subjects are for validation") {
    const Published published;
    check_mentions(prepare(kUci + "--val-subjects 5,30"), "windows            10 = 4 train + 4 validation + 2 test",
                   "9 channels x 4 samples at 50 Hz");
    const HarSet set = read("out.h5");
    CHECK(set.labels == std::vector<std::int32_t>{4, 0, 0, 1, 5, 2, 3, 4, 1, 5});
    CHECK(set.subject == std::vector<std::int32_t>{1, 1, 3, 3, 5, 5, 30, 30, 2, 4});
    CHECK(set.start == std::vector<std::int64_t>(10, -1));
    CHECK(set.channel_names == prep::kHarChannels);
    CHECK(set.class_names == prep::kHarActivities);
    CHECK(set.window(1)[0] == 0.01);                      // body_acc_x of the second window
    CHECK(set.window(7)[4 * 6 + 3] == 6 + 0.07 + 0.003);  // total_acc_x, last sample
    CHECK(set.window(9)[4 * 8 + 1] == 8 + 0.01 + 0.001);  // test
    CHECK(std::abs(set.channel_mean[2] - (2 + 0.015 + 0.0015)) < 1e-12);
    CHECK(std::abs(set.channel_std[2] - std::sqrt(1.25e-4 + 1.25e-6)) < 1e-12);
    CHECK(set.files.size() == 23);
    CHECK(set.files[1] == "train/Inertial Signals/body_acc_x_train.txt");
    prepare("check out.h5");
    check_mentions(run_prep("info out.h5").text, "val: 5 30", "total_acc_z", "WALKING_DOWNSTAIRS");

    const H5File file = H5File::open("out.h5");
    CHECK(file.text_attribute("/", "format") == "lockstep-har");
    CHECK(file.int_attribute("/", "version") == 1);
    CHECK(file.real_attribute("/", "sample_rate") == 50);
    CHECK(file.info("/val/signals").shape == std::vector<std::int64_t>{4, 9, 4});
    CHECK(file.info("/val/signals").type == H5Type::f64);
    CHECK(file.info("/test/labels").type == H5Type::i32);
    CHECK(file.info("/test/start").type == H5Type::i64);
    CHECK(file.text_attribute("/", "source") == "uci-har");
  }

  TEST_CASE("without subject files subjects are unknown and validation is random, when that is asked for") {
    const Published published;
    fs::remove(published.folder / "train/subject_train.txt");
    check_fails(kUci, 2, "train/subject_train.txt");  // only one of the two is missing
    fs::remove(published.folder / "test/subject_test.txt");
    check_fails(kUci, 2, "split.val_split", "use --val-split random");
    prepare(kUci + "--val-split random");
    const HarSet set = read("out.h5");
    CHECK(set.windows_in(0) == 6);
    CHECK(set.windows_in(1) == 2);  // a fifth of eight, rounded up
    CHECK(set.subject == std::vector<std::int32_t>(10, -1));
    const auto first = read_text("out.h5");
    prepare(kUci + "--val-split random");
    CHECK(read_text("out.h5") == first);
    prepare(kUci + "--val-split random --seed 7");
    CHECK(read_text("out.h5") != first);
  }

  TEST_CASE("errors in a published folder name file and line") {
    const Published good;
    const fs::path signal = good.signal("train", 4), y = good.folder / "train/y_train.txt";
    const std::string text = read_text(signal), labels = read_text(y);
    const std::size_t line = text.find('\n');
    const auto without_last_line = [](const std::string& t) { return t.substr(0, t.rfind('\n', t.size() - 2) + 1); };
    const auto with = [](const fs::path& file, const std::string& bytes, const std::string& message) {
      const std::string before = read_text(file);
      write_text(file, bytes);
      check_fails(kUci, 3, message);
      write_text(file, before);
    };
    fs::rename(signal, "aside");
    check_fails(kUci, 2, "body_gyro_y_train.txt");
    write_text(signal, text);
    with(signal, text.substr(0, line) + " 1.0" + text.substr(line), "body_gyro_y_train.txt:1: 5 values, expected 4");
    with(signal, without_last_line(text), "body_gyro_y_train.txt:8: 7 windows, but 'body_acc_x_train.txt' has 8");
    with(signal, text + text.substr(0, line + 1), "body_gyro_y_train.txt:9: 9 windows");
    with(y, "7" + labels.substr(1), "y_train.txt:1: label 7 is not one of activity_labels.txt (1 .. 6)");
    with(y, without_last_line(labels), "y_train.txt:8: 7 labels, but 'body_acc_x_train.txt' has 8 windows");
    const fs::path subjects = good.folder / "test/subject_test.txt", names = good.folder / "activity_labels.txt";
    with(subjects, "2\n4\n9\n", "subject_test.txt:3: 3 subjects, but 'body_acc_x_test.txt' has 2 windows");
    with(subjects, "2\n-4\n", "subject_test.txt:2: subject -4 is negative");
    with(names, "1 WALKING\n2\n", "activity_labels.txt:2");
    with(names, "1 WALKING\n2 CAF\xE9\n", "activity_labels.txt:2: the name of activity 2 is not UTF-8 text");
    check_fails("uci-har -i UCI --val-split random -o out.h5", 3, "body_acc_x_train.txt:1: 4 values, expected 128");
    check_fails(kUci, 2,
                "the default of --val-subjects: subject '17' has no training windows; those that have are 1,3,5,30");
    check_fails(kUci + "--val-subjects 5,17", 2, "option split.val_subjects: subject '17' has no training windows");
    check_fails(kUci + "--val-subjects 1,3,5,30", 3, "none of 8 is left for training");
    check_fails(kUci + "--val-split random --val-subjects 5", 2, "split.val_subjects", "has no effect");
    check_fails(kUci + "--val-fraction 0.5", 2, "split.val_fraction",
                "has no effect with split.val_subjects = 5,17,25,30; --val-subjects '' draws subjects");
    prepare(kUci + "--val-fraction 0.5 --val-subjects=");
    CHECK(read("out.h5").windows_in(1) > 0);
    check_fails("uci-har -i nowhere -o out.h5", 2, "'nowhere': no such folder");
  }

  TEST_CASE("raw recordings are filtered and cut inside their activities, one window every 64 samples") {
    write_hapt("1 1 5 3 200\n1 1 7 201 299\n2 2 1 1 128\n1 1 6 173 300\n2 2 3 100 200\n");
    prepare(kHapt + "--val-fraction 0");
    const HarSet set = read("out.h5");
    CHECK(set.start == std::vector<std::int64_t>{2, 66, 172, 0});  // 100 .. 200 is too short; 128 samples just fit
    CHECK(set.labels == std::vector<std::int32_t>{4, 4, 5, 0});
    CHECK(set.recording == std::vector<std::int32_t>{1, 1, 1, 2});
    CHECK(set.split == std::vector<std::uint8_t>{0, 0, 0, 2});  // subject 2 is of the official test
    const auto acc = prep::read_text_table("HAPT/RawData/acc_exp01_user01.txt", 3);
    const auto gyro = prep::read_text_table("HAPT/RawData/gyro_exp01_user01.txt", 3);
    const auto y = prep::split_signal(acc.column(1)), z = prep::split_signal(gyro.column(2));
    for (std::size_t t = 0; t < 128; ++t) {
      CHECK(set.window(1)[1 * 128 + t] == y.body[66 + t]);
      CHECK(set.window(1)[7 * 128 + t] == y.total[66 + t]);
      CHECK(set.window(1)[5 * 128 + t] == z.body[66 + t]);
    }
    prepare("check out.h5");
    prepare("hapt-raw -i HAPT/RawData --test-subjects 1 --val-split random --val-fraction 0 -o b.h5");
    CHECK(read("b.h5").windows_in(2) == 3);
    write_hapt("1 1 5 3 200\n1 1 7 101 299\n2 2 12 1 128\n");
    prepare(kHapt + "--val-fraction 0 --transitions");
    const HarSet all = read("out.h5");
    CHECK(all.start == std::vector<std::int64_t>{2, 66, 100, 164, 0});
    CHECK(all.labels == std::vector<std::int32_t>{4, 4, 6, 6, 11});
    CHECK(all.class_names.size() == 12);
    CHECK(all.class_names[11] == "LIE_TO_STAND");
  }

  TEST_CASE("errors in raw recordings name file and line") {
    const auto with = [&](const std::string& labels, int status, const auto&... parts) {
      write_hapt(labels);
      check_fails(kHapt, status, parts...);
    };
    with("1 1 5 1 200\n1 1 13 1 200\n", 3, "labels.txt:2: activity 13 is not one of 1 .. 12");
    with("1 1 5 1 200\n1 1 4 1 301\n", 3, "labels.txt:2: samples 1 .. 301 of a recording that has 1 .. 300");
    with("1 1 5 0 200\n", 3, "labels.txt:1: samples 0 .. 200");
    with("1 1 5 20 10\n", 3, "labels.txt:1: samples 20 .. 10");
    with("1 1 5 1 200\n1 2 5 1 200\n", 3, "labels.txt:2: experiment 1 is of user 2, elsewhere of user 1");
    with("1 1 5 1\n", 3, "labels.txt:1: 4 values, expected 5");
    with("3 1 5 1 200\n", 2, "acc_exp03_user01.txt");
    write_hapt("1 1 5 1 200\n");
    check_fails(kHapt + "--test-subjects 9", 2, "split.test_subjects", "no recording is of subject '9'");
    const fs::path gyro = "HAPT/RawData/gyro_exp01_user01.txt";
    const std::string text = read_text(gyro);
    write_text(gyro, text + "1 2 3\n");
    check_fails(kHapt, 3, "gyro_exp01_user01.txt:301: 301 samples, but 'acc_exp01_user01.txt' has 300");
    write_text(gyro, "1 2\n" + text);
    check_fails(kHapt, 3, "gyro_exp01_user01.txt:1: 2 values, expected 3");
    fs::remove("HAPT/RawData/labels.txt");
    check_fails(kHapt, 2, "labels.txt");
  }

  TEST_CASE("a manifest of tables gives windows of any channels, length and classes") {
    fs::create_directories("rec");
    write_recording("rec/a.csv", 10, "front,back\n");
    write_recording("rec/b.csv", 7);
    write_recording("rec/c.csv", 3);
    write_recording("rec/d.csv", 8);
    write_text("list.csv",
               "path,label,subject,split\nrec/a.csv,walk,ann,train\nrec/b.csv,sit, bob ,val\nrec/c.csv,run,,train\n"
               "\nrec/d.csv,sit,cleo,test\n");
    check_mentions(prepare("har --format manifest list.csv --rate 20 --window 4 --stride 3 --output out.h5"),
                   "left out           1 of 4 recordings", "7 = 3 train + 2 validation + 2 test");
    const HarSet set = read("out.h5");
    CHECK(set.class_names == std::vector<std::string>{"run", "sit", "walk"});
    CHECK(set.channel_names == std::vector<std::string>{"front", "back"});
    CHECK(set.subject_names == std::vector<std::string>{"ann", "bob", "cleo"});
    CHECK(set.labels == std::vector<std::int32_t>{2, 2, 2, 1, 1, 1, 1});
    CHECK(set.subject == std::vector<std::int32_t>{0, 0, 0, 1, 1, 2, 2});
    CHECK(set.recording == std::vector<std::int32_t>{0, 0, 0, 1, 1, 3, 3});
    CHECK(set.start == std::vector<std::int64_t>{0, 3, 6, 0, 3, 0, 3});
    const auto second = set.window(1);
    CHECK(std::vector<double>(second.begin(), second.end()) == std::vector<double>{1, 6, 4, 2, 1, 36, 16, 4});
    CHECK(set.sample_rate == 20);
    prepare("check out.h5");
    check_mentions(run_prep("info out.h5").text, "train: ann", "front", "0.2 s");
  }

  TEST_CASE("a manifest without splits keeps subjects together; numbers stay numbers") {
    std::string list;
    for (int i = 0; i < 20; ++i) {
      const std::string name = "r" + std::to_string(i) + ".txt";
      write_recording(name, 40);
      list += name + "," + std::to_string(10 - 5 * (i % 3)) + "," + std::to_string(100 + i / 2) + ",\n";
    }
    write_text("list.csv", list);
    const std::string words = "har list.csv --rate 20 --window 8 -o ";
    prepare(words + "a.h5");
    const HarSet set = read("a.h5");
    CHECK(set.class_names == std::vector<std::string>{"0", "5", "10"});
    CHECK(set.subject_names.empty());
    CHECK(set.channel_names == std::vector<std::string>{"channel_0", "channel_1"});
    CHECK(set.windows_in(2) == 20);  // 2 of 10 subjects
    CHECK(set.windows_in(1) == 20);  // 2 of 8
    CHECK(*std::min_element(set.subject.begin(), set.subject.end()) == 100);
    std::map<std::int32_t, std::set<int>> parts;
    for (std::size_t n = 0; n < set.split.size(); ++n) parts[set.subject[n]].insert(set.split[n]);
    for (const auto& [subject, in] : parts) CHECK(in.size() == 1);
    prepare(words + "b.h5");
    CHECK(read_text("a.h5") == read_text("b.h5"));
    prepare(words + "c.h5 --seed 3 --val-subjects 101,109 --test-fraction 0");
    CHECK(read("c.h5").windows_in(2) == 0);
    check_mentions(run_prep("info c.h5").text, "val: 101 109", "test: none");
    check_mentions(run_prep("check c.h5").text, "note: there are no test windows", "good");
  }

  TEST_CASE("subjects are chosen so that the parts come near to the shares that were asked for") {
    // One subject has two thirds of the windows; two classes have few subjects.
    std::string list;
    int file = 0;
    const auto record = [&](const std::string& label, const std::string& subject, int windows) {
      const std::string name = "r" + std::to_string(file++) + ".txt";
      write_recording(name, 8 * windows);
      list += name + "," + label + "," + subject + ",\n";
    };
    record("walk", "big", 200);
    for (int i = 0; i < 9; ++i) record("walk", "s" + std::to_string(i), 8);
    for (int i = 0; i < 9; i += 3) record("run", "s" + std::to_string(i), 8);
    record("fall", "s4", 4);
    for (const std::string seed : {"1", "2", "3", "4", "5", "6", "7", "8"}) {
      const std::string text = har(list, "--rate 20 --window 8 --seed " + seed);
      CAPTURE(seed);
      const HarSet set = read("out.h5");
      CHECK(set.windows() == 300);
      CHECK(set.windows_in(2) >= 56);
      CHECK(set.windows_in(2) <= 76);  // a fifth is 60
      for (const auto count : set.class_counts(0)) CHECK(count > 0);
      CHECK(set.class_counts(2)[1] == 8);  // run: one of three subjects
      CHECK(text.find("warning") == std::string::npos);
    }
  }

  TEST_CASE("the table of classes is printed; a class without training windows is a warning") {
    for (const char* name : {"a.csv", "b.csv", "c.csv"}) write_recording(name, 8);
    for (const char* option : {"val", "test"})
      check_har_fails("a.csv,walk,1,train\nb.csv,sit,2,test\nc.csv,walk,3,val\n",
                      std::string("--rate 20 --window 4 --") + option + "-fraction 0.3", 2,
                      "_fraction = 0.3: the manifest already chooses the recordings for ");
    check_mentions(har("a.csv,walk,1,train\nb.csv,sit,2,test\nc.csv,walk,3,val\n", "--rate 20 --window 4"),
                   "class                         train        val       test   subjects\n",
                   "sit                               0          0          2          1\n",
                   "walk                              2          2          0          2\n",
                   "warning: class sit has no training window",
                   "note               class sit has windows of one subject", "only, 2",
                   "note               class walk has no test window");
    check_mentions(run_prep("check out.h5").text, "note: class sit has windows of one subject only, 2");
  }

  TEST_CASE("columns are chosen or skipped by name, with or without a header, also where one holds text") {
    write_text("a.csv",  // as Windows writes it
               "\xEF\xBB\xBFwhen,\"acc, x\",\"acc_y\"\r\n2020-01-01 00:00:00,1,\"5\"\r\n2020-01-01 00:00:01,2,6\r\n");
    write_text("b.csv", "2020-01-01 00:00:00,3,7\n2020-01-01 00:00:01,4,8\n");
    const std::string both = "# recordings of May\n\"a.csv\",\"walk, slowly\",1,train\nb.csv,sit,2,val\n";
    const std::string words = "--rate 20 --window 2 ";
    const auto taken = [&](const std::string& list, const std::string& options) {
      har(list, words + options);
      return read("out.h5");
    };
    HarSet set = taken(both, "--skip-columns when");
    CHECK(set.channel_names == std::vector<std::string>{"acc, x", "acc_y"});
    CHECK(set.class_names == std::vector<std::string>{"sit", "walk, slowly"});
    CHECK(set.signals == std::vector<double>{1, 2, 5, 6, 3, 4, 7, 8});
    set = taken(both, "--columns acc_y");
    CHECK(set.channel_names == std::vector<std::string>{"acc_y"});
    CHECK(set.signals == std::vector<double>{5, 6, 7, 8});
    check_har_fails(both, words, 3, "a.csv:2: '2020-01-01 00:00:00' is not a number");
    check_har_fails(both, words + "--columns acc_z", 2, "no column 'acc_z'", "when, acc, x, acc_y");
    set = taken("b.csv,sit,2,train\n", "--columns channel_2,channel_1" + kTraining);
    CHECK(set.channel_names == std::vector<std::string>{"channel_2", "channel_1"});
    CHECK(set.signals == std::vector<double>{7, 8, 3, 4});
    check_har_fails("\"a.csv,sit,2,train\n", words, 3, "list.csv:1: a quoted field");
    write_text("c.csv", "index,value\n0,1\n1,5\n2,3\n3,4\n4,2\n5,9\n6,1\n7,5\n");
    CHECK(taken("c.csv,sit,2,train\n", "--stride 9223372036854775807" + kTraining).windows() == 1);
    const std::string text = har("c.csv,sit,2,train\n", words + kTraining);
    check_mentions(text, "warning: index never falls within a recording", "--skip-columns index");
    CHECK_FALSE(contains(text, "value never falls"));
  }

  TEST_CASE("columns of labels, subjects and times: a window has one activity of one subject and crosses no gap") {
    // 20 Hz in ms. Sample 12 is without a value, sample 30 comes 2 s late, from sample 40 on it is another person.
    std::string text = "user;activity;timestamp;note;ax;ay\n";
    for (int t = 0; t < 60; ++t) {
      const char* activity = t < 20 ? "walk" : t < 25 ? "nan" : t < 28 ? "other" : t < 50 ? "sit" : "walk";
      text += std::string(t < 40 ? "ann" : "bob") + ";" + activity + ";" +
              std::to_string(50 * t + (t >= 30 ? 1950 : 0)) + ";x;" +
              (t == 12 ? "" : std::to_string(5 * t % 7) + ",5") + ";" + std::to_string(3 * t % 5) + "\n";
    }
    write_text("all.csv", text);
    const std::string words =
        "--rate 20 --window 4 --label-column activity --subject-column user --skip-columns note --test-fraction 0" +
        kTraining;
    check_mentions(har("all.csv\n", words + "--skip-labels other"), "channels           ax, ay\n",
                   "left aside         columns note\n", "column timestamp in ms, from 0 s to 4.9 s; it is no channel",
                   "20 Hz as given, 20 Hz by the times", "1 within recordings, 2 s in all, the first of 2 s before",
                   "all.csv:32;", "5 of 60 samples without a label", "3 samples of --skip-labels other",
                   "1 of 60 samples with missing values in ax 1", "2 samples in pieces shorter than a window",
                   "subjects           2, with windows: ann 6, bob 4");
    const HarSet set = read("out.h5");
    CHECK(set.class_names == std::vector<std::string>{"sit", "walk"});
    CHECK(set.labels == std::vector<std::int32_t>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1});
    CHECK(set.subject == std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1});
    // 39 samples lack at the gap, and a person never goes on where another one ends.
    CHECK(set.start == std::vector<std::int64_t>{0, 4, 8, 13, 69, 73, 80, 84, 90, 94});
    CHECK(set.window(0)[1] == 5.5);
    CHECK(set.window(4)[0] == 5 * 30 % 7 + 0.5);
    check_mentions(har("all.csv\n", words + "--skip-labels other,0"),
                   "warning: no sample has the label 0 of --skip-labels; the labels are sit, walk");
    har("all.csv\n", words + "--time-column none");
    CHECK(read("out.h5").channel_names == std::vector<std::string>{"timestamp", "ax", "ay"});
    check_har_fails("all.csv\n", "--rate 20 --window 4 --subject-column user --label-column activity --columns ax,user",
                    2, "column 'user' is chosen for a channel and for labels");
    write_text("some.csv", "user,x\nann,1\nann,2\n?,3\n,4\nbob,5\nbob,6\n");
    check_mentions(har("some.csv,walk,,\n", "--rate 20 --window 2 --subject-column user --test-fraction 0"),
                   "2 of 6 samples without a subject", "1 train + 1 validation");
    check_har_fails("all.csv,walk,,\n", words, 3,
                    "list.csv:1: label 'walk', but --label-column takes labels from the table");
    check_har_fails("all.csv,,cleo,\n", words, 3, "list.csv:1: subject 'cleo', but --subject-column");
  }

  TEST_CASE("times are compared with the rate, and warned of where they fall or repeat") {
    const auto said = [&](const auto& time, const std::string& more = "") {
      std::string text = "x,Creation_Time\n";
      for (int t = 0; t < 100; ++t) text += std::to_string(5 * t % 7) + "," + time(t) + "\n";
      write_text("a.csv", text);
      return har("a.csv,walk,1,train\n", "--rate 50 --window 10" + kTraining + more);
    };
    const auto number = [](double scale) {
      return [scale](int t) { return std::to_string(std::llround(1.424696e9 * scale + t * 0.02 * scale)); };
    };
    for (const auto& [unit, scale] : {std::pair<std::string, double>{"ms", 1e3}, {"us", 1e6}, {"ns", 1e9}}) {
      const std::string text = said(number(scale));
      check_mentions(text, "column Creation_Time in " + unit + ", from 2015-02-23 12:53:20 to 2015-02-23 12:53:21",
                     "50 Hz as given, 50 Hz by the times");
      CHECK_FALSE(contains(text, "warning"));
    }
    check_mentions(said([](int t) { return std::to_string(t * 0.01); }),
                   "warning: --rate 50 is not the rate of 1 of 1 recordings by their times in column Creation_Time: "
                   "a.csv 100 Hz");
    check_mentions(said([](int t) { return std::to_string(0.04 * (t / 2)); }), "50.51 Hz by the times",
                   "warning: the times of column Creation_Time do not rise at 50 of 99 samples");
    check_mentions(said([](int t) { return std::to_string(0.02 * (t * 37 % 100)); }),
                   "warning: the times of column Creation_Time fall at", "of 99 samples, first at a.csv:5");
    check_mentions(said([](int t) { return "2026-05-17 09:30:0" + std::to_string(t * 0.02); }),
                   "from 2026-05-17 09:30:00 to 2026-05-17 09:30:01", "50 Hz by the times");
    write_text("dated.csv",
               "Date;Time;x\n2026-03-01;09:00:00.00;5\n2026-03-01;09:00:00.02;3\n2026-03-01;09:00:00.04;4\n");
    check_mentions(har("dated.csv,walk,1,train\n", "--rate 50 --window 3" + kTraining),
                   "left aside         columns Date\n", "column Time in s", "50 Hz by the times");
    check_mentions(said([](int t) { return std::to_string(t); }), "counts samples; it is no channel");
    check_mentions(said([](int t) { return std::to_string(t * 0.02); }, "--columns x,Creation_Time"),
                   "warning: Creation_Time never falls");
  }

  TEST_CASE(
      "a subject or recording in another unit than the others is warned of, as are values that a unit cannot have") {
    const auto said = [&](const auto& scale, const std::string& more = "") {  // of a subject, class and sensor
      std::string list;
      for (int who = 0; who < 5; ++who)
        for (int what = 0; what < 2; ++what) {
          std::string text = "acc_x,acc_y,acc_z,gyro_x,gyro_y,gyro_z\n";
          for (int t = 0; t < 60; ++t) {
            const double swing = (what + 0.1) * std::sin(0.7 * t + who), a = scale(who, what, 0),
                         g = scale(who, what, 1);
            text += join(a * swing, ",", a * (9.8 + swing / 3), ",", a * 0.3, ",", g * swing, ",",
                         g * swing * (1 + 0.1 * who), ",", g * 0.01 * std::cos(t)) +
                    "\n";
          }
          const std::string name = join("p", who, what ? "-walk.csv" : "-sit.csv");
          write_text(name, text);
          list += join(name, ",", what ? "walk" : "sit", ",p", who, ",\n");
        }
      return har(list, "--rate 50 --window 20 " + more);
    };
    CHECK_FALSE(contains(said([](int, int, int) { return 1.0; }), "warning"));
    check_mentions(said([](int who, int, int s) { return who == 3 && s == 0 ? 1 / 9.80665 : 1; }),
                   "warning: acc_x, acc_y, acc_z of subject p3 are about 1/9.807 times those of the others",
                   "as g and m/s2 differ");
    check_mentions(said([](int who, int what, int s) { return who == 1 && what == 1 && s == 0 ? 101.97162 : 1; }),
                   "warning: acc_x, acc_y, acc_z of recording p1-walk.csv are about 102 times",
                   "as mg and m/s2 differ");
    check_mentions(said([](int who, int, int s) { return s == 1 && who > 2 ? 57.29578 : 1; }),
                   "warning: gyro_x, gyro_y, gyro_z of subjects p3, p4 are about 57.3 times",
                   "as deg/s and rad/s differ");
    const auto same = [](int, int, int) { return 1.0; };
    check_mentions(said(same, "--units g,g,g,rad/s,rad/s,rad/s"), "warning: acc_x, acc_y, acc_z: -1.",
                   " g, with a typical length of 9.8", ", that of gravity in m/s2");
    CHECK_FALSE(contains(said(same, "--units m/s2,m/s2,m/s2,rad/s,rad/s,rad/s"), "warning"));
    check_mentions(prepare("check out.h5"), "good");
    write_recording("a.csv", 60, "x,y\n");
    const std::string list = "a.csv,walk,1,train\n", words = "--rate 50 --window 20 --units g" + kTraining;
    check_mentions(har(list, words), "warning: x: 0 to 6 g, are whole numbers only, as a converter counts");
    check_mentions(prepare("check --strict out.h5", 3), "x: 0 to 6 g");
    check_har_fails(list, words + "--strict", 3, "preparing with --strict", "as a converter counts");
  }

  TEST_CASE("labels that mean none, or that only case or blanks tell apart, and decimal commas are warned of") {
    for (const char* name : {"a.csv", "b.csv", "c.csv", "d.csv"}) write_recording(name, 8);
    const std::string list = "a.csv,walk fast,1,train\nb.csv,Walk_fast,2,train\nc.csv,nan,3,train\nd.csv,sit,3,train\n";
    const std::string words = "--rate 20 --window 4" + kTraining, one = "a.csv,walk,1,train\n";
    check_mentions(har(list, words), "warning: classes 'Walk_fast', 'walk fast' differ by case, blanks",
                   "warning: class 'nan' looks like a missing label; --skip-labels nan");
    check_mentions(har(list, words + "--skip-labels nan"), "8 samples of --skip-labels nan");
    CHECK(read("out.h5").class_names == std::vector<std::string>{"Walk_fast", "sit", "walk fast"});
    write_text("a.csv", "0,17,-9,81\n-0,05,9,80\n1,25,9,07\n0,75,9,5\n");
    check_mentions(har(one, words), "warning: a.csv: every second column holds whole numbers only");
    write_text("a.csv", "walk,0,17,-9,81\nwalk,-0,05,9,80\n");
    check_mentions(har("a.csv,,1,train\n", "--label-column channel_0 --rate 20 --window 2" + kTraining),
                   "warning: a.csv: every second column");
    write_text("a.csv", "0,17,-9,81\n-10,55,9,80\n1,25,9,17\n0,75,9,5\n");  // so do the counts of a converter
    CHECK_FALSE(contains(har(one, words), "warning: a.csv"));
  }

  TEST_CASE("recordings for tests alone make a set like the training's") {
    for (const char* name : {"a.csv", "b.csv", "c.csv"}) write_recording(name, 40, "x,y\n");
    write_text("train.csv", "a.csv,walk,1,train\nb.csv,sit,2,train\nc.csv,run,3,val\n");
    write_text("tests.csv", "c.csv,walk,9,test\n");
    prepare("har train.csv --rate 20 --window 8 -o train.h5");
    const std::string words = "har tests.csv --rate 20 --window 8 -o out.h5 ";
    check_fails(words, 2, "all 1 recordings are for tests", "--like");
    check_fails(words + "--like train.h5 --columns x", 3, "its channels x are not those of 'train.h5', x, y");
    check_fails("har tests.csv --rate 25 --window 8 -o out.h5 --like train.h5", 3, "windows of 8 samples at 20 Hz",
                "rate = 25");
    prepare(words + "--like train.h5");
    const HarSet set = read("out.h5"), train = read("train.h5");
    CHECK(set.windows_in(2) == 5);
    CHECK(set.windows() == 5);
    CHECK(set.class_names == train.class_names);
    CHECK(set.channel_mean == train.channel_mean);
    CHECK(set.channel_std == train.channel_std);
    check_mentions(run_prep("check out.h5").text, "there are no training windows", "good");
    prepare("info out.h5");
    write_text("tests.csv", "c.csv,swim,9,test\n");
    check_fails(words + "--like train.h5", 3, "tests.csv:1: label 'swim' is not a class of 'train.h5'");
  }

  TEST_CASE("values that 32-bit floats cannot hold are refused, also in a prepared file") {
    write_text("a.csv", "1\n2\n1e40\n4\n");
    const std::string list = "a.csv,walk,1,train\n", words = "--rate 20 --window 2" + kTraining;
    check_har_fails(list, words, 3, "a.csv:3: 1e40 does not fit 32-bit floats");
    write_text("a.csv", "1\n2\n3\n4\n");
    har(list, words);
    HarSet set = read("out.h5");
    set.signals[2] = 1e40;
    take_channel_moments(set);
    write_har_set("out.h5", set);
    std::vector<std::string> remarks;
    const auto problems = problems_of("out.h5", remarks);
    REQUIRE(problems.size() == 1);
    check_mentions(problems.front(), "sample 0: 1e+40 is no finite 32-bit float");
  }

  TEST_CASE("errors in a manifest or its tables name file and line") {
    write_recording("a.csv", 10, "x,y\n");
    write_recording("b.csv", 10, "x,z\n");
    write_recording("d.csv", 10, "x,y\n");
    write_text("c.csv", "7 2 3\n4 5 6\n");
    const std::string words = "--rate 20 --window 4 ", twice = "twice.csv,walk,1,train\n";
    const auto with = [&](const std::string& list, int status, const auto&... parts) {
      check_har_fails(list, words, status, parts...);
    };
    with("a.csv,walk\n", 3, "list.csv:1: 2 fields, expected path,label,subject,split");
    with("a.csv,,1,train\n", 3, "list.csv:1: the label is empty");
    with("a.csv,walk,1,train\n\na.csv,sit,1,train\n", 3, "list.csv:3: 'a.csv' is named already in", "list.csv:1");
    with("a.csv,walk,1,training\n", 3, "list.csv:1: split 'training' is not one of train, val, test");
    with("a.csv,walk,,\n", 3, "list.csv:1: neither subject nor split");
    with("a.csv,walk,1,train\nd.csv,walk,1,\n", 3, "list.csv:2: subject '1' has no split here, but one in",
         "list.csv:1");
    with("missing.csv,walk,1,train\n", 2, "list.csv:1: 'missing.csv': no such file");
    with(std::string(300, 'n') + ",walk,1,train\n", 2, "nnn': no such file");
    with("a.csv,walk,1,train\nb.csv,walk,2,train\n", 3, "b.csv:1: other channel names");
    with("a.csv,walk,1,train\nc.csv,walk,2,train\n", 3, "c.csv:1: 3 values, expected 2");
    with("c.csv,walk,1,train\n", 3, "list.csv: no window of 4 samples: left out are 1 of 1 recordings");
    write_text("bare.csv", "0,5\n1,3\n2,4\n3,1\n");
    write_text("clock.csv", "time,x\n0,5\n1,3\n2,4\n3,1\n");
    with("bare.csv,walk,1,train\nclock.csv,walk,1,train\n", 3,
         "clock.csv:1: 1 channels, but 2 in the recordings before");
    with("Path,Label,Subject,Split\na.csv,walk,1,\n", 3,
         "1 subject is not enough for a test part; use --test-fraction 0");
    with("\n", 3, "list.csv: no recordings");
    with("a.csv,caf\xE9,1,train\n", 3, "list.csv:1: it is not UTF-8 text");
    write_recording("twice.csv", 10, "x,x\n");
    check_har_fails(twice, words + "--columns x", 3, "two columns are named 'x'");
    check_har_fails(twice, words + "--columns x,x", 2, "a column is named twice");
    with("a.csv,walk,,train\n", 3, "have no known subject; use --val-split random");
    check_har_fails("a.csv,walk,1,train\n", "--window 4", 2, "rate");
    check_har_fails("a.csv,walk,1,train\n", "--rate 0 --window 4", 2, "rate", "must be > 0");
    check_har_fails("a.csv,walk,1,train\n", "--format json --rate 20 --window 4", 2, "format");
    check_fails("har nothing.csv --rate 20 --window 4 -o out.h5", 2, "nothing.csv");
  }

  TEST_CASE("synthetic activities differ in their signal, also across subjects") {
    prepare("synth-har --seed 11 -o a.h5");
    const HarSet set = read("a.h5");
    CHECK(set.windows() == 12 * 6 * 22);
    std::vector<std::pair<std::vector<double>, std::int32_t>> known;
    int right = 0, asked = 0;
    for (std::int64_t n = 0; n < set.windows(); ++n) {
      const auto i = to_size(n);
      const auto features = features_of(set, n);
      if (set.split[i] == 0) known.emplace_back(features, set.labels[i]);
      if (set.split[i] != 2) continue;
      double nearest = 1e300;
      std::int32_t label = -1;
      for (const auto& [other, its] : known) {
        double distance = 0;
        for (std::size_t k = 0; k < features.size(); ++k)
          distance += (features[k] - other[k]) * (features[k] - other[k]);
        if (distance < nearest) nearest = distance, label = its;
      }
      right += label == set.labels[i];
      ++asked;
    }
    CAPTURE(right);
    CHECK(asked > 200);
    CHECK(right > 0.97 * asked);
    // A subject does not depend on how many there are.
    prepare("synth-har --seed 11 --subjects 3 -o c.h5");
    const auto one = [](const HarSet& of) {
      std::vector<double> found;
      for (std::int64_t n = 0; n < of.windows(); ++n) {
        const auto i = to_size(n);
        if (of.subject[i] == 2 && of.labels[i] == 3 && of.start[i] == 128)
          found = {of.window(n).begin(), of.window(n).end()};
      }
      return found;
    };
    CHECK(one(set).size() == 9 * 128);
    CHECK(one(set) == one(read("c.h5")));
    check_fails("synth-har --subjects 2 -o out.h5", 2, "subjects");
    check_fails("synth-har --seconds 2 -o out.h5", 2, "seconds");
  }

  TEST_CASE("whether a channel is constant does not depend on its unit") {
    for (const double unit : {1e-20, 1e-9, 1.0, 1e9}) {
      CAPTURE(unit);
      HarSet set;
      set.length = 4;
      set.channel_names = {"wave", "offset", "flat"};
      const std::vector<double> wave = {unit, -unit, unit, -unit};
      const std::vector<double> offset = {1001 * unit, 999 * unit, 1001 * unit, 999 * unit};
      append_windows(set, {wave, offset, std::vector<double>(4, 0.3 * unit)}, 0, 4, 4, {});
      take_channel_moments(set);
      CHECK(set.channel_std[0] == Approx(unit).epsilon(1e-9));
      CHECK(set.channel_std[1] == Approx(unit).epsilon(1e-9));
      CHECK(set.channel_std[2] == 1);
    }
  }

  TEST_CASE("check finds what was changed after the file was made") {
    prepare("synth-har --subjects 6 --seconds 6 -o a.h5");
    const HarSet good = read("a.h5");
    std::vector<std::string> remarks;
    const auto with = [&](auto change, const auto&... parts) {
      HarSet set = good;
      set.notes = {{"val_split", std::string("subject")}};
      change(set);
      prep::write_har_set("b.h5", set);
      const auto problems = problems_of("b.h5", remarks);
      REQUIRE(problems.size() == 1);
      check_mentions(problems[0], parts...);
    };
    with([](HarSet& s) { s.signals[2 * 1152 + 3 * 128 + 7] = NAN; },
         "/train/signals window 2, channel body_gyro_x, sample 7");
    with([](HarSet& s) { s.labels[5] = 6; }, "/train/labels row 5: 6, must be -1 .. 5");
    with([](HarSet& s) { s.labels.back() = -2; }, "/test/labels", ": -2");
    with([](HarSet& s) { s.labels[5] = -1; }, "1 training or validation windows have no label");
    with([](HarSet& s) { s.subject[0] = -2; }, "/train/subject row 0: -2, must be >= -1");
    with([](HarSet& s) { s.start[1] = -5; }, "/train/start row 1: -5");
    with([](HarSet& s) { s.channel_mean[8] += 1e-6; }, "moments of total_acc_z");
    with([](HarSet& s) { s.channel_std[0] *= 1.001; }, "moments of body_acc_x");
    with([](HarSet& s) { s.signals[0] += 0.5; }, "moments of body_acc_x");
    with([](HarSet& s) { s.sample_rate = 0; }, "sample_rate is 0");
    with([](HarSet& s) { s.class_names[1] = "WALKING"; }, "class_names are not all different");
    with([](HarSet& s) { s.recording[1] = s.recording[0], s.start[1] = s.start[0]; },
         "1 windows have the recording and start");
    with([](HarSet& s) { s.files = {"x"}; }, "0 checksums for 1 sources");
    with(
        [](HarSet& s) {
          const auto val = std::find(s.split.begin(), s.split.end(), 1) - s.split.begin();
          s.subject[to_size(val)] = s.subject[0];
        },
        "1 subject is in both train and val");
    // Another shape or type is no file of this format.
    {
      H5File file = H5File::create("c.h5");
      file.set_attribute("/", "format", std::string("lockstep-har"));
      file.set_attribute("/", "version", std::int64_t{2});
    }
    check_mentions(error_of(Fault::data, [&] { read("c.h5"); }), "version 2, this program reads version 1");
    prepare("check b.h5", 3);
  }
}
