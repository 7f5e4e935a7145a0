// Scaled dot-product attention in plain double, with the whole matrix of scores.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtrain/tests/reference/dropout.h"

namespace dtrain::reference {

struct Attention {
  std::size_t samples = 1, heads = 1, queries = 1, keys = 1, size = 1;
  bool causal = false;
  std::vector<std::uint8_t> key_mask;  // [samples][keys], or empty
  float dropout = 0;
  RandomKey key{0};
  std::vector<std::int64_t> positions;

  struct Inputs {
    std::vector<double> q, k, v;  // [samples][queries or keys][heads * size]
  };

  std::size_t columns() const { return heads * size; }
  std::size_t at_query(std::size_t n, std::size_t t, std::size_t h) const {
    return (n * queries + t) * columns() + h * size;
  }
  std::size_t at_key(std::size_t n, std::size_t s, std::size_t h) const {
    return (n * keys + s) * columns() + h * size;
  }
  bool sees(std::size_t n, std::size_t t, std::size_t s) const {
    return (!causal || s <= t) && (key_mask.empty() || key_mask[n * keys + s] != 0);
  }
  double keep(std::size_t n, std::size_t h, std::size_t t, std::size_t s) const {
    if (dropout == 0) return 1;
    const std::size_t e = (h * queries + t) * ((keys + 3) / 4 * 4) + s;
    return dropout_keeps(key, positions[n], static_cast<std::int64_t>(e), dropout)
               ? 1 / (1 - static_cast<double>(dropout))
               : 0;
  }

  // Probabilities of the keys for one query.
  std::vector<double> probabilities(const Inputs& in, std::size_t n, std::size_t h,
                                    std::size_t t) const {
    std::vector<double> p(keys);
    double max = -INFINITY, sum = 0;
    for (std::size_t s = 0; s < keys; ++s) {
      p[s] = -INFINITY;
      if (!sees(n, t, s)) continue;
      p[s] = 0;
      for (std::size_t i = 0; i < size; ++i) {
        p[s] += in.q[at_query(n, t, h) + i] * in.k[at_key(n, s, h) + i];
      }
      p[s] /= std::sqrt(static_cast<double>(size));
      max = std::max(max, p[s]);
    }
    for (double& value : p) {
      value = max == -INFINITY ? 0 : std::exp(value - max);
      sum += value;
    }
    for (double& value : p) value = sum == 0 ? 0 : value / sum;
    return p;
  }

  std::vector<double> forward(const Inputs& in) const {
    std::vector<double> y(in.q.size());
    for (std::size_t n = 0; n < samples; ++n) {
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t t = 0; t < queries; ++t) {
          const std::vector<double> p = probabilities(in, n, h, t);
          for (std::size_t s = 0; s < keys; ++s) {
            for (std::size_t i = 0; i < size; ++i) {
              y[at_query(n, t, h) + i] += keep(n, h, t, s) * p[s] * in.v[at_key(n, s, h) + i];
            }
          }
        }
      }
    }
    return y;
  }

  Inputs backward(const Inputs& in, const std::vector<double>& dy) const {
    Inputs d{std::vector<double>(in.q.size()), std::vector<double>(in.k.size()),
             std::vector<double>(in.v.size())};
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    for (std::size_t n = 0; n < samples; ++n) {
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t t = 0; t < queries; ++t) {
          const std::vector<double> p = probabilities(in, n, h, t);
          std::vector<double> dp(keys);
          double dot = 0;
          for (std::size_t s = 0; s < keys; ++s) {
            const double kept = keep(n, h, t, s);
            for (std::size_t i = 0; i < size; ++i) {
              const double g = dy[at_query(n, t, h) + i];
              dp[s] += kept * g * in.v[at_key(n, s, h) + i];
              d.v[at_key(n, s, h) + i] += kept * p[s] * g;
            }
            dot += p[s] * dp[s];
          }
          for (std::size_t s = 0; s < keys; ++s) {
            const double ds = p[s] * (dp[s] - dot) * scale;
            for (std::size_t i = 0; i < size; ++i) {
              d.q[at_query(n, t, h) + i] += ds * in.k[at_key(n, s, h) + i];
              d.k[at_key(n, s, h) + i] += ds * in.q[at_query(n, t, h) + i];
            }
          }
        }
      }
    }
    return d;
  }
};

}  // namespace dtrain::reference
