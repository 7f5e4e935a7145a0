// 2-D pooling in plain double; images are NHWC.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrain::reference {

struct PoolSizes {
  std::int64_t n, h, w, c;
  std::int64_t kernel = 2, stride = 2, padding = 0;

  std::int64_t out(std::int64_t in) const { return (in + 2 * padding - kernel) / stride + 1; }
  std::size_t y_elements() const { return static_cast<std::size_t>(n * out(h) * out(w) * c); }
};

struct MaxPool {
  std::vector<double> y;
  std::vector<std::int64_t> window_element;  // kh * kernel + kw of the winner
  std::vector<std::size_t> source;           // its place in x
};

inline MaxPool max_pool2d(const PoolSizes& s, const std::vector<double>& x) {
  MaxPool result;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t oh = 0; oh < s.out(s.h); ++oh)
      for (std::int64_t ow = 0; ow < s.out(s.w); ++ow)
        for (std::int64_t c = 0; c < s.c; ++c) {
          bool first = true;
          double best = 0;
          std::int64_t winner = 0;
          std::size_t source = 0;
          for (std::int64_t kh = 0; kh < s.kernel; ++kh)
            for (std::int64_t kw = 0; kw < s.kernel; ++kw) {
              const std::int64_t h = oh * s.stride - s.padding + kh;
              const std::int64_t w = ow * s.stride - s.padding + kw;
              if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
              const auto at = static_cast<std::size_t>(((n * s.h + h) * s.w + w) * s.c + c);
              if (first || x[at] > best || std::isnan(x[at])) {
                best = x[at];
                winner = kh * s.kernel + kw;
                source = at;
              }
              first = false;
            }
          result.y.push_back(best);
          result.window_element.push_back(winner);
          result.source.push_back(source);
        }
  return result;
}

inline std::vector<double> max_pool2d_backward(const MaxPool& forward,
                                               const std::vector<double>& dy,
                                               std::size_t x_elements) {
  std::vector<double> dx(x_elements);
  for (std::size_t i = 0; i < dy.size(); ++i) dx[forward.source[i]] += dy[i];
  return dx;
}

// body(place in x, place in y, divisor) for each term of an average: padding counts in the divisor.
template <class Body>
void for_each_average(const PoolSizes& s, const Body& body) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t oh = 0; oh < s.out(s.h); ++oh)
      for (std::int64_t ow = 0; ow < s.out(s.w); ++ow)
        for (std::int64_t c = 0; c < s.c; ++c)
          for (std::int64_t kh = 0; kh < s.kernel; ++kh)
            for (std::int64_t kw = 0; kw < s.kernel; ++kw) {
              const std::int64_t h = oh * s.stride - s.padding + kh;
              const std::int64_t w = ow * s.stride - s.padding + kw;
              if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
              body(static_cast<std::size_t>(((n * s.h + h) * s.w + w) * s.c + c),
                   static_cast<std::size_t>(((n * s.out(s.h) + oh) * s.out(s.w) + ow) * s.c + c),
                   static_cast<double>(s.kernel * s.kernel));
            }
}

// The same for windows from floor(i * in / out) to ceil((i + 1) * in / out).
template <class Body>
void for_each_adaptive_average(std::int64_t n_images, std::int64_t height, std::int64_t width,
                               std::int64_t channels, std::int64_t out_h, std::int64_t out_w,
                               const Body& body) {
  const auto begin = [](std::int64_t i, std::int64_t in, std::int64_t out) {
    return static_cast<std::int64_t>(std::floor(double(i) * double(in) / double(out)));
  };
  const auto end = [](std::int64_t i, std::int64_t in, std::int64_t out) {
    return static_cast<std::int64_t>(std::ceil(double(i + 1) * double(in) / double(out)));
  };
  for (std::int64_t n = 0; n < n_images; ++n)
    for (std::int64_t oh = 0; oh < out_h; ++oh)
      for (std::int64_t ow = 0; ow < out_w; ++ow)
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t h0 = begin(oh, height, out_h), h1 = end(oh, height, out_h);
          const std::int64_t w0 = begin(ow, width, out_w), w1 = end(ow, width, out_w);
          for (std::int64_t h = h0; h < h1; ++h)
            for (std::int64_t w = w0; w < w1; ++w)
              body(static_cast<std::size_t>(((n * height + h) * width + w) * channels + c),
                   static_cast<std::size_t>(((n * out_h + oh) * out_w + ow) * channels + c),
                   static_cast<double>((h1 - h0) * (w1 - w0)));
        }
}

}  // namespace dtrain::reference
