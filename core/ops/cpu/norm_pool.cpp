// The backward finds the winner of a window again: the first value that, normalized, is the output.
#include "dtrain/core/ops/norm_pool.h"

#include <algorithm>

#include "dtrain/core/ops/cpu/norm_coefficients.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/norm_pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

#ifndef DTRAIN_CORE_OPS_CPU_NORM_POOL_BAND_
#define DTRAIN_CORE_OPS_CPU_NORM_POOL_BAND_
namespace dtrain::ops {

// Rows of windows of one plane: x: [2 rows][width][channels], y: [rows][width / 2][channels].
struct PoolBand {
  std::int64_t rows;
  std::int64_t width;
  std::size_t channels;
  ChannelCoefficients coefficients;
};

}  // namespace dtrain::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// One vector of channels: its coefficients, and how its elements are loaded.
template <class Part>
struct Channels {
  HWY_INLINE Channels(Part part_, const ChannelCoefficients& all, std::size_t c)
      : part(part_),
        mean(part.load(D(), all.mean + c)),
        rest(part.load(D(), all.mean_rest + c)),
        scale(part.load(D(), all.scale + c)),
        shift(part.load(D(), all.shift + c)) {}
  HWY_INLINE V deviation(const float* x) const {
    return hn::Sub(hn::Sub(part.load(D(), x), mean), rest);
  }
  HWY_INLINE V norm(V deviation) const { return hn::MulAdd(deviation, scale, shift); }

  Part part;
  V mean, rest, scale, shift;
};

// Calls body(place in y, the four places in x) for each window of the band; offsets in elements.
template <class Body>
HWY_INLINE void for_each_window(const PoolBand& band, const Body& body) {
  const auto channels = static_cast<std::int64_t>(band.channels);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < band.rows; ++i) {
    std::int64_t x = 2 * i * band.width * channels;
    for (std::int64_t j = 0; j < band.width / 2; ++j, at += channels, x += 2 * channels) {
      const std::int64_t below = x + band.width * channels;
      body(at, x, x + channels, below, below + channels);
    }
  }
}

void pool_band(const PoolBand& band, const float* x, float* y) {
  const D d;
  for_each_vector(d, band.channels, [&](std::size_t c, auto part) HWY_ATTR {
    const Channels channels(part, band.coefficients, c);
    const auto value = [&](std::int64_t at) HWY_ATTR {
      const V v = channels.norm(channels.deviation(x + c + at));
      return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v);  // as ops::relu
    };
    for_each_window(band, [&](std::int64_t at, auto... places) HWY_ATTR {
      V best = hn::Zero(d);
      bool first = true;
      const auto look = [&](V v) HWY_ATTR {
        // As ops::max_pool2d: NaN passes through.
        best = first ? v : hn::IfThenElse(hn::Or(hn::Gt(v, best), hn::IsNaN(v)), v, best);
        first = false;
      };
      (look(value(places)), ...);
      part.store(best, d, y + c + at);
    });
  });
}

void sum_band(const PoolBand& band, const float* x, const float* y, const float* dy, float* sum_g,
              float* sum_g_deviation) {
  const D d;
  for_each_vector(d, band.channels, [&](std::size_t c, auto part) HWY_ATTR {
    const Channels channels(part, band.coefficients, c);
    V a = hn::Zero(d);
    V b = hn::Zero(d);
    for_each_window(band, [&](std::int64_t at, std::int64_t x0, std::int64_t x1, std::int64_t x2,
                              std::int64_t x3) HWY_ATTR {
      const V output = part.load(d, y + c + at);
      const V g = hn::IfThenElseZero(hn::Gt(output, hn::Zero(d)), part.load(d, dy + c + at));
      V winner = channels.deviation(x + c + x3);
      for (const std::int64_t place : {x2, x1, x0}) {
        const V deviation = channels.deviation(x + c + place);
        winner = hn::IfThenElse(hn::Eq(channels.norm(deviation), output), deviation, winner);
      }
      a = hn::Add(a, g);
      b = hn::MulAdd(g, winner, b);
    });
    part.store(a, d, sum_g + c);
    part.store(b, d, sum_g_deviation + c);
  });
}

