#include "dtrain/parallel/store/unix_store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/store/store_message.h"

namespace dtrain {

namespace {

std::uint32_t code(StoreOperation operation) {
  return static_cast<std::uint32_t>(operation);
}

// False if the deadline passed first.
bool wait_for_socket(int socket, short events, const Deadline& deadline) {
  while (true) {
    const double left = deadline.left();
    pollfd entry{socket, events, 0};
    const int milliseconds = static_cast<int>(std::ceil(std::min(left, 60.0) * 1e3));
    const int ready = ::poll(&entry, 1, milliseconds);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      throw CommError(fmt::format("the store's connection failed: {}", errno_text(errno)));
    }
    if (left <= 0) return false;
  }
}

[[noreturn]] void throw_late(const std::string& key) {
  throw CommError(fmt::format("nobody has set '{}' in time", key));
}

}  // namespace

UnixStore::UnixStore(std::string address, double timeout)
    : address_(std::move(address)), timeout_(timeout) {
  idle_.push_back(connect());
}

UniqueFd UnixStore::connect() const {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw CommError(fmt::format("cannot make a socket: {}", errno_text(errno)));
  const Deadline deadline(timeout_);
  while (connect_to(address_, socket.get()) != 0) {
    // The server's queue is full: it takes its clients in turn.
    const bool busy = errno == EAGAIN || errno == EINTR;
    if (!busy || deadline.passed()) {
      throw CommError(
          fmt::format("the store at {} cannot be reached: {}", address_, errno_text(errno)));
    }
    ::poll(nullptr, 0, 5);
  }
  if (!same_user(socket.get())) {
    throw CommError(fmt::format("the store at {} is served by another user", address_));
  }
  return socket;
}

UnixStore::Reply UnixStore::call(std::uint32_t operation, const std::string& key,
                                 const std::string& value, int fd, const Deadline& deadline) {
  UniqueFd socket;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      socket = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!socket) socket = connect();

  const auto gone = [&] {
    return CommError(
        fmt::format("the store at {} is gone (while waiting for '{}')", address_, key));
  };
  const std::string request = encode(operation, key, value);
  for (std::size_t sent = 0; sent < request.size();) {
    const std::ptrdiff_t n =
        send_some(socket.get(), std::span(request).subspan(sent), sent == 0 ? fd : -1);
    if (n < 0) throw gone();
    sent += static_cast<std::size_t>(n);
    if (n == 0 && !wait_for_socket(socket.get(), POLLOUT, deadline)) return {};
  }
  StoreMessageReader reader;
  std::optional<StoreMessage> reply;
  while (!(reply = reader.take())) {
    if (!wait_for_socket(socket.get(), POLLIN, deadline)) return {};
    if (receive_some(socket.get(), reader) == Received::closed) throw gone();
  }
  {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  }
  if (reply->code != static_cast<std::uint32_t>(StoreStatus::ok)) throw CommError(reply->value);
  return {true, std::move(reply->value), std::move(reply->fd)};
}

UnixStore::Reply UnixStore::call_at_once(std::uint32_t operation, const std::string& key,
                                         const std::string& value, int fd) {
  Reply reply = call(operation, key, value, fd, Deadline(timeout_));
  if (!reply.in_time) {
    throw CommError(fmt::format("the store at {} has not answered for {} s (key '{}')", address_,
                                timeout_, key));
  }
  return reply;
}

void UnixStore::set(const std::string& key, const std::string& value) {
  call_at_once(code(StoreOperation::set), key, value);
}

std::string UnixStore::get(const std::string& key, Deadline deadline) {
  Reply reply = call(code(StoreOperation::get), key, "", -1, deadline);
  if (!reply.in_time) throw_late(key);
  return std::move(reply.value);
}

std::int64_t UnixStore::add(const std::string& key, std::int64_t amount) {
  const Reply reply = call_at_once(code(StoreOperation::add), key, std::to_string(amount));
  std::int64_t sum = 0;
  const char* end = reply.value.data() + reply.value.size();
  if (std::from_chars(reply.value.data(), end, sum).ptr != end || reply.value.empty()) {
    throw CommError(fmt::format("the store answered '{:.40}' for '{}'", reply.value, key));
  }
  return sum;
}

bool UnixStore::wait(const std::string& key, Deadline deadline) {
  return call(code(StoreOperation::wait), key, "", -1, deadline).in_time;
}

void UnixStore::remove(const std::string& key) {
  call_at_once(code(StoreOperation::remove), key, "");
}

void UnixStore::share(const std::string& key, int fd) {
  call_at_once(code(StoreOperation::share), key, "", fd);
}

UniqueFd UnixStore::receive(const std::string& key, Deadline deadline) {
  Reply reply = call(code(StoreOperation::receive), key, "", -1, deadline);
  if (!reply.in_time) throw_late(key);
  if (!reply.fd) throw CommError(fmt::format("the store gave no descriptor for '{}'", key));
  return std::move(reply.fd);
}

}  // namespace dtrain
