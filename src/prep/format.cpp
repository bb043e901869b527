#include "lockstep/prep/format.hpp"

#include "lockstep/io/file_kind.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/prep/hrm/puzzle_set.hpp"
#include "lockstep/prep/kgat/kg_set.hpp"
#include "lockstep/prep/sequences/sequence_set.hpp"

namespace lockstep::prep {

const Format& format_of(const H5File& file) {
  static constexpr Format kFormats[] = {
      {kSequencesFormat, check_sequence_set, describe_sequence_set},
      {kKgatFormat, check_kg_set, describe_kg_set},
      {kEmulatorFormat, check_emulator_set, describe_emulator_set},
      {kHrmFormat, check_puzzle_set, describe_puzzle_set},
      {kHarFormat, check_har_set, describe_har_set},
  };
  const std::string opening = "opening data set '" + file.path().string() + "'";
  require_data(file.has_attribute("/", "format"), opening,
               ": no attribute 'format'; it is not a prepared data set, make one with lockstep-prep");
  const std::string found = file.text_attribute("/", "format");
  std::string known;
  for (const Format& format : kFormats) {
    if (found == format.format.name) return format;
    known += (known.empty() ? "" : ", ") + std::string(format.format.name);
  }
  const FileKind kind = file_kind(file.path());
  require_data(kind == FileKind::hdf5, opening, ": it is ", name(kind),
               ", not a prepared data set; lockstep info describes it");
  throw Error(Fault::data,
              join(opening, ": its format is '", found, "', expected one of ", known, "; make one with lockstep-prep"));
}

}  // namespace lockstep::prep
