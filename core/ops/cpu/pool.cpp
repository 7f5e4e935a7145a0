#include "dtrain/core/ops/pool.h"

#include <algorithm>

#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/cpu/pool_plane.h"
#include "dtrain/core/ops/cpu/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;

template <class Part>
HWY_INLINE void store_index(hn::Vec<IntTag> v, Part part, std::int32_t* p) {
  part.store(v, IntTag(), p);
}
template <class Part>
HWY_INLINE void store_index(hn::Vec<IntTag> v, Part part, std::uint8_t* p) {
  const hn::Rebind<std::uint8_t, FloatTag> bytes;
  part.store(hn::DemoteTo(bytes, v), bytes, p);
}
template <class Part>
HWY_INLINE hn::Vec<IntTag> load_index(Part part, const std::int32_t* p) {
  return part.load(IntTag(), p);
}
template <class Part>
HWY_INLINE hn::Vec<IntTag> load_index(Part part, const std::uint8_t* p) {
  const hn::Rebind<std::uint8_t, FloatTag> bytes;
  return hn::PromoteTo(IntTag(), part.load(bytes, p));
}

// body(position of the output, its windows) for each output of the plane.
template <class Body>
HWY_INLINE void for_each_output(const Plane& plane, const Body& body) {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < plane.out_height; ++i) {
    for (std::int64_t j = 0; j < plane.out_width; ++j, at += plane.channels) {
      body(at, plane.rows[i], plane.columns[j]);
    }
  }
}

template <class Index>
HWY_INLINE void max_plane(const Plane& plane, const float* x, float* y, Index* index) {
  const FloatTag d;
  const IntTag di;
  const auto channels = static_cast<std::size_t>(plane.channels);
  const std::int64_t row = plane.width * plane.channels;
  for_each_output(plane, [&](std::int64_t at, const Window& rows, const Window& columns) HWY_ATTR {
    for_each_vector(d, channels, [&](std::size_t c, auto part) HWY_ATTR {
      const auto element = [&](std::int64_t h, std::int64_t w) {
        return static_cast<std::int32_t>((h - rows.origin) * plane.kernel + w - columns.origin);
      };
      const float* from = x + c + columns.begin * plane.channels;
      auto best = part.load(d, from + rows.begin * row);
      auto winner = hn::Set(di, element(rows.begin, columns.begin));
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        const float* p = from + h * row;
        for (std::int64_t w = columns.begin; w < columns.end; ++w, p += plane.channels) {
          const auto value = part.load(d, p);
          // Greater, or NaN: the first of equals wins, and NaN passes through as in PyTorch.
          const auto better = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
          best = hn::IfThenElse(better, value, best);
          winner = hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, element(h, w)), winner);
        }
      }
      part.store(best, d, y + at + c);
      store_index(winner, part, index + at + c);
    });
  });
}

template <class Index>
HWY_INLINE void max_plane_backward(const Plane& plane, const float* dy, const Index* index,
                                   float* dx) {
  const FloatTag d;
  const IntTag di;
  const auto channels = static_cast<std::size_t>(plane.channels);
  const std::int64_t row = plane.width * plane.channels;
  if (!plane.disjoint || !plane.covering) std::fill_n(dx, plane.x_elements(), 0.0f);
  for_each_output(plane, [&](std::int64_t at, const Window& rows, const Window& columns) HWY_ATTR {
    for_each_vector(d, channels, [&](std::size_t c, auto part) HWY_ATTR {
      const auto gradient = part.load(d, dy + at + c);
      const auto winner = load_index(part, index + at + c);
      float* to = dx + c + columns.begin * plane.channels;
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        float* p = to + h * row;
        for (std::int64_t w = columns.begin; w < columns.end; ++w, p += plane.channels) {
          const auto element = (h - rows.origin) * plane.kernel + w - columns.origin;
          const auto won = hn::Eq(winner, hn::Set(di, static_cast<std::int32_t>(element)));
          const auto share = hn::IfThenElseZero(hn::RebindMask(d, won), gradient);
          part.store(plane.disjoint ? share : hn::Add(part.load(d, p), share), d, p);
        }
      }
    });
  });
}

