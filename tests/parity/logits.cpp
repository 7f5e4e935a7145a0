// The outputs of a model in evaluation, for check_exchange.py:
//
//   parity_logits RECIPE.yaml WEIGHTS INPUT.safetensors OUTPUT.safetensors
//
// INPUT holds "x": [N, ...] as the recipe's samples; OUTPUT gets "logits".
#include <cstdio>
#include <string>
#include <vector>

#include "dtrain/core/checkpoint/safetensors.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/parallel/train/plan.h"
#include "dtrain/parallel/train/registry.h"
#include "dtrain/parallel/train/replica.h"

namespace dtrain {
namespace {

void write_logits(const std::string& recipe, const std::string& weights, const std::string& input,
                  const std::string& output) {
  const Registry registry = builtin_registry();
  const Config config = load_config(recipe, {}, registry.kinds());
  select_cpu_isa(config.values.cpu_isa());
  const RunPlan plan = make_plan(config, registry, 1, 1);
  Replica replica(*plan.layout, config.values.optimizer());
  replica.load_weights(resolve_weights(weights), true);

  Allocator allocator("logits");
  OpContext context(allocator, 1);
  context.bind_to_this_thread();
  const SafetensorsFile file(input);
  const TensorEntry* entry = file.find("x");
  DTRAIN_CHECK(entry != nullptr, "{}: no tensor x", input);
  const Tensor x = Tensor::empty(entry->shape, entry->dtype, allocator, "x");
  file.read(*entry, {static_cast<std::byte*>(x.raw()), x.bytes()});

  Pass pass(context,
            {.weights = std::as_const(replica).arena().weights(),
             .buffers = std::as_const(replica).arena().buffers(),
             .gradients = {},
             .parameters = plan.layout->parameters()},
            {.training = false});
  const Value y = plan.model->forward(pass, pass.input(x));
  const Tensor logits = ops::to_layout(context, y.tensor, Layout{});
  const std::vector<NamedTensor> tensors{
      {"logits", DType::f32, logits.shape(), std::as_bytes(logits.values<float>())}};
  write_safetensors(output, tensors);
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "parity_logits: RECIPE WEIGHTS INPUT OUTPUT\n");
    return 2;
  }
  try {
    dtrain::write_logits(argv[1], argv[2], argv[3], argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity_logits: %s\n", error.what());
    return 1;
  }
}
