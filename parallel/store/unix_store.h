// A client of a UnixStoreServer. Its calls may come from several threads.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "dtrain/parallel/store/store.h"

namespace dtrain {

class UnixStore final : public DescriptorStore {
 public:
  // Connects at once; throws CommError if nobody serves there. `timeout`: seconds that the server
  // may take for what needs no waiting.
  explicit UnixStore(std::string address, double timeout = 60);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool wait(const std::string& key, Deadline deadline) override;
  void remove(const std::string& key) override;
  void share(const std::string& key, int fd) override;
  UniqueFd receive(const std::string& key, Deadline deadline) override;

 private:
  struct Reply {
    bool in_time = false;
    std::string value;
    UniqueFd fd;
  };
  UniqueFd connect() const;
  // Sends a request and waits for its reply. A call that ran into its deadline closes its
  // connection: the server then forgets the request, and no late reply can be taken for another.
  Reply call(std::uint32_t operation, const std::string& key, const std::string& value, int fd,
             const Deadline& deadline);
  Reply call_at_once(std::uint32_t operation, const std::string& key, const std::string& value,
                     int fd = -1);

  std::string address_;
  double timeout_;
  std::mutex mutex_;
  std::vector<UniqueFd> idle_;  // connections without a request
};

}  // namespace dtrain
