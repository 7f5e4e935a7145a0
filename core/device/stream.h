// Streams and events, on the CPU as on an accelerator: a stream runs its tasks in order, beside
// the thread that submits them; an event marks a point in a stream that others can wait for.
//
//   QueueStream communication("comm");
//   Event ready = compute.record();
//   communication.wait(ready);
//   communication.submit([&] { sum(bucket); });
//   communication.synchronize();          // rethrows what a task threw
//
// After a task threw, the tasks behind it are skipped until synchronize() has reported it, so that
// nothing works on the result of what failed.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace dtrain {

// A point in a stream. Copies share it. A default-made event is complete.
class Event {
 public:
  Event() = default;
  bool done() const;
  // Blocks the calling thread; never throws the stream's error.
  void wait() const;

 private:
  friend class InlineStream;
  friend class QueueStream;
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  static Event pending();
  void complete() const;
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void submit(std::function<void()> task) = 0;
  // Later tasks start only after `event`.
  virtual void wait(const Event& event) = 0;
  // An event that completes when all tasks so far have run.
  virtual Event record() = 0;
  // Returns when all tasks so far have run; throws the first error since the last call.
  virtual void synchronize() = 0;
};

// Runs each task at once in the calling thread: where there is nothing to overlap.
class InlineStream final : public Stream {
 public:
  void submit(std::function<void()> task) override;
  void wait(const Event& event) override;
  Event record() override;
  void synchronize() override;

 private:
  std::exception_ptr error_;
};

// An ordered queue with a thread of its own. The destructor finishes what was submitted.
class QueueStream final : public Stream {
 public:
  // `name` shows in debuggers and /proc; at most 15 characters.
  explicit QueueStream(const std::string& name);
  ~QueueStream() override;
  void submit(std::function<void()> task) override;
  void wait(const Event& event) override;
  Event record() override;
  void synchronize() override;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace dtrain
