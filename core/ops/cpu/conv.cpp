#include "dtrain/core/ops/conv.h"

#include <algorithm>
#include <string_view>

#include "dtrain/core/ops/cpu/channel_sums.h"
#include "dtrain/core/ops/cpu/dnnl_version.h"
#include "dtrain/core/ops/cpu/library.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/elementwise.h"

namespace dtrain::ops {

namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// Sizes of a convolution: x [n, h, w, i], weights [o, i / groups, kh, kw], y [n, oh, ow, o].
struct Sizes {
  std::int64_t n, h, w, i, o, kh, kw, oh, ow;
  Conv2dOptions options;
};

std::int64_t output_size(std::int64_t size, std::int64_t kernel, const Conv2dOptions& options) {
  const std::int64_t extent = options.dilation * (kernel - 1) + 1;
  const std::int64_t room = size + 2 * options.padding - extent;
  return room < 0 ? 0 : room / options.stride + 1;
}

Sizes sizes_of(const Shape& x, const Shape& w, const Conv2dOptions& options) {
  DTRAIN_CHECK(x.rank() == 4 && w.rank() == 4, "conv2d of {} with weights {}", to_string(x),
               to_string(w));
  DTRAIN_CHECK(
      options.stride >= 1 && options.padding >= 0 && options.dilation >= 1 && options.groups >= 1,
      "conv2d with stride {}, padding {}, dilation {}, groups {}", options.stride, options.padding,
      options.dilation, options.groups);
  DTRAIN_CHECK(x[3] == w[1] * options.groups && w[0] % options.groups == 0,
               "conv2d of {} with weights {} in {} groups", to_string(x), to_string(w),
               options.groups);
  const Sizes sizes{.n = x[0],
                    .h = x[1],
                    .w = x[2],
                    .i = x[3],
                    .o = w[0],
                    .kh = w[2],
                    .kw = w[3],
                    .oh = output_size(x[1], w[2], options),
                    .ow = output_size(x[2], w[3], options),
                    .options = options};
  DTRAIN_CHECK(sizes.oh > 0 && sizes.ow > 0, "conv2d of {} with weights {}: no output",
               to_string(x), to_string(w));
  return sizes;
}

// Channels of a vector: the block that oneDNN's kernels for the instruction set in force want.
int native_block() {
  const auto in_force = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (in_force & avx512) == avx512 ? 16 : 8;
}

// Note [Layouts of convolutions]: measured on one AVX-512 core, in GFLOP/s of forward / backward
// of the input / of the weights:
//
//                             NHWC             blocked          blocked, Winograd
//   3x3, 64->64, 32x32      163/146/152      175/151/145          350/353/336
//   3x3, 128->128, 16x16    173/174/164      181/120/167          366/303/331
//   3x3, 32->64, 14x14      119/100/129      129/129/121          150/194/199
//   3x3, 3->64, 32x32       140/ - /129      151/ - /160                -
//   1x1, 64->128, stride 2  136/121/129      125/111/123                -
//
// So the output is blocked where oneDNN has fast kernels for it: where each group's channels, in
// and out, are whole blocks, or the input has at most three channels (kernels read those plain),
// or each channel is a group of its own. Anything else stays NHWC, where any number of channels
// has a fast kernel. 1x1 convolutions are blocked too, so that chains need no reorders.
bool blocked(const Sizes& sizes, int block) {
  const std::int64_t groups = sizes.options.groups;
  if (groups == 1) {
    return sizes.o % block == 0 && (sizes.i % block == 0 || sizes.i <= 3);
  }
  if (sizes.i == groups && sizes.o == groups) return groups % block == 0;
  return sizes.i / groups % block == 0 && sizes.o / groups % block == 0;
}

// Winograd multiplies tiles of 4x4 outputs; the transform of the weights must be worth it, and the
// tiles full. (512 -> 512 channels, 32 images of 4x4: 291/283/396, direct 263/324/214.) Its
// rounding error is a few times that of the direct kernels.
bool use_winograd(const Sizes& sizes, Operation operation, Convolution convolution) {
  const bool possible = sizes.kh == 3 && sizes.kw == 3 && sizes.options.stride == 1 &&
                        sizes.options.dilation == 1 && sizes.options.groups == 1 &&
                        sizes.options.padding <= 1;
  if (convolution != Convolution::automatic) {
    return possible && convolution == Convolution::winograd;
  }
  const std::int64_t pixels = sizes.n * sizes.oh * sizes.ow;
  return possible && sizes.i >= 32 && sizes.o >= 32 &&
         pixels >= (operation == Operation::conv2d_backward_weight ? 512 : 1024);
}

Tag image_tag(int block) {
  DTRAIN_CHECK(block == 0 || block == 8 || block == 16, "images in channel blocks of {}", block);
  return block == 0 ? Tag::nhwc : block == 8 ? Tag::nChw8c : Tag::nChw16c;
}

Desc image_desc(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, Tag tag) {
  return {{n, c, h, w}, dnnl::memory::data_type::f32, tag};
}

// The memory that the caller has, under the descriptor of what is wanted if they are the same
// memory: descriptors of one channel, or of one block, differ without a difference.
Desc given_desc(const Desc& wanted, Tag wanted_tag, std::int64_t n, std::int64_t h, std::int64_t w,
                std::int64_t c, Layout layout) {
  const int block = layout.channel_block;
  const bool is_nhwc = block == 0 || block == c;
  const bool one_block = (wanted_tag == Tag::nChw8c && c == 8) ||
                         (wanted_tag == Tag::nChw16c && c == 16) ||
                         (wanted_tag == Tag::nchw && c == 1) || wanted_tag == Tag::nhwc;
  if (is_nhwc && one_block) return wanted;
  return image_desc(n, h, w, c, image_tag(block == c ? 0 : block));
}

// A way to compute: the algorithm and the memory orders of images.
struct Way {
  dnnl::algorithm algorithm;
  Tag x;
  Tag y;
};

// In order of preference; the last exists for all sizes.
std::vector<Way> ways(const Sizes& sizes, Operation operation, Convolution convolution) {
  std::vector<Way> ways;
  const int block = native_block();
  if (blocked(sizes, block)) {
    const bool plain_input = sizes.options.groups == 1 && sizes.i <= 3;
    const Tag y = image_tag(block);
    const Tag x = plain_input ? Tag::nchw : y;
    if (use_winograd(sizes, operation, convolution)) {
      ways.push_back({dnnl::algorithm::convolution_winograd, x, y});
    }
    ways.push_back({dnnl::algorithm::convolution_direct, x, y});
  }
  ways.push_back({dnnl::algorithm::convolution_direct, Tag::nhwc, Tag::nhwc});
  return ways;
}

DnnlConvolution convolution_of(const Sizes& sizes, dnnl::algorithm algorithm) {
  const Conv2dOptions& options = sizes.options;
  return {.algorithm = algorithm,
          .strides = {options.stride, options.stride},
          .dilates = {options.dilation - 1, options.dilation - 1},
          .padding_begin = {options.padding, options.padding},
          .padding_end = {options.padding, options.padding}};
}

Desc weights_desc(const Sizes& sizes, bool plain) {
  const std::int64_t groups = sizes.options.groups;
  const auto f32 = dnnl::memory::data_type::f32;
  if (groups == 1) {
    return {{sizes.o, sizes.i, sizes.kh, sizes.kw}, f32, plain ? Tag::oihw : Tag::any};
  }
  return {{groups, sizes.o / groups, sizes.i / groups, sizes.kh, sizes.kw},
          f32,
          plain ? Tag::goihw : Tag::any};
}

PlanKey key_of(Operation operation, const Sizes& sizes, Layout x, Layout y, bool bias) {
  const Conv2dOptions& options = sizes.options;
  return {static_cast<std::int64_t>(operation),
          sizes.n,
          sizes.h,
          sizes.w,
          sizes.i,
          sizes.o,
          sizes.kh,
          sizes.kw,
          options.stride,
          options.padding,
          options.dilation,
          options.groups,
          x.channel_block,
          y.channel_block,
          bias};
}

// What the three operations make of one way.
struct Descriptors {
  Desc x, y, w, bias;
  dnnl::convolution_forward::primitive_desc forward;
};

Descriptors describe(const dnnl::engine& engine, const Sizes& sizes, const Way& way, bool bias) {
  Descriptors d;
  d.x = image_desc(sizes.n, sizes.h, sizes.w, sizes.i, way.x);
  d.y = image_desc(sizes.n, sizes.oh, sizes.ow, sizes.o, way.y);
  d.w = weights_desc(sizes, false);
  if (bias) d.bias = {{sizes.o}, dnnl::memory::data_type::f32, Tag::a};
  d.forward = describe_convolution(engine, user_scratchpad(), convolution_of(sizes, way.algorithm),
                                   d.x, d.w, d.bias, d.y);
  return d;
}

// The first way for which `describe_way` finds a kernel that is not oneDNN's plain reference code,
// which is a thousand times slower; the last way whatever its kernel.
template <typename DescribeWay>
auto choose_way(const Sizes& sizes, Operation operation, Convolution convolution,
                const DescribeWay& describe_way) {
  const std::vector<Way> all = ways(sizes, operation, convolution);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    try {
      auto described = describe_way(all[i]);
      const std::string_view kernel = described.second.impl_info_str();
      if (!kernel.starts_with("ref")) return std::pair(all[i], described);
    } catch (const dnnl::error&) {
      // No such kernel for these sizes: the next way.
    }
  }
  return std::pair(all.back(), describe_way(all.back()));
}

