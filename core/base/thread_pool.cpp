#include "dtrain/core/base/thread_pool.h"

#include <utility>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/spin.h"
#include "dtrain/core/base/threads.h"

namespace dtrain {

ThreadPool::ThreadPool(int threads) {
  DTRAIN_CHECK(threads >= 1, "a pool of {} threads", threads);
  workers_.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (int i = 1; i < threads; ++i) {
      workers_.push_back(start_thread(fmt::format("thread {} of {} of a pool", i + 1, threads),
                                      [this, i] { work(i); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (workers_.empty() || count <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  body_ = &body;
  count_ = count;
  running_ = static_cast<int>(workers_.size());
  generation_.fetch_add(1);
  generation_.notify_all();
  run_range(0);
  for (int left = running_; left > 0; left = running_) wait_while(running_, left);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::run_range(int index) {
  const std::int64_t first = count_ * index / threads();
  const std::int64_t last = count_ * (index + 1) / threads();
  if (first == last) return;
  try {
    (*body_)(first, last);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::work(int index) {
  for (std::uint32_t seen = 0;; ++seen) {
    wait_while(generation_, seen);
    if (stop_) return;
    run_range(index);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

}  // namespace dtrain