void max_plane_u8(const Plane& plane, const float* x, float* y, std::uint8_t* index) {
  max_plane(plane, x, y, index);
}
void max_plane_i32(const Plane& plane, const float* x, float* y, std::int32_t* index) {
  max_plane(plane, x, y, index);
}
void max_plane_backward_u8(const Plane& plane, const float* dy, const std::uint8_t* index,
                           float* dx) {
  max_plane_backward(plane, dy, index, dx);
}
void max_plane_backward_i32(const Plane& plane, const float* dy, const std::int32_t* index,
                            float* dx) {
  max_plane_backward(plane, dy, index, dx);
}

HWY_INLINE float divisor_of(const Plane& plane, const Window& rows, const Window& columns) {
  if (plane.divisor != 0) return plane.divisor;
  return static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

void average_plane(const Plane& plane, const float* x, float* y) {
  const FloatTag d;
  const auto channels = static_cast<std::size_t>(plane.channels);
  const std::int64_t row = plane.width * plane.channels;
  for_each_output(plane, [&](std::int64_t at, const Window& rows, const Window& columns) HWY_ATTR {
    const auto divisor = hn::Set(d, divisor_of(plane, rows, columns));
    for_each_vector(d, channels, [&](std::size_t c, auto part) HWY_ATTR {
      const float* from = x + c + columns.begin * plane.channels;
      auto sum = hn::Zero(d);
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        // Sums of rows first: large windows lose less.
        auto row_sum = hn::Zero(d);
        const float* p = from + h * row;
        for (std::int64_t w = columns.begin; w < columns.end; ++w, p += plane.channels) {
          row_sum = hn::Add(row_sum, part.load(d, p));
        }
        sum = hn::Add(sum, row_sum);
      }
      part.store(hn::Div(sum, divisor), d, y + at + c);
    });
  });
}

