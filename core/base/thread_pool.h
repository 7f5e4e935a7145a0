// A fixed team of threads for loops over independent blocks (optimizer, norms, copies).
//
// The caller takes part, so a pool of one runs in the calling thread and costs nothing. Which
// thread runs a block never changes a result: blocks are independent, and sums are per block.
//
//   pool.parallel_for(blocks, [&](std::int64_t first, std::int64_t last) { ... });
#pragma once

#include <condition_variable>
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
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable finish_;
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

}  // namespace dtrain
