#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/golden_checks.hpp"
#include "lockstep/prep/source.hpp"

namespace lockstep::prep {
namespace {

int run_check(const Args& args) {
  Options options("lockstep-prep check",
                  "Validates prepared files: schema, finite values, ranges, splits, moments recomputed.");
  std::vector<std::string> files;
  options.positional("FILE.h5", &files, "prepared files", 1);
  options.example("lockstep-prep check icecolumn.h5", "prints what is wrong; exit code 3 if anything is");
  if (!options.parse(args)) return 0;
  std::size_t bad = 0;
  for (const auto& path : files) {
    const H5File file = H5File::open(path);
    std::vector<std::string> remarks;
    const auto problems = format_of(file).check(file, remarks);
    for (const auto& remark : remarks) std::cout << path << ": note: " << remark << "\n";
    for (const auto& problem : problems) std::cout << path << ": " << problem << "\n";
    std::cout << path << (problems.empty() ? ": good\n" : ": not usable\n");
    bad += !problems.empty();
  }
  require_data(bad == 0, "checking prepared files: ", bad, " of ", files.size(), " ", bad == 1 ? "is" : "are",
               " not usable");
  return 0;
}

int run_info(const Args& args) {
  Options options("lockstep-prep info",
                  "Shows what prepared files hold: rows, splits, columns with their ranges, origin.");
  std::vector<std::string> files;
  options.positional("FILE.h5", &files, "prepared files", 1);
  options.example("lockstep-prep info icecolumn.h5", "a page about the file");
  if (!options.parse(args)) return 0;
  for (const auto& path : files) {
    const H5File file = H5File::open(path);
    format_of(file).describe(file, std::cout);
  }
  return 0;
}

int run_verify(const Args& args) {
  Options options("lockstep-prep verify", "Compares the readers and the generators with a reference file.",
                  "A reference of prepared rows needs its raw NetCDF companions beside it. One row per array; exit "
                  "code 1 if any fails.");
  std::vector<std::string> golden;
  options.add("golden", &golden, {}, "reference files").value_name("FILE.h5,...").required();
  options.example("lockstep-prep verify --golden tests/golden/emulator_synth.h5", "the generators");
  if (!options.parse(args)) return 0;
  std::size_t failed = 0, compared = 0;
  for (const auto& path : golden) {
    for (const auto& row : check_golden(path)) {
      std::printf("%-48s %-10s %-10s %s%s\n", row.tensor.c_str(), join(row.error).c_str(), join(row.tolerance).c_str(),
                  row.holds() ? "ok" : "FAILED", row.note.empty() ? "" : (": " + row.note).c_str());
      failed += !row.holds();
      ++compared;
    }
  }
  std::printf("%zu of %zu arrays agree\n", compared - failed, compared);
  std::fflush(stdout);
  require(failed == 0 && compared > 0, "verifying: ", failed, " of ", compared, " arrays differ");
  return 0;
}

void print_overview(std::ostream& out) {
  out << "lockstep-prep: turns raw data into the HDF5 files that lockstep trains on\n\n"
         "  lockstep-prep SOURCE --output FILE.h5 [options]\n"
         "  lockstep-prep check FILE.h5...      validate prepared files\n"
         "  lockstep-prep info FILE.h5...       show what they hold\n"
         "  lockstep-prep verify --golden FILE  compare readers and generators with reference numbers\n\n"
         "Sources:\n";
  for (const Source& source : sources())
    out << "  " << source.name << std::string(26 - std::string(source.name).size(), ' ') << source.summary << "\n";
  out << "\n'lockstep-prep SOURCE --help' lists a source's options with examples.\n"
         "Exit codes: 0 done, 1 our fault, 2 wrong usage, 3 bad data.\n";
}

int run(Args args) {
  if (args.empty()) {
    print_overview(std::cerr);
    return static_cast<int>(Fault::usage);
  }
  const std::string name = args.front();
  args.erase(args.begin());
  if (name == "--help" || name == "-h" || name == "help") {
    if (!args.empty()) return run({args.front(), "--help"});
    print_overview(std::cout);
    return 0;
  }
  if (name == "--version" || name == "-V") {
    std::cout << "lockstep-prep " LOCKSTEP_VERSION "\n";
    return 0;
  }
  if (name == "check") return run_check(args);
  if (name == "info") return run_info(args);
  if (name == "verify") return run_verify(args);
  std::vector<std::string> names = {"check", "info", "verify"};
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

}  // namespace
}  // namespace lockstep::prep

int main(int argc, char** argv) {
  using namespace lockstep;
  try {
    return prep::run(prep::Args(argv + std::min(argc, 1), argv + argc));
  } catch (const Error& error) {
    log::error(error.what());
    return static_cast<int>(error.fault());
  } catch (const std::bad_alloc&) {
    log::error("out of memory");
  } catch (const std::exception& error) {
    log::error(error.what());
  }
  return static_cast<int>(Fault::internal);
}
