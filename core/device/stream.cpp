#include "dtrain/core/device/stream.h"

#include <pthread.h>
#include <utility>

#include "dtrain/core/base/threads.h"

namespace dtrain {

Event Event::pending() {
  Event event;
  event.state_ = std::make_shared<State>();
  return event;
}

void Event::complete() const {
  // Notified under the lock: a waiter may destroy its event as soon as it sees `done`.
  std::lock_guard lock(state_->mutex);
  state_->done = true;
  state_->changed.notify_all();
}

bool Event::done() const {
  if (!state_) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Event::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->done; });
}

void InlineStream::submit(std::function<void()> task) {
  if (error_) return;
  try {
    task();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void InlineStream::wait(const Event& event) {
  event.wait();
}

Event InlineStream::record() {
  return {};
}

void InlineStream::synchronize() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

QueueStream::QueueStream(const std::string& name)
    : thread_(start_thread("the thread of stream " + name, [this] { run(); })) {
  ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

QueueStream::~QueueStream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void QueueStream::submit(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back([this, task = std::move(task)] {
      {
        std::lock_guard error_lock(mutex_);
        if (error_) return;
      }
      try {
        task();
      } catch (...) {
        std::lock_guard error_lock(mutex_);
        error_ = std::current_exception();
      }
    });
  }
  arrived_.notify_one();
}

void QueueStream::wait(const Event& event) {
  submit([event] { event.wait(); });
}

Event QueueStream::record() {
  Event event = Event::pending();
  {
    // Not through submit(): the event completes even if a task before it failed, or whoever waits
    // for it would hang.
    std::lock_guard lock(mutex_);
    tasks_.push_back([event] { event.complete(); });
  }
  arrived_.notify_one();
  return event;
}

void QueueStream::synchronize() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return tasks_.empty() && !busy_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void QueueStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    {
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      task();
      // The task's captures are released here, before the stream counts as idle.
    }
    lock.lock();
    busy_ = false;
    if (tasks_.empty()) idle_.notify_all();
  }
}

}  // namespace dtrain
