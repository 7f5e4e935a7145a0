#include "dtrain/parallel/store/unix_store_server.h"

#include <cerrno>
#include <charconv>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/threads.h"

namespace dtrain {

namespace {

constexpr std::size_t most_clients = 4096;
constexpr int queue_of_clients = 1024;
// How long no client is accepted after descriptors ran out.
constexpr int pause_milliseconds = 100;

void ring(int event_fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_fd, &one, sizeof one);
}

std::int64_t parse_amount(const std::string& text) {
  std::int64_t amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw CommError("malformed amount");
  }
  return amount;
}

}  // namespace

UnixStoreServer::UnixStoreServer()
    : address_(make_store_address()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      store_([fd = wake_.get()] { ring(fd); }),
      listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  if (!wake_ || !listener_ || bind_to(address_, listener_.get()) != 0 ||
      ::listen(listener_.get(), queue_of_clients) != 0) {
    throw CommError(
        fmt::format("{}: cannot serve the store there: {}", address_, errno_text(errno)));
  }
  thread_ = start_thread("the store's thread", [this] { serve(); });
}

UnixStoreServer::~UnixStoreServer() {
  stop_.store(true);
  ring(wake_.get());
  thread_.join();
}

void UnixStoreServer::serve() {
  std::vector<pollfd> entries;
  TimePoint paused_until{};
  while (!stop_.load()) {
    entries.clear();
    entries.push_back({wake_.get(), POLLIN, 0});
    const bool accepting = clients_.size() < most_clients && Clock::now() >= paused_until;
    entries.push_back({listener_.get(), static_cast<short>(accepting ? POLLIN : 0), 0});
    for (const Client& client : clients_) {
      // Whoever waits or is being answered has nothing to say; only that it is gone.
      short events = POLLRDHUP;
      if (!client.reply.empty()) events |= POLLOUT;
      if (client.reply.empty() && !client.waiting) events |= POLLIN;
      entries.push_back({client.socket.get(), events, 0});
    }
    const int timeout = accepting ? -1 : pause_milliseconds;
    if (::poll(entries.data(), entries.size(), timeout) < 0) continue;  // EINTR, or no memory

    if (entries[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof count);
    }
    std::size_t i = 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++i) {
      bool stays = false;
      try {
        stays = attend(*client, entries[i].revents);
      } catch (const std::exception&) {
        // Malformed, or more than there is memory for: it is disconnected.
      }
      client = stays ? std::next(client) : clients_.erase(client);
    }
    if (entries[1].revents != 0 && !accept_clients()) {
      paused_until = Clock::now() + std::chrono::milliseconds(pause_milliseconds);
    }
  }
  clients_.clear();
}

bool UnixStoreServer::accept_clients() {
  while (clients_.size() < most_clients) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
    }
    if (same_user(socket.get())) clients_.emplace_back().socket = std::move(socket);
  }
  return true;
}

bool UnixStoreServer::attend(Client& client, short events) {
  const bool gone = (events & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP)) != 0;
  if (!client.reply.empty()) return !gone && ((events & POLLOUT) == 0 || flush(client));
  if (client.waiting) return !gone && answer(client);
  // What a client said before it died still counts: reading tells when there is no more.
  return events == 0 || read_request(client);
}

bool UnixStoreServer::read_request(Client& client) {
  if (receive_some(client.socket.get(), client.reader) == Received::closed) return false;
  client.waiting = client.reader.take();
  return !client.waiting || answer(client);
}

bool UnixStoreServer::answer(Client& client) {
  StoreMessage& request = *client.waiting;
  try {
    switch (static_cast<StoreOperation>(request.code)) {
      case StoreOperation::set:
        store_.set(request.key, request.value);
        put_reply(client, StoreStatus::ok, "");
        break;
      case StoreOperation::get: {
        const auto value = store_.find(request.key);
        if (!value) return true;
        put_reply(client, StoreStatus::ok, *value);
        break;
      }
      case StoreOperation::add:
        put_reply(client, StoreStatus::ok,
                  std::to_string(store_.add(request.key, parse_amount(request.value))));
        break;
      case StoreOperation::wait:
        if (!store_.contains(request.key)) return true;
        put_reply(client, StoreStatus::ok, "");
        break;
      case StoreOperation::share:
        if (!request.fd) return false;
        store_.share(request.key, request.fd.get());
        put_reply(client, StoreStatus::ok, "");
        break;
      case StoreOperation::receive: {
        auto fd = store_.find_descriptor(request.key);
        if (!fd) return true;
        put_reply(client, StoreStatus::ok, "", std::move(*fd));
        break;
      }
      case StoreOperation::remove:
        store_.remove(request.key);
        put_reply(client, StoreStatus::ok, "");
        break;
      default:
        return false;
    }
  } catch (const CommError& e) {
    put_reply(client, StoreStatus::failed, e.what());
  }
  client.waiting.reset();
  return flush(client);
}

void UnixStoreServer::put_reply(Client& client, StoreStatus status, const std::string& value,
                                UniqueFd fd) {
  client.reply = encode(static_cast<std::uint32_t>(status), "", value);
  client.reply_fd = std::move(fd);
}

bool UnixStoreServer::flush(Client& client) {
  const std::ptrdiff_t n = send_some(client.socket.get(), client.reply, client.reply_fd.get());
  if (n < 0) return false;
  if (n > 0) client.reply_fd.reset();
  client.reply.erase(0, static_cast<std::size_t>(n));
  return true;
}

}  // namespace dtrain
