#include "dtrain/parallel/train/train.h"

#include <spdlog/spdlog.h>

#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/parallel/train/connect.h"
#include "dtrain/parallel/train/evaluation.h"
#include "dtrain/parallel/train/plan.h"
#include "dtrain/parallel/train/recipe.h"
#include "dtrain/parallel/train/replica.h"
#include "dtrain/parallel/train/run_record.h"
#include "dtrain/parallel/train/trainer.h"

namespace dtrain {

RunResult train(const Config& config, const Registry& registry, const RankInfo& rank,
                const RunOptions& options) {
  const std::string cpu_isa = select_cpu_isa(config.values.cpu_isa());
  const Connection connection = connect(rank, config.values.parallel());
  const RunPlan plan = make_plan(config, registry, rank.world_size, rank.local_world_size);
  std::unique_ptr<Communicator> passes;
  if (plan.synchronized) passes = connect_passes(connection, rank, config.values.parallel());
  Trainer trainer(config, *connection.comm, plan, options, cpu_isa, passes.get());
  return trainer.run();
}

nlohmann::ordered_json evaluate(const Config& config, const Registry& registry,
                                const RankInfo& rank, const std::filesystem::path& weights,
                                const RunOptions& options) {
  select_cpu_isa(config.values.cpu_isa());
  const Connection connection = connect(rank, config.values.parallel());
  const RunPlan plan = make_plan(config, registry, rank.world_size, rank.local_world_size);
  Replica replica(*plan.layout, config.values.optimizer());
  if (rank.rank == 0) {
    const bool averaged = config.values.train().ema_decay() > 0;
    replica.load_weights(resolve_weights(weights, averaged), true);
  }
  replica.broadcast(*connection.comm);
  const bool validation = plan.validation_data != nullptr;
  const auto loader =
      make_loader(config.values, validation ? plan.validation_data : plan.train_data, false);
  const auto loss = make_loss(loss_options(config.values.loss()));
  Lanes lanes(plan.lanes, plan.cores, config.values.parallel().threads_per_virtual_rank(),
              convolution_named(config.values.convolution()));
  const Evaluation evaluation = evaluate_samples(
      *connection.comm, *plan.model, *loss, replica.arena(),
      validation ? plan.validation_batches : plan.batches, *loader, lanes, options.stop_signal);
  nlohmann::ordered_json json =
      to_json(evaluation.metrics, token_metrics(plan.train_data->spec(), config.values.loss()));
  if (evaluation.stop_signal != 0) json["stopped_by_signal"] = evaluation.stop_signal;
  json["data"] = validation ? "validation" : "train";
  json["weights_digest"] = replica.arena().digest();
  return json;
}

}  // namespace dtrain
