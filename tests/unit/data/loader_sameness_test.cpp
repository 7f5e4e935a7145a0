// What a loader gives is the same for any number of workers, lanes and processes, and from wherever
// it begins.
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "dtrain/data/loader.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

// Images [4, 4, 1] whose pixels say which sample they are of.
class Images final : public Dataset {
 public:
  explicit Images(std::int64_t size) : size_(size) {
    spec_.input.shape = Shape{4, 4, 1};
    spec_.target = {DType::i64, Shape{}};
  }
  std::int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    ++reads_;
    float pixels[16];
    for (int k = 0; k < 16; ++k) pixels[k] = static_cast<float>(index * 16 + k + 1);
    std::memcpy(input.data(), pixels, sizeof pixels);
    std::memcpy(target.data(), &index, sizeof index);
  }
  std::string origin(std::int64_t index) const override { return std::to_string(index); }
  std::string identity() const override { return ""; }
  std::int64_t reads() const { return reads_; }

 private:
  std::int64_t size_;
  SampleSpec spec_;
  mutable std::atomic<std::int64_t> reads_{0};
};

// (epoch, batch, position) -> what stood there.
struct Loaded {
  std::int64_t id;
  std::int64_t target;
  std::vector<float> input;
  friend bool operator==(const Loaded&, const Loaded&) = default;
};
using Loads = std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Loaded>;

constexpr std::int64_t samples = 37;
constexpr std::int64_t epochs = 3;
// Batches of 12: the last one of an epoch has one sample.
constexpr BatchPlan plan{
    .samples = samples, .global = 12, .micro = 2, .accumulate = 2, .virtual_ranks = 3};

std::unique_ptr<Loader> make_loader(const std::shared_ptr<Images>& data, int workers,
                                    std::uint64_t seed = 3) {
  config::Transforms options;
  options.set_crop_padding(1);
  options.set_flip(true);
  return std::make_unique<Loader>(
      data, Transforms(options, data->spec(), seed), Sampler(data->size(), true, seed), true,
      LoaderOptions{.workers = workers, .prefetch = 2}, Allocator("test"));
}

