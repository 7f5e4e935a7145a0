// Order, errors and events of streams.
#include "dtrain/core/device/stream.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

std::string error_of(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

class Streams : public testing::TestWithParam<std::string> {
 protected:
  Streams() {
    if (GetParam() == "inline") {
      stream_ = std::make_unique<InlineStream>();
    } else {
      stream_ = std::make_unique<QueueStream>("a name longer than 15 characters");
    }
  }
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, Streams, testing::Values("inline", "queue"),
                         [](const auto& info) { return info.param; });

TEST_P(Streams, TasksRunInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) stream_->submit([&order, i] { order.push_back(i); });
  stream_->synchronize();
  ASSERT_EQ(order.size(), 200U);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(Streams, EventCompletesBehindTheTasksBeforeIt) {
  std::atomic<int> done = 0;
  for (int i = 0; i < 20; ++i) stream_->submit([&] { ++done; });
  const Event event = stream_->record();
  event.wait();
  EXPECT_EQ(done, 20);
  EXPECT_TRUE(event.done());
}

TEST_P(Streams, AnErrorIsLatchedAndSkipsWhatIsBehindIt) {
  bool ran = false;
  stream_->submit([] { throw std::runtime_error("first"); });
  stream_->submit([&] { ran = true; });
  stream_->submit([] { throw std::runtime_error("second"); });
  // Behind an error events complete all the same: who waits for one must not hang.
  const Event event = stream_->record();
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_FALSE(ran);
  EXPECT_EQ(error_of(*stream_), "first");
  EXPECT_EQ(error_of(*stream_), "");  // reported once
  stream_->submit([&] { ran = true; });
  EXPECT_EQ(error_of(*stream_), "");
  EXPECT_TRUE(ran);
}

TEST_P(Streams, WaitsForAnotherStream) {
  QueueStream other("other");
  std::atomic<bool> go = false;
  std::atomic<int> value = 0;
  other.submit([&] {
    while (!go) std::this_thread::yield();
    value = 7;
  });
  const Event ready = other.record();
  EXPECT_FALSE(ready.done());
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go = true;
  });
  int seen = -1;
  stream_->wait(ready);
  stream_->submit([&] { seen = value; });
  stream_->synchronize();
  EXPECT_EQ(seen, 7);
  later.join();
}

TEST(Event, OneMadeByDefaultIsComplete) {
  const Event event;
  EXPECT_TRUE(event.done());
  event.wait();
}

TEST(Event, OutlivesItsStream) {
  Event event;
  {
    QueueStream stream("short");
    stream.submit([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    event = stream.record();
  }
  EXPECT_TRUE(event.done());
}

TEST(QueueStream, DestructionFinishesWhatWasSubmitted) {
  std::atomic<int> done = 0;
  {
    QueueStream stream("end");
    for (int i = 0; i < 50; ++i) {
      stream.submit([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++done;
      });
    }
  }
  EXPECT_EQ(done, 50);
}

TEST(QueueStream, DestructionWithAnUnreportedErrorIsQuiet) {
  std::atomic<int> done = 0;
  {
    QueueStream stream("bad");
    stream.submit([] { throw std::runtime_error("lost"); });
    stream.submit([&] { ++done; });
  }
  EXPECT_EQ(done, 0);
}

// What a task captured is gone when synchronize() returns: memory can be counted then.
TEST(QueueStream, ReleasesCapturesBeforeItIsIdle) {
  const auto kept = std::make_shared<int>(1);
  QueueStream stream("captures");
  for (int i = 0; i < 100; ++i) {
    stream.submit([kept] {});
    stream.synchronize();
    ASSERT_EQ(kept.use_count(), 1);
  }
  stream.submit([] { throw std::runtime_error("error"); });
  stream.submit([kept] {});  // skipped
  EXPECT_EQ(error_of(stream), "error");
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(QueueStream, TasksMaySubmitTasks) {
  QueueStream stream("nested");
  std::atomic<int> done = 0;
  stream.submit([&] { stream.submit([&] { ++done; }); });
  stream.synchronize();
  EXPECT_EQ(done, 1);
}

TEST(QueueStream, ManyThreadsSubmit) {
  QueueStream stream("many");
  int sum = 0;  // only the stream's thread changes it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) stream.submit([&] { ++sum; });
      stream.record().wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.synchronize();
  EXPECT_EQ(sum, 400);
}

}  // namespace
}  // namespace dtrain
