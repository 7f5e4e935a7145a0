// Batch norm on the tape: what follows it in one operation, what is kept of it, and SyncBN.
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

#include "support.h"

namespace dtrain {
namespace {

constexpr std::int64_t channels = 16;

// conv -> norm -> (+ conv of the input) -> ReLU, in one operation or in three.
std::unique_ptr<Custom> residual_block(bool fused) {
  auto model = std::make_unique<Custom>([fused](const Custom& self, Pass& pass, const Value& x) {
    const Value shortcut = self.child<Conv2d>(0).forward(pass, x);
    const Value y = self.child<Conv2d>(1).forward(pass, shortcut);
    const auto& norm = self.child<BatchNorm>(2);
    if (fused) return norm.forward_add_relu(pass, y, shortcut);
    return functions::relu(pass, functions::add(pass, norm.forward(pass, y), shortcut));
  });
  model->layer<Conv2d>("shortcut", 3, channels, 3, ops::Conv2dOptions{.padding = 1});
  model->layer<Conv2d>("conv", channels, channels, 3, ops::Conv2dOptions{.padding = 1});
  model->layer<BatchNorm>("norm", channels);
  return model;
}

TEST(BatchNormPass, FusedWithResidualAndReluIsAllThreeToTheBit) {
  Fixture fused(residual_block(true)), plain(residual_block(false));
  const Shape shape{4, 6, 5, 3};
  const std::vector<float> input = numbers(shape.elements(), 1);
  EXPECT_EQ(fused.run(input, shape).output, plain.run(input, shape).output);
  EXPECT_EQ(fused.gradients, plain.gradients);  // statistic sums too
  EXPECT_EQ(fused.run(input, shape, {.training = false}).output,
            plain.run(input, shape, {.training = false}).output);
}

// Two convolutions with batch norm and ReLU behind each.
std::unique_ptr<Custom> stack(bool synchronized) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    Value y = self.child<BatchNorm>(1).forward_relu(pass, self.child<Conv2d>(0).forward(pass, x));
    y = self.child<BatchNorm>(3).forward_relu(pass, self.child<Conv2d>(2).forward(pass, y));
    return functions::flatten(pass, functions::adaptive_avg_pool2d(pass, y, 1, 1));
  });
  for (const auto& [conv, norm, in] :
       {std::tuple("conv1", "norm1", std::int64_t{3}), {"conv2", "norm2", channels}}) {
    model->layer<Conv2d>(conv, in, channels, 3, ops::Conv2dOptions{.padding = 1}, false);
    model->layer<BatchNorm>(norm, channels, BatchNorm::Options{.synchronized = synchronized});
  }
  return model;
}

// Of each convolution its output alone waits for the backward: batch norm and ReLU are made again.
TEST(BatchNormPass, KeepsOneTensorOfConvolutionNormAndRelu) {
  constexpr int layers = 6;
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    Value y = x;
    for (int i = 0; i < layers; ++i) {
      y = self.child<BatchNorm>(2 * i + 1).forward_relu(pass,
                                                        self.child<Conv2d>(2 * i).forward(pass, y));
    }
    return functions::flatten(pass, y);
  });
  for (int i = 0; i < layers; ++i) {
    // 1 x 1, so that no scratch memory of a kernel counts.
    model->layer<Conv2d>("conv" + std::to_string(i), channels, channels, 1);
    model->layer<BatchNorm>("norm" + std::to_string(i), channels);
  }
  Fixture f(std::move(model));
  const Shape shape{8, 32, 32, channels};
  f.run(numbers(shape.elements(), 3), shape);
  const std::uint64_t activation = shape.elements() * sizeof(float);
  // The input, six outputs, and three or four gradients and what is made again.
  EXPECT_LT(f.allocator.stats().peak_allocated, (layers + 6) * activation);
  EXPECT_EQ(f.allocator.stats().allocated, 0U);
}

// Passes in threads that exchange through memory.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : barrier_(size), sent_(size), lanes_(size) {
    for (int i = 0; i < size; ++i) {
      lanes_[i].group = this;
      lanes_[i].index = i;
    }
  }
  SyncGroup& lane(int i) { return lanes_[i]; }

 private:
  struct Lane final : SyncGroup {
    int size() const override { return static_cast<int>(group->sent_.size()); }
    std::span<const double> exchange(std::span<const double> values) override {
      group->sent_[index].assign(values.begin(), values.end());
      group->barrier_.arrive_and_wait();
      all.clear();
      for (const auto& row : group->sent_) all.insert(all.end(), row.begin(), row.end());
      group->barrier_.arrive_and_wait();
      return all;
    }
    ThreadGroup* group = nullptr;
    int index = 0;
    std::vector<double> all;
  };
  std::barrier<> barrier_;
  std::vector<std::vector<double>> sent_;
  std::vector<Lane> lanes_;
};

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::abs(double(a[i]) - double(b[i])));
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return difference / largest;
}

