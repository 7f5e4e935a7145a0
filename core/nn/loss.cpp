#include "dtrain/core/nn/loss.h"

#include <utility>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

class CrossEntropy final : public Loss {
 public:
  explicit CrossEntropy(LossOptions options) : options_(std::move(options)) {
    operator_.label_smoothing = options_.label_smoothing;
    operator_.ignore_index = options_.ignore_index;
    if (!options_.class_weights.empty()) {
      operator_.class_weights =
          Tensor::wrap(std::span(options_.class_weights),
                       {static_cast<std::int64_t>(options_.class_weights.size())});
    }
  }
  bool wants_labels() const override { return true; }
  LossReport forward(OpContext& context, const Tensor& outputs,
                     const Tensor& targets) const override {
    return {ops::cross_entropy(context, outputs, targets, operator_),
            ops::count_top_k(context, outputs, targets, options_.ignore_index)};
  }
  Tensor backward(OpContext& context, Tensor outputs, const Tensor& targets,
                  float seed) const override {
    return ops::cross_entropy_backward(context, std::move(outputs), targets, operator_, seed);
  }

 private:
  LossOptions options_;
  ops::CrossEntropyOptions operator_;
};

// A loss of numbers against numbers.
class Elementwise final : public Loss {
 public:
  using Forward = ops::LossSums (*)(OpContext&, const Tensor&, const Tensor&);
  using Backward = Tensor (*)(OpContext&, const Tensor&, const Tensor&, float);
  Elementwise(Forward forward, Backward backward) : forward_(forward), backward_(backward) {}
  bool wants_labels() const override { return false; }
  LossReport forward(OpContext& context, const Tensor& outputs,
                     const Tensor& targets) const override {
    return {forward_(context, outputs, targets), {}};
  }
  Tensor backward(OpContext& context, Tensor outputs, const Tensor& targets,
                  float seed) const override {
    return backward_(context, outputs, targets, seed);
  }

 private:
  Forward forward_;
  Backward backward_;
};

}  // namespace

std::unique_ptr<Loss> make_loss(const LossOptions& options) {
  if (options.name == "cross_entropy") return std::make_unique<CrossEntropy>(options);
  if (options.name == "mse") return std::make_unique<Elementwise>(ops::mse, ops::mse_backward);
  if (options.name == "bce") {
    return std::make_unique<Elementwise>(ops::bce_with_logits, ops::bce_with_logits_backward);
  }
  throw ConfigError(
      fmt::format("loss.name: '{}' is not one of cross_entropy, mse, bce", options.name));
}

}  // namespace dtrain
