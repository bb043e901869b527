#include "apps/lockstep/predict.hpp"

#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/world.hpp"

namespace lockstep::apps {

namespace {

struct Predictor {
  const char* kind;  ///< model.kind
  int (*run)(World&, const Args&);
};
constexpr Predictor kPredictors[] = {
    {"bprmf", predict_items},
    {"emulator", predict_emulator},
    {"hrm", predict_hrm},
    {"kgat", predict_items},
    {"sasrec", predict_sequence},
    {"tisasrec", predict_sequence},
};

}  // namespace

int run_predict(World& world, const Args& args) {
  const std::string kind = model_kind(world, args);
  for (const Predictor& predictor : kPredictors) {
    if (kind == predictor.kind) return predictor.run(world, args);
  }
  world.together("choosing the model", [&] {
    throw Error(Fault::usage, join("lockstep predict: nothing to predict with a model of kind ", kind));
  });
  return 0;
}

}  // namespace lockstep::apps