// Slots of 3, 2 and no samples against one pass over all five.
TEST(BatchNormPass, SynchronizedPassesAreOnePassOverTheWholeBatch) {
  const Shape image{7, 6, 3};
  const std::int64_t elements = image.elements();
  const std::vector<std::int64_t> slots{3, 2, 0};
  const std::vector<float> input = numbers(5 * elements, 1);
  const std::vector<float> dy = numbers(5 * channels, 2);
  Fixture whole(stack(false)), f(stack(true));

  const auto run = [&](Fixture& fixture, OpContext& context, Allocator& allocator,
                       std::vector<float>& gradients, std::int64_t first, std::int64_t count,
                       SyncGroup* group) {
    PassMemory memory = fixture.memory();
    memory.gradients = gradients;
    Pass pass(context, memory, {.sync = group});
    const Tensor x = Tensor::empty({count, 7, 6, 3}, DType::f32, allocator, "input");
    std::copy_n(input.begin() + first * elements, count * elements, x.data<float>());
    const Value y = fixture.model->forward(pass, pass.input(x));
    std::vector<float> output(y.tensor.values<float>().begin(), y.tensor.values<float>().end());
    const Tensor gradient = Tensor::empty({count, channels}, DType::f32, allocator, "gradient");
    std::copy_n(dy.begin() + first * channels, count * channels, gradient.data<float>());
    pass.backward(y, gradient);
    return output;
  };

  std::vector<float> expected(whole.gradients.size());
  const std::vector<float> output =
      run(whole, whole.context, whole.allocator, expected, 0, 5, nullptr);

  ThreadGroup group(3);
  std::vector<std::vector<float>> gradients(3, std::vector<float>(expected.size())), outputs(3);
  std::vector<std::thread> threads;
  std::int64_t first = 0;
  for (int lane = 0; lane < 3; ++lane) {
    threads.emplace_back([&, lane, first] {
      Allocator allocator("lane");
      OpContext context(allocator, 1);
      context.bind_to_this_thread();
      outputs[lane] =
          run(f, context, allocator, gradients[lane], first, slots[lane], &group.lane(lane));
    });
    first += slots[lane];
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<float> joined;
  for (const auto& part : outputs) joined.insert(joined.end(), part.begin(), part.end());
  ASSERT_EQ(joined.size(), output.size());
  EXPECT_LE(relative_error(joined, output), 1e-5);
  const auto weights = static_cast<std::size_t>(f.layout.weight_elements());
  for (const Parameter* p : f.layout.parameters()) {
    std::vector<float> sum(p->elements()), all(p->elements());
    for (std::int64_t i = 0; i < p->elements(); ++i) {
      for (const auto& part : gradients) sum[i] += part[p->offset + i];
      all[i] = expected[p->offset + i];
    }
    EXPECT_LE(relative_error(sum, all), 1e-5) << p->name;
  }
  // Statistic sums: (count, count * mean, count * variance) of the whole.
  std::vector<float> sums(expected.begin() + weights, expected.end()), found(sums.size());
  for (const auto& part : gradients) {
    for (std::size_t i = 0; i < found.size(); ++i) found[i] += part[weights + i];
  }
  EXPECT_LE(relative_error(found, sums), 1e-6);
}

TEST(BatchNormPass, GroupNormIsTheSameInTrainingAndEvaluation) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    return self.child<GroupNorm>(1).forward(pass, self.child<Conv2d>(0).forward(pass, x));
  });
  model->layer<Conv2d>("conv", 3, channels, 3, ops::Conv2dOptions{.padding = 1});
  model->layer<GroupNorm>("norm", 4, channels);
  Fixture f(std::move(model));
  const Shape shape{2, 5, 5, 3};
  const std::vector<float> input = numbers(shape.elements(), 1);
  const PassResult training = f.run(input, shape);
  EXPECT_EQ(training.finished.size(), 4U);
  EXPECT_EQ(f.run(input, shape, {.training = false}).output, training.output);
  double sum = 0;
  for (const float y : training.output) sum += y;
  EXPECT_NEAR(sum / static_cast<double>(training.output.size()), 0, 1e-5);
}

}  // namespace
}  // namespace dtrain