// Runs the lanes of one process as threads.
void run_lanes(Loader& loader, const LoadRequest& request, std::mutex& mutex, Loads& run) {
  std::vector<std::thread> lanes;
  for (std::int64_t lane = 0; lane < request.lanes; ++lane) {
    lanes.emplace_back([&, lane] {
      for (std::int64_t e = request.epoch; e < request.last_epoch; ++e) {
        const std::int64_t first = e == request.epoch ? request.batch_in_epoch : 0;
        for (std::int64_t b = first; b < plan.batches_per_epoch(); ++b) {
          for (std::int64_t v = request.first_virtual_rank + lane; v < request.last_virtual_rank;
               v += request.lanes) {
            for (std::int64_t m = 0; m < plan.accumulate; ++m) {
              const MicroBatch batch = loader.next(e, b, v, m);
              EXPECT_EQ(batch.inputs.shape(), (Shape{batch.size(), 4, 4, 1}));
              EXPECT_EQ(batch.targets.shape(), Shape{batch.size()});
              const std::lock_guard lock(mutex);
              for (std::int64_t i = 0; i < batch.size(); ++i) {
                const auto row = static_cast<std::size_t>(i);
                const auto pixels = batch.inputs.values<float>().subspan(row * 16, 16);
                const bool is_new = run.emplace(std::tuple(e, b, batch.positions[row]),
                                                Loaded{batch.ids[row],
                                                       batch.targets.values<std::int64_t>()[row],
                                                       {pixels.begin(), pixels.end()}})
                                        .second;
                EXPECT_TRUE(is_new);
              }
            }
          }
        }
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
}

// As many processes as `ranks`, each with its range of virtual ranks.
Loads load(int workers, int lanes, int ranks, std::uint64_t seed = 3, std::int64_t epoch = 0,
           std::int64_t batch = 0) {
  Loads run;
  std::mutex mutex;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto data = std::make_shared<Images>(samples);
    const std::unique_ptr<Loader> loader = make_loader(data, workers, seed);
    const LoadRequest request{.plan = plan,
                              .epoch = epoch,
                              .batch_in_epoch = batch,
                              .last_epoch = epochs,
                              .first_virtual_rank = plan.virtual_ranks * rank / ranks,
                              .last_virtual_rank = plan.virtual_ranks * (rank + 1) / ranks,
                              .lanes = lanes};
    loader->start(request);
    run_lanes(*loader, request, mutex, run);
    EXPECT_EQ(loader->queued(), 0);
  }
  return run;
}

TEST(LoaderSameness, WorkersLanesAndProcessesChangeNothing) {
  const Loads expected = load(0, 1, 1);
  EXPECT_EQ(expected.size(), static_cast<std::size_t>(samples * epochs));
  for (const int workers : {0, 1, 4}) {
    for (const int lanes : {1, 2, 3}) {
      for (const int ranks : {1, 2, 3}) {
        EXPECT_EQ(load(workers, lanes, ranks), expected) << workers << lanes << ranks;
      }
    }
  }
  EXPECT_NE(load(1, 1, 1, 4), expected);
}

TEST(LoaderSameness, EveryEpochHasEachSampleOnceInAnotherOrder) {
  const Loads run = load(2, 2, 2);
  std::map<std::int64_t, std::vector<std::int64_t>> orders;
  for (const auto& [where, sample] : run) {
    orders[std::get<0>(where)].push_back(sample.id);
    EXPECT_EQ(sample.target, sample.id);
  }
  ASSERT_EQ(orders.size(), 3u);
  for (const auto& [epoch, ids] : orders) {
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), static_cast<std::size_t>(samples));
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(samples));
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(LoaderSameness, ARunThatBeginsLaterGoesOnAlike) {
  Loads expected = load(1, 1, 1);
  std::erase_if(expected, [](const auto& entry) {
    const auto& [e, b, p] = entry.first;
    return std::pair(e, b) < std::pair<std::int64_t, std::int64_t>(1, 2);
  });
  EXPECT_EQ(load(0, 1, 1, 3, 1, 2), expected);
  EXPECT_EQ(load(4, 3, 1, 3, 1, 2), expected);
  // Behind the last batch of an epoch begins the next.
  std::erase_if(expected, [](const auto& entry) { return std::get<0>(entry.first) < 2; });
  EXPECT_EQ(load(2, 1, 3, 3, 1, 4), expected);
}

// Resuming reads nothing of what was done before.
TEST(LoaderSameness, BeginningLateReadsOnlyWhatFollows) {
  const auto data = std::make_shared<Images>(50'000'000);
  Loader loader(data, Transforms(), Sampler(data->size(), true, 3), true,
                {.workers = 2, .prefetch = 2}, Allocator("test"));
  const BatchPlan large{
      .samples = data->size(), .global = 8, .micro = 4, .accumulate = 1, .virtual_ranks = 2};
  const std::int64_t batch = large.batches_per_epoch() * 9 / 10;
  loader.start({.plan = large, .epoch = 2, .batch_in_epoch = batch, .last_virtual_rank = 2});
  EXPECT_EQ(loader.next(2, batch, 0, 0).ids[3],
            Sampler(data->size(), true, 3).sample(2, batch * 8 + 3));
  loader.stop();
  // What was asked for, and at most the queue's bound ahead of it.
  EXPECT_LE(data->reads(), (1 + loader.queue_bound()) * 4);
}

TEST(LoaderSameness, WithoutTrainingNothingIsRandom) {
  const auto data = std::make_shared<Images>(samples);
  config::Transforms options;
  options.set_crop_padding(1);
  options.set_flip(true);
  Loader loader(data, Transforms(options, data->spec(), 3), Sampler(samples, false, 3), false,
                {.workers = 2}, Allocator("test"));
  loader.start({.plan = plan, .last_epoch = 1, .last_virtual_rank = 3});
  const MicroBatch batch = loader.next(0, 0, 0, 1);
  EXPECT_EQ(batch.ids, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(batch.inputs.values<float>()[16], 49.0f);
}

}  // namespace
}  // namespace dtrain::test
