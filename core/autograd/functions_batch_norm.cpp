// Batch norm, alone or with what follows it, of one pass or pooled over those of all virtual ranks.
#include <algorithm>
#include <utility>

#include "dtrain/core/autograd/functions.h"
#include "dtrain/core/ops/norm.h"
#include "dtrain/core/ops/norm_pool.h"

namespace dtrain::functions {

namespace {

// Note [SyncBN]: passes exchange (count, mean, squared deviations) per channel in forward and the
// two sums of the gradient in backward. Each merges what all virtual ranks sent in their order, so
// all get the same bits, wherever they run. The parameters' gradients stay each pass's own: the
// reducer adds them.

// All rows' statistics as one, in their order (Chan et al.).
ops::ChannelStatistics pool(SyncGroup& group, const ops::ChannelStatistics& mine) {
  const std::size_t channels = mine.mean.size();
  std::vector<double> sent{static_cast<double>(mine.count)};
  sent.insert(sent.end(), mine.mean.begin(), mine.mean.end());
  sent.insert(sent.end(), mine.squares.begin(), mine.squares.end());
  const std::span<const double> all = group.exchange(sent);
  ops::ChannelStatistics pooled{
      .count = 0, .mean = std::vector<double>(channels), .squares = std::vector<double>(channels)};
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto row = all.subspan(rank * sent.size(), sent.size());
    const double count = row[0];
    if (count == 0) continue;
    const double before = static_cast<double>(pooled.count);
    const double total = before + count;
    for (std::size_t c = 0; c < channels; ++c) {
      const double shift = row[1 + c] - pooled.mean[c];
      pooled.mean[c] += shift * count / total;
      pooled.squares[c] += row[1 + channels + c] + shift * shift * before * count / total;
    }
    pooled.count += static_cast<std::int64_t>(count);
  }
  return pooled;
}

ops::ChannelGradientSums pool(SyncGroup& group, const ops::ChannelGradientSums& mine) {
  const std::size_t channels = mine.g.size();
  std::vector<double> sent = mine.g;
  sent.insert(sent.end(), mine.g_deviation.begin(), mine.g_deviation.end());
  const std::span<const double> all = group.exchange(sent);
  ops::ChannelGradientSums pooled{std::vector<double>(channels), std::vector<double>(channels)};
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto row = all.subspan(rank * sent.size(), sent.size());
    for (std::size_t c = 0; c < channels; ++c) {
      pooled.g[c] += row[c];
      pooled.g_deviation[c] += row[channels + c];
    }
  }
  return pooled;
}

// One value has no variance to divide by.
void check_count(std::int64_t count, const Value& x, const Parameter& weight) {
  if (count != 1) return;
  throw ConfigError(fmt::format(
      "{}: batch norm got one value per channel (a micro-batch of one sample of shape {}): use "
      "a larger batch.micro, or a batch.global that leaves no single sample in the last batch",
      weight.name, to_string(x.shape())));
}

struct Layer {
  const Parameter& weight;
  const Parameter& bias;
  const RunningStatistics& statistics;
  float epsilon;
};

// What all begin with in training: statistics, pooled where the layer is synchronized, and moments.
struct Normalization {
  SyncGroup* group;
  std::int64_t count;
  ops::BatchNormOutput moments;
};

Normalization normalization_of(Pass& pass, const Value& x, const Layer& layer) {
  SyncGroup* const group = layer.statistics.synchronized ? pass.sync() : nullptr;
  ops::ChannelStatistics statistics = ops::channel_statistics(pass.context(), x.tensor);
  const std::int64_t mine = statistics.count;
  if (group != nullptr) statistics = pool(*group, statistics);
  check_count(statistics.count, x, layer.weight);
  ops::BatchNormOutput moments = ops::batch_moments(pass.context(), statistics);
  pass.add_statistics(layer.statistics, mine, statistics.count, moments.mean, moments.variance);
  return {group, statistics.count, std::move(moments)};
}

ops::BatchNormOutput running_moments(Pass& pass, const Layer& layer) {
  return {.y = {},
          .mean = pass.buffer(*layer.statistics.mean),
          .variance = pass.buffer(*layer.statistics.variance),
          .mean_rest = {}};
}

