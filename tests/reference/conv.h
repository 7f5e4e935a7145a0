// 2-D convolution in plain double. Images are NHWC, weights [O, I / groups, KH, KW].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrain::reference {

struct ConvSizes {
  std::int64_t n, h, w, i, o, kh, kw;
  std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;

  std::int64_t out_h() const { return (h + 2 * padding - dilation * (kh - 1) - 1) / stride + 1; }
  std::int64_t out_w() const { return (w + 2 * padding - dilation * (kw - 1) - 1) / stride + 1; }
  std::size_t x_elements() const { return static_cast<std::size_t>(n * h * w * i); }
  std::size_t w_elements() const { return static_cast<std::size_t>(o * (i / groups) * kh * kw); }
  std::size_t y_elements() const { return static_cast<std::size_t>(n * out_h() * out_w() * o); }
};

// body(place in x, place in the weights, place in y) for each product of the convolution.
template <class Body>
void for_each_product(const ConvSizes& s, const Body& body) {
  const std::int64_t group_in = s.i / s.groups;
  const std::int64_t group_out = s.o / s.groups;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t oh = 0; oh < s.out_h(); ++oh)
      for (std::int64_t ow = 0; ow < s.out_w(); ++ow)
        for (std::int64_t o = 0; o < s.o; ++o)
          for (std::int64_t kh = 0; kh < s.kh; ++kh)
            for (std::int64_t kw = 0; kw < s.kw; ++kw) {
              const std::int64_t h = oh * s.stride - s.padding + kh * s.dilation;
              const std::int64_t w = ow * s.stride - s.padding + kw * s.dilation;
              if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
              for (std::int64_t i = 0; i < group_in; ++i) {
                const std::int64_t channel = o / group_out * group_in + i;
                body(static_cast<std::size_t>(((n * s.h + h) * s.w + w) * s.i + channel),
                     static_cast<std::size_t>(((o * group_in + i) * s.kh + kh) * s.kw + kw),
                     static_cast<std::size_t>(((n * s.out_h() + oh) * s.out_w() + ow) * s.o + o));
              }
            }
}

// bias: [o] or empty.
inline std::vector<double> conv2d(const ConvSizes& sizes, const std::vector<double>& x,
                                  const std::vector<double>& weights,
                                  const std::vector<double>& bias) {
  std::vector<double> y(sizes.y_elements());
  if (!bias.empty()) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = bias[i % bias.size()];
  }
  for_each_product(sizes, [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
    y[at_y] += x[at_x] * weights[at_w];
  });
  return y;
}

struct ConvGradients {
  std::vector<double> dx, dw, db;
};

inline ConvGradients conv2d_backward(const ConvSizes& sizes, const std::vector<double>& x,
                                     const std::vector<double>& weights,
                                     const std::vector<double>& dy) {
  ConvGradients g{std::vector<double>(x.size()), std::vector<double>(weights.size()),
                  std::vector<double>(static_cast<std::size_t>(sizes.o))};
  for (std::size_t i = 0; i < dy.size(); ++i) g.db[i % g.db.size()] += dy[i];
  for_each_product(sizes, [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
    g.dx[at_x] += dy[at_y] * weights[at_w];
    g.dw[at_w] += dy[at_y] * x[at_x];
  });
  return g;
}

}  // namespace dtrain::reference
