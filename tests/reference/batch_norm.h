// Batch normalization in plain double over rows of channels: x is [rows][channels].
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace dtrain::reference {

struct BatchNorm {
  std::vector<double> y, mean, variance;  // variance is biased
};

inline BatchNorm batch_norm(const std::vector<double>& x, const std::vector<double>& gamma,
                            const std::vector<double>& beta, double epsilon) {
  const std::size_t channels = gamma.size();
  const double rows = double(x.size() / channels);
  BatchNorm result{std::vector<double>(x.size()), std::vector<double>(channels),
                   std::vector<double>(channels)};
  for (std::size_t i = 0; i < x.size(); ++i) result.mean[i % channels] += x[i] / rows;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double deviation = x[i] - result.mean[i % channels];
    result.variance[i % channels] += deviation * deviation / rows;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    result.y[i] =
        (x[i] - result.mean[c]) / std::sqrt(result.variance[c] + epsilon) * gamma[c] + beta[c];
  }
  return result;
}

struct BatchNormGradients {
  std::vector<double> dx, dgamma, dbeta;
};

// By the chain rule through y, the deviations, variance and mean, in turn.
inline BatchNormGradients batch_norm_backward(const std::vector<double>& x,
                                              const std::vector<double>& dy,
                                              const std::vector<double>& gamma, double epsilon) {
  const std::size_t channels = gamma.size();
  const double rows = double(x.size() / channels);
  const BatchNorm forward = batch_norm(x, gamma, std::vector<double>(channels), epsilon);
  BatchNormGradients g{std::vector<double>(x.size()), std::vector<double>(channels),
                       std::vector<double>(channels)};
  std::vector<double> d_variance(channels), d_mean(channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const double deviation = x[i] - forward.mean[c];
    const double inverse = 1 / std::sqrt(forward.variance[c] + epsilon);
    g.dbeta[c] += dy[i];
    g.dgamma[c] += dy[i] * deviation * inverse;
    d_variance[c] += dy[i] * gamma[c] * deviation * -0.5 * inverse * inverse * inverse;
    d_mean[c] += dy[i] * gamma[c] * -inverse;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const double deviation = x[i] - forward.mean[c];
    const double inverse = 1 / std::sqrt(forward.variance[c] + epsilon);
    g.dx[i] = dy[i] * gamma[c] * inverse + d_variance[c] * 2 * deviation / rows + d_mean[c] / rows;
  }
  return g;
}

}  // namespace dtrain::reference
