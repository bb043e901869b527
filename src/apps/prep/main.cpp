#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/standard_streams.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/prep/format.hpp"
#include "lockstep/prep/reference.hpp"
#include "lockstep/prep/source.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {
namespace {

/// Opens a prepared file, to read it whole.
H5File opened(const std::string& path) {
  H5File file = H5File::open(path);
  double bytes = 0;
  for (const std::string& dataset : file.datasets_under("/")) {
    const H5Info info = file.info(dataset);
    const std::size_t each =
        info.type == H5Type::text ? sizeof(std::string) : visit_numbers(info.type, []<class T>() { return sizeof(T); });
    bytes += static_cast<double>(info.elements()) * static_cast<double>(each);
  }
  require_memory_for(bytes, join("reading '", path, "': its arrays need"), "use a machine or a job with more memory");
  return file;
}

int run_check(const Args& args) {
  Options options("lockstep-prep check", "Validate prepared files: schema, ranges, splits, derived values.");
  std::vector<std::string> files;
  options.positional("FILE.h5", &files, "prepared files", 1);
  bool strict = false;
  options.add("strict", &strict, false, "a file with warnings is not usable");
  options.example("lockstep-prep check icecolumn.h5", "prints problems; exit code 3 if there are any");
  if (!options.parse(args)) return 0;
  std::size_t bad = 0;
  for (const auto& path : files) {
    const H5File file = opened(path);
    std::vector<std::string> remarks;
    const auto problems = format_of(file).check(file, remarks);
    const auto warnings = stored_warnings(file);
    if (!is_sealed(file))
      remarks.emplace_back(
          "no checksums, so damage is not detected: made by an older lockstep-prep or another program; prepare it "
          "again");
    for (const auto& remark : remarks) std::cout << path << ": note: " << remark << "\n";
    for (const auto& warning : warnings) std::cout << path << ": warning: " << warning << "\n";
    for (const auto& problem : problems) std::cout << path << ": " << problem << "\n";
    const bool usable = problems.empty() && (warnings.empty() || !strict);
    std::cout << path << (usable ? warnings.empty() ? ": good\n" : ": usable, with warnings\n" : ": not usable\n");
    bad += !usable;
  }
  require_data(bad == 0, "checking prepared files: ", bad, " of ", files.size(), " ", bad == 1 ? "is" : "are",
               " not usable");
  return 0;
}

int run_info(const Args& args) {
  Options options("lockstep-prep info", "Describe prepared files: rows, splits, contents, origin.");
  std::vector<std::string> files;
  options.positional("FILE.h5", &files, "prepared files", 1);
  options.example("lockstep-prep info icecolumn.h5", "a page about the file");
  if (!options.parse(args)) return 0;
  for (const auto& path : files) {
    const H5File file = opened(path);
    format_of(file).describe(file, std::cout);
    for (const auto& warning : stored_warnings(file)) std::cout << "  warning            " << warning << "\n";
  }
  return 0;
}

int run_verify(const Args& args) {
  Options options("lockstep-prep verify", "Compare readers and generators with a reference file.",
                  "A reference of prepared emulator rows needs its raw NetCDF files beside it. Prints one row per "
                  "array; exit code 1 if any fails.");
  std::vector<std::string> golden;
  options.add("golden=FILE.h5,...", &golden, {}, "reference files").required();
  options.example("lockstep-prep verify --golden tests/golden/emulator_synth.h5", "the generators");
  if (!options.parse(args)) return 0;
  std::size_t failed = 0;
  for (const auto& path : golden) {
    const ReferenceReport report = verify_reference(H5File::open(path));
    require_data(!report.rows().empty(), "verifying '", path,
                 "': it has no part that lockstep-prep can recompute; use lockstep verify");
    std::cout << report.text() << std::flush;
    failed += !report.passed();
  }
  require(failed == 0, "verifying: ", failed, " of ", golden.size(), " files do not agree");
  return 0;
}

struct Command {
  const char* name;
  const char* usage;  ///< name and arguments
  const char* summary;
  int (*run)(const Args&);
};
constexpr Command kCommands[] = {
    {"check", "check FILE.h5...", "validate prepared files", run_check},
    {"info", "info FILE.h5...", "describe prepared files", run_info},
    {"verify", "verify --golden FILE", "compare readers and generators with reference numbers", run_verify}};

std::string overview() {
  std::ostringstream out;
  out << "lockstep-prep: turns raw data into the HDF5 files that lockstep trains on\n\n"
         "  lockstep-prep SOURCE --output FILE.h5 [options]\n";
  for (const Command& command : kCommands)
    out << "  lockstep-prep " << command.usage << std::string(22 - std::string_view(command.usage).size(), ' ')
        << command.summary << "\n";
  out << "\nSources:\n";
  for (const Source& source : sources())
    out << "  " << source.name << std::string(26 - std::string_view(source.name).size(), ' ') << source.summary << "\n";
  out << "\n'lockstep-prep SOURCE --help' lists a source's options with examples.\n"
         "Exit codes: 0 success, 1 failure of the program or the machine, 2 wrong usage, 3 bad data.\n";
  return std::move(out).str();
}

/// Runs the command or source of this name with these arguments.
int dispatch(const std::string& name, const Args& args) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(args);
    names.emplace_back(command.name);
  }
  for (const Source& source : sources()) {
    if (name == source.name) {
      source.run(args);
      return 0;
    }
    names.emplace_back(source.name);
  }
  const std::string near = nearest(name, names);
  throw Error(Fault::usage, join("unknown source or command '", name, "'",
                                 near.empty() ? "; see lockstep-prep --help" : "; did you mean " + near + "?"));
}

