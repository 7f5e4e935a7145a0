#include "dtrain/core/optim/optimizer.h"

#include "dtrain/core/base/error.h"
#include "dtrain/core/optim/adam.h"
#include "dtrain/core/optim/sgd.h"

namespace dtrain {

std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options) {
  if (options.name() == "sgd") {
    return std::make_unique<Sgd>(SgdOptions{.momentum = options.momentum(),
                                            .dampening = options.dampening(),
                                            .nesterov = options.nesterov()});
  }
  if (options.name() == "adam" || options.name() == "adamw") {
    AdamOptions adam{.eps = options.eps(), .decoupled_decay = options.name() == "adamw"};
    if (options.betas_size() != 0) {
      if (options.betas_size() != 2) {
        throw ConfigError(
            fmt::format("optimizer.betas: needs 2 numbers, found {}", options.betas_size()));
      }
      adam.beta1 = options.betas(0);
      adam.beta2 = options.betas(1);
    }
    return std::make_unique<Adam>(adam);
  }
  throw ConfigError(
      fmt::format("optimizer.name: '{}' is not one of sgd, adam, adamw", options.name()));
}

double default_weight_decay(const config::Optimizer& options) {
  if (options.has_weight_decay()) return options.weight_decay();
  return options.name() == "adamw" ? 0.01 : 0.0;
}

}  // namespace dtrain
