// A fixed team of threads for loops over independent blocks (optimizer, norms, copies).
//
// The caller takes part, so a pool of one runs in the calling thread and costs nothing. Which
// thread runs a block never changes a result: blocks are independent, and sums are per block.
//
//   pool.parallel_for(blocks, [&](std::int64_t first, std::int64_t last) { ... });
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dtrain {

class ThreadPool {
 public:
  // threads >= 1, the caller included. Throws DeviceError if the system starts no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Cuts [0, count) into one contiguous range per thread and runs them side by side. Returns when
  // all are done; rethrows the first exception. Not reentrant; one caller at a time.
  void parallel_for(std::int64_t count,
                    const std::function<void(std::int64_t first, std::int64_t last)>& body);

 private:
  void stop();
  void work(int index);
  void run_range(int index);

  std::vector<std::thread> workers_;
  // Of the loop under way; published by generation_, and free again when running_ is 0.
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
  std::int64_t count_ = 0;
  bool stop_ = false;
  std::atomic<std::uint32_t> generation_ = 0;
  std::atomic<int> running_ = 0;  // workers that have not finished
  std::mutex mutex_;
  std::exception_ptr error_;  // the first
};

}  // namespace dtrain
