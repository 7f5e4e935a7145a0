// What batch norm's kernels are told about each channel.
#pragma once

#include <cstdint>

namespace dtrain::ops {

// y = (x - mean - mean_rest) scale + shift. Each [channels].
struct ChannelCoefficients {
  const float* mean;
  const float* mean_rest;
  const float* scale;
  const float* shift;

  // The same from a channel on.
  ChannelCoefficients from(std::int64_t channel) const {
    return {mean + channel, mean_rest + channel, scale + channel, shift + channel};
  }
};

// dx = g scale + (x - mean - mean_rest) slope + offset.
struct GradientCoefficients {
  const float* slope;
  const float* offset;

  GradientCoefficients from(std::int64_t channel) const {
    return {slope + channel, offset + channel};
  }
};

}  // namespace dtrain::ops
