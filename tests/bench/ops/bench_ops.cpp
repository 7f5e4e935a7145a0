// How fast operators are: products and convolutions of the models in GFLOP/s and as a share of the
// peak that is measured beside them, operators that memory binds as a share of a loop with the same
// reads and writes, and where the time of a convnet's forward and backward goes. JSON on standard
// output.
//
//   bench_ops [threads]
//
// Times are processor time of the calling thread, which neighbours disturb least; with more threads
// than one, wall clock. Ratios within one run are what counts.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "machine_peak.h"
#include "memory_bound.h"
#include "timing.h"
#include <nlohmann/json.hpp>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/conv.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/core/ops/loss.h"
#include "dtrain/core/ops/matmul.h"
#include "dtrain/core/ops/norm.h"
#include "dtrain/core/ops/pool.h"
#include "dtrain/core/random/philox.h"

namespace dtrain {
namespace {

using Json = nlohmann::ordered_json;

class Bench {
 public:
  Bench(int threads, double peak_gflops)
      : context_(allocator_, threads), peak_gflops_(peak_gflops) {
    context_.bind_to_this_thread();
  }

  Json linear(std::int64_t n, std::int64_t k, std::int64_t m) {
    const Tensor x = random({n, k}), w = random({m, k}), b = random({m}), dy = random({n, m});
    const Tensor dw = random({m, k});
    const double operations = 2.0 * double(n) * double(k) * double(m);
    return {
        {"n", n},
        {"k", k},
        {"m", m},
        {"forward", rate(operations, [&] { ops::linear(context_, x, w, b); })},
        {"backward_input", rate(operations, [&] { ops::linear_backward_input(context_, dy, w); })},
        {"backward_weight",
         rate(operations, [&] { ops::linear_backward_weight(context_, x, dy, dw); })}};
  }

  Json conv(const Shape& x_shape, const Shape& w_shape, const ops::Conv2dOptions& options,
            const std::string& name) {
    // x as the layer before would leave it.
    const Layout blocked{
        ops::conv2d_output_layout(x_shape, {x_shape[3], x_shape[3], 1, 1}, {}).channel_block};
    const Tensor x = random(x_shape, x_shape[3] > 3 ? blocked : Layout{});
    const Tensor w = random(w_shape), b = random({w_shape[0]}), dw = random(w_shape);
    const Tensor dy = ops::conv2d(context_, x, w, b, options);
    const double operations =
        2.0 * double(dy.elements()) * double(w_shape[1] * w_shape[2] * w_shape[3]);
    Json result{{"name", name},
                {"channel_block", dy.layout().channel_block},
                {"forward", rate(operations, [&] { ops::conv2d(context_, x, w, b, options); })},
                {"backward_weight", rate(operations, [&] {
                   ops::conv2d_backward_weight(context_, x, dy, dw, options);
                 })}};
    // Images get no gradient.
    if (x_shape[3] > 3) {
      result["backward_input"] = rate(operations, [&] {
        ops::conv2d_backward_input(context_, dy, w, x_shape, x.layout(), options);
      });
    }
    return result;
  }

  // Forward and backward of convnet [32, 64] on a micro-batch of 32 images of 28 x 28.
  Json convnet() {
    ConvNet net(*this);
    for (int i = 0; i < 3; ++i) net.step();
    net.forget();
    std::vector<double> totals;
    const auto calls = allocator_.stats().system_calls;
    const TimePoint start = Clock::now();
    while (totals.size() < 20 || seconds_since(start) < 2) {
      const double before = seconds_now(context_.threads());
      net.step();
      totals.push_back(seconds_now(context_.threads()) - before);
    }
    const Timing total = summarize(totals);
    Json parts = Json::object();
    for (auto& [name, seconds] : net.times()) parts[name] = summarize(seconds).median * 1e6;
    return {{"microseconds", total.median * 1e6},
            {"spread", total.spread},
            {"samples_per_second", 32 / total.median},
            {"system_allocations", allocator_.stats().system_calls - calls},
            {"parts_microseconds", parts}};
  }

 private:
  Json rate(double operations, const std::function<void()>& body) const {
    const Timing timing = measure(context_.threads(), body);
    const double gflops = operations / timing.median * 1e-9;
    return {{"gflops", gflops},
            {"share_of_peak", gflops / peak_gflops_},
            {"microseconds", timing.median * 1e6},
            {"spread", timing.spread}};
  }

