// A loader whose samples are bad, slow or never come; and that nothing grows while it runs.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "dtrain/core/base/clock.h"
#include "dtrain/data/loader.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

// A gate that readers of one sample wait at.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --waiting_;
    changed_.notify_all();
  }
  void await_reader() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  // Lets all through and returns when they are.
  void open() {
    std::unique_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return waiting_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

// One feature: the sample's number.
class Troubled final : public Dataset {
 public:
  std::set<std::int64_t> bad;  // throw a DataError
  std::int64_t broken = -1;    // throws something else
  std::int64_t blocked = -1;   // waits at the gate
  std::chrono::milliseconds delay{0};
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  mutable std::atomic<std::int64_t> reads{0};

  explicit Troubled(std::int64_t size) : size_(size) {
    spec_.input.shape = Shape{1};
    spec_.target = {DType::i64, Shape{}};
  }
  std::int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    ++reads;
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    if (bad.contains(index)) {
      // What a reader leaves behind before it fails must not be seen.
      std::memset(input.data(), 0xFF, input.size());
      throw DataError("pictures/" + std::to_string(index) + ".jpg", -1, "is cut off");
    }
    if (index == broken) throw std::runtime_error("out of order");
    if (index == blocked) gate->pass();
    const auto value = static_cast<float>(index);
    std::memcpy(input.data(), &value, sizeof value);
    std::memcpy(target.data(), &index, sizeof index);
  }
  std::string origin(std::int64_t index) const override {
    return "pictures/" + std::to_string(index) + ".jpg";
  }
  std::string identity() const override { return ""; }

 private:
  std::int64_t size_;
  SampleSpec spec_;
};

// 10 samples by 4: batches of two micro-batches of 2, the last with one.
constexpr BatchPlan plan{
    .samples = 10, .global = 4, .micro = 2, .accumulate = 2, .virtual_ranks = 1};

std::unique_ptr<Loader> make_loader(const std::shared_ptr<Troubled>& data, LoaderOptions options,
                                    const Allocator& allocator = Allocator("test")) {
  return std::make_unique<Loader>(data, Transforms(), Sampler(data->size(), false, 0), true,
                                  options, allocator);
}

