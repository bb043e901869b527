/// Reads files that libFuzzer makes from the sample of a format by the code that they reach: `fuzz_coverage
/// --format=NAME CORPUS`, or NAME/1 for the second file of a format with several. A crash, an exception that is no
/// lockstep::Error and a message that cannot be shown are findings.
#include <algorithm>
#include <cstring>
#include <optional>

#include "fuzz/formats.hpp"
#include "fuzz/mutation.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;

namespace {

struct Target {
  test::TempDir directory;
  const fuzz::Format* format = nullptr;
  std::filesystem::path file;
};
std::optional<Target> target;

void choose(const std::string& name) {
  const std::string format = name.substr(0, name.find('/'));
  const auto known = fuzz::formats();
  const auto found = std::ranges::find_if(known, [&](const fuzz::Format& f) { return f.name == format; });
  require_usage(found != known.end(), "--format=", name, ": no such format");
  target.emplace();
  target->format = &*found;
  const std::vector<std::string> files = found->make(target->directory.path());
  const std::size_t number = format == name ? 0 : std::stoul(name.substr(format.size() + 1));
  target->file = target->directory / files.at(number);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::vector<char*> arguments(*argv, *argv + *argc);
  static std::string seeds = "-seed_inputs=";
  for (const std::string argument : arguments)
    if (argument.starts_with("--format=")) choose(argument.substr(std::strlen("--format=")));
  require_usage(target.has_value(), "usage: fuzz_coverage --format=NAME CORPUS");
  H5File::prepare_library();
  // The sample, and for HDF5 one without checksums of its contents, which would hide damage from the readers.
  std::string sample = test::read_text(target->file);
  test::write_text(target->directory / "sample", sample);
  for (std::size_t at = 0; (at = sample.find("xxh3", at)) != std::string::npos; at += 4) sample.replace(at, 4, "none");
  test::write_text(target->directory / "unsealed", sample);
  seeds += (target->directory / "sample").string() + "," + (target->directory / "unsealed").string();
  arguments.push_back(seeds.data());
  *argc = static_cast<int>(arguments.size());
  *argv = arguments.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::write_resealed(target->file, std::string(reinterpret_cast<const char*>(data), size));
  try {
    target->format->read(target->directory.path());
  } catch (const Error& error) {
    const std::string defect = fuzz::message_defect(error.what());
    if (!defect.empty()) throw std::logic_error(defect);
  }
  return 0;
}