void gradient_band(const PoolBand& band, const float* x, const float* y, const float* dy,
                   const GradientCoefficients& coefficients, float* dx) {
  const D d;
  for_each_vector(d, band.channels, [&](std::size_t c, auto part) HWY_ATTR {
    const Channels channels(part, band.coefficients, c);
    const V slope = part.load(d, coefficients.slope + c);
    const V offset = part.load(d, coefficients.offset + c);
    for_each_window(band, [&](std::int64_t at, auto... places) HWY_ATTR {
      const V output = part.load(d, y + c + at);
      // What is left to give away.
      V g = hn::IfThenElseZero(hn::Gt(output, hn::Zero(d)), part.load(d, dy + c + at));
      const auto give = [&](std::int64_t place) HWY_ATTR {
        const V deviation = channels.deviation(x + c + place);
        const auto wins = hn::Eq(channels.norm(deviation), output);
        const V share = hn::IfThenElseZero(wins, g);
        g = hn::IfThenZeroElse(wins, g);
        part.store(hn::MulAdd(deviation, slope, hn::MulAdd(share, channels.scale, offset)), d,
                   dx + c + place);
      };
      (give(places), ...);
    });
  });
}

// Pixels outside all windows.
void gradient_of_rest(std::int64_t pixels, std::size_t width, const float* x,
                      const ChannelCoefficients& channel_coefficients,
                      const GradientCoefficients& coefficients, float* dx) {
  const D d;
  for_each_vector(d, width, [&](std::size_t c, auto part) HWY_ATTR {
    const Channels channels(part, channel_coefficients, c);
    const V slope = part.load(d, coefficients.slope + c);
    const V offset = part.load(d, coefficients.offset + c);
    for (std::int64_t p = 0; p < pixels; ++p) {
      const std::size_t at = static_cast<std::size_t>(p) * width + c;
      part.store(hn::MulAdd(channels.deviation(x + at), slope, offset), d, dx + at);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

namespace {

HWY_EXPORT(pool_band);
HWY_EXPORT(sum_band);
HWY_EXPORT(gradient_band);
HWY_EXPORT(gradient_of_rest);

// An image cut into bands of rows of windows, as Note [Chunk sums] has it.
class Bands {
 public:
  explicit Bands(const Tensor& x) : blocks_(channel_blocks(x)), shape_(x.shape()) {
    DTRAIN_CHECK(shape_.rank() == 4, "norm and pool of {}", to_string(shape_));
    const std::int64_t windows = std::max<std::int64_t>(1, shape_[2] / 2);
    rows_ = std::max<std::int64_t>(1, 256 / windows);
    per_plane_ = (shape_[1] / 2 + rows_ - 1) / rows_;
  }
  const ChannelBlocks& blocks() const { return blocks_; }
  std::int64_t planes() const { return shape_[0] * blocks_.blocks; }
  std::int64_t count() const { return planes() * per_plane_; }
  Shape output() const { return {shape_[0], shape_[1] / 2, shape_[2] / 2, shape_[3]}; }

  struct Place {
    PoolBand band;
    std::int64_t channel;
    std::int64_t x;  // offset of its first element
    std::int64_t y;
  };
  Place at(std::int64_t index, const NormCoefficients& coefficients) const {
    const std::int64_t plane = index / per_plane_;
    const std::int64_t row = index % per_plane_ * rows_;
    const std::int64_t height = shape_[1] / 2;
    const std::int64_t channel = plane % blocks_.blocks * blocks_.width;
    return {.band = {.rows = std::min(rows_, height - row),
                     .width = shape_[2],
                     .channels = static_cast<std::size_t>(blocks_.width),
                     .coefficients = coefficients.from(channel)},
            .channel = channel,
            .x = (plane * shape_[1] + 2 * row) * shape_[2] * blocks_.width,
            .y = (plane * height + row) * (shape_[2] / 2) * blocks_.width};
  }

  // body(first, last) of bands, on the context's threads.
  template <typename Body>
  void for_each(const OpContext& context, const Body& body) const {
    if (count() == 0) return;
    const std::int64_t size = 4 * rows_ * (shape_[2] / 2) * blocks_.width;
    const std::int64_t grain =
        std::max<std::int64_t>(1, elements_per_thread / std::max<std::int64_t>(1, size));
    parallel_ranges(context, count(), grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) body(i);
    });
  }

 private:
  ChannelBlocks blocks_;
  Shape shape_;
  std::int64_t rows_ = 1;  // of windows in a band
  std::int64_t per_plane_ = 0;
};

void check_outputs(const Tensor& x, const Tensor& y, const Tensor& dy, const Bands& bands) {
  check_alike(y, dy, "norm and pool");
  DTRAIN_CHECK(y.shape() == bands.output() && y.layout() == x.layout(),
               "norm and pool of {}: an output of {}", to_string(x.shape()), to_string(y.shape()));
}

}  // namespace

Tensor batch_norm_relu_max_pool(OpContext& context, const Tensor& x, const Tensor& gamma,
                                const Tensor& beta, const BatchNormOutput& moments, float epsilon) {
  const Bands bands(x);
  const NormCoefficients coefficients(context, bands.blocks(), gamma, beta, moments, epsilon);
  const Tensor y = Tensor::empty(bands.output(), DType::f32, context.allocator(),
                                 "norm and pool output", x.layout());
  const float* from = x.data<float>();
  float* to = y.data<float>();
  bands.for_each(context, [&](std::int64_t i) {
    const Bands::Place place = bands.at(i, coefficients);
    HWY_DYNAMIC_DISPATCH(pool_band)(place.band, from + place.x, to + place.y);
  });
  return y;
}

ChannelGradientSums batch_norm_relu_max_pool_gradient_sums(OpContext& context, const Tensor& x,
                                                           const Tensor& y, const Tensor& dy,
                                                           const Tensor& gamma, const Tensor& beta,
                                                           const BatchNormOutput& moments,
                                                           float epsilon) {
  const Bands bands(x);
  check_outputs(x, y, dy, bands);
  const NormCoefficients coefficients(context, bands.blocks(), gamma, beta, moments, epsilon);
  const std::int64_t width = bands.blocks().width;
  const Scratch<float> partials(context, 2 * bands.count() * width);
  const float* values = x.data<float>();
  const float* outputs = y.data<float>();
  const float* gradients = dy.data<float>();
  bands.for_each(context, [&](std::int64_t i) {
    const Bands::Place place = bands.at(i, coefficients);
    float* row = partials.data() + 2 * i * width;
    HWY_DYNAMIC_DISPATCH(sum_band)
    (place.band, values + place.x, outputs + place.y, gradients + place.y, row, row + width);
  });
  const auto channels = static_cast<std::size_t>(bands.blocks().channels());
  ChannelGradientSums sums{std::vector<double>(channels), std::vector<double>(channels)};
  for (std::int64_t i = 0; i < bands.count(); ++i) {
    const std::int64_t first = bands.at(i, coefficients).channel;
    const float* row = partials.data() + 2 * i * width;
    for (std::int64_t c = 0; c < width; ++c) {
      sums.g[first + c] += double(row[c]);
      sums.g_deviation[first + c] += double(row[width + c]);
    }
  }
  return sums;
}

Tensor batch_norm_relu_max_pool_input_gradient(OpContext& context, const Tensor& x, const Tensor& y,
                                               const Tensor& dy, const Tensor& gamma,
                                               const Tensor& beta, const BatchNormOutput& moments,
                                               float epsilon, const ChannelGradientSums& sums,
                                               std::int64_t count) {
  const Bands bands(x);
  check_outputs(x, y, dy, bands);
  const NormCoefficients coefficients(context, bands.blocks(), gamma, beta, moments, epsilon);
  const InputGradientCoefficients of_gradient(context, gamma, moments, epsilon, sums, count);
  const Tensor dx = empty_like(context, x, "norm and pool input gradient");
  const float* values = x.data<float>();
  const float* outputs = y.data<float>();
  const float* gradients = dy.data<float>();
  float* to = dx.data<float>();
  bands.for_each(context, [&](std::int64_t i) {
    const Bands::Place place = bands.at(i, coefficients);
    HWY_DYNAMIC_DISPATCH(gradient_band)
    (place.band, values + place.x, outputs + place.y, gradients + place.y,
     of_gradient.from(place.channel), to + place.x);
  });
  // The last row and column of odd sizes belong to no window.
  const std::int64_t height = x.shape()[1], width = x.shape()[2], channels = bands.blocks().width;
  if (height % 2 == 0 && width % 2 == 0) return dx;
  for (std::int64_t plane = 0; plane < bands.planes(); ++plane) {
    const std::int64_t channel = plane % bands.blocks().blocks * channels;
    const auto rest = [&](std::int64_t row, std::int64_t column, std::int64_t pixels) {
      const std::int64_t at = ((plane * height + row) * width + column) * channels;
      HWY_DYNAMIC_DISPATCH(gradient_of_rest)
      (pixels, static_cast<std::size_t>(channels), values + at, coefficients.from(channel),
       of_gradient.from(channel), to + at);
    };
    if (width % 2 != 0) {
      for (std::int64_t row = 0; row < height / 2 * 2; ++row) rest(row, width - 1, 1);
    }
    if (height % 2 != 0) rest(height - 1, 0, width);
  }
  return dx;
}

}  // namespace dtrain::ops
#endif
