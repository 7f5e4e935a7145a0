// The key-value store in which ranks meet: addresses, agreements and failure reports go through
// it, never tensors.
//
// A StoreServer is hosted by the launcher (or a test); each rank holds a client. On one node it is
// a Unix socket without a file: no port, nothing for two jobs to fight over. Descriptors can
// be passed too: that is how ranks come to share memory that has no name.
//
//   UnixStoreServer server;                          // in the launcher (unix_store_server.h)
//   UnixStore store(server.address());           // in each rank (unix_store.h)
//   store.set("address/0", "...");
//   std::string address = store.get("address/0", Deadline(60));   // waits until it is set
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/files.h"

namespace dtrain {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is set. Throws CommError naming the key when the deadline passes, or when
  // the server is gone.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  // Adds to an integer that starts at 0; returns the sum. The sum is readable with get, as text.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Waits until the key is set, without reading it. False if the deadline passed first.
  virtual bool wait(const std::string& key, Deadline deadline) = 0;
  // Forgets a key, value or descriptor; nothing happens if it is not there.
  virtual void remove(const std::string& key) = 0;
};

// A store that passes descriptors between the processes of a node.
class DescriptorStore : public Store {
 public:
  // Lets others receive a duplicate of `fd`, any number of times, also after this process ended.
  // The store holds one until the key is removed.
  virtual void share(const std::string& key, int fd) = 0;
  virtual UniqueFd receive(const std::string& key, Deadline deadline) = 0;
};

// A store for threads of one process.
std::unique_ptr<DescriptorStore> make_local_store();

}  // namespace dtrain