TEST(LoaderTrouble, ABadSampleStopsItsMicroBatchAlone) {
  for (const int workers : {0, 1, 3}) {
    const auto data = std::make_shared<Troubled>(10);
    data->bad = {3};
    const auto loader = make_loader(data, {.workers = workers});
    loader->start({.plan = plan});
    EXPECT_EQ(loader->next(0, 0, 0, 0).ids, (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(error_text([&] { loader->next(0, 0, 0, 1); }), "pictures/3.jpg: is cut off");
    EXPECT_EQ(loader->next(0, 1, 0, 0).ids, (std::vector<std::int64_t>{4, 5}));
    EXPECT_TRUE(loader->take_skipped().empty());
  }
}

TEST(LoaderTrouble, SkippedSamplesLeaveTheirPositionsEmptyAndAreListedOnce) {
  for (const int workers : {0, 1, 3}) {
    const auto data = std::make_shared<Troubled>(10);
    data->bad = {2, 4, 5};
    const auto loader = make_loader(data, {.workers = workers, .skip_bad = true});
    loader->start({.plan = plan, .last_epoch = 2});
    std::vector<std::int64_t> listed;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      for (std::int64_t b = 0; b < 3; ++b) {
        for (std::int64_t m = 0; m < 2; ++m) {
          const MicroBatch batch = loader->next(epoch, b, 0, m);
          const PositionRange range = plan.micro_batch(b, 0, m);
          std::vector<std::int64_t> positions, ids;
          std::vector<float> values;
          for (std::int64_t p = range.first; p < range.last; ++p) {
            if (data->bad.contains(b * 4 + p)) continue;
            positions.push_back(p);
            ids.push_back(b * 4 + p);
            values.push_back(static_cast<float>(b * 4 + p));
          }
          EXPECT_EQ(batch.positions, positions);
          EXPECT_EQ(batch.ids, ids);
          EXPECT_EQ(batch.inputs.shape(), (Shape{batch.size(), 1}));
          const auto inputs = batch.inputs.values<float>();
          EXPECT_EQ(std::vector<float>(inputs.begin(), inputs.end()), values);
          // They are known with the micro-batch that lacks them, however far workers are ahead.
          for (const SkippedSample& sample : loader->take_skipped()) {
            EXPECT_EQ(sample.reason, "pictures/" + std::to_string(sample.id) + ".jpg: is cut off");
            EXPECT_TRUE(sample.id / 4 == b && sample.id % 4 / 2 == m);
            listed.push_back(sample.id);
          }
        }
      }
    }
    EXPECT_EQ(listed, (std::vector<std::int64_t>{2, 4, 5}));
  }
}

TEST(LoaderTrouble, OtherErrorsAreNeverSkipped) {
  for (const int workers : {0, 2}) {
    const auto data = std::make_shared<Troubled>(10);
    data->broken = 0;
    const auto loader = make_loader(data, {.workers = workers, .skip_bad = true});
    loader->start({.plan = plan});
    EXPECT_EQ(error_text<std::runtime_error>([&] { loader->next(0, 0, 0, 0); }), "out of order");
  }
}

// A reader that never comes back: the error names what it reads, and neither stop() nor the
// destructor waits for it. When it does come back, what it uses is still there.
TEST(LoaderTrouble, ABlockedReaderIsNamedAndLeftBehind) {
  auto data = std::make_shared<Troubled>(10);
  data->blocked = 1;
  const std::shared_ptr<Gate> gate = data->gate;
  const std::weak_ptr<Troubled> watched = data;
  auto loader = make_loader(data, {.workers = 2, .timeout = 0.2, .stop_patience = 0.2});
  data.reset();
  loader->start({.plan = plan});
  EXPECT_EQ(error_text([&] { loader->next(0, 0, 0, 0); }),
            "pictures/1.jpg: still being read after 0.2 s (data.timeout); is its file system "
            "reachable? A slow one needs a longer timeout or more data.workers");
  const TimePoint begin = Clock::now();
  loader.reset();
  EXPECT_LT(seconds_since(begin), 30);
  EXPECT_FALSE(watched.expired());
  gate->open();
  for (int i = 0; i < 3000 && !watched.expired(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(watched.expired());
}

// What is late is not its own sample, but the one that keeps all workers busy.
TEST(LoaderTrouble, TheTimeoutNamesTheSampleThatHoldsItUp) {
  const auto data = std::make_shared<Troubled>(10);
  data->blocked = 0;
  const auto loader = make_loader(data, {.workers = 1, .timeout = 0.2});
  loader->start({.plan = plan, .lanes = 1});
  data->gate->await_reader();
  EXPECT_TRUE(error_text([&] {
                loader->next(0, 0, 0, 1);
              }).starts_with("pictures/0.jpg: still being read after 0.2 s"));
  data->gate->open();
}

TEST(LoaderTrouble, StoppingEndsAWaitingCaller) {
  const auto data = std::make_shared<Troubled>(10);
  data->blocked = 0;
  const auto loader = make_loader(data, {.workers = 1, .timeout = 0, .stop_patience = 0.1});
  loader->start({.plan = plan});
  std::thread caller([&] { EXPECT_THROW(loader->next(0, 0, 0, 0), InternalError); });
  data->gate->await_reader();
  // The caller may not wait yet; then it finds the loader stopped.
  loader->stop();
  caller.join();
  data->gate->open();
  // The loader can begin anew.
  loader->start({.plan = plan});
  EXPECT_EQ(loader->next(0, 0, 0, 0).ids, (std::vector<std::int64_t>{0, 1}));
}

TEST(LoaderTrouble, MisuseIsAnError) {
  const auto data = std::make_shared<Troubled>(10);
  const auto loader = make_loader(data, {.workers = 1});
  EXPECT_THROW(loader->next(0, 0, 0, 0), InternalError);
  loader->start({.plan = plan, .last_epoch = 1});
  loader->next(0, 0, 0, 0);
  EXPECT_THROW(loader->next(0, 0, 0, 0), InternalError);  // asked for twice
  EXPECT_THROW(loader->next(1, 0, 0, 0), InternalError);  // behind the last epoch
  EXPECT_THROW(loader->next(0, 0, 1, 0), InternalError);  // of another process
  BatchPlan other = plan;
  other.samples = 11;
  EXPECT_THROW(loader->start({.plan = other}), InternalError);
}

TEST(LoaderTrouble, WorkersReadNoFurtherAheadThanTheBound) {
  const auto data = std::make_shared<Troubled>(1000);
  const auto loader = make_loader(data, {.workers = 2, .prefetch = 3});
  EXPECT_EQ(loader->queue_bound(), 6);
  EXPECT_EQ(loader->queued(), 0);
  loader->start(
      {.plan = {.samples = 1000, .global = 2, .micro = 2, .accumulate = 1, .virtual_ranks = 1}});
  while (data->reads < 12) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Time for a mistaken thirteenth.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(data->reads, 12);
  EXPECT_EQ(loader->queued(), 6);
  loader->next(0, 0, 0, 0);
  while (data->reads < 14) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  loader->stop();
  EXPECT_EQ(loader->queued(), 0);
}

TEST(LoaderTrouble, WaitingIsMeasured) {
  for (const int workers : {0, 1}) {
    const auto data = std::make_shared<Troubled>(10);
    data->delay = std::chrono::milliseconds(20);
    const auto loader = make_loader(data, {.workers = workers});
    loader->start({.plan = plan});
    loader->next(0, 0, 0, 0);
    EXPECT_GT(loader->take_wait_seconds(), 0.01) << workers;
    EXPECT_EQ(loader->take_wait_seconds(), 0);
  }
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Threads and descriptors after each epoch and restart; memory of batches over all of them.
TEST(LoaderTrouble, NothingGrowsOverEpochs) {
  const auto data = std::make_shared<Troubled>(10);
  const Allocator allocator("test");
  const auto loader = make_loader(data, {.workers = 4, .prefetch = 2}, allocator);
  const std::size_t threads_before = entries("/proc/self/task");
  std::set<std::size_t> threads, files;
  for (int start = 0; start < 10; ++start) {
    loader->start({.plan = plan});
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      for (std::int64_t b = 0; b < 3; ++b) {
        for (std::int64_t m = 0; m < 2; ++m) loader->next(epoch, b, 0, m);
      }
      threads.insert(entries("/proc/self/task"));
      files.insert(entries("/proc/self/fd"));
    }
  }
  EXPECT_EQ(threads, std::set<std::size_t>{threads_before + 4});
  EXPECT_EQ(files.size(), 1u);
  // Inputs and targets of the ring's micro-batches, of those being dropped, and the caller's.
  const std::uint64_t most = 2 * static_cast<std::uint64_t>(loader->queue_bound() + 4 + 1);
  EXPECT_LE(allocator.stats().system_calls, most);
  loader->stop();
  EXPECT_EQ(entries("/proc/self/task"), threads_before);
  EXPECT_EQ(allocator.stats().allocated, 0u);
}

}  // namespace
}  // namespace dtrain::test
