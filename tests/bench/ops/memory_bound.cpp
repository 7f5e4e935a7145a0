#include "memory_bound.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "machine_peak.h"
#include "timing.h"

#include "dtrain/core/base/thread_pool.h"
#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/norm.h"
#include "dtrain/core/optim/optimizer.h"
#include "dtrain/core/random/philox.h"

namespace dtrain {
namespace {

using Json = nlohmann::ordered_json;

// Arrays that one sweep reads, and those that it writes.
struct Sweep {
  std::vector<std::span<const float>> reads;
  std::vector<std::span<float>> writes;
};

class MemoryBench {
 public:
  explicit MemoryBench(int threads)
      : context_(allocator_, threads), pool_(threads), threads_(threads) {
    context_.bind_to_this_thread();
  }

  Json run() {
    activations();
    norms();
    optimizers();
    return std::move(results_);
  }

 private:
  // The tensors of a ResNet's first stage, 32 images: 8 MB each.
  static Shape image() { return {32, 32, 32, 64}; }

  void activations() {
    const Tensor x = random(image()), y = random(image()), dy = random(image());
    const Sweep one{{x.values<float>()}, {spare(0)}};
    const Sweep two{{x.values<float>(), dy.values<float>()}, {spare(0)}};
    compare("relu", [&] { ops::relu(context_, x); }, {one});
    compare("relu backward", [&] { ops::relu_backward(context_, x, dy); }, {two});
    compare("gelu", [&] { ops::gelu(context_, x); }, {one});
    compare("gelu backward", [&] { ops::gelu_backward(context_, x, dy); }, {two});
    compare("add", [&] { ops::add(context_, x, dy); }, {two});
    compare("add in place", [&] { ops::add_in_place(y, dy); },
            {{{y.values<float>(), dy.values<float>()}, {y.values<float>()}}});
  }

  // Statistics first, so that the input is read twice; the second sweep writes.
  void norms() {
    const Tensor x = random(image()), dy = random(image());
    const Tensor gamma = random({64}), beta = random({64});
    const Tensor dgamma = random({64}), dbeta = random({64});
    const Sweep statistics{{x.values<float>()}, {}};
    const Sweep normalize{{x.values<float>()}, {spare(0)}};
    const Sweep sums{{x.values<float>(), dy.values<float>()}, {}};
    const Sweep gradient{{x.values<float>(), dy.values<float>()}, {spare(0)}};
    compare("batch norm", [&] { ops::batch_norm(context_, x, gamma, beta, 1e-5F); },
            {statistics, normalize});
    compare("batch norm + relu", [&] { ops::batch_norm_relu(context_, x, gamma, beta, 1e-5F); },
            {statistics, normalize});
    const ops::BatchNormOutput forward = ops::batch_norm(context_, x, gamma, beta, 1e-5F);
    compare(
        "batch norm backward",
        [&] { ops::batch_norm_backward(context_, x, dy, gamma, forward, 1e-5F, dgamma, dbeta); },
        {sums, gradient});
    compare("batch norm + relu backward",
            [&] {
              ops::batch_norm_relu_backward(context_, x, dy, gamma, beta, forward, 1e-5F, dgamma,
                                            dbeta);
            },
            {sums, gradient});
  }

  // Of ResNet-18's 11.2 million parameters: beyond all caches.
  void optimizers() {
    constexpr std::int64_t count = 11'200'000 / 16 * 16;
    const Tensor weights = random({count}), gradients = random({count});
    const std::span<float> w = weights.values<float>(), g = gradients.values<float>();
    for (const char* name : {"sgd", "adamw"}) {
      config::Optimizer options;
      options.set_name(name);
      if (std::string(name) == "sgd") options.set_momentum(0.9);
      const auto optimizer = make_optimizer(options);
      std::vector<Tensor> kept;
      std::vector<std::span<float>> state;
      Sweep same{{w, g}, {w}};
      for (std::size_t i = 0; i < optimizer->state_names().size(); ++i) {
        kept.push_back(Tensor::zeros({count}, DType::f32, allocator_, "state"));
        state.push_back(kept.back().values<float>());
        same.reads.push_back(state.back());
        same.writes.push_back(state.back());
      }
      const std::vector<ParameterSegment> segments{{0, count, 1e-4}};
      compare(std::string(name) + " step",
              [&] { optimizer->step(w, g, state, segments, {.lr = 1e-6F}, pool_); }, {same});
    }
  }

  void compare(const std::string& name, const std::function<void()>& body,
               const std::vector<Sweep>& sweeps) {
    double bytes = 0;
    for (const Sweep& sweep : sweeps) {
      const std::size_t elements = sweep.reads.front().size();
      bytes += 4.0 * static_cast<double>(elements * (sweep.reads.size() + sweep.writes.size()));
    }
    Json best;
    // Stores through the cache or past it: the faster loop is the limit.
    for (const bool nontemporal : {false, true}) {
      const TimingPair times = measure_in_turn(threads_, body, [&] {
        for (const Sweep& sweep : sweeps) {
          const Traffic traffic(sweep.reads, sweep.writes, nontemporal);
          pool_.parallel_for(static_cast<std::int64_t>(traffic.elements() / 16),
                             [&](std::int64_t first, std::int64_t last) {
                               traffic.run(static_cast<std::size_t>(first) * 16,
                                           static_cast<std::size_t>(last) * 16);
                             });
        }
      });
      const double share = times.second.median / times.first.median;
      if (!best.is_null() && best["share"].get<double>() < share) continue;
      best = {{"name", name},
              {"microseconds", times.first.median * 1e6},
              {"spread", times.first.spread},
              {"gb_per_s", bytes / times.first.median * 1e-9},
              {"limit_gb_per_s", bytes / times.second.median * 1e-9},
              {"limit_stores", nontemporal ? "past the cache" : "through the cache"},
              {"share", share}};
    }
    results_.push_back(best);
  }

  Tensor random(const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "benchmark");
    for (float& value : x.values<float>()) value = static_cast<float>(numbers_.uniform(-1, 1));
    return x;
  }

  // Memory for the loop's output, as large as an image.
  std::span<float> spare(std::size_t index) {
    while (spares_.size() <= index) spares_.push_back(random(image()));
    return spares_[index].values<float>();
  }

  Allocator allocator_{"benchmark"};
  OpContext context_;
  ThreadPool pool_;
  int threads_;
  RandomSequence numbers_{RandomKey(1)};
  std::vector<Tensor> spares_;
  Json results_ = Json::array();
};

}  // namespace

Json bench_memory_bound(int threads) {
  return MemoryBench(threads).run();
}

}  // namespace dtrain
