#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/models/emulator_config.hpp"
#include "lockstep/models/har_config.hpp"
#include "lockstep/models/hrm_config.hpp"
#include "lockstep/models/kgat_config.hpp"
#include "lockstep/models/model_config.hpp"
#include "lockstep/models/sasrec_config.hpp"

namespace lockstep {

namespace {

struct Kind {
  const char* name;
  std::unique_ptr<ModelConfig> (*make)();
};

template <class Config>
std::unique_ptr<ModelConfig> make() {
  return std::make_unique<Config>();
}

/// The first one is what a configuration without model.kind gets.
constexpr Kind kKinds[] = {
    {"emulator", make<EmulatorConfig>}, {"har", make<HarConfig>},     {"hrm", make<HrmConfig>},
    {"kgat", make<KgatConfig>},         {"bprmf", make<BprmfConfig>}, {"sasrec", make<SasRecConfig>},
    {"tisasrec", make<TiSasRecConfig>},
};

}  // namespace

std::vector<std::string> model_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::unique_ptr<ModelConfig> make_model_config(const std::string& name) {
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind.make();
  }
  std::string all;
  for (const Kind& kind : kKinds) all += (all.empty() ? "" : ", ") + std::string(kind.name);
  const std::string near = nearest(name, model_kinds());
  throw Error(Fault::usage, join("option model.kind = ", name, ": must be one of ", all,
                                 near.empty() ? "" : "; did you mean " + near + "?"));
}

}  // namespace lockstep
