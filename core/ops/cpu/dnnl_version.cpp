#include "dtrain/core/ops/cpu/dnnl_version.h"

namespace dtrain::ops {

#if DNNL_VERSION_MAJOR >= 3

dnnl::matmul::primitive_desc describe_matmul(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const dnnl::memory::desc& a,
    const dnnl::memory::desc& b, const dnnl::memory::desc& bias, const dnnl::memory::desc& c) {
  return {engine, a, b, bias, c, attributes};
}

dnnl::convolution_forward::primitive_desc describe_convolution(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& x, const dnnl::memory::desc& w,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& y) {
  return {engine,
          dnnl::prop_kind::forward_training,
          convolution.algorithm,
          x,
          w,
          bias,
          y,
          convolution.strides,
          convolution.dilates,
          convolution.padding_begin,
          convolution.padding_end,
          attributes};
}

dnnl::convolution_backward_data::primitive_desc describe_convolution_backward_data(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& dx, const dnnl::memory::desc& w,
    const dnnl::memory::desc& dy, const dnnl::convolution_forward::primitive_desc& forward) {
  return {engine,
          convolution.algorithm,
          dx,
          w,
          dy,
          convolution.strides,
          convolution.dilates,
          convolution.padding_begin,
          convolution.padding_end,
          forward,
          attributes};
}

dnnl::convolution_backward_weights::primitive_desc describe_convolution_backward_weights(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& x, const dnnl::memory::desc& dw,
    const dnnl::memory::desc& dy, const dnnl::convolution_forward::primitive_desc& forward) {
  return {engine,
          convolution.algorithm,
          x,
          dw,
          dy,
          convolution.strides,
          convolution.dilates,
          convolution.padding_begin,
          convolution.padding_end,
          forward,
          attributes};
}

#else

dnnl::matmul::primitive_desc describe_matmul(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const dnnl::memory::desc& a,
    const dnnl::memory::desc& b, const dnnl::memory::desc& bias, const dnnl::memory::desc& c) {
  return {dnnl::matmul::desc(a, b, bias, c), attributes, engine};
}

dnnl::convolution_forward::primitive_desc describe_convolution(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& x, const dnnl::memory::desc& w,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& y) {
  const dnnl::convolution_forward::desc operation(
      dnnl::prop_kind::forward_training, convolution.algorithm, x, w, bias, y, convolution.strides,
      convolution.dilates, convolution.padding_begin, convolution.padding_end);
  return {operation, attributes, engine};
}

dnnl::convolution_backward_data::primitive_desc describe_convolution_backward_data(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& dx, const dnnl::memory::desc& w,
    const dnnl::memory::desc& dy, const dnnl::convolution_forward::primitive_desc& forward) {
  const dnnl::convolution_backward_data::desc operation(
      convolution.algorithm, dx, w, dy, convolution.strides, convolution.dilates,
      convolution.padding_begin, convolution.padding_end);
  return {operation, attributes, engine, forward};
}

dnnl::convolution_backward_weights::primitive_desc describe_convolution_backward_weights(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& x, const dnnl::memory::desc& dw,
    const dnnl::memory::desc& dy, const dnnl::convolution_forward::primitive_desc& forward) {
  const dnnl::convolution_backward_weights::desc operation(
      convolution.algorithm, x, dw, dy, convolution.strides, convolution.dilates,
      convolution.padding_begin, convolution.padding_end);
  return {operation, attributes, engine, forward};
}

#endif

}  // namespace dtrain::ops
