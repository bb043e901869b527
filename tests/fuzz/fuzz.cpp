/// Damaged files of every format that the programs read: each is refused by one printable message, or read. None ends
/// the process, hangs, or throws anything but a lockstep::Error. With --exact one bit is flipped or the file ends
/// early; a sealed format must then refuse the file or read exactly the contents of the sample. Without it every other
/// file gets valid checksums, to reach the readers behind them, and the inputs in corpus/FORMAT are read as well.
#include <filesystem>
#include <iostream>
#include <ranges>

#include "fuzz/formats.hpp"
#include "fuzz/mutation.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/h5.hpp"
#include "support/forked_cases.hpp"
#include "support/paths.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

struct Settings {
  std::vector<std::string> formats;
  std::int64_t cases = 300, first = 0, seed = 1;
  bool exact = false;
  std::string keep;
};

/// The damaged bytes of a case.
std::string damaged(const fuzz::Format& format, const std::string& bytes, std::int64_t number,
                    const Settings& settings) {
  fuzz::Random random(hash64(std::string_view(format.name), static_cast<std::uint64_t>(settings.seed)) +
                      static_cast<std::uint64_t>(number));
  if (settings.exact) return fuzz::flip_or_truncate(bytes, random);
  return format.text ? fuzz::mutate_text(bytes, random) : fuzz::mutate_bytes(bytes, random);
}

/// Inputs that tests/fuzz/coverage.cpp found, for any file of the format.
std::vector<std::string> kept_inputs(const fuzz::Format& format) {
  const fs::path folder = test::source_path("tests/fuzz/corpus/" + std::string(format.name));
  std::vector<std::string> inputs;
  if (fs::exists(folder))
    for (const std::string& name : test::names_in(folder)) inputs.push_back(test::read_text(folder / name));
  return inputs;
}

/// Returns the number of failures.
std::size_t fuzz_format(const fuzz::Format& format, const Settings& settings) {
  const test::TempDir dir;
  const std::vector<std::string> files = format.make(dir.path());
  std::vector<std::string> samples;
  for (const std::string& file : files) samples.push_back(test::read_text(dir / file));
  std::uint64_t intact = 0;  // made in a child: reading may start threads, which do not survive a fork
  const auto digest = dir / "digest";
  const auto first = test::run_forked(0, 1, [&](std::int64_t) {
    test::write_text(digest, std::to_string(format.read(dir.path())));
    return test::Ending::accepted;
  });
  require(first.accepted == 1, "reading the sample of ", format.name, ": ",
          first.failures.empty() ? "refused" : first.failures.front().what);
  intact = std::stoull(test::read_text(digest));

  // The seeded cases, then the kept inputs as each file of the format.
  const std::vector<std::string> kept = settings.exact ? std::vector<std::string>() : kept_inputs(format);
  const auto n_files = std::ssize(files);
  const std::int64_t seeded = settings.first + settings.cases, last = seeded + std::ssize(kept) * n_files;
  const auto victim = [&](std::int64_t number) { return static_cast<std::size_t>(number % n_files); };
  const auto input = [&](std::int64_t number) {
    return number < seeded ? damaged(format, samples[victim(number)], number, settings)
                           : kept[static_cast<std::size_t>((number - seeded) / n_files)];
  };
  const auto outcomes = test::run_forked(settings.first, last, [&](std::int64_t number) {
    for (std::size_t i = 0; i < files.size(); ++i) test::write_text(dir / files[i], samples[i]);
    const std::size_t bad = victim(number);
    const std::string bytes = input(number);
    if (settings.exact || (number < seeded && number % 2 == 0))
      test::write_text(dir / files[bad], bytes);
    else
      fuzz::write_resealed(dir / files[bad], bytes);
    try {
      const std::uint64_t hash = format.read(dir.path());
      if (settings.exact && format.sealed && hash != intact && bytes != samples[bad])
        throw std::logic_error("other contents were read without an error");
    } catch (const Error& error) {
      const std::string defect = fuzz::message_defect(error.what());
      if (!defect.empty()) throw std::logic_error(defect);
      throw;
    }
    return test::Ending::accepted;
  });
  std::cout << format.name << ": " << last - settings.first << " damaged files, " << outcomes.refused << " refused, "
            << outcomes.accepted << " read, " << outcomes.failures.size() << " failures" << std::endl;
  constexpr std::size_t kShown = 10;
  if (outcomes.failures.size() > kShown) std::cout << "  the first " << kShown << ":" << std::endl;
  for (const auto& [number, what] : outcomes.failures | std::views::take(kShown)) {
    const std::size_t bad = victim(number);
    std::cout << "  case " << number << " (" << files[bad] << "): " << what << std::endl;
    if (settings.keep.empty()) continue;
    const fs::path place = fs::path(settings.keep) / (std::string(format.name) + "-" + std::to_string(number)) /
                           fs::path(files[bad]).filename();
    fs::create_directories(place.parent_path());
    test::write_text(place, input(number));
  }
  return outcomes.failures.size();
}

int run(const std::vector<std::string>& args) {
  Settings settings;
  std::vector<std::string> names;
  for (const fuzz::Format& format : fuzz::formats()) names.emplace_back(format.name);
  Options options("fuzz", "Read damaged files of every format.");
  options.add("format=NAME,...", &settings.formats, names, "formats");
  options.add("cases", &settings.cases, std::int64_t{300}, "damaged files per format");
  options.add("first", &settings.first, std::int64_t{0}, "number of the first case: a single one can be repeated");
  options.add("seed", &settings.seed, std::int64_t{1}, "seed of the damage");
  options.add("exact", &settings.exact, false, "flip one bit or cut the end: a sealed file is refused or unchanged");
  options.add("keep=DIR", &settings.keep, "", "keep damaged files that fail in this directory");
  options.example("fuzz --format lsem --cases 10000", "model files");
  if (!options.parse(args)) return 0;
  H5File::prepare_library();
  std::size_t failures = 0;
  for (const fuzz::Format& format : fuzz::formats()) {
    const bool wanted =
        std::find(settings.formats.begin(), settings.formats.end(), format.name) != settings.formats.end();
    if (wanted) failures += fuzz_format(format, settings);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    log::error(error.what());
    return 2;
  }
}
