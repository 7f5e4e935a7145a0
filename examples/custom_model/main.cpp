// dtrain with one more model and one more data set. The whole command line comes with it:
//
//   custom_model --nproc 2 spirals.yaml model.blocks=4
//   custom_model check spirals.yaml
#include "dtrain/launcher/main.h"

#include <memory>

#include "residual_mlp.h"
#include "spirals.h"

int main(int argc, char** argv) {
  dtrain::Registry registry = dtrain::builtin_registry();

  dtrain::KindSchema model("residual_mlp");
  model.integer("width", 32, "units of each block", {.min = 1})
      .integer("blocks", 2, "residual blocks", {.min = 0});
  registry.models.add(model, [](const dtrain::KindValues& values, const dtrain::ModelInput& input) {
    return std::make_unique<ResidualMlp>(input, values.integer("width"), values.integer("blocks"));
  });

  dtrain::KindSchema data("spirals");
  data.integer("arms", 3, "spiral arms, one class each", {.min = 2})
      .number("noise", 0.05, "standard deviation of the points from their arm", {.min = 0});
  registry.datasets.add(data, [](const dtrain::KindValues& values) {
    return std::make_unique<Spirals>(values.integer("arms"), values.number("noise"));
  });

  return dtrain::run_main(argc, argv, registry);
}
