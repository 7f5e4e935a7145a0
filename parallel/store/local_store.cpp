#include "dtrain/parallel/store/local_store.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <fcntl.h>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Enough for any agreement between ranks; a program that runs away is stopped by it.
constexpr std::uint64_t most_bytes = std::uint64_t{256} << 20;
constexpr std::size_t most_descriptors = 4096;

UniqueFd duplicate(int fd, const std::string& key) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    throw CommError(
        fmt::format("cannot duplicate the descriptor of '{}': {}", key, errno_text(errno)));
  }
  return copy;
}

[[noreturn]] void throw_not_set(const std::string& key) {
  throw CommError(fmt::format("nobody has set '{}' in time", key));
}

}  // namespace

template <typename Ready>
bool LocalStore::wait_for(std::unique_lock<std::mutex>& lock, const Deadline& deadline,
                          Ready ready) {
  while (!ready()) {
    const double left = deadline.left();
    if (left <= 0) return false;
    // In slices: a deadline may be further away than a clock can count.
    set_.wait_for(lock, std::chrono::duration<double>(std::min(left, 3600.0)));
  }
  return true;
}

void LocalStore::notify() {
  set_.notify_all();
  if (changed_) changed_();
}

void LocalStore::set(const std::string& key, const std::string& value) {
  {
    std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    const std::uint64_t before = found == values_.end() ? 0 : key.size() + found->second.size();
    const std::uint64_t after = bytes_ - before + key.size() + value.size();
    if (after > most_bytes) {
      throw CommError(fmt::format("the store is full: '{}' ({} bytes) does not fit into {} bytes",
                                  key, value.size(), most_bytes));
    }
    bytes_ = after;
    values_[key] = value;
  }
  notify();
}

std::string LocalStore::get(const std::string& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, deadline, [&] { return values_.contains(key); })) throw_not_set(key);
  return values_[key];
}

std::int64_t LocalStore::add(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) {
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum);
      if (error != std::errc() || end != text.data() + text.size()) {
        throw CommError(fmt::format("cannot add to '{}': '{:.40}' is not an integer", key, text));
      }
    }
    if (__builtin_add_overflow(sum, amount, &sum)) {
      throw CommError(fmt::format("cannot add {} to '{}': too large", amount, key));
    }
    const std::string text = std::to_string(sum);
    if (found == values_.end()) bytes_ += key.size();
    bytes_ += text.size() - (found == values_.end() ? 0 : found->second.size());
    values_[key] = text;
  }
  notify();
  return sum;
}

bool LocalStore::wait(const std::string& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return wait_for(lock, deadline,
                  [&] { return values_.contains(key) || descriptors_.contains(key); });
}

void LocalStore::remove(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (const auto found = values_.find(key); found != values_.end()) {
    bytes_ -= key.size() + found->second.size();
    values_.erase(found);
  }
  descriptors_.erase(key);
}

void LocalStore::share(const std::string& key, int fd) {
  UniqueFd copy = duplicate(fd, key);
  {
    std::lock_guard lock(mutex_);
    if (descriptors_.size() >= most_descriptors && !descriptors_.contains(key)) {
      throw CommError(
          fmt::format("the store is full: '{}' is the descriptor after {}", key, most_descriptors));
    }
    descriptors_[key] = std::move(copy);
  }
  notify();
}

UniqueFd LocalStore::receive(const std::string& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, deadline, [&] { return descriptors_.contains(key); })) throw_not_set(key);
  return duplicate(descriptors_[key].get(), key);
}

std::optional<std::string> LocalStore::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::optional<UniqueFd> LocalStore::find_descriptor(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = descriptors_.find(key);
  if (found == descriptors_.end()) return std::nullopt;
  return duplicate(found->second.get(), key);
}

bool LocalStore::contains(const std::string& key) const {
  std::lock_guard lock(mutex_);
  return values_.contains(key) || descriptors_.contains(key);
}

std::unique_ptr<DescriptorStore> make_local_store() {
  return std::make_unique<LocalStore>();
}

}  // namespace dtrain
