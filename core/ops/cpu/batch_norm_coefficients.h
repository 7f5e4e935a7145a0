// What batch norm's kernels are told about each channel.
#pragma once

#include <cstdint>

namespace dtrain::ops {

// y = (x - mean - mean_rest) scale + shift. Each [channels]; what a kernel does not read may be
// null.
struct ChannelCoefficients {
  const float* mean;
  const float* mean_rest;
  const float* scale;
  const float* shift;

  // The same from a channel on.
  ChannelCoefficients from(std::int64_t channel) const {
    const auto at = [=](const float* row) { return row == nullptr ? nullptr : row + channel; };
    return {at(mean), at(mean_rest), at(scale), at(shift)};
  }
};

// dx = g scale + (x - mean - mean_rest) slope + offset.
struct GradientCoefficients {
  const float* mean_rest;
  const float* slope;
  const float* offset;

  GradientCoefficients from(std::int64_t channel) const {
    return {mean_rest + channel, slope + channel, offset + channel};
  }
};

}  // namespace dtrain::ops