// residual: null for none.
Value normalize(Pass& pass, const Value& x, const Value* residual, const Layer& layer, bool relu) {
  OpContext& context = pass.context();
  const Tensor gamma = pass.weight(layer.weight);
  const Tensor beta = pass.weight(layer.bias);
  const float epsilon = layer.epsilon;
  const Tensor added =
      residual == nullptr ? Tensor() : ops::to_layout(context, residual->tensor, x.tensor.layout());
  if (!pass.training()) {
    return pass.input(ops::batch_norm_apply(context, x.tensor, added, gamma, beta,
                                            running_moments(pass, layer), epsilon, relu));
  }
  const auto [group, count, moments] = normalization_of(pass, x, layer);
  const Tensor y =
      ops::batch_norm_apply(context, x.tensor, added, gamma, beta, moments, epsilon, relu);

  // Note [Kept values]: with a residual y cannot be made again from x alone.
  std::shared_ptr<const Value::Again> again;
  if (residual == nullptr) {
    again = std::make_shared<Value::Again>([=, moments = moments, tensor = x.tensor](OpContext& c) {
      return ops::batch_norm_apply(c, tensor, {}, gamma, beta, moments, epsilon, relu);
    });
  }
  ops::BehindNorm behind = relu ? ops::BehindNorm::relu : ops::BehindNorm::nothing;
  if (residual != nullptr && relu) behind = ops::BehindNorm::output;
  return pass.record(
      y,
      [=, group = group, count = count, moments = moments, tensor = x.tensor, entry = x.entry,
       residual_entry = residual == nullptr ? -1 : residual->entry,
       y = residual != nullptr && relu ? y : Tensor(), &weight = layer.weight,
       &bias = layer.bias](Pass& p, const Tensor& dy) {
        const auto another = [&] {
          return Tensor::empty(dy.shape(), DType::f32, p.context().allocator(),
                               "batch norm gradient", dy.layout());
        };
        // Gradients are written over dy where nobody else reads it.
        const bool mine_alone = !dy.shared();
        const Tensor g = behind != ops::BehindNorm::output || mine_alone ? dy : another();
        ops::ChannelGradientSums sums = ops::batch_norm_gradient_sums(
            p.context(), tensor, dy, gamma, beta, moments, epsilon, behind, y, g);
        // Both gradients come from one sweep, so both destinations are taken at once.
        p.parameter_gradient(weight, [&](const Tensor& dgamma) {
          p.parameter_gradient(bias, [&](const Tensor& dbeta) {
            ops::batch_norm_parameter_gradients(sums, moments, epsilon, dgamma, dbeta);
          });
        });
        if (group != nullptr) sums = pool(*group, sums);
        if (entry >= 0) {
          // The residual's gradient is g, which must stay.
          const Tensor dx = residual_entry < 0 && mine_alone ? dy : another();
          ops::batch_norm_input_gradient(
              p.context(), tensor, g, gamma, beta, moments, epsilon,
              behind == ops::BehindNorm::output ? ops::BehindNorm::nothing : behind, sums, count,
              dx);
          p.add_gradient(entry, dx);
        }
        p.add_gradient(residual_entry, g);
      },
      again);
}

}  // namespace

Value batch_norm(Pass& pass, const Value& x, const Parameter& weight, const Parameter& bias,
                 const RunningStatistics& statistics, float epsilon) {
  return normalize(pass, x, nullptr, {weight, bias, statistics, epsilon}, false);
}

Value batch_norm_relu(Pass& pass, const Value& x, const Parameter& weight, const Parameter& bias,
                      const RunningStatistics& statistics, float epsilon) {
  return normalize(pass, x, nullptr, {weight, bias, statistics, epsilon}, true);
}

Value batch_norm_add_relu(Pass& pass, const Value& x, const Value& residual,
                          const Parameter& weight, const Parameter& bias,
                          const RunningStatistics& statistics, float epsilon) {
  return normalize(pass, x, &residual, {weight, bias, statistics, epsilon}, true);
}

Value batch_norm_relu_max_pool(Pass& pass, const Value& x, const Parameter& weight,
                               const Parameter& bias, const RunningStatistics& statistics,
                               float epsilon) {
  const Layer layer{weight, bias, statistics, epsilon};
  const Tensor gamma = pass.weight(weight);
  const Tensor beta = pass.weight(bias);
  if (!pass.training()) {
    return pass.input(ops::batch_norm_relu_max_pool(pass.context(), x.tensor, gamma, beta,
                                                    running_moments(pass, layer), epsilon));
  }
  const auto [group, count, moments] = normalization_of(pass, x, layer);
  const Tensor y =
      ops::batch_norm_relu_max_pool(pass.context(), x.tensor, gamma, beta, moments, epsilon);
  return pass.record(y, [=, group = group, count = count, moments = moments, tensor = x.tensor,
                         entry = x.entry, &weight, &bias](Pass& p, const Tensor& dy) {
    ops::ChannelGradientSums sums = ops::batch_norm_relu_max_pool_gradient_sums(
        p.context(), tensor, y, dy, gamma, beta, moments, epsilon);
    p.parameter_gradient(weight, [&](const Tensor& dgamma) {
      p.parameter_gradient(bias, [&](const Tensor& dbeta) {
        ops::batch_norm_parameter_gradients(sums, moments, epsilon, dgamma, dbeta);
      });
    });
    if (group != nullptr) sums = pool(*group, sums);
    if (entry < 0) return;
    p.add_gradient(
        entry, ops::batch_norm_relu_max_pool_input_gradient(p.context(), tensor, y, dy, gamma, beta,
                                                            moments, epsilon, sums, count));
  });
}

}  // namespace dtrain::functions
