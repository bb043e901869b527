#include <cmath>
#include <numbers>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/philox.hpp"
#include "prep/har/har_options.hpp"

namespace lockstep::prep {

namespace {

constexpr std::int64_t kWindow = 128, kStride = 64;
constexpr double kRate = 50;

/// Signal of an activity: steps per second, swing of the three axes [g], and angles of the phone [rad].
struct Activity {
  double step_hz;
  std::array<double, 3> swing;
  double pitch, roll;
};
constexpr std::array<Activity, 6> kModel = {{{1.8, {0.30, 0.15, 0.15}, 0.10, 0.10},
                                             {1.4, {0.22, 0.10, 0.32}, 0.25, 0.05},
                                             {2.3, {0.50, 0.28, 0.12}, 0.00, 0.15},
                                             {0.3, {0.01, 0.01, 0.01}, 0.70, 0.10},
                                             {0.4, {0.02, 0.01, 0.01}, 0.05, 0.05},
                                             {0.2, {0.01, 0.01, 0.01}, 1.40, 0.60}}};

/// One subject's recording of one activity, [channel][sample].
///
///   body_a = swing_a sum_h sin(2 pi h f t + phase_ah) / h^2 + noise,   h = 1, 2, 3
///   gyro_a = its derivative's shape on the next axis,   total_a = gravity_a + body_a
///
/// f, swing and the phone's angles vary from subject to subject (5 %, 15 %, 0.08 rad).
std::vector<std::vector<double>> make_recording(std::uint64_t seed, std::int32_t subject, std::size_t activity,
                                                std::int64_t samples, double noise) {
  const Philox person(seed, 0, "prep.har.subject", static_cast<std::uint64_t>(subject));
  const auto recording = static_cast<std::uint64_t>(subject) * kModel.size() + activity;
  const Philox phase(seed, 0, "prep.har.phase", recording), disturbance(seed, 0, "prep.har.noise", recording);
  const Activity& model = kModel[activity];
  const double f = model.step_hz * (1 + 0.05 * person.normal(0));
  const double strength = std::exp(0.15 * person.normal(1));
  const double pitch = model.pitch + 0.08 * person.normal(2), roll = model.roll + 0.08 * person.normal(3);
  const std::array<double, 3> gravity = {std::cos(pitch) * std::cos(roll), -std::cos(pitch) * std::sin(roll),
                                         std::sin(pitch)};
  std::vector<std::vector<double>> out(9, std::vector<double>(samples));
  constexpr double kTurn = 2 * std::numbers::pi, kGyroPerG = 2.5;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double swing = model.swing[axis] * strength;
    for (std::size_t t = 0; t < static_cast<std::size_t>(samples); ++t) {
      double body = 0, turn = 0;
      for (int h = 1; h <= 3; ++h) {
        const double angle = kTurn * (h * f * static_cast<double>(t) / kRate +
                                      phase.uniform(axis * 3 + static_cast<std::size_t>(h) - 1));
        body += swing * std::sin(angle) / (h * h);
        turn += swing * kGyroPerG * std::cos(angle) / h;
      }
      body += noise * disturbance.normal(6 * t + axis);
      out[axis][t] = body;
      out[3 + (axis + 1) % 3][t] = turn + kGyroPerG * noise * disturbance.normal(6 * t + 3 + axis);
      out[6 + axis][t] = gravity[axis] + body;
    }
  }
  return out;
}

}  // namespace

bool run_synth_har(const Args& args) {
  Options options("lockstep-prep synth-har",
                  "Synthetic activities of synthetic subjects, distinguishable by their signal.",
                  "Six activities, nine channels, windows of 128 samples at 50 Hz, one every 64. Three activities "
                  "are walks that differ in pace and swing, three are postures that differ in angle; subjects vary "
                  "slightly. Test and validation take whole subjects.");
  SourceOptions common(options, SourceOptions::Input::none);
  HarSplit split;
  std::int64_t subjects = 0;
  double seconds = 0, noise = 0;
  options.add("subjects", &subjects, std::int64_t{12}, between(3, 100000), "subjects, numbered from 1");
  options.add("seconds", &seconds, 30.0, between(2.56, 1e6), "length of the recording of each subject and activity")
      .unit("s");
  options.add("noise", &noise, 0.03, between(0, 1e6), "standard deviation of the noise").unit("g");
  add_har_split_options(options, split, {}, TestPart::by_fraction);
  options.example("lockstep-prep synth-har --output activities.h5", "12 subjects, 1584 windows");
  options.example("lockstep-prep synth-har --subjects 40 --noise 0.2 --seed 7 --output noisy.h5",
                  "more subjects, more noise");
  if (!options.parse(args)) return false;
  check_har_split(options, split);
  require_writable(common.output);

  const auto samples = static_cast<std::int64_t>(std::llround(seconds * kRate));
  const std::int64_t recordings = subjects * std::ssize(kModel),
                     windows = recordings * ((samples - kWindow) / kStride + 1);
  const double bytes =
      static_cast<double>(windows) * static_cast<double>(sizeof(double) * kHarChannels.size() * kWindow);
  require_memory_for(bytes, join("making the data: ", windows, " windows need"), "lower subjects or seconds");
  require_space(common.output, static_cast<std::int64_t>(bytes));
  HarSet set;
  set.length = kWindow;
  set.sample_rate = kRate;
  set.source = "synth-har";
  set.channel_names = kHarChannels;
  set.channel_units = kHarUnits;
  set.class_names = kHarActivities;
  std::int32_t recording = 0;
  for (std::int32_t subject = 1; subject <= static_cast<std::int32_t>(subjects); ++subject)
    for (std::size_t activity = 0; activity < kModel.size(); ++activity, ++recording) {
      const auto channels = make_recording(split.seed, subject, activity, samples, noise);
      append_windows(set, channels, 0, samples, kStride, {static_cast<std::int32_t>(activity), subject, recording, 0});
    }
  set.notes.emplace_back("generator", std::string("har"));
  set.notes.emplace_back("noise", noise);
  split_subjects(set, consecutive<std::int64_t>(set.windows()), split.test_fraction, 2, split.seed, "prep.har.test");
  split_validation(set, split);
  finish_har(common, set);
  return true;
}

}  // namespace lockstep::prep
