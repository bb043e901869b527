#include "lockstep/io/file_system.hpp"
#include "lockstep/prep/emulator/columns.hpp"
#include "lockstep/prep/emulator/icecolumn.hpp"
#include "prep/emulator/emulator_output.hpp"
#include "prep/emulator/synthetic.hpp"

namespace lockstep::prep {

bool run_synth_icecolumn(const Args& args) {
  Options options("lockstep-prep synth-icecolumn",
                  "Synthetic sea-ice columns: surface energy balance, ice cover, conduction.",
                  "Nine inputs (sst, sss, tair, wind, qref, flwdn, fswdn, hi, hs), three outputs (aice, tsfc, fcond), "
                  "and the exact Jacobian dy/dx of every row. With --history the same columns are also written as a "
                  "sea-ice history file that cice-history reads.");
  SourceOptions common(options, SourceOptions::Input::none);
  Synthetic synthetic(options, 24000);
  std::string history;
  options.add("history=FILE.nc", &history, "", "also write the columns as a NetCDF-4 sea-ice history file");
  options.example("lockstep-prep synth-icecolumn --output icecolumn.h5",
                  "24000 rows, a tenth each for validation and test");
  options.example("lockstep-prep synth-icecolumn --rows 500 --seed 7 --history column.nc --output column.h5",
                  "few rows, and a raw file to try cice-history with");
  if (!options.parse(args)) return false;
  require_writable(common.output);
  if (!history.empty()) {
    require_writable(history);
    require_different(common.output, history);
  }

  EmulatorSet set;
  set.inputs = known_names({icecolumn::kInputNames.begin(), icecolumn::kInputNames.end()},
                           {icecolumn::kInputUnits.begin(), icecolumn::kInputUnits.end()});
  set.outputs = known_names({icecolumn::kOutputNames.begin(), icecolumn::kOutputNames.end()},
                            {icecolumn::kOutputUnits.begin(), icecolumn::kOutputUnits.end()});
  synthetic.reserve(set, synthetic.rows, common.output, "lower rows");
  std::vector<icecolumn::Input> inputs;
  std::vector<icecolumn::Output> outputs;
  for (std::int64_t row = 0; row < synthetic.rows; ++row) {
    icecolumn::Input x = icecolumn::draw(synthetic.seed, static_cast<std::uint64_t>(row));
    for (double& value : x)
      value = static_cast<double>(static_cast<float>(value));  // outputs must belong to the inputs as stored
    icecolumn::Jacobian jacobian;
    const icecolumn::Output y = icecolumn::evaluate(x, &jacobian);
    set.x.insert(set.x.end(), x.begin(), x.end());
    set.y.insert(set.y.end(), y.begin(), y.end());
    if (synthetic.jacobian)
      for (const auto& line : jacobian) set.jac.insert(set.jac.end(), line.begin(), line.end());
    if (history.empty()) continue;
    inputs.push_back(x);
    outputs.push_back(y);
  }
  synthetic.finish(set, static_cast<std::size_t>(synthetic.rows));
  set.notes.emplace_back("generator", std::string("icecolumn"));
  if (!history.empty()) icecolumn::write_history(history, inputs, outputs);
  write_generated(common, set);
  return true;
}

}  // namespace lockstep::prep
