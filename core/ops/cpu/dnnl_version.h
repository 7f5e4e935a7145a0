// The one place that knows how oneDNN 2.x and 3.x differ: 2.x describes an operation first and
// then asks for a primitive, 3.x does both at once.
#pragma once

#include <dnnl.hpp>

namespace dtrain::ops {

// What all convolutions take beside their memory. An undilated kernel has dilates of 0.
struct DnnlConvolution {
  dnnl::algorithm algorithm;
  dnnl::memory::dims strides;
  dnnl::memory::dims dilates;
  dnnl::memory::dims padding_begin;
  dnnl::memory::dims padding_end;
};

// An empty descriptor of `bias` stands for none. All throw dnnl::error where oneDNN has no
// implementation.
dnnl::matmul::primitive_desc describe_matmul(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const dnnl::memory::desc& a,
    const dnnl::memory::desc& b, const dnnl::memory::desc& bias, const dnnl::memory::desc& c);

dnnl::convolution_forward::primitive_desc describe_convolution(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& x, const dnnl::memory::desc& w,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& y);

dnnl::convolution_backward_data::primitive_desc describe_convolution_backward_data(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& dx, const dnnl::memory::desc& w,
    const dnnl::memory::desc& dy, const dnnl::convolution_forward::primitive_desc& forward);

dnnl::convolution_backward_weights::primitive_desc describe_convolution_backward_weights(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const DnnlConvolution& convolution, const dnnl::memory::desc& x, const dnnl::memory::desc& dw,
    const dnnl::memory::desc& dy, const dnnl::convolution_forward::primitive_desc& forward);

}  // namespace dtrain::ops
