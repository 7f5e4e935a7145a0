// Serves a store to the processes of this node and user, over a Unix socket
// (Note [Socket without a file]).
//
// One thread serves all clients and never blocks on one: requests are bounded and read as they
// come, a client has one request at a time, and whoever sends something malformed, or dies, is
// disconnected and forgotten. When the server is destroyed its clients get a CommError at once.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "dtrain/parallel/store/local_store.h"
#include "dtrain/parallel/store/store_message.h"

namespace dtrain {

class UnixStoreServer {
 public:
  // Throws CommError.
  UnixStoreServer();
  ~UnixStoreServer();
  UnixStoreServer(const UnixStoreServer&) = delete;
  UnixStoreServer& operator=(const UnixStoreServer&) = delete;

  // What a UnixStore connects to.
  const std::string& address() const { return address_; }
  // What is served, for the process that hosts it.
  DescriptorStore& store() { return store_; }

 private:
  struct Client {
    UniqueFd socket;
    StoreMessageReader reader;
    std::optional<StoreMessage> waiting;  // a request whose key is not set yet
    std::string reply;                    // bytes still to send, with the descriptor
    UniqueFd reply_fd;
  };

  void serve();
  // False if there are no descriptors left to do so.
  bool accept_clients();
  // False if the client is to be disconnected.
  bool attend(Client& client, short events);
  bool read_request(Client& client);
  bool answer(Client& client);
  bool flush(Client& client);
  static void put_reply(Client& client, StoreStatus status, const std::string& value,
                        UniqueFd fd = {});

  std::string address_;
  UniqueFd wake_;  // eventfd: the store has changed, or the server stops
  LocalStore store_;
  UniqueFd listener_;
  std::list<Client> clients_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace dtrain