void average_plane_backward(const Plane& plane, const float* dy, float* dx) {
  const FloatTag d;
  const auto channels = static_cast<std::size_t>(plane.channels);
  const std::int64_t row = plane.width * plane.channels;
  if (!plane.disjoint || !plane.covering) std::fill_n(dx, plane.x_elements(), 0.0f);
  for_each_output(plane, [&](std::int64_t at, const Window& rows, const Window& columns) HWY_ATTR {
    const auto divisor = hn::Set(d, divisor_of(plane, rows, columns));
    for_each_vector(d, channels, [&](std::size_t c, auto part) HWY_ATTR {
      const auto share = hn::Div(part.load(d, dy + at + c), divisor);
      float* to = dx + c + columns.begin * plane.channels;
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        float* p = to + h * row;
        for (std::int64_t w = columns.begin; w < columns.end; ++w, p += plane.channels) {
          part.store(plane.disjoint ? share : hn::Add(part.load(d, p), share), d, p);
        }
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

namespace {

HWY_EXPORT(max_plane_u8);
HWY_EXPORT(max_plane_i32);
HWY_EXPORT(max_plane_backward_u8);
HWY_EXPORT(max_plane_backward_i32);
HWY_EXPORT(average_plane);
HWY_EXPORT(average_plane_backward);

// Windows along one axis.
struct Axis {
  std::int64_t in;
  std::int64_t out;
  Scratch<Window> windows;

  // Neighbours share no input; all inputs belong to a window.
  bool disjoint() const {
    for (std::int64_t i = 1; i < out; ++i) {
      if (windows.data()[i].begin < windows.data()[i - 1].end) return false;
    }
    return true;
  }
  bool covering() const {
    std::int64_t end = 0;
    for (std::int64_t i = 0; i < out; ++i) {
      if (windows.data()[i].begin > end) return false;
      end = windows.data()[i].end;
    }
    return end == in;
  }
};

Axis pool_axis(const OpContext& context, std::int64_t in, const Pool2dOptions& options) {
  const std::int64_t out = (in + 2 * options.padding - options.kernel) / options.stride + 1;
  Axis axis{in, out, Scratch<Window>(context, out)};
  for (std::int64_t i = 0; i < out; ++i) {
    const std::int64_t origin = i * options.stride - options.padding;
    axis.windows.data()[i] = {
        static_cast<std::int32_t>(origin),
        static_cast<std::int32_t>(std::max<std::int64_t>(origin, 0)),
        static_cast<std::int32_t>(std::min<std::int64_t>(origin + options.kernel, in))};
  }
  return axis;
}

Axis adaptive_axis(const OpContext& context, std::int64_t in, std::int64_t out) {
  Axis axis{in, out, Scratch<Window>(context, out)};
  for (std::int64_t i = 0; i < out; ++i) {
    const auto begin = static_cast<std::int32_t>(i * in / out);
    axis.windows.data()[i] = {begin, begin,
                              static_cast<std::int32_t>(((i + 1) * in + out - 1) / out)};
  }
  return axis;
}

void check_pool(const Shape& x, const Pool2dOptions& options, std::string_view who) {
  DTRAIN_CHECK(x.rank() == 4, "{} of {}", who, to_string(x));
  DTRAIN_CHECK(options.kernel >= 1 && options.stride >= 1 && options.padding >= 0 &&
                   2 * options.padding <= options.kernel,
               "{} with kernel {}, stride {}, padding {} (at most half the kernel)", who,
               options.kernel, options.stride, options.padding);
  DTRAIN_CHECK(std::min(x[1], x[2]) + 2 * options.padding >= options.kernel,
               "{} of {} with a kernel of {}: no output", who, to_string(x), options.kernel);
}

// The planes of an image, and what lies where.
class Planes {
 public:
  Planes(const Shape& x, Layout layout, Axis rows, Axis columns)
      : rows_(std::move(rows)), columns_(std::move(columns)) {
    const std::int64_t block = layout.channel_block == 0 ? x[3] : layout.channel_block;
    count_ = block == 0 ? 0 : x[0] * x[3] / block;
    plane_ = {.height = rows_.in,
              .width = columns_.in,
              .out_height = rows_.out,
              .out_width = columns_.out,
              .channels = block,
              .rows = rows_.windows.data(),
              .columns = columns_.windows.data(),
              .kernel = 0,
              .disjoint = rows_.disjoint() && columns_.disjoint(),
              .covering = rows_.covering() && columns_.covering(),
              .divisor = 0};
    output_ = {x[0], rows_.out, columns_.out, x[3]};
  }

  const Shape& output() const { return output_; }
  void set_kernel(std::int64_t kernel) { plane_.kernel = kernel; }
  void set_divisor(float divisor) { plane_.divisor = divisor; }

  // body(plane, first element of its input, first of its output) for each plane.
  template <typename Body>
  void for_each(const OpContext& context, const Body& body) const {
    const std::int64_t in = rows_.in * columns_.in * plane_.channels;
    const std::int64_t out = rows_.out * columns_.out * plane_.channels;
    const std::int64_t grain =
        std::max<std::int64_t>(1, elements_per_thread / std::max<std::int64_t>(1, in));
    parallel_ranges(context, count_, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t p = first; p < last; ++p) body(plane_, p * in, p * out);
    });
  }

 private:
  Axis rows_;
  Axis columns_;
  Plane plane_;
  std::int64_t count_;
  Shape output_;
};

Planes max_planes(const OpContext& context, const Shape& x, Layout layout,
                  const Pool2dOptions& options, std::string_view who) {
  check_pool(x, options, who);
  Planes planes(x, layout, pool_axis(context, x[1], options), pool_axis(context, x[2], options));
  planes.set_kernel(options.kernel);
  return planes;
}

Planes average_planes(const OpContext& context, const Shape& x, Layout layout,
                      const Pool2dOptions& options, std::string_view who) {
  check_pool(x, options, who);
  Planes planes(x, layout, pool_axis(context, x[1], options), pool_axis(context, x[2], options));
  planes.set_divisor(static_cast<float>(options.kernel) * static_cast<float>(options.kernel));
  return planes;
}

Planes adaptive_planes(const OpContext& context, const Shape& x, Layout layout, std::int64_t out_h,
                       std::int64_t out_w) {
  DTRAIN_CHECK(x.rank() == 4 && out_h >= 1 && out_w >= 1 && x[1] >= 1 && x[2] >= 1,
               "adaptive_avg_pool2d of {} to {} x {}", to_string(x), out_h, out_w);
  return {x, layout, adaptive_axis(context, x[1], out_h), adaptive_axis(context, x[2], out_w)};
}

Tensor average(OpContext& context, const Tensor& x, const Planes& planes) {
  const Tensor y = Tensor::empty(planes.output(), DType::f32, context.allocator(),
                                 "average pooling output", x.layout());
  const float* from = x.data<float>();
  float* to = y.data<float>();
  planes.for_each(context, [&](const Plane& plane, std::int64_t in, std::int64_t out) {
    HWY_DYNAMIC_DISPATCH(average_plane)(plane, from + in, to + out);
  });
  return y;
}

Tensor average_backward(OpContext& context, const Tensor& dy, const Shape& x_shape,
                        const Planes& planes) {
  DTRAIN_CHECK(dy.shape() == planes.output(), "average pooling: output gradient {}, expected {}",
               to_string(dy.shape()), to_string(planes.output()));
  const Tensor dx = Tensor::empty(x_shape, DType::f32, context.allocator(),
                                  "average pooling input gradient", dy.layout());
  const float* from = dy.data<float>();
  float* to = dx.data<float>();
  planes.for_each(context, [&](const Plane& plane, std::int64_t in, std::int64_t out) {
    HWY_DYNAMIC_DISPATCH(average_plane_backward)(plane, from + out, to + in);
  });
  return dx;
}

}  // namespace

MaxPoolOutput max_pool2d(OpContext& context, const Tensor& x, const Pool2dOptions& options) {
  const Planes planes = max_planes(context, x.shape(), x.layout(), options, "max_pool2d");
  const bool small = options.kernel <= 16;  // elements 0 ... 255
  MaxPoolOutput output;
  output.y = Tensor::empty(planes.output(), DType::f32, context.allocator(), "max_pool2d output",
                           x.layout());
  output.index = Tensor::empty(planes.output(), small ? DType::u8 : DType::i32, context.allocator(),
                               "max_pool2d index", x.layout());
  const float* from = x.data<float>();
  float* to = output.y.data<float>();
  planes.for_each(context, [&](const Plane& plane, std::int64_t in, std::int64_t out) {
    if (small) {
      HWY_DYNAMIC_DISPATCH(max_plane_u8)
      (plane, from + in, to + out, output.index.data<std::uint8_t>() + out);
    } else {
      HWY_DYNAMIC_DISPATCH(max_plane_i32)
      (plane, from + in, to + out, output.index.data<std::int32_t>() + out);
    }
  });
  return output;
}

Tensor max_pool2d_backward(OpContext& context, const Tensor& dy, const Tensor& index,
                           const Shape& x_shape, const Pool2dOptions& options) {
  const Planes planes = max_planes(context, x_shape, dy.layout(), options, "max_pool2d_backward");
  DTRAIN_CHECK(dy.shape() == planes.output() && index.shape() == planes.output() &&
                   index.layout() == dy.layout(),
               "max_pool2d_backward: output gradient {} and index {}, expected {}",
               to_string(dy.shape()), to_string(index.shape()), to_string(planes.output()));
  const Tensor dx = Tensor::empty(x_shape, DType::f32, context.allocator(),
                                  "max_pool2d input gradient", dy.layout());
  const float* from = dy.data<float>();
  float* to = dx.data<float>();
  const bool small = index.dtype() == DType::u8;
  planes.for_each(context, [&](const Plane& plane, std::int64_t in, std::int64_t out) {
    if (small) {
      HWY_DYNAMIC_DISPATCH(max_plane_backward_u8)
      (plane, from + out, index.data<std::uint8_t>() + out, to + in);
    } else {
      HWY_DYNAMIC_DISPATCH(max_plane_backward_i32)
      (plane, from + out, index.data<std::int32_t>() + out, to + in);
    }
  });
  return dx;
}

Tensor avg_pool2d(OpContext& context, const Tensor& x, const Pool2dOptions& options) {
  return average(context, x, average_planes(context, x.shape(), x.layout(), options, "avg_pool2d"));
}

Tensor avg_pool2d_backward(OpContext& context, const Tensor& dy, const Shape& x_shape,
                           const Pool2dOptions& options) {
  return average_backward(
      context, dy, x_shape,
      average_planes(context, x_shape, dy.layout(), options, "avg_pool2d_backward"));
}

Tensor adaptive_avg_pool2d(OpContext& context, const Tensor& x, int out_h, int out_w) {
  return average(context, x, adaptive_planes(context, x.shape(), x.layout(), out_h, out_w));
}

Tensor adaptive_avg_pool2d_backward(OpContext& context, const Tensor& dy, const Shape& x_shape) {
  DTRAIN_CHECK(dy.shape().rank() == 4, "adaptive_avg_pool2d_backward of {}", to_string(dy.shape()));
  return average_backward(
      context, dy, x_shape,
      adaptive_planes(context, x_shape, dy.layout(), dy.shape()[1], dy.shape()[2]));
}

}  // namespace dtrain::ops
#endif
