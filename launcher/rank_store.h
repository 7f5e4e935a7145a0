// The store in which the ranks of a job meet, under a name that cannot be left behind.
//
// A Unix socket can be connected to through a descriptor of its file, also when the file has no
// name any more. So the launcher removes the file at once, and ranks find it under the descriptor
// that they inherit: even a launcher that is killed leaves nothing in the temporary folder.
#pragma once

#include <string>

#include "dtrain/core/base/files.h"
#include "dtrain/parallel/store/unix_store_server.h"

namespace dtrain {

class RankStore {
 public:
  // Throws CommError or std::system_error.
  RankStore();
  // To be inherited by ranks.
  int fd() const { return file_.get(); }
  // What ranks take for the path of the socket.
  std::string path() const;

 private:
  UnixStoreServer server_;
  UniqueFd file_;
};

}  // namespace dtrain