Desc given_x(const Sizes& sizes, const Desc& wanted, const Way& way, Layout layout) {
  return given_desc(wanted, way.x, sizes.n, sizes.h, sizes.w, sizes.i, layout);
}

Desc given_y(const Sizes& sizes, const Desc& wanted, const Way& way, Layout layout) {
  return given_desc(wanted, way.y, sizes.n, sizes.oh, sizes.ow, sizes.o, layout);
}

Plan forward_plan(const OpContext::Library& library, const Sizes& sizes, Layout x, Layout y,
                  bool bias) {
  const auto [way, described] =
      choose_way(sizes, Operation::conv2d, library.convolution, [&](const Way& candidate) {
        Descriptors d = describe(library.engine, sizes, candidate, bias);
        return std::pair(d, d.forward);
      });
  const auto& [d, description] = described;
  std::vector<Plan::Operand> inputs{
      {DNNL_ARG_SRC, given_x(sizes, d.x, way, x), d.x},
      {DNNL_ARG_WEIGHTS, weights_desc(sizes, true), description.weights_desc(), true}};
  if (bias) inputs.push_back({DNNL_ARG_BIAS, d.bias, d.bias});
  return {library.engine,
          dnnl::convolution_forward(description),
          inputs,
          {DNNL_ARG_DST, given_y(sizes, d.y, way, y), d.y},
          description.scratchpad_desc()};
}

