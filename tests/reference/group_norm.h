// Group normalization in plain double: x is [samples][pixels][channels].
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace dtrain::reference {

// Calls body(elements, group) with the indices of each sample's each group.
template <typename Body>
void for_each_group(std::size_t samples, std::size_t pixels, std::size_t channels,
                    std::size_t groups, const Body& body) {
  const std::size_t per_group = channels / groups;
  for (std::size_t n = 0; n < samples; ++n) {
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<std::size_t> elements;
      for (std::size_t p = 0; p < pixels; ++p) {
        for (std::size_t c = g * per_group; c < (g + 1) * per_group; ++c) {
          elements.push_back((n * pixels + p) * channels + c);
        }
      }
      body(elements);
    }
  }
}

struct Moments {
  double mean = 0, variance = 0;
};

inline Moments moments_of(const std::vector<double>& x, const std::vector<std::size_t>& elements) {
  Moments m;
  for (const std::size_t i : elements) m.mean += x[i] / double(elements.size());
  for (const std::size_t i : elements) {
    m.variance += (x[i] - m.mean) * (x[i] - m.mean) / double(elements.size());
  }
  return m;
}

inline std::vector<double> group_norm(const std::vector<double>& x, std::size_t samples,
                                      std::size_t pixels, const std::vector<double>& gamma,
                                      const std::vector<double>& beta, std::size_t groups,
                                      double epsilon) {
  const std::size_t channels = gamma.size();
  std::vector<double> y(x.size());
  for_each_group(samples, pixels, channels, groups, [&](const auto& elements) {
    const Moments m = moments_of(x, elements);
    for (const std::size_t i : elements) {
      const std::size_t c = i % channels;
      y[i] = (x[i] - m.mean) / std::sqrt(m.variance + epsilon) * gamma[c] + beta[c];
    }
  });
  return y;
}

struct GroupNormGradients {
  std::vector<double> dx, dgamma, dbeta;
};

// By the chain rule through y, the deviations, variance and mean, in turn.
inline GroupNormGradients group_norm_backward(const std::vector<double>& x,
                                              const std::vector<double>& dy, std::size_t samples,
                                              std::size_t pixels, const std::vector<double>& gamma,
                                              std::size_t groups, double epsilon) {
  const std::size_t channels = gamma.size();
  GroupNormGradients g{std::vector<double>(x.size()), std::vector<double>(channels),
                       std::vector<double>(channels)};
  for_each_group(samples, pixels, channels, groups, [&](const auto& elements) {
    const Moments m = moments_of(x, elements);
    const double inverse = 1 / std::sqrt(m.variance + epsilon);
    const double count = double(elements.size());
    double d_variance = 0, d_mean = 0;
    for (const std::size_t i : elements) {
      const std::size_t c = i % channels;
      const double deviation = x[i] - m.mean;
      g.dbeta[c] += dy[i];
      g.dgamma[c] += dy[i] * deviation * inverse;
      d_variance += dy[i] * gamma[c] * deviation * -0.5 * inverse * inverse * inverse;
      d_mean += dy[i] * gamma[c] * -inverse;
    }
    for (const std::size_t i : elements) {
      g.dx[i] = dy[i] * gamma[i % channels] * inverse + d_variance * 2 * (x[i] - m.mean) / count +
                d_mean / count;
    }
  });
  return g;
}

}  // namespace dtrain::reference
