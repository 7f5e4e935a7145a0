// What goes over the socket between a store's clients and its server.
//
// A message is a header of four 32-bit words in the machine's byte order (both ends run on one
// machine), a key and a value. A client sends one request and waits for its reply; a request that
// must wait for a key is answered when the key is set. A descriptor, if any, comes with the first
// byte. Whoever sends what does not fit is disconnected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dtrain/core/base/files.h"

namespace dtrain {

enum class StoreOperation : std::uint32_t { set = 1, get, add, wait, share, receive, remove };
enum class StoreStatus : std::uint32_t { ok = 100, failed };

struct StoreMessage {
  std::uint32_t code = 0;  // StoreOperation or StoreStatus
  std::string key;
  std::string value;
  UniqueFd fd;
};

constexpr std::uint32_t most_key_bytes = 4096;
constexpr std::uint32_t most_value_bytes = 16u << 20;

std::string encode(std::uint32_t code, const std::string& key, const std::string& value);

// Takes bytes as they come and gives back messages when they are whole.
class StoreMessageReader {
 public:
  // Throws CommError if this cannot be the beginning of a message.
  void add(std::span<const char> bytes);
  // At most one descriptor waits for its message; others are closed.
  void add_descriptor(UniqueFd fd);
  // The message, once all of it is there. Throws CommError if more follows it.
  std::optional<StoreMessage> take();

 private:
  std::string bytes_;
  UniqueFd fd_;
};

enum class Received { bytes, nothing, closed };
// Reads what is there, without blocking; descriptors are received close-on-exec.
Received receive_some(int socket, StoreMessageReader& reader);

// Sends without blocking and without SIGPIPE; the descriptor (or -1) goes with the first byte.
// Returns how many bytes were taken, -1 if the peer is gone.
std::ptrdiff_t send_some(int socket, std::span<const char> bytes, int fd);

// Note [Socket without a file]: the socket has an abstract name, "@dtrain-store-" and 32 random hex
// digits: no file, so that even a process that gets SIGKILL leaves nothing behind. Such a name has
// no permissions, so each end asks the kernel who is at the other (same_user) before it says a
// word.
std::string make_store_address();
// As ::bind and ::connect; EINVAL for what is no such address.
int bind_to(const std::string& address, int socket);
int connect_to(const std::string& address, int socket);
// Whether the process at the other end runs as this user.
bool same_user(int socket);

}  // namespace dtrain