  class ConvNet {
   public:
    explicit ConvNet(Bench& bench) : bench_(bench) {
      for (std::int64_t& target : targets_.values<std::int64_t>()) target = next_target_++ % 10;
    }

    void step() {
      OpContext& c = bench_.context_;
      const ops::Conv2dOptions same{.padding = 1};
      Tensor a1, a2, flat, h, rh, logits;
      ops::BatchNormOutput n1, n2;
      ops::MaxPoolOutput p1, p2;
      timed("conv1", [&] { a1 = ops::conv2d(c, x_, w1_, c1_, same); });
      timed("batch_norm_relu1", [&] { n1 = ops::batch_norm_relu(c, a1, g1_, c1_, 1e-5f); });
      timed("max_pool1", [&] { p1 = ops::max_pool2d(c, n1.y, {}); });
      timed("conv2", [&] { a2 = ops::conv2d(c, p1.y, w2_, c2_, same); });
      timed("batch_norm_relu2", [&] { n2 = ops::batch_norm_relu(c, a2, g2_, c2_, 1e-5f); });
      timed("max_pool2", [&] { p2 = ops::max_pool2d(c, n2.y, {}); });
      timed("flatten", [&] { flat = ops::to_layout(c, p2.y, {}).reshape({32, 3136}); });
      timed("hidden", [&] { h = ops::linear(c, flat, w3_, c3_); });
      timed("relu3", [&] { rh = ops::relu(c, h); });
      timed("output", [&] { logits = ops::linear(c, rh, w4_, c4_); });
      timed("loss", [&] { ops::cross_entropy(c, logits, targets_, {}); });

      Tensor d;
      timed("loss_backward",
            [&] { d = ops::cross_entropy_backward(c, logits, targets_, {}, 1.0f); });
      timed("output_weight", [&] { ops::linear_backward_weight(c, rh, d, w4_gradient_); });
      timed("output_bias", [&] { ops::linear_backward_bias(c, d, c4_gradient_); });
      timed("output_input", [&] { d = ops::linear_backward_input(c, d, w4_); });
      timed("relu3_backward", [&] { d = ops::relu_backward(c, rh, d); });
      timed("hidden_weight", [&] { ops::linear_backward_weight(c, flat, d, w3_gradient_); });
      timed("hidden_bias", [&] { ops::linear_backward_bias(c, d, c3_gradient_); });
      timed("hidden_input", [&] { d = ops::linear_backward_input(c, d, w3_); });
      timed("flatten_backward", [&] {
        d = ops::to_layout(c, d.reshape({32, 7, 7, 64}), p2.y.layout());
      });
      timed("max_pool2_backward",
            [&] { d = ops::max_pool2d_backward(c, d, p2.index, a2.shape(), {}); });
      timed("batch_norm_relu2_backward", [&] {
        d = ops::batch_norm_relu_backward(c, a2, d, g2_, c2_, n2, 1e-5f, g2_gradient_,
                                          c2_gradient_);
      });
      timed("conv2_weight", [&] { ops::conv2d_backward_weight(c, p1.y, d, w2_gradient_, same); });
      timed("conv2_bias", [&] { ops::conv2d_backward_bias(c, d, c2_gradient_); });
      timed("conv2_input",
            [&] { d = ops::conv2d_backward_input(c, d, w2_, p1.y.shape(), p1.y.layout(), same); });
      timed("max_pool1_backward",
            [&] { d = ops::max_pool2d_backward(c, d, p1.index, a1.shape(), {}); });
      timed("batch_norm_relu1_backward", [&] {
        d = ops::batch_norm_relu_backward(c, a1, d, g1_, c1_, n1, 1e-5f, g1_gradient_,
                                          c1_gradient_);
      });
      timed("conv1_weight", [&] { ops::conv2d_backward_weight(c, x_, d, w1_gradient_, same); });
      timed("conv1_bias", [&] { ops::conv2d_backward_bias(c, d, c1_gradient_); });
    }

    void forget() { times_.clear(); }
    std::vector<std::pair<std::string, std::vector<double>>>& times() { return times_; }

