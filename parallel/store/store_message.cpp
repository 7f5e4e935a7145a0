#include "dtrain/parallel/store/store_message.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr std::uint32_t message_magic = 0x64747231;

struct Header {
  std::uint32_t magic;
  std::uint32_t code;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
};

// Calls `use(sockaddr, length)` with an abstract address, whose first byte is 0 where the text has
// @.
template <typename Use>
int with_sockaddr(const std::string& text, Use use) {
  sockaddr_un address{};
  if (text.size() < 2 || text[0] != '@' || text.size() > sizeof address.sun_path) {
    errno = EINVAL;
    return -1;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, text.data() + 1, text.size() - 1);
  return use(reinterpret_cast<const sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size()));
}

}  // namespace

std::string encode(std::uint32_t code, const std::string& key, const std::string& value) {
  if (key.size() > most_key_bytes || value.size() > most_value_bytes) {
    throw CommError(fmt::format("'{:.40}' with {} bytes is too large for the store ({} at most)",
                                key, value.size(), most_value_bytes));
  }
  const Header header{message_magic, code, static_cast<std::uint32_t>(key.size()),
                      static_cast<std::uint32_t>(value.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes + key + value;
}

void StoreMessageReader::add(std::span<const char> bytes) {
  bytes_.append(bytes.data(), bytes.size());
  if (bytes_.size() < sizeof(Header)) return;
  Header header;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (header.magic != message_magic || header.key_bytes > most_key_bytes ||
      header.value_bytes > most_value_bytes ||
      bytes_.size() > sizeof header + header.key_bytes + header.value_bytes) {
    throw CommError("malformed message");
  }
}

void StoreMessageReader::add_descriptor(UniqueFd fd) {
  if (!fd_) fd_ = std::move(fd);
}

std::optional<StoreMessage> StoreMessageReader::take() {
  if (bytes_.size() < sizeof(Header)) return std::nullopt;
  Header header;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (bytes_.size() < sizeof header + header.key_bytes + header.value_bytes) return std::nullopt;
  StoreMessage message;
  message.code = header.code;
  message.key = bytes_.substr(sizeof header, header.key_bytes);
  message.value = bytes_.substr(sizeof header + header.key_bytes);
  message.fd = std::move(fd_);
  bytes_.clear();
  return message;
}

Received receive_some(int socket, StoreMessageReader& reader) {
  std::array<char, 1 << 16> buffer;
  constexpr std::size_t most_descriptors = 8;  // more are cut off, and closed, by the kernel
  alignas(cmsghdr) std::array<char, CMSG_SPACE(most_descriptors * sizeof(int))> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Received::nothing : Received::closed;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      reader.add_descriptor(UniqueFd(fd));
    }
  }
  if (n == 0) return Received::closed;
  reader.add({buffer.data(), static_cast<std::size_t>(n)});
  return Received::bytes;
}

std::ptrdiff_t send_some(int socket, std::span<const char> bytes, int fd) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  ssize_t n = 0;
  do {
    n = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  return n;
}

std::string make_store_address() {
  std::array<std::uint64_t, 2> random{};
  if (::getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    throw CommError(fmt::format("no random name for the store: {}", errno_text(errno)));
  }
  return fmt::format("@dtrain-store-{:016x}{:016x}", random[0], random[1]);
}

int bind_to(const std::string& address, int socket) {
  return with_sockaddr(address, [&](const sockaddr* name, socklen_t length) {
    return ::bind(socket, name, length);
  });
}

int connect_to(const std::string& address, int socket) {
  return with_sockaddr(address, [&](const sockaddr* name, socklen_t length) {
    return ::connect(socket, name, length);
  });
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace dtrain
