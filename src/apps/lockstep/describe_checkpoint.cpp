#include "apps/lockstep/describe.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"

namespace lockstep::apps {

Json checkpoint_facts(const std::filesystem::path& path) {
  const CheckpointReader reader(path);  // verifies length, checksums and structure
  const TrainState state = reader.state();
  const H5File& file = reader.file();
  std::int64_t parameters = 0;
  Json weights = Json::object();
  for (const std::string& array : reader.arrays("/model")) {
    const H5Info info = reader.info(array);
    weights[array] = {{"type", name(info.type)}, {"shape", info.shape}};
    parameters += info.elements();
  }
  Json metrics = Json::object();
  for (const auto& [series, values] : state.history.all())
    if (const auto known = state.history.known(series); !known.empty()) metrics[series] = known.back();
  return {{"file", path.string()},
          {"size_bytes", reader.size_bytes()},
          {"whole", true},
          {"model", reader.model_kind()},
          {"step", state.step},
          {"epoch", state.epoch},
          {"finished", state.finished},
          {"resumable", reader.has_optimizer()},
          {"stop_reason", state.stop_reason},
          {"best", state.best},
          {"best_epoch", state.best_epoch},
          {"training_seconds", state.seconds},
          {"seed", reader.seed()},
          {"data_hash", reader.data_hash()},
          {"averaged_weights", reader.has_ema()},
          {"parameters", parameters},
          {"weights", weights},
          {"last_metrics", metrics},
          {"attributes", attributes_of(file, "/")},
          {"config", reader.config()}};
}

std::string checkpoint_text(const Json& facts) {
  std::string out = text_of(facts["file"]) + ": checkpoint (" + text_of(facts["model"]) + "), whole, " +
                    human_bytes(facts["size_bytes"].get<double>()) + "\n\n";
  const std::string reason = facts["stop_reason"].get<std::string>();
  std::vector<std::vector<std::string>> rows = {
      {"step", text_of(facts["step"])},
      {"epoch", text_of(facts["epoch"])},
      {"state", !facts["resumable"].get<bool>() ? "weights alone, of the best evaluation so far"
                : facts["finished"].get<bool>() ? "finished" + (reason.empty() ? "" : ": " + reason)
                                                : "not finished; a run continues from it"},
      {"best", facts["best"].is_null() ? "-" : text_of(facts["best"]) + " at epoch " + text_of(facts["best_epoch"])},
      {"training time", human_seconds(facts["training_seconds"].get<double>())},
      {"seed", text_of(facts["seed"])},
      {"data hash", text_of(facts["data_hash"])},
      {"averaged weights", facts["averaged_weights"].get<bool>() ? "yes" : "no"},
      {"parameters", text_of(facts["parameters"])}};
  out += aligned(rows);
  if (!facts["last_metrics"].empty()) out += "\nLast metrics\n" + attributes_text(facts["last_metrics"]);
  return out + "\nWeights\n" + contents_text(facts["weights"]) + "\nAttributes\n" +
         attributes_text(facts["attributes"]) + "\nTo see the configuration: lockstep info FILE --json\n";
}

}  // namespace lockstep::apps
