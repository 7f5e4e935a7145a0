// The data of a store, in this process: what threads meet in, and what a server serves.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "dtrain/parallel/store/store.h"

namespace dtrain {

class LocalStore final : public DescriptorStore {
 public:
  // `changed` is called after each change, by the thread that made it.
  explicit LocalStore(std::function<void()> changed = nullptr) : changed_(std::move(changed)) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool wait(const std::string& key, Deadline deadline) override;
  void remove(const std::string& key) override;
  void share(const std::string& key, int fd) override;
  UniqueFd receive(const std::string& key, Deadline deadline) override;

  // Without waiting: the value, or a duplicate of the descriptor; nothing if it is not set.
  std::optional<std::string> find(const std::string& key) const;
  std::optional<UniqueFd> find_descriptor(const std::string& key) const;
  bool contains(const std::string& key) const;

 private:
  void notify();
  // Waits for `ready` under the lock; false if the deadline passed.
  template <typename Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Ready ready);

  std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable set_;
  std::map<std::string, std::string> values_;
  std::map<std::string, UniqueFd> descriptors_;
  std::uint64_t bytes_ = 0;  // of keys and values
};

}  // namespace dtrain
