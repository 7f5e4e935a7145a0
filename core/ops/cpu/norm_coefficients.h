// The coefficients that batch norm's kernels take, from moments, gamma and beta, with their memory.
#pragma once

#include <cmath>
#include <string_view>

#include "dtrain/core/ops/cpu/batch_norm_coefficients.h"
#include "dtrain/core/ops/cpu/channel_blocks.h"
#include "dtrain/core/ops/cpu/scratch.h"
#include "dtrain/core/ops/norm.h"

namespace dtrain::ops {

inline double inverse_deviation(float variance, float epsilon) {
  return 1.0 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon));
}

inline void check_channels(const Tensor& parameter, const ChannelBlocks& blocks,
                           std::string_view who) {
  DTRAIN_CHECK(parameter.shape() == Shape{blocks.channels()}, "batch_norm: {} {} for {} channels",
               who, to_string(parameter.shape()), blocks.channels());
}

class NormCoefficients {
 public:
  // beta may be undefined where the kernel does not read the shift; moments.mean_rest where it is
  // zero.
  NormCoefficients(const OpContext& context, const ChannelBlocks& blocks, const Tensor& gamma,
                   const Tensor& beta, const BatchNormOutput& moments, float epsilon)
      : scale_(context, blocks.channels()), zeros_(context, blocks.channels()) {
    check_channels(gamma, blocks, "gamma");
    check_channels(moments.mean, blocks, "mean");
    check_channels(moments.variance, blocks, "variance");
    if (beta.defined()) check_channels(beta, blocks, "beta");
    if (moments.mean_rest.defined()) check_channels(moments.mean_rest, blocks, "mean_rest");
    const float* factor = gamma.data<float>();
    const float* variance = moments.variance.data<float>();
    for (std::int64_t c = 0; c < blocks.channels(); ++c) {
      scale_.data()[c] = static_cast<float>(factor[c] * inverse_deviation(variance[c], epsilon));
      zeros_.data()[c] = 0;
    }
    all_ = {moments.mean.data<float>(),
            moments.mean_rest.defined() ? moments.mean_rest.data<float>() : zeros_.data(),
            scale_.data(), beta.defined() ? beta.data<float>() : zeros_.data()};
  }
  ChannelCoefficients from(std::int64_t channel) const { return all_.from(channel); }

 private:
  Scratch<float> scale_;
  Scratch<float> zeros_;
  ChannelCoefficients all_;
};

class InputGradientCoefficients {
 public:
  // `sums` and `count` are of all values that the moments were taken of.
  InputGradientCoefficients(const OpContext& context, const Tensor& gamma,
                            const BatchNormOutput& moments, float epsilon,
                            const ChannelGradientSums& sums, std::int64_t count)
      : slope_(context, gamma.elements()), offset_(context, gamma.elements()) {
    DTRAIN_CHECK(static_cast<std::int64_t>(sums.g.size()) == gamma.elements(),
                 "sums of {} channels for {}", sums.g.size(), gamma.elements());
    const double inverse_count = count == 0 ? 0 : 1.0 / static_cast<double>(count);
    for (std::int64_t c = 0; c < gamma.elements(); ++c) {
      const double r = inverse_deviation(moments.variance.data<float>()[c], epsilon);
      const double factor = gamma.data<float>()[c] * r;
      slope_.data()[c] = static_cast<float>(-factor * r * r * sums.g_deviation[c] * inverse_count);
      offset_.data()[c] = static_cast<float>(-factor * sums.g[c] * inverse_count);
    }
  }
  GradientCoefficients from(std::int64_t channel) const {
    return GradientCoefficients{slope_.data(), offset_.data()}.from(channel);
  }

 private:
  Scratch<float> slope_;
  Scratch<float> offset_;
};

}  // namespace dtrain::ops