   private:
    void timed(const std::string& name, const std::function<void()>& body) {
      const int threads = bench_.context_.threads();
      const double before = seconds_now(threads);
      body();
      const double seconds = seconds_now(threads) - before;
      auto found =
          std::ranges::find(times_, name, &std::pair<std::string, std::vector<double>>::first);
      if (found == times_.end()) found = times_.insert(found, {name, {}});
      found->second.push_back(seconds);
    }
    Tensor random(const Shape& shape) { return bench_.random(shape); }

    Bench& bench_;
    std::int64_t next_target_ = 0;
    Tensor x_ = random({32, 28, 28, 1});
    Tensor targets_ = Tensor::empty({32}, DType::i64, bench_.allocator_, "targets");
    Tensor w1_ = random({32, 1, 3, 3}), c1_ = random({32}), g1_ = random({32});
    Tensor w2_ = random({64, 32, 3, 3}), c2_ = random({64}), g2_ = random({64});
    Tensor w3_ = random({128, 3136}), c3_ = random({128});
    Tensor w4_ = random({10, 128}), c4_ = random({10});
    Tensor w1_gradient_ = random({32, 1, 3, 3}), c1_gradient_ = random({32});
    Tensor w2_gradient_ = random({64, 32, 3, 3}), c2_gradient_ = random({64});
    Tensor g1_gradient_ = random({32}), g2_gradient_ = random({64});
    Tensor w3_gradient_ = random({128, 3136}), c3_gradient_ = random({128});
    Tensor w4_gradient_ = random({10, 128}), c4_gradient_ = random({10});
    std::vector<std::pair<std::string, std::vector<double>>> times_;
  };

  Tensor random(const Shape& shape, Layout layout = {}) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "benchmark", layout);
    for (float& value : x.values<float>()) value = static_cast<float>(numbers_.uniform(-1, 1));
    return x;
  }

  Allocator allocator_{"benchmark"};
  OpContext context_;
  double peak_gflops_;
  RandomSequence numbers_{RandomKey(1)};
};

Json run(int threads) {
  const double peak = measure_peak_gflops(threads);
  Json result{{"cpu_isa", select_cpu_isa("auto")}, {"threads", threads}, {"peak_gflops", peak}};
  Bench bench(threads, peak);
  result["convnet"] = bench.convnet();
  for (const auto& [n, k, m] : std::vector<std::array<std::int64_t, 3>>{{32, 784, 256},
                                                                        {32, 256, 128},
                                                                        {32, 128, 10},
                                                                        {32, 3136, 128},
                                                                        {2048, 384, 1152},
                                                                        {2048, 384, 1536},
                                                                        {2048, 1536, 384},
                                                                        {2048, 384, 256},
                                                                        {1024, 768, 3072},
                                                                        {1024, 3072, 768},
                                                                        {1024, 768, 50257}}) {
    result["linear"].push_back(bench.linear(n, k, m));
  }
  result["conv"] = {
      bench.conv({32, 28, 28, 1}, {32, 1, 3, 3}, {.padding = 1}, "convnet 1->32, 28x28"),
      bench.conv({32, 14, 14, 32}, {64, 32, 3, 3}, {.padding = 1}, "convnet 32->64, 14x14"),
      bench.conv({32, 32, 32, 3}, {64, 3, 3, 3}, {.padding = 1}, "resnet 3->64, 32x32"),
      bench.conv({32, 32, 32, 64}, {64, 64, 3, 3}, {.padding = 1}, "resnet 64->64, 32x32"),
      bench.conv({32, 32, 32, 64}, {128, 64, 3, 3}, {.stride = 2, .padding = 1},
                 "resnet 64->128, stride 2"),
      bench.conv({32, 32, 32, 64}, {128, 64, 1, 1}, {.stride = 2}, "resnet 64->128, 1x1, stride 2"),
      bench.conv({32, 16, 16, 128}, {128, 128, 3, 3}, {.padding = 1}, "resnet 128->128, 16x16"),
      bench.conv({32, 8, 8, 256}, {256, 256, 3, 3}, {.padding = 1}, "resnet 256->256, 8x8"),
      bench.conv({32, 4, 4, 512}, {512, 512, 3, 3}, {.padding = 1}, "resnet 512->512, 4x4")};
  result["memory"] = bench_memory_bound(threads);
  return result;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  try {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
    std::printf("%s\n", dtrain::run(threads).dump(2).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_ops: %s\n", error.what());
    return 1;
  }
}
