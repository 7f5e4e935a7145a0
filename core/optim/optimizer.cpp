#include "dtrain/core/optim/optimizer.h"

#include "dtrain/core/base/error.h"
#include "dtrain/core/optim/adam.h"
#include "dtrain/core/optim/lamb.h"
#include "dtrain/core/optim/sgd.h"

namespace dtrain {

std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options) {
  if (options.name() == "sgd") {
    return std::make_unique<Sgd>(SgdOptions{.momentum = options.momentum(),
                                            .dampening = options.dampening(),
                                            .nesterov = options.nesterov()});
  }
  const auto beta = [&](int i, double otherwise) {
    if (options.betas_size() == 0) return otherwise;
    if (options.betas_size() != 2) {
      throw ConfigError(
          fmt::format("optimizer.betas: needs 2 numbers, found {}", options.betas_size()));
    }
    return options.betas(i);
  };
  if (options.name() == "adam" || options.name() == "adamw") {
    return std::make_unique<Adam>(AdamOptions{.beta1 = beta(0, 0.9),
                                              .beta2 = beta(1, 0.999),
                                              .eps = options.eps(),
                                              .decoupled_decay = options.name() == "adamw"});
  }
  if (options.name() == "lamb") {
    return std::make_unique<Lamb>(
        LambOptions{.beta1 = beta(0, 0.9), .beta2 = beta(1, 0.999), .eps = options.eps()});
  }
  throw ConfigError(
      fmt::format("optimizer.name: '{}' is not one of sgd, adam, adamw, lamb", options.name()));
}

double default_weight_decay(const config::Optimizer& options) {
  if (options.has_weight_decay()) return options.weight_decay();
  return options.name() == "adamw" || options.name() == "lamb" ? 0.01 : 0.0;
}

}  // namespace dtrain