Plan backward_input_plan(const OpContext::Library& library, const Sizes& sizes, Layout x,
                         Layout y) {
  const auto [way, described] = choose_way(
      sizes, Operation::conv2d_backward_input, library.convolution, [&](const Way& candidate) {
        Descriptors d = describe(library.engine, sizes, candidate, false);
        return std::pair(
            d, describe_convolution_backward_data(library.engine, user_scratchpad(),
                                                  convolution_of(sizes, candidate.algorithm), d.x,
                                                  d.w, d.y, d.forward));
      });
  const auto& [d, description] = described;
  return {library.engine,
          dnnl::convolution_backward_data(description),
          {{DNNL_ARG_DIFF_DST, given_y(sizes, d.y, way, y), d.y},
           {DNNL_ARG_WEIGHTS, weights_desc(sizes, true), description.weights_desc(), true}},
          {DNNL_ARG_DIFF_SRC, given_x(sizes, d.x, way, x), d.x},
          description.scratchpad_desc()};
}

Plan backward_weight_plan(const OpContext::Library& library, const Sizes& sizes, Layout x,
                          Layout y) {
  const auto [way, described] = choose_way(
      sizes, Operation::conv2d_backward_weight, library.convolution, [&](const Way& candidate) {
        Descriptors d = describe(library.engine, sizes, candidate, false);
        return std::pair(
            d, describe_convolution_backward_weights(library.engine, user_scratchpad(),
                                                     convolution_of(sizes, candidate.algorithm),
                                                     d.x, d.w, d.y, d.forward));
      });
  const auto& [d, description] = described;
  return {library.engine,
          dnnl::convolution_backward_weights(description),
          {{DNNL_ARG_SRC, given_x(sizes, d.x, way, x), d.x},
           {DNNL_ARG_DIFF_DST, given_y(sizes, d.y, way, y), d.y}},
          {DNNL_ARG_DIFF_WEIGHTS, weights_desc(sizes, true), description.diff_weights_desc()},
          description.scratchpad_desc()};
}