/// The output of a command or source for `--help=form`.
std::string help_of(const std::string& name, const std::string& form) {
  Options::Capture capture;
  dispatch(name, {"--help=" + form});
  return capture.text;
}

int run_help(const Args& args) {
  bool as_markdown = false;
  std::string man;
  std::vector<std::string> topic;
  Options options("lockstep-prep help", "Print the sources and commands, or the options of one");
  options.positional("NAME", &topic, "a source or a command", 0, 1);
  options.add("markdown", &as_markdown, false, "print docs/prep-options.md");
  options.add("man=DIR", &man, "", "write manual pages into this directory");
  options.example("lockstep-prep help cice-history", "the options of `lockstep-prep cice-history`");
  if (!options.parse(args)) return 0;

  std::vector<std::string> names;
  for (const Source& source : sources()) names.emplace_back(source.name);
  for (const Command& command : kCommands) names.emplace_back(command.name);
  if (!topic.empty()) {
    std::cout << help_of(topic[0], "true");
  } else if (as_markdown) {
    std::cout << "# Options of lockstep-prep\n\nGenerated by `make docs` from the program's own table; `lockstep-prep "
                 "NAME --help` prints the same.\n";
    for (const auto& name : names) std::cout << "\n" << help_of(name, "markdown");
  } else if (!man.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(man, failed);
    require_usage(!failed, "option man = '", man, "': ", failed.message());
    for (const auto& name : names)
      write_text_atomically(std::filesystem::path(man) / ("lockstep-prep-" + name + ".1"), help_of(name, "man"));
  } else {
    std::cout << overview();
  }
  return 0;
}

int run(Args args) {
  if (args.empty()) {
    std::cerr << overview();
    return static_cast<int>(Fault::usage);
  }
  const std::string name = args.front();
  args.erase(args.begin());
  if (name == "help" || name == "--help" || name == "-h") return run_help(args);
  if (name == "--version" || name == "-V") {
    std::cout << "lockstep-prep" << version_line().substr(std::string_view("lockstep").size()) << "\n";
    return 0;
  }
  return dispatch(name, args);
}

}  // namespace
}  // namespace lockstep::prep

int main(int argc, char** argv) {
  using namespace lockstep;
  open_standard_streams();
  H5File::prepare_library();
  try {
    return end_standard_output(prep::run(prep::Args(argv + std::min(argc, 1), argv + argc)));
  } catch (const std::exception& problem) {
    const Error error = log::as_error(problem);
    log::error(error.what());
    return static_cast<int>(error.fault());
  }
}