Shape output_shape(const Sizes& sizes) {
  return {sizes.n, sizes.oh, sizes.ow, sizes.o};
}

void check_output_gradient(const Tensor& dy, const Sizes& sizes, std::string_view who) {
  DTRAIN_CHECK(dy.shape() == output_shape(sizes), "{}: output gradient {}, expected {}", who,
               to_string(dy.shape()), to_string(output_shape(sizes)));
}

}  // namespace

Layout conv2d_output_layout(const Shape& x, const Shape& w, const Conv2dOptions& options) {
  const int block = native_block();
  return {blocked(sizes_of(x, w, options), block) ? block : 0};
}

Tensor conv2d(OpContext& context, const Tensor& x, const Tensor& w, const Tensor& bias,
              const Conv2dOptions& options) {
  const Sizes sizes = sizes_of(x.shape(), w.shape(), options);
  const Layout layout = conv2d_output_layout(x.shape(), w.shape(), options);
  const bool has_bias = bias.raw() != nullptr;
  DTRAIN_CHECK(!has_bias || bias.shape() == Shape{sizes.o}, "conv2d: bias {} for {} channels",
               to_string(bias.shape()), sizes.o);
  const Tensor y =
      Tensor::empty(output_shape(sizes), DType::f32, context.allocator(), "conv2d output", layout);
  if (y.elements() == 0) return y;
  OpContext::Library& library = context.library();
  Plan& plan = library.plan(
      context, key_of(Operation::conv2d, sizes, x.layout(), layout, has_bias), "conv2d",
      [&] { return forward_plan(library, sizes, x.layout(), layout, has_bias); });
  if (has_bias) {
    plan.run(context, {x.data<float>(), w.data<float>(), bias.data<float>()}, y.data<float>());
  } else {
    plan.run(context, {x.data<float>(), w.data<float>()}, y.data<float>());
  }
  return y;
}

Tensor conv2d_backward_input(OpContext& context, const Tensor& dy, const Tensor& w,
                             const Shape& x_shape, Layout x_layout, const Conv2dOptions& options) {
  const Sizes sizes = sizes_of(x_shape, w.shape(), options);
  check_output_gradient(dy, sizes, "conv2d_backward_input");
  const Tensor dx =
      Tensor::empty(x_shape, DType::f32, context.allocator(), "conv2d input gradient", x_layout);
  if (dx.elements() == 0) return dx;
  OpContext::Library& library = context.library();
  Plan& plan = library.plan(
      context, key_of(Operation::conv2d_backward_input, sizes, x_layout, dy.layout(), false),
      "conv2d_backward_input",
      [&] { return backward_input_plan(library, sizes, x_layout, dy.layout()); });
  plan.run(context, {dy.data<float>(), w.data<float>()}, dx.data<float>());
  return dx;
}

void conv2d_backward_weight(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            const Conv2dOptions& options, bool add) {
  const Sizes sizes = sizes_of(x.shape(), dw.shape(), options);
  check_output_gradient(dy, sizes, "conv2d_backward_weight");
  if (dy.elements() == 0) {
    if (!add) std::ranges::fill(dw.values<float>(), 0.0f);
    return;
  }
  OpContext::Library& library = context.library();
  Plan& plan = library.plan(
      context, key_of(Operation::conv2d_backward_weight, sizes, x.layout(), dy.layout(), false),
      "conv2d_backward_weight",
      [&] { return backward_weight_plan(library, sizes, x.layout(), dy.layout()); });
  if (add && !plan.can_add()) {
    const Tensor part = empty_like(context, dw, "conv2d weight gradient");
    plan.run(context, {x.data<float>(), dy.data<float>()}, part.data<float>());
    add_in_place(context, dw, part);
    return;
  }
  plan.run(context, {x.data<float>(), dy.data<float>()}, dw.data<float>(), add);
}

void conv2d_backward_bias(OpContext& context, const Tensor& dy, const Tensor& db) {
  DTRAIN_CHECK(dy.shape().rank() == 4, "conv2d_backward_bias of {}", to_string(dy.shape()));
  channel_sums(context, dy, db.values<float>());
}

}  // namespace dtrain::ops
